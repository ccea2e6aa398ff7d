package chainmail_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
)

// A message that was under way when its member closed may have taken effect. That its repeat was refused does not change
// that.
func TestRepeatDoesNotHideUnknownOutcome(t *testing.T) {
	type slow struct{ N int }
	typ := actor.NewType("slow", actor.Options[slow]{})
	begun := make(chan struct{})
	wait := actor.Handle(typ, "wait", func(ctx context.Context, s *slow, _ actor.None) (int, error) {
		close(begun)
		<-ctx.Done()
		s.N++
		return s.N, nil
	})
	ctx, n := devNode(t, typ)
	go func() {
		<-begun
		n.Close()
	}()
	_, err := wait.Ask(ctx, n, "k", actor.None{})
	if !errors.Is(err, chainmail.ErrUnknownOutcome) || errors.Is(err, chainmail.ErrClosed) || !strings.Contains(err.Error(), "repeated: ") {
		t.Errorf("a message under way at a close gives %v", err)
	}
	if _, err := wait.Ask(ctx, n, "k", actor.None{}); !errors.Is(err, chainmail.ErrClosed) {
		t.Errorf("a message after a close gives %v", err)
	}
}

// A delete ends what its key remembers of requests: one that is made again under the same id is run, unless it says that it
// is a repeat, as all that this project repeats by itself does.
func TestRepeatAfterDelete(t *testing.T) {
	type doc struct{ N int }
	typ := actor.NewType("doc", actor.Options[doc]{})
	add := actor.Handle(typ, "add", func(ctx context.Context, d *doc, n int) (int, error) {
		if n < 0 {
			actor.Current(ctx).Delete()
		}
		d.N += n
		return d.N, nil
	})
	ctx, n := devNode(t, typ)
	once := func(id string, tried time.Duration) error {
		c, err := add.Call("k", 1)
		if err != nil {
			t.Fatal(err)
		}
		c.RequestID, c.Tried = id, tried
		_, err = n.AskActor(ctx, c)
		return err
	}
	put := func(opts ...chainmail.CallOption) error {
		_, err := n.KV().Put(ctx, "k", []byte("x"), opts...)
		return err
	}
	for what, f := range map[string]struct{ first, delete, repeat, again func() error }{
		"a typed method": {
			func() error { return once("a", 0) },
			func() error { _, err := add.Ask(ctx, n, "k", -1); return err },
			func() error { return once("a", time.Second) },
			func() error { return once("a", 0) },
		},
		"kv": {
			func() error { return put(chainmail.RequestID("a")) },
			func() error { _, err := n.KV().Delete(ctx, "k"); return err },
			func() error { return put(chainmail.RequestID("a"), chainmail.Repeated(time.Second)) },
			func() error { return put(chainmail.RequestID("a")) },
		},
	} {
		if err := errors.Join(f.first(), f.repeat(), f.delete()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if err := f.repeat(); !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("%s: a repeat after a delete gives %v", what, err)
		}
		if err := f.again(); err != nil {
			t.Errorf("%s: the same id without a word of the first time gives %v", what, err)
		}
	}
}

// What can be seen to be wrong with a message is told at once also where nobody waits for an answer.
func TestTellSaysWhatIsWrong(t *testing.T) {
	type doc struct{ N int }
	typ, other := actor.NewType("doc", actor.Options[doc]{}), actor.NewType("other", actor.Options[doc]{})
	f := func(ctx context.Context, d *doc, n int) (int, error) { d.N += n; return d.N, nil }
	add, alien := actor.Handle(typ, "add", f), actor.Handle(other, "add", f)
	ctx, n := devNode(t, typ)
	over, done := context.WithCancel(ctx)
	done()
	for what, x := range map[string]struct {
		got, class error
		words      string
	}{
		"no key":                 {add.Tell(ctx, n, "", 1), chainmail.ErrRejected, "0 bytes"},
		"a long key":             {add.Tell(ctx, n, strings.Repeat("k", 1025), 1), chainmail.ErrRejected, "1025 bytes; 1 to 1024"},
		"an unknown type":        {alien.Tell(ctx, n, "k", 1), chainmail.ErrRejected, `"other" is not known`},
		"a context that is over": {add.Tell(over, n, "k", 1), chainmail.ErrUnavailable, "context canceled"},
		"nothing":                {add.Tell(ctx, n, "k", 1), nil, ""},
	} {
		if !errors.Is(x.got, x.class) || x.class != nil && !strings.Contains(x.got.Error(), x.words) {
			t.Errorf("%s: %v", what, x.got)
		}
	}
	if _, err := add.Ask(ctx, n, strings.Repeat("k", 1025), 1); !errors.Is(err, chainmail.ErrRejected) || !strings.Contains(err.Error(), "1025 bytes; 1 to 1024") {
		t.Errorf("a question to a long key gives %v", err)
	}
	if sum, err := add.Ask(ctx, n, "k", 1); sum != 2 || err != nil {
		t.Errorf("the sum is %d, %v", sum, err)
	}
}
