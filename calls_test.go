package chainmail_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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
