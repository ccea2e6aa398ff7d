package builtin_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/actor/builtin"
)

func start(t *testing.T) (context.Context, *chainmail.Node) {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(done)
	n, err := chainmail.Start(ctx, chainmail.Config{Dev: true, Types: builtin.Types()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return ctx, n
}

func TestLock(t *testing.T) {
	ctx, n := start(t)
	a, err := builtin.Acquire.Ask(ctx, n, "l", builtin.Want{Holder: "a", TTL: 60_000})
	if err != nil || a.Token != 1 {
		t.Fatal(a, err)
	}
	if _, err := builtin.Acquire.Ask(ctx, n, "l", builtin.Want{Holder: "b", TTL: 1000}); !errors.Is(err, builtin.ErrHeld) {
		t.Errorf("a held lock is given to another: %v", err)
	}
	if again, err := builtin.Acquire.Ask(ctx, n, "l", builtin.Want{Holder: "a", TTL: 1}); err != nil || again.Token != 1 {
		t.Error(again, err)
	}
	var b builtin.Lease
	for b.Token == 0 && ctx.Err() == nil { // until a's lease has run out
		b, err = builtin.Acquire.Ask(ctx, n, "l", builtin.Want{Holder: "b", TTL: 60_000})
	}
	if err != nil || b.Token != 2 {
		t.Fatal(b, err)
	}
	if _, err := builtin.Release.Ask(ctx, n, "l", a); !errors.Is(err, builtin.ErrNoHold) {
		t.Errorf("a lease that ran out is released: %v", err)
	}
	if _, err := builtin.Release.Ask(ctx, n, "l", b); err != nil {
		t.Error(err)
	}
	if h, err := builtin.Holder.Ask(ctx, n, "l", actor.None{}); err != nil || h.Holder != "" || h.Token != 2 {
		t.Error(h, err)
	}
	for _, w := range []builtin.Want{{}, {Holder: "x"}, {Holder: "x", TTL: -1}, {Holder: "x", TTL: 1 << 40}, {TTL: 5}} {
		if _, err := builtin.Acquire.Ask(ctx, n, "l", w); !errors.Is(err, builtin.ErrTTL) {
			t.Errorf("%+v gives %v", w, err)
		}
	}
}

func TestQueue(t *testing.T) {
	ctx, n := start(t)
	for i := range 3 {
		if id, err := builtin.Push.Ask(ctx, n, "q", builtin.Item{Data: fmt.Sprint(i)}); err != nil || id != uint64(i+1) {
			t.Fatal(id, err)
		}
	}
	take := func(within int64, most int) []builtin.Delivery {
		t.Helper()
		out, err := builtin.Pull.Ask(ctx, n, "q", builtin.Take{Within: within, Most: most})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := take(1, 2)
	if fmt.Sprint(first) != "[{1 {0 1}} {2 {1 1}}]" {
		t.Error(first)
	}
	again := []builtin.Delivery{}
	for ctx.Err() == nil && (len(again) == 0 || again[0].ID != 1) { // until their time is up
		again = take(60_000, 1)
		if len(again) > 0 && again[0].ID == 3 {
			if _, err := builtin.Nack.Ask(ctx, n, "q", 3); err != nil {
				t.Fatal(err)
			}
		}
	}
	if again[0].Item.Tries != 2 {
		t.Error(again)
	}
	if _, err := builtin.Ack.Ask(ctx, n, "q", 1); err != nil {
		t.Error(err)
	}
	if _, err := builtin.Ack.Ask(ctx, n, "q", 1); !errors.Is(err, builtin.ErrNotTaken) {
		t.Errorf("an item is acknowledged twice: %v", err)
	}
	if l, err := builtin.Length.Ask(ctx, n, "q", actor.None{}); err != nil || l.Waiting+l.Taken != 2 {
		t.Error(l, err)
	}
	if _, err := builtin.Pull.Ask(ctx, n, "q", builtin.Take{}); !errors.Is(err, builtin.ErrWithin) {
		t.Error(err)
	}
}

func TestMap(t *testing.T) {
	ctx, n := start(t)
	for _, k := range []string{"b", "a", "c"} {
		if _, err := builtin.Set.Ask(ctx, n, "m", builtin.Entry{Key: k, Value: "v" + k}); err != nil {
			t.Fatal(err)
		}
	}
	if v, err := builtin.Get.Ask(ctx, n, "m", "b"); err != nil || v != "vb" {
		t.Error(v, err)
	}
	if _, err := builtin.Get.Ask(ctx, n, "m", "x"); !errors.Is(err, builtin.ErrNoEntry) {
		t.Error(err)
	}
	if had, err := builtin.Remove.Ask(ctx, n, "m", "b"); err != nil || !had {
		t.Error(had, err)
	}
	list, err := builtin.List.Ask(ctx, n, "m", builtin.Range{After: "a"})
	if err != nil || fmt.Sprint(list) != "[{c vc}]" {
		t.Error(list, err)
	}
	if size, err := builtin.Size.Ask(ctx, n, "m", actor.None{}); err != nil || size != 2 {
		t.Error(size, err)
	}
	if _, err := builtin.Set.Ask(ctx, n, "m", builtin.Entry{}); !errors.Is(err, builtin.ErrKey) {
		t.Error(err)
	}
}
