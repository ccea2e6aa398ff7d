package chainmailtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// inBubble runs a test with a cluster in virtual time.
func inBubble(t *testing.T, o chainmailtest.Options, f func(t *testing.T, c *chainmailtest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, chainmailtest.New(t, o)) })
}

// clients ask counters from members that run, until stop, and note what they see.
type clients struct {
	t      *testing.T
	h      *chainmailtest.History[chainmailtest.Keyed[int64], int64]
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed atomic.Int64
	first  atomic.Pointer[error]
}

func startClients(t *testing.T, c *chainmailtest.Cluster, many int, pause time.Duration) *clients {
	l := &clients{t: t, h: chainmailtest.NewHistory(t, chainmailtest.ByKey(chainmailtest.Counter()))}
	l.ctx, l.cancel = context.WithCancel(t.Context())
	t.Cleanup(func() { l.cancel(); l.wg.Wait() })
	for id := range many {
		l.wg.Go(func() {
			for i := 0; l.ctx.Err() == nil; i++ {
				l.ask(c, id, fmt.Sprint("c", (id+i)%(2*many)), int64(i%3))
				time.Sleep(pause)
			}
		})
	}
	return l
}

func (l *clients) ask(c *chainmailtest.Cluster, id int, key string, add int64) {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	_, err := l.h.Do(id, chainmailtest.At(key, add), func() (int64, error) {
		if add == 0 {
			return c.Any().Counter().Get(ctx, key)
		}
		return c.Any().Counter().Add(ctx, key, add)
	})
	if err != nil {
		l.failed.Add(1)
		l.first.CompareAndSwap(nil, &err)
	}
}

// stop ends the clients, reads every counter once more, and checks what all have seen.
func (l *clients) stop(c *chainmailtest.Cluster, many int) {
	l.t.Helper()
	l.cancel()
	l.wg.Wait()
	before := l.failed.Load()
	for k := range 2 * many {
		l.ask(c, 0, fmt.Sprint("c", k), 0)
	}
	if n := l.failed.Load() - before; n > 0 {
		l.t.Errorf("%d counters cannot be read in the end", n)
	}
	l.h.Check()
	l.t.Logf("%d messages, %d failed", l.h.Len(), before)
}

// Members are killed and started again under load, one after the other.
func TestKillAndRestart(t *testing.T) {
	for name, durable := range map[string]bool{"in memory": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, chainmailtest.Options{Durable: durable}, func(t *testing.T, c *chainmailtest.Cluster) {
				l := startClients(t, c, 3, 50*time.Millisecond)
				for i := range 3 {
					time.Sleep(time.Second)
					inc := c.Node(i).Incarnation()
					c.Kill(i)
					if _, err := c.Node(i).Counter().Get(t.Context(), "c0"); !errors.Is(err, chainmail.ErrClosed) {
						t.Errorf("a killed member answers %v", err)
					}
					c.Settle()
					c.Restart(i)
					c.Settle()
					if same := c.Node(i).Incarnation() == inc; same != durable {
						t.Errorf("the same incarnation: %t, durable %t", same, durable)
					}
				}
				l.stop(c, 3)
			})
		})
	}
}

// When all are killed, what was on disk is there again, and what was in memory is not.
func TestAllAreKilled(t *testing.T) {
	for name, durable := range map[string]bool{"in memory": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, chainmailtest.Options{Durable: durable}, func(t *testing.T, c *chainmailtest.Cluster) {
				if _, err := c.Node(0).Counter().Add(t.Context(), "a", 7); err != nil {
					t.Fatal(err)
				}
				c.Kill(0, 1, 2)
				c.Restart(2, 1, 0)
				c.Settle()
				sum, err := c.Node(1).Counter().Get(t.Context(), "a")
				if want := map[bool]int64{true: 7}[durable]; err != nil || sum != want {
					t.Errorf("the counter is %d, want %d: %v", sum, want, err)
				}
			})
		})
	}
}

