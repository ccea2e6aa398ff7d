package chainmail_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// While nothing can be committed, as many messages of a key run as its type allows, and the rest follow.
func TestPipeline(t *testing.T) {
	for _, depth := range []int{1, 3, 0} {
		synctest.Test(t, func(t *testing.T) {
			type sum struct{ N int }
			const sent = 10
			var ran atomic.Int64
			typ := actor.NewType("sum", actor.Options[sum]{Pipeline: depth})
			add := actor.Handle(typ, "add", func(_ context.Context, s *sum, n int) (int, error) {
				ran.Add(1)
				s.N += n
				return s.N, nil
			})
			c := chainmailtest.New(t, chainmailtest.Options{Types: []actor.Registered{typ}})
			owner := c.Owner("sum", "a")
			ask := func() {
				ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
				defer done()
				if _, err := add.Ask(ctx, c.Node(owner), "a", 1); err != nil {
					t.Error(err)
				}
			}
			ask()
			before := ran.Load()
			for i := range 3 {
				if i != owner {
					c.Cut(owner, i)
				}
			}
			var all sync.WaitGroup
			for range sent {
				all.Go(ask)
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			want := int64(depth)
			if depth == 0 {
				want = sent
			}
			if n := ran.Load() - before; n != want {
				t.Errorf("%d messages ran without a commit, %d are allowed", n, want)
			}
			c.Heal()
			all.Wait()
			if n := ran.Load() - before; n != sent {
				t.Errorf("%d messages ran of %d", n, sent)
			}
		})
	}
}

// A type that has to be durable does not start in memory.
func TestDurableType(t *testing.T) {
	typ := actor.NewType("account", actor.Options[struct{ N int }]{Durable: true})
	_, err := chainmail.Start(t.Context(), chainmail.Config{NodeID: "a", BindAddr: "127.0.0.1:0", Store: chainmail.StoreMemory, Types: []actor.Registered{typ}})
	if err == nil || !strings.Contains(err.Error(), `actor type "account" is durable`) {
		t.Errorf("it starts: %v", err)
	}
	n, err := chainmail.Start(t.Context(), chainmail.Config{NodeID: "a", BindAddr: "127.0.0.1:0", DataDir: t.TempDir(), Store: chainmail.StoreBolt, Types: []actor.Registered{typ}})
	if err != nil {
		t.Fatal(err)
	}
	n.Close()
}
