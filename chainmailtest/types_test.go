package chainmailtest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// A member that is restarted with another count for a type, or with pinned keys, must not change where the keys of that type
// are: what was acknowledged by the old sets would not be at the new ones. It says so, and the others go on.
func TestReplicaCountOfATypeInUse(t *testing.T) {
	type sum struct{ N int }
	with := func(o actor.Options[sum]) (*actor.Type[sum], *actor.Method[int, int]) {
		typ := actor.NewType("sum", o)
		return typ, actor.Handle(typ, "add", func(_ context.Context, s *sum, n int) (int, error) { s.N += n; return s.N, nil })
	}
	for name, other := range map[string]actor.Options[sum]{"fewer": {Replicas: 1}, "more": {Replicas: 5}, "pinned": {Pinned: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			typ, add := with(actor.Options[sum]{})
			odd, _ := with(other)
			var changed atomic.Bool
			c := chainmailtest.New(t, chainmailtest.Options{Members: 4, Durable: true, Config: func(_ int, cfg *chainmail.Config) {
				if cfg.Types = append(cfg.Types, typ); changed.Load() {
					cfg.Types[len(cfg.Types)-1] = odd
				}
			}})
			if n, err := add.Ask(t.Context(), c, "k", 1); err != nil || n != 1 {
				t.Fatal(n, err)
			}
			before, err := c.Node(0).Locate("sum", "k")
			if err != nil {
				t.Fatal(err)
			}
			changed.Store(true)
			c.Kill(3)
			c.Restart(3)
			ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
			defer done()
			_, err = c.Node(3).Ask(ctx, "sum", "k@m3", "add", nil)
			if err == nil || !strings.Contains(err.Error(), "since its first use") {
				t.Errorf("the restarted member says %v", err)
			}
			after, err := c.Node(0).Locate("sum", "k")
			if err != nil || strings.Join(after.Replicas, " ") != strings.Join(before.Replicas, " ") {
				t.Errorf("replicas %v before, %v after, %v", before.Replicas, after.Replicas, err)
			}
			if n, err := add.Ask(ctx, c.Node(0), "k", 1); err != nil || n != 2 {
				t.Errorf("the sum is %d, %v", n, err)
			}
		})
	}
}
