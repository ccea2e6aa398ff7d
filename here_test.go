package chainmail

import (
	"context"
	"sync"
	"testing"
	"time"

	"chainmail/actor"
	"chainmail/engine/core"
)

type total struct{ N int }

// A read that takes long keeps the messages of its own key, and those of no other one.
func TestLongReadOfAnInlineActor(t *testing.T) {
	typ := actor.NewType("total", actor.Options[total]{Inline: true, LocalReads: true})
	begun, goOn := make(chan struct{}), make(chan struct{})
	get := actor.Query(typ, "get", func(_ context.Context, s *total, slow bool) (int, error) {
		if slow {
			close(begun)
			<-goOn
		}
		return s.N, nil
	})
	add := actor.Handle(typ, "add", func(_ context.Context, s *total, n int) (int, error) { s.N += n; return s.N, nil })
	n, err := Start(t.Context(), Config{Dev: true, Types: []actor.Registered{typ}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
	defer done()
	for _, key := range []string{"long", "other"} { // what the first one did is committed when the second one is asked
		if _, err := add.Ask(ctx, n, key, 1); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if sum, err := get.Ask(ctx, n, "long", true); err != nil || sum != 1 {
			t.Errorf("the long read gives %d, %v", sum, err)
		}
	})
	<-begun
	later := make(chan int, 1)
	wg.Go(func() {
		sum, err := add.Ask(ctx, n, "long", 1)
		if err != nil {
			t.Error(err)
		}
		later <- sum
	})
	for calls := 0; calls == 0; { // until it is on its way
		if err := n.engine.Do(ctx, func(c *core.Core) { calls = c.Stats().Calls }); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := add.Ask(ctx, n, "other", 1); err != nil || sum != 2 {
		t.Errorf("meanwhile another key gives %d, %v", sum, err)
	}
	select {
	case <-later:
		t.Error("a message has run beside a read of its actor")
	default:
	}
	close(goOn)
	wg.Wait()
	if sum := <-later; sum != 2 {
		t.Errorf("the message after the read gives %d", sum)
	}
}
