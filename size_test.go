package chainmail_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
	"chainmail/engine/core"
)

// A key that is as full as it may be is still taken over, also if it is full of small entries: all of it fits one message.
func TestFullKeyIsTakenOver(t *testing.T) {
	type doc struct{ M actor.Map[string, bool] }
	typ := actor.NewType("doc", actor.Options[doc]{})
	fill := actor.Handle(typ, "fill", func(_ context.Context, d *doc, first int) (int, error) {
		for i := first; i < first+10_000; i++ {
			d.M.Set(string([]byte{byte(i), byte(i >> 8), byte(i >> 16)}), true)
		}
		return d.M.Len(), nil
	})
	c := chainmailtest.New(t, chainmailtest.Options{Types: []actor.Registered{typ}})
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	have := 0
	for {
		n, err := fill.Ask(ctx, c, "k", have)
		if errors.Is(err, chainmail.ErrRejected) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		have = n
	}
	c.Kill(c.Owner("doc", "k"))
	c.Settle()
	ctx, done = context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	if n, err := fill.Ask(ctx, c, "k", 0); n != have || err != nil {
		t.Errorf("a key with %d entries that was taken over has %d, %v", have, n, err)
	}
}

// A message or an answer that is too long is refused at once, in the same words wherever the key is; nothing of it takes
// effect.
func TestSizesOfMessagesAndAnswers(t *testing.T) {
	type doc struct{ N int }
	typ := actor.NewType("doc", actor.Options[doc]{})
	take := actor.Handle(typ, "take", func(_ context.Context, d *doc, b []byte) (int, error) { d.N++; return len(b), nil })
	give := actor.Handle(typ, "give", func(_ context.Context, d *doc, n int) ([]byte, error) { d.N++; return make([]byte, n), nil })
	show := actor.Query(typ, "show", func(_ context.Context, d *doc, n int) ([]byte, error) { return make([]byte, n), nil })
	look := actor.Query(typ, "look", func(_ context.Context, d *doc, _ actor.None) (int, error) { return d.N, nil })
	flow := actor.Stream(typ, "flow", func(_ context.Context, d *doc, n int) iter.Seq2[[]byte, error] {
		return func(yield func([]byte, error) bool) { yield(make([]byte, n), nil) }
	})
	c := chainmailtest.New(t, chainmailtest.Options{Types: []actor.Registered{typ}})
	owner := c.Owner("doc", "k")
	ctx, done := context.WithTimeout(t.Context(), time.Minute)
	defer done()
	for _, m := range []int{owner, (owner + 1) % 3} {
		n := c.Node(m)
		before, err := look.Ask(ctx, n, "k", actor.None{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		is := func(what string, err, class error, size, limit int) {
			t.Helper()
			if !errors.Is(err, class) || !strings.Contains(err.Error(), fmt.Sprint(limit)) || !strings.Contains(err.Error(), fmt.Sprint(size)[:4]) {
				t.Errorf("member %d, owner %d: %s: %v", m, owner, what, err)
			}
		}
		for _, size := range []int{5 << 20, 9 << 20} {
			_, err = take.Ask(ctx, n, "k", make([]byte, size))
			is("a message", err, chainmail.ErrRejected, size, core.DefaultState)
			is("a message that nobody waits for", take.Tell(ctx, n, "k", make([]byte, size)), chainmail.ErrRejected, size, core.DefaultState)
			_, err = n.Ask(ctx, "doc", "k", "take", make([]byte, size))
			is("plain bytes", err, chainmail.ErrRejected, size, core.DefaultState)
		}
		_, err = give.Ask(ctx, n, "k", 9<<20)
		is("an answer", err, chainmail.ErrFailed, 9<<20, chainmail.MaxMessage)
		_, err = show.Ask(ctx, n, "k", 9<<20)
		is("a query's answer", err, chainmail.ErrFailed, 9<<20, chainmail.MaxMessage)
		for _, err = range flow.Ask(ctx, n, "k", 9<<20) {
		}
		is("a stream's element", err, chainmail.ErrFailed, 9<<20, chainmail.MaxMessage)
		if d := time.Since(began); d > 4*time.Second {
			t.Errorf("member %d, owner %d: that took %s", m, owner, d)
		}
		if after, err := look.Ask(ctx, n, "k", actor.None{}); after != before || err != nil {
			t.Errorf("member %d: %d messages had an effect, %v", m, after-before, err)
		}
		if b, err := give.Ask(ctx, n, "k", chainmail.MaxMessage-100); err != nil || len(b) != chainmail.MaxMessage-100 {
			t.Errorf("member %d: the longest answer: %d, %v", m, len(b), err)
		}
		if size, err := take.Ask(ctx, n, "k", make([]byte, core.DefaultState-100)); err != nil || size != core.DefaultState-100 {
			t.Errorf("member %d: the longest message: %d, %v", m, size, err)
		}
	}
}