// A paused member is taken for down; what it was asked itself is answered when it resumes. By then the windows of request
// ids are over: of a message that it had begun it cannot say more than that the outcome is unknown.
func TestPause(t *testing.T) {
	inBubble(t, chainmailtest.Options{}, func(t *testing.T, c *chainmailtest.Cluster) {
		l := startClients(t, c, 3, 50*time.Millisecond)
		sure := int64(0)
		for range 3 {
			i := c.Owner("counter", "a")
			var late sync.WaitGroup
			c.Pause(i)
			began := time.Now()
			late.Go(func() {
				ctx, done := context.WithTimeout(t.Context(), time.Minute)
				defer done()
				_, err := c.Node(i).Counter().Add(ctx, "late", 1)
				if err == nil {
					sure++
				}
				if err != nil && !errors.Is(err, chainmail.ErrUnknownOutcome) || time.Since(began) < 10*time.Second {
					t.Errorf("the paused member answered after %s: %v", time.Since(began), err)
				}
			})
			c.Settle()
			if c.Owner("counter", "a") == i {
				t.Errorf("the paused member %d is the owner", i)
			}
			time.Sleep(10 * time.Second)
			c.Resume(i)
			c.Settle()
			late.Wait()
		}
		l.stop(c, 3)
		if sum, err := c.Any().Counter().Get(t.Context(), "late"); sum < sure || sum > 3 || err != nil {
			t.Error(sum, err)
		}
	})
}

// A minority commits nothing, the majority goes on; after Heal all agree.
func TestPartition(t *testing.T) {
	inBubble(t, chainmailtest.Options{}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := t.Context()
		add := func(i int, wait time.Duration) error {
			ctx, done := context.WithTimeout(ctx, wait)
			defer done()
			_, err := c.Node(i).Counter().Add(ctx, "a", 1)
			return err
		}
		acked := int64(0)
		unsure := int64(0)
		for i := range 3 {
			others := []int{(i + 1) % 3, (i + 2) % 3}
			if err := add(i, time.Minute); err != nil {
				t.Fatal(err)
			}
			c.Partition([]int{i}, others)
			if err := add(i, 20*time.Second); err == nil {
				t.Errorf("member %d alone has committed", i)
			} else if errors.Is(err, chainmail.ErrUnknownOutcome) {
				unsure++
			}
			for _, j := range others {
				if err := add(j, time.Minute); err != nil {
					t.Errorf("the majority: %v", err)
				}
			}
			acked += 3
			c.Heal()
			c.Settle()
			for j := range 3 {
				if sum, err := c.Node(j).Counter().Get(ctx, "a"); err != nil || sum < acked || sum > acked+unsure {
					t.Errorf("member %d reads %d, %v; %d were acknowledged, %d may be there", j, sum, err, acked, unsure)
				}
			}
		}
	})
}

// A cut works in one direction; a delay is added to each message.
func TestCutAndDelay(t *testing.T) {
	inBubble(t, chainmailtest.Options{}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx, done := context.WithTimeout(t.Context(), time.Minute)
		defer done()
		owner := c.Owner("counter", "a")
		asker := (owner + 1) % 3
		add := func() (time.Duration, error) {
			began := time.Now()
			_, err := c.Node(asker).Counter().Add(ctx, "a", 1)
			return time.Since(began), err
		}
		if _, err := add(); err != nil {
			t.Fatal(err)
		}
		c.Delay(owner, asker, 70*time.Millisecond)
		if d, err := add(); err != nil || d != 70*time.Millisecond { // the third member completes the quorum at once
			t.Errorf("an answer takes %s, %v", d, err)
		}
		c.Delay(asker, owner, 30*time.Millisecond)
		if d, err := add(); err != nil || d != 100*time.Millisecond {
			t.Errorf("question and answer take %s, %v", d, err)
		}
		c.Heal()
		if d, err := add(); err != nil || d != 0 {
			t.Errorf("after Heal it takes %s, %v", d, err)
		}
		c.Cut(owner, asker)
		short, done := context.WithTimeout(ctx, time.Second)
		defer done()
		if _, err := c.Node(asker).Counter().Add(short, "a", 1); !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("an answer that is cut off: %v", err)
		}
		third := 3 - owner - asker
		if sum, err := c.Node(third).Counter().Get(ctx, "a"); err != nil || sum != 5 {
			t.Errorf("what was asked has not arrived: %d, %v", sum, err)
		}
		c.Heal()
		c.Settle()
		if _, err := add(); err != nil {
			t.Error(err)
		}
	})
}

