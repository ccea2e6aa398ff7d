package actor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// ways are all ways to ask an actor, of one type.
type ways struct {
	typ    *actor.Type[steps]
	handle *actor.Method[string, int]
	query  *actor.Method[string, int]
	stream *actor.Source[string, int]
	sink   *actor.Sink[string, int]
	block  chan struct{}
}

func newWays() *ways {
	w := &ways{typ: actor.NewType("ways", actor.Options[steps]{Mailbox: 1, Errors: map[uint16]error{1: errOwn}})}
	do := func(ctx context.Context, how string) (int, error) {
		switch how {
		case "own":
			return 0, fmt.Errorf("wrapped: %w", errOwn)
		case "error":
			return 0, errors.New("another error")
		case "panic":
			panic("as asked")
		case "block":
			<-w.block
		case "cycle":
			return w.handle.Ask(ctx, actor.Node(ctx), actor.Current(ctx).Key(), "")
		}
		return 1, nil
	}
	w.handle = actor.Handle(w.typ, "handle", func(ctx context.Context, s *steps, how string) (int, error) { s.N++; return do(ctx, how) })
	w.query = actor.Query(w.typ, "query", func(ctx context.Context, s *steps, how string) (int, error) { return do(ctx, how) })
	w.stream = actor.Stream(w.typ, "stream", func(ctx context.Context, s *steps, how string) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { yield(do(ctx, how)) }
	})
	w.sink = actor.Collect(w.typ, "sink", func(ctx context.Context, s *steps, in iter.Seq2[string, error]) (int, error) {
		for how := range in {
			if _, err := do(ctx, how); err != nil {
				return 0, err
			}
		}
		return 1, nil
	})
	return w
}

// ask asks in one of the ways.
func (w *ways) ask(ctx context.Context, a actor.Asker, way, key, how string) (err error) {
	switch way {
	case "handle":
		_, err = w.handle.Ask(ctx, a, key, how)
	case "once":
		_, err = w.handle.AskOnce(ctx, a, key, rand.Text(), how)
	case "query":
		_, err = w.query.Ask(ctx, a, key, how)
	case "stream":
		for _, err = range w.stream.Ask(ctx, a, key, how) {
		}
	case "sink":
		_, err = w.sink.Send(ctx, a, key, func(yield func(string, error) bool) { yield(how, nil) })
	}
	return err
}

var allWays = []string{"handle", "once", "query", "stream", "sink"}

// Each class of error is the same wherever the actor is, and in whatever way it was asked.
func TestErrorClasses(t *testing.T) {
	classes := []error{chainmail.ErrUnavailable, chainmail.ErrUnknownOutcome, chainmail.ErrOverloaded, chainmail.ErrRejected, chainmail.ErrFailed, chainmail.ErrClosed,
		chainmail.ErrNotFound, chainmail.ErrStampMismatch}
	w := newWays()
	bubble(t, 3, []actor.Registered{w.typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		w.block = make(chan struct{}) // of this bubble
		key := keyOwnedBy(c, "ways", 0)
		is := func(where, way, what string, err, want error) {
			t.Helper()
			if want == errOwn {
				if !errors.Is(err, errOwn) {
					t.Errorf("%s from %s, %s: %v is not the type's own", what, where, way, err)
				}
				want = chainmail.ErrFailed
			} else if errors.Is(err, errOwn) {
				t.Errorf("%s from %s, %s: %v is the type's own", what, where, way, err)
			}
			for _, class := range classes {
				if errors.Is(err, class) != (class == want) {
					t.Errorf("%s from %s, %s: %v: is it %v? %t", what, where, way, err, class, errors.Is(err, class))
				}
			}
		}
		all := func(what string, d time.Duration, want func(way string) error, key, how string, members ...int) {
			t.Helper()
			for _, i := range members {
				where := map[bool]string{true: "its owner", false: "another member"}[i == 0]
				for _, way := range allWays {
					ctx, done := context.WithTimeout(t.Context(), d)
					is(where, way, what, w.ask(ctx, c.Node(i), way, key, how), want(way))
					done()
				}
			}
		}
		always := func(err error) func(string) error { return func(string) error { return err } }
		all("nothing", time.Minute, always(nil), key, "", 0, 1)
		all("an own error", time.Minute, always(errOwn), key, "own", 0, 1)
		all("an error", time.Minute, always(chainmail.ErrFailed), key, "error", 0, 1)
		all("a panic", time.Minute, always(chainmail.ErrFailed), key, "panic", 0, 1)
		all("a cycle", time.Minute, always(chainmail.ErrFailed), key, "cycle", 0, 1)
		all("a long key", time.Minute, always(chainmail.ErrRejected), strings.Repeat("k", 1025), "", 0, 1)
		for where, i := range map[string]int{"its owner": 0, "another member": 1} {
			ctx, n := within(t, time.Minute), c.Node(i)
			_, err := n.AskActor(ctx, actor.Call{Type: "ways", Key: key, Method: "nope"})
			is(where, "raw", "an unknown method", err, chainmail.ErrRejected)
			_, err = n.AskActor(ctx, actor.Call{Type: "ways", Key: key, Method: "sink"})
			is(where, "raw", "a method of another kind", err, chainmail.ErrRejected)
			_, err = n.AskActor(ctx, actor.Call{Type: "ways", Key: key, Method: "handle", Body: []byte{0xc1}})
			is(where, "raw", "a bad body", err, chainmail.ErrRejected)
			_, err = n.AskActor(ctx, actor.Call{Type: "nope", Key: key, Method: "handle"})
			is(where, "raw", "an unknown type", err, chainmail.ErrRejected)
			_, err = n.AskActor(ctx, actor.Call{Type: "ways", Key: key, Method: "handle", RequestID: strings.Repeat("i", 129)})
			is(where, "raw", "a long request id", err, chainmail.ErrRejected)
			kv := keyOwnedBy(c, "kv", 0)
			_, _, err = n.KV().Get(ctx, kv)
			is(where, "kv", "no value", err, chainmail.ErrNotFound)
			_, err = n.KV().CompareAndSwap(ctx, kv, "1.2.3@m", nil)
			is(where, "kv", "another stamp", err, chainmail.ErrStampMismatch)
		}
		blocked := make(chan error, 2)
		for range 2 { // one runs, one waits
			go func() { blocked <- w.ask(within(t, time.Hour), c.Node(1), "handle", key, "block") }()
			time.Sleep(time.Second)
		}
		all("a full mailbox", time.Minute, always(chainmail.ErrOverloaded), key, "", 0, 1)
		close(w.block)
		for range 2 {
			is("another member", "handle", "what waited", <-blocked, nil)
		}
		c.Cut(0, 1) // the answers are cut off
		all("an answer that is lost", time.Second, func(way string) error {
			if way == "query" || way == "stream" {
				return chainmail.ErrUnavailable
			}
			return chainmail.ErrUnknownOutcome
		}, key, "", 1)
		c.Heal()
		c.Settle()
		c.Kill(0, 2)
		for _, way := range []string{"query", "stream"} { // of a write that was on its way nobody can say more than that
			ctx, done := context.WithTimeout(t.Context(), 3*time.Second)
			is("another member", way, "no quorum", w.ask(ctx, c.Node(1), way, key, ""), chainmail.ErrUnavailable)
			done()
		}
		all("a closed node", time.Minute, always(chainmail.ErrClosed), key, "", 0)
		if err := w.handle.Tell(t.Context(), c.Node(0), key, ""); !errors.Is(err, chainmail.ErrClosed) {
			t.Errorf("a tell from a closed node gives %v", err)
		}
		if err := w.handle.Tell(t.Context(), c.Node(1), key, ""); err != nil {
			t.Errorf("a tell that nobody will get gives %v", err)
		}
	})
}

