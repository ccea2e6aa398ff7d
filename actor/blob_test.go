package actor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// A Blob is at most as long as a state: what would be longer is refused at once, whatever the numbers, and nothing walks
// over blocks that were never written.
func TestBlobIsBounded(t *testing.T) {
	const limit = 64 << 10
	type doc struct{ B actor.Blob }
	typ := actor.NewType("doc", actor.Options[doc]{})
	truncate := actor.Handle(typ, "truncate", func(_ context.Context, d *doc, n int64) (int64, error) {
		err := d.B.Truncate(n)
		return d.B.Size(), err
	})
	write := actor.Handle(typ, "write", func(_ context.Context, d *doc, at int64) (int64, error) {
		_, err := d.B.WriteAt([]byte("0123456789"), at)
		return d.B.Size(), err
	})
	swap := actor.Handle(typ, "swap", func(_ context.Context, d *doc, n int64) (int64, error) {
		var b actor.Blob
		if err := b.Truncate(n); err != nil {
			return 0, err
		}
		d.B = b
		return n, nil
	})
	read := actor.Query(typ, "read", func(_ context.Context, d *doc, _ actor.None) (string, error) {
		return fmt.Sprintf("%d %q", d.B.Size(), strings.TrimRight(string(d.B.Bytes()), "\x00")), nil
	})
	c := chainmailtest.New(t, chainmailtest.Options{Members: 1, Types: []actor.Registered{typ}, Config: func(_ int, cfg *chainmail.Config) { cfg.Limits.State = limit }})
	ctx := within(t, 10*time.Second)
	must(write.Ask(ctx, c, "a", 0))
	for what, ask := range map[string]func() (int64, error){
		"truncate above the limit":  func() (int64, error) { return truncate.Ask(ctx, c, "a", limit+1) },
		"truncate to 2^41":          func() (int64, error) { return truncate.Ask(ctx, c, "a", 1<<41) },
		"truncate to the most":      func() (int64, error) { return truncate.Ask(ctx, c, "a", math.MaxInt64) },
		"write across the limit":    func() (int64, error) { return write.Ask(ctx, c, "a", limit-9) },
		"write beyond the numbers":  func() (int64, error) { return write.Ask(ctx, c, "a", math.MaxInt64-3) },
		"another blob that is long": func() (int64, error) { return swap.Ask(ctx, c, "a", 1<<29) },
	} {
		if n, err := ask(); !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "65536") {
			t.Errorf("%s: %d, %v", what, n, err)
		}
		if s, err := read.Ask(ctx, c, "a", actor.None{}); s != `10 "0123456789"` || err != nil {
			t.Errorf("after %s the blob is %s, %v", what, s, err)
		}
	}
	if n, err := truncate.Ask(ctx, c, "a", limit); n != limit || err != nil {
		t.Errorf("truncate to the limit: %d, %v", n, err)
	}
	if n, err := truncate.Ask(ctx, c, "a", 3); n != 3 || err != nil {
		t.Errorf("truncate: %d, %v", n, err)
	}
	if s := must(read.Ask(ctx, c, "a", actor.None{})); s != `3 "012"` {
		t.Errorf("then the blob is %s", s)
	}
}

// In memory a Blob is bounded too.
func TestBlobInMemory(t *testing.T) {
	var b actor.Blob
	if err := b.Truncate(1<<40 + 1); err == nil {
		t.Error("a size of 1 TiB is taken")
	}
	if _, err := b.WriteAt([]byte("xyz"), math.MaxInt64-1); err == nil {
		t.Error("a write beyond all numbers is taken")
	}
	began := time.Now()
	for range 1000 {
		if err := errors.Join(b.Truncate(1<<30), b.Truncate(0)); err != nil {
			t.Fatal(err)
		}
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("to truncate what was never written took %s", d)
	}
	b.WriteAt([]byte("end"), 1<<30-3)
	tail := make([]byte, 4)
	if n, err := b.ReadAt(tail, 1<<30-4); n != 4 || err != nil || string(tail) != "\x00end" {
		t.Errorf("the tail is %q, %d, %v", tail, n, err)
	}
	if n, err := b.ReadAt(tail, 1<<30-2); n != 2 || err != io.EOF {
		t.Errorf("across the end: %d, %v", n, err)
	}
}
