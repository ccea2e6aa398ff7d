package coordinator

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"chainmail/coordinator/membership"
)

const closeLimit = 5 * time.Second

// TestCloseAtAnyTime closes members at random instants of their life, with calls under way on all of them: it takes no
// longer than it may, and no call is left without an answer.
func TestCloseAtAnyTime(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 16 {
		wait := time.Duration(r.Int64N(int64(6 * testHeartbeat)))
		isolate := r.IntN(3) == 0
		t.Run("", func(t *testing.T) {
			c := newCluster(t)
			all := addrs("a", "b", "c")
			for _, id := range []string{"a", "b", "c"} {
				c.start(id, func(cfg *Config) { cfg.BootstrapExpect, cfg.RetryJoin = 3, all })
			}
			var calls sync.WaitGroup
			ctx, done := context.WithCancel(c.ctx)
			defer done()
			for _, m := range c.members {
				for _, call := range []func() error{
					func() error { _, err := m.LeaderPlacement(ctx); return err },
					func() error { return m.SetLimits(ctx, membership.Limits{Rate: time.Now().UnixNano()}) },
					func() error { return m.confirm() },
					func() error { return m.Join(ctx, all) },
					func() error { m.Status(); m.Placement(); return m.TransferLeadership() },
				} {
					calls.Go(func() {
						for m.ctx.Err() == nil && ctx.Err() == nil {
							if call() != nil {
								m.sleep(ctx, time.Millisecond)
							}
						}
						call() // once more after the end
					})
				}
			}
			c.sleepUntil(time.Now().Add(wait))
			if isolate {
				c.net.isolate(addrOf("a"))
			}
			var wg sync.WaitGroup
			for _, m := range c.members {
				wg.Go(func() {
					at := time.Now()
					m.close()
					if d := time.Since(at); d > closeLimit {
						t.Errorf("%s closed after %s", m.id, d)
					}
					if err := m.Close(); err != nil {
						t.Errorf("%s closed a second time: %v", m.id, err)
					}
				})
			}
			wg.Wait()
			answered := make(chan struct{})
			go func() { calls.Wait(); close(answered) }()
			select {
			case <-answered:
			case <-time.After(closeLimit):
				t.Fatal("calls are left without an answer")
			}
		})
	}
}

// sleepUntil waits for an instant: the random one is what the test is about.
func (c *cluster) sleepUntil(at time.Time) {
	ctx, done := context.WithDeadline(c.ctx, at)
	defer done()
	<-ctx.Done()
}

func TestClosed(t *testing.T) {
	c := founded(t, "a")
	a := c.members["a"]
	a.close()
	if err := a.SetLimits(c.ctx, membership.Limits{Rate: 1}); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed member answers %v", err)
	}
	if _, err := a.LeaderPlacement(c.ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed member answers %v", err)
	}
	if err := a.Depart(c.ctx, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed member departs: %v", err)
	}
	if len(a.Placement().Base) != 1 || a.Status().State != "shutdown" {
		t.Errorf("status of a closed member: %+v", a.Status())
	}
}