// Planned changes under load fail nobody.
func TestChangeUnderLoad(t *testing.T) {
	inBubble(t, chainmailtest.Options{Members: 1}, func(t *testing.T, c *chainmailtest.Cluster) {
		l := startClients(t, c, 4, 20*time.Millisecond)
		added := c.Add(3)
		if fmt.Sprint(added) != "[1 2 3]" || c.Len() != 4 {
			t.Errorf("added %v", added)
		}
		time.Sleep(time.Second)
		c.Change(2, 0, 2)
		c.Settle()
		c.Remove(4)
		l.stop(c, 4)
		if e := l.first.Load(); e != nil {
			t.Errorf("%d asks failed, the first: %v", l.failed.Load(), *e)
		}
		select {
		case <-c.Node(0).Removed():
		default:
			t.Error("member 0 was not let go")
		}
	})
}

// A member that is down for long is removed, in virtual time.
func TestRemovedWhenDown(t *testing.T) {
	config := func(_ int, cfg *chainmail.Config) { cfg.Membership.RemoveDownAfter = 10 * time.Minute }
	inBubble(t, chainmailtest.Options{Members: 4, Config: config}, func(t *testing.T, c *chainmailtest.Cluster) {
		c.Kill(3)
		on := func() bool { return c.Node(0).Coordinator().Placement().Places("m3") }
		time.Sleep(10 * time.Minute)
		if !on() {
			t.Error("the member was removed too early")
		}
		time.Sleep(time.Minute)
		if on() {
			t.Error("the member was not removed")
		}
		c.Settle()
	})
}

// Activations that nobody asks end, in virtual time; their state stays.
func TestIdle(t *testing.T) {
	type visits struct{ N int }
	var ended atomic.Int64
	typ := actor.NewType("visits", actor.Options[visits]{Idle: 20 * time.Minute,
		OnDeactivate: func(context.Context, *visits, string) { ended.Add(1) }})
	visit := actor.Handle(typ, "visit", func(_ context.Context, v *visits, _ actor.None) (int, error) { v.N++; return v.N, nil })
	inBubble(t, chainmailtest.Options{Members: 1, Types: []actor.Registered{typ}}, func(t *testing.T, c *chainmailtest.Cluster) {
		for i := range 3 {
			if n, err := visit.Ask(t.Context(), c, "a", actor.None{}); err != nil || n != i+1 || ended.Load() != int64(i) {
				t.Errorf("visit %d: %v, %d ends", n, err, ended.Load())
			}
			time.Sleep(19 * time.Minute)
			if ended.Load() != int64(i) {
				t.Error("it ended too early")
			}
			time.Sleep(2 * time.Minute)
		}
	})
}

// The same in real time: nothing depends on a bubble.
func TestInRealTime(t *testing.T) {
	c := chainmailtest.New(t, chainmailtest.Options{})
	l := startClients(t, c, 3, time.Millisecond)
	c.Kill(0)
	c.Settle()
	c.Restart(0)
	c.Add(1)
	c.Settle()
	l.stop(c, 3)
}

// All members lose their memory at once, and learn that from each other at different times: the first one to know must not
// keep the others from it.
func TestAllLoseTheirMemory(t *testing.T) {
	for first := range 3 {
		t.Run(fmt.Sprint("first", first), func(t *testing.T) {
			inBubble(t, chainmailtest.Options{}, func(t *testing.T, c *chainmailtest.Cluster) {
				a, b := (first+1)%3, (first+2)%3
				c.Kill(0, 1, 2)
				c.Delay(a, b, 400*time.Millisecond)
				c.Delay(b, a, 400*time.Millisecond)
				c.Restart(0, 1, 2)
				c.Settle()
			})
		})
	}
}