// What is too big is refused when it is written, with the key and the bound, and nothing of it is there.
func TestTooBigIsRefused(t *testing.T) {
	type big struct {
		Text  string
		M     actor.Map[string, string]
		Count int
		cache map[string]int
	}
	acts := 0
	typ := actor.NewType("big", actor.Options[big]{OnActivate: func(_ context.Context, b *big) error {
		acts++
		b.cache = map[string]int{}
		return nil
	}})
	set := actor.Handle(typ, "set", func(ctx context.Context, b *big, x [2]string) (int, error) {
		b.cache[x[0]]++ // panics if OnActivate was not called on this state
		b.Count++
		if x[0] == "text" {
			b.Text = x[1]
		} else {
			b.M.Set(x[0], x[1])
		}
		return b.Count, actor.Remind(ctx, "r"+x[0], time.Now().Add(time.Hour), 0, &actor.Method[actor.None, int]{}, actor.None{})
	})
	*set = *actor.Handle(typ, "put", func(ctx context.Context, b *big, x [2]string) (int, error) {
		b.cache[x[0]]++
		b.Count++
		if len(x[1]) > 2<<20 { // more than a message may have
			x[1] += x[1]
		}
		if x[0] == "text" {
			b.Text = x[1]
		} else {
			b.M.Set(x[0], x[1])
		}
		return b.Count, nil
	})
	look := actor.Query(typ, "look", func(_ context.Context, b *big, _ actor.None) ([3]int, error) {
		return [3]int{b.Count, len(b.Text), b.M.Len()}, nil
	})
	bubble(t, 3, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Minute)
		must(set.Ask(ctx, c, "a", [2]string{"k", "v"}))
		must(set.Ask(ctx, c, "a", [2]string{"text", "short"}))
		want := [3]int{2, 5, 1}
		for what, x := range map[string][2]string{
			"a field": {"text", strings.Repeat("x", 3<<20)}, "an entry": {"e", strings.Repeat("x", 3<<20)}, "a name": {strings.Repeat("k", 1100), "v"},
		} {
			_, err := set.Ask(ctx, c, "a", x)
			if !errors.Is(err, chainmail.ErrRejected) || !strings.Contains(err.Error(), "big/a") || !strings.Contains(err.Error(), "at most") {
				t.Errorf("%s that is too big: %.200v", what, err)
			}
			if got := must(look.Ask(ctx, c, "a", actor.None{})); got != want {
				t.Errorf("after %s that was too big: %v", what, got)
			}
		}
		if n := must(set.Ask(ctx, c, "a", [2]string{"k2", "v"})); n != 3 {
			t.Errorf("the state counts %d", n)
		}
		if acts != 4 {
			t.Errorf("OnActivate was called %d times, for one activation and three states built anew", acts)
		}
	})
}
