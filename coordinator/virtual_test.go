// Raft draws its timeouts from the default source, which the runtime lets nobody seed unless it is told so.
//go:debug randseednop=0

package coordinator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	oldrand "math/rand"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"chainmail/coordinator/membership"
)

// The tests of this file run real Raft nodes, with the times that production has, on a clock of their own: in a bubble of
// testing/synctest time moves on when everybody waits. The members' own network (network_test.go) is made of channels and
// net.Pipe, which a bubble knows, and the stores are in memory; nothing of Raft or of the coordinator needs another seam.
//
// The seed sets faults, their instants and Raft's timeouts. The order in which goroutines run is not drawn from it, so
// that a seed gives nearly the same run again, not always the same one.
var (
	virtualSeed   = flag.Uint64("virtual.seed", 0, "run the tests under virtual time with this seed alone; 0: draw some")
	virtualRuns   = flag.Int("virtual.runs", 5, "seeds for each test under virtual time")
	virtualCloses = flag.Int("virtual.closes", 200, "random instants at which members are closed")
)

const (
	virtualPatience   = 30 * time.Minute
	virtualLife       = 24 * time.Hour
	virtualCloseLimit = 10 * time.Second
)

// virtual runs f under virtual time, once for each seed.
func virtual(t *testing.T, runs int, f func(c *cluster, r *rand.Rand)) {
	switch {
	case *virtualSeed != 0:
		runs = 1
	case testing.Short():
		runs = (runs + 3) / 4
	}
	for range runs {
		seed := *virtualSeed
		for seed == 0 {
			seed = rand.Uint64()
		}
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Logf("again with -run '^%s$' -virtual.seed %d", t.Name(), seed)
			//lint:ignore SA1019 the only way to set the seed of Raft's timeouts
			oldrand.Seed(int64(seed))
			before := goleak.IgnoreCurrent()
			synctest.Test(t, func(t *testing.T) {
				f(makeCluster(t, defaultHeartbeat, 50*time.Millisecond, virtualPatience, virtualLife), rand.New(rand.NewPCG(seed, 0)))
			})
			if err := goleak.Find(before); err != nil { // the bubble has found those that wait for ever
				t.Error(err)
			}
		})
		if !ok {
			return
		}
	}
}

// production gives a member the times that a configuration without any has.
func production(cfg *Config) {
	cfg.Heartbeat, cfg.DownAfter, cfg.RetryInterval = 0, 0, 0
}

// grown starts a cluster of members on the ring, with production's times.
func (c *cluster) grown(ids ...string) { c.t.Helper(); c.grownRemoving(5*time.Minute, ids...) }

func (c *cluster) grownRemoving(removeAfter time.Duration, ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.start(id, func(cfg *Config) { production(cfg); cfg.RemoveDownAfter = removeAfter })
	}
	if err := c.members[ids[0]].Bootstrap(voters(ids...), false); err != nil {
		c.t.Fatal(err)
	}
	c.placed(ids...)
	c.eventually("all know the leader", func() bool {
		l := c.leader().id
		for _, m := range c.members {
			if m.Status().LeaderID != l {
				return false
			}
		}
		return true
	})
}

// pass lets time go by.
func (c *cluster) pass(d time.Duration) { c.sleepUntil(time.Now().Add(d)) }

// within waits for a condition and fails if that takes less or more time than it should.
func (c *cluster) within(least, most time.Duration, what string, ok func() bool) {
	c.t.Helper()
	at := time.Now()
	c.eventually(what, ok)
	if d := time.Since(at); d < least || d > most {
		c.t.Errorf("%s: after %s, not %s to %s", what, d, least, most)
	}
}

func (c *cluster) isDown(id string) bool { m, _ := c.leaderPlacement().Member(id); return m.Down }

// names gives the first n members' names.
func names(n int) []string { return []string{"a", "b", "c", "d", "e"}[:n] }

// any draws a member.
func (c *cluster) any(r *rand.Rand) *member {
	var ids []string
	for id := range c.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return c.members[ids[r.IntN(len(ids))]]
}

// TestVirtualDetector has members fall silent and come back: they are marked down when they have been silent for
// down_after, not before, and up again soon after they are heard.
func TestVirtualDetector(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grown(names(3 + r.IntN(3))...)
		// A leader waits until each member's heartbeat has been answered or has failed.
		settle := max(defaultDownAfter, 2*defaultHeartbeat) + leadEvery
		c.pass(settle)
		for range 4 {
			m := c.any(r)
			if r.IntN(2) == 0 {
				c.net.setMute() // packets are lost, instead of refused
			}
			led := m.IsLeader()
			c.net.isolate(addrOf(m.id))
			if brief := r.IntN(3) == 0; brief && !led {
				c.pass(defaultDownAfter / 3)
				c.net.heal(addrOf(m.id))
				for end := time.Now().Add(2 * defaultDownAfter); time.Now().Before(end); c.pass(leadEvery) {
					if c.isDown(m.id) {
						c.t.Fatalf("%s was silent for %s and is marked down", m.id, defaultDownAfter/3)
					}
				}
				continue
			}
			most := defaultDownAfter + defaultHeartbeat // until a heartbeat fails
			if led {
				most += 4*defaultHeartbeat + settle // and until another leads, and knows enough
			}
			c.within(defaultDownAfter-defaultHeartbeat, most, m.id+" is marked down", func() bool { return c.leaderOfRest(m.id).down(m.id) })
			c.pass(time.Duration(r.Int64N(int64(time.Minute))))
			c.net.heal(addrOf(m.id))
			c.within(0, 2*defaultHeartbeat+settle, m.id+" is up again", func() bool { return !c.isDown(m.id) })
			// Raft waits up to 10 seconds before it sends the log to one that it did not reach for long.
			c.eventually("all follow", func() bool {
				at := c.leaderPlacement().Revision
				for _, x := range c.members {
					if x.Placement().Revision != at {
						return false
					}
				}
				return true
			})
			c.pass(settle)
		}
	})
}

// TestVirtualComesBack has a member come back that was down, or nearly so: what its own registration has said is not taken back
// before it has had a heartbeat, or its keys would move there, away and there again.
func TestVirtualComesBack(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		dirs := map[string]string{}
		begin := func(id string) *member {
			return c.start(id, func(cfg *Config) { production(cfg); cfg.DataDir = dirs[id] })
		}
		for _, id := range names(3) {
			dirs[id] = c.t.TempDir()
			begin(id)
		}
		if err := c.members["a"].Bootstrap(voters(names(3)...), false); err != nil {
			c.t.Fatal(err)
		}
		c.placed(names(3)...)
		for range 3 {
			c.pass(max(defaultDownAfter, 2*defaultHeartbeat) + leadEvery)
			l, m := c.leader(), c.follower()
			at := l.Placement().Revision
			m.kill()
			if r.IntN(3) == 0 {
				c.pass(defaultDownAfter - time.Duration(r.Int64N(int64(time.Second))))
			} else {
				c.eventually(m.id+" is marked down", func() bool { return l.down(m.id) })
				c.pass(time.Duration(r.Int64N(int64(30 * time.Second))))
			}
			back := begin(m.id)
			if err := back.Register(c.ctx, back.inc, []uint64{1}); err != nil { // as every member does when it starts
				c.t.Fatal(err)
			}
			c.pass(defaultDownAfter + 2*defaultHeartbeat)
			if l != c.leader() {
				continue // the next one knows nothing of the one before
			}
			marked, was := 0, false
			for at++; at <= l.Placement().Revision; at++ {
				x, _ := l.fsm.at(at).Member(m.id)
				if x.Down && !was {
					marked++
				}
				was = x.Down
			}
			if was || marked > 1 {
				c.t.Errorf("%s was taken for down %d times, and is: %t", m.id, marked, was)
			}
		}
	})
}

// leaderOfRest gives the member that leads those that are not cut off.
func (c *cluster) leaderOfRest(cut string) *member {
	var out *member
	c.eventually("a leader beside "+cut, func() bool {
		for _, m := range c.members {
			if m.id != cut && m.IsLeader() && m.confirm() == nil {
				out = m
			}
		}
		return out != nil
	})
	return out
}

func (m *member) down(id string) bool { x, _ := m.Placement().Member(id); return x.Down }

// TestVirtualChange takes a change of three steps through all its stages, while the leader is lost again and again.
func TestVirtualChange(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grown("a", "b", "c")
		c.join("d", "e")
		for _, m := range c.members {
			m.setSlow(time.Duration(r.Int64N(int64(4 * time.Second))))
		}
		ctx, done := context.WithCancel(c.ctx)
		var seen stages
		watched := make(chan struct{})
		go func() { defer close(watched); seen.watch(ctx, c.members["d"].Coordinator) }()
		ch := c.submit(c.any(r), ChangeRequest{Add: []string{"d", "e"}, Remove: []string{"a"}, Key: "k"})
		if ch.Steps != 3 {
			c.t.Fatalf("%d steps are planned: %+v", ch.Steps, ch)
		}
		ended := func() bool {
			h, ok := findChange(c.leaderPlacement(), ch.ID)
			return ok && h.Outcome != membership.Running
		}
		for lost := 0; !ended(); lost++ {
			l := c.leader()
			if lost > 20 {
				c.pass(defaultHeartbeat)
				continue
			}
			c.net.isolate(addrOf(l.id))
			again := c.submit(c.leaderOfRest(l.id), ChangeRequest{Add: []string{"d", "e"}, Remove: []string{"a"}, Key: "k"})
			if again.ID != ch.ID {
				c.t.Fatalf("the same key gave %s and %s", ch.ID, again.ID)
			}
			c.pass(time.Duration(r.Int64N(int64(3 * time.Second))))
			c.net.heal(addrOf(l.id))
			c.pass(time.Duration(r.Int64N(int64(3 * time.Second))))
		}
		c.placed("b", "c", "d", "e")
		done()
		<-watched
		seen.check(c.t)
		if h, _ := findChange(c.leaderPlacement(), ch.ID); h.Outcome != membership.Done || h.StepDone != 3 {
			c.t.Errorf("the change ended as %+v", h)
		}
	})
}

// stages are the placements that a member has gone through.
type stages struct{ all []*membership.Placement }

func (s *stages) watch(ctx context.Context, c *Coordinator) {
	w := c.Watch()
	defer w.Close()
	for {
		select {
		case p := <-w.C():
			s.all = append(s.all, p)
		case <-ctx.Done():
			return
		}
	}
}

// check holds that versions only grew, that adjacent rings differ by one member, and that no step left its stages out.
// A watcher may miss placements, but not go back.
func (s *stages) check(t *testing.T) {
	t.Helper()
	steps := map[string]membership.Stage{}
	for i, p := range s.all {
		if i > 0 && (p.Revision <= s.all[i-1].Revision || p.Version < s.all[i-1].Version) {
			t.Errorf("%s came after %s", p, s.all[i-1])
		}
		if d := len(p.Base) - len(p.Next); p.Stage != membership.StageStable && d != 1 && d != -1 {
			t.Errorf("a step of %d members: %s", d, p)
		}
		step := membership.SetString(p.Base) + "->" + membership.SetString(p.Next)
		if before, ok := steps[step]; ok && p.Stage < before {
			t.Errorf("the step %s went back to %s", step, p.Stage)
		}
		steps[step] = p.Stage
	}
	for _, want := range []string{"{a,b,c}->{a,b,c,d}", "{a,b,c,d}->{a,b,c,d,e}", "{a,b,c,d,e}->{b,c,d,e}"} {
		if steps[want] != membership.StageSwitch {
			t.Errorf("the step %s was seen last at %s", want, steps[want])
		}
	}
}

// TestVirtualDeadlines asks members that cannot have an answer: each call waits for one as long as its context allows,
// no longer, and then says whether anything may have happened. One that waits is answered as soon as there is a leader.
func TestVirtualDeadlines(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grown("a", "b", "c")
		left := c.any(r)
		led := left.IsLeader()
		for _, m := range c.members {
			c.net.isolate(addrOf(m.id)) // nobody reaches anybody
		}
		synctest.Wait() // a heartbeat that is under way confirms a leader, too
		wait := time.Second + time.Duration(r.Int64N(int64(time.Minute)))
		calls := map[string]func(context.Context) error{
			"set limits": func(ctx context.Context) error { return left.SetLimits(ctx, membership.Limits{Rate: 5}) },
			"submit": func(ctx context.Context) error {
				_, err := left.Submit(ctx, ChangeRequest{Remove: []string{"a"}})
				return err
			},
			"placement": func(ctx context.Context) error { _, err := left.LeaderPlacement(ctx); return err },
			"pause":     func(ctx context.Context) error { return left.Pause(ctx, "") },
			"depart":    func(ctx context.Context) error { return left.Depart(ctx, left.inc) },
		}
		var wg sync.WaitGroup
		for name, call := range calls {
			wg.Go(func() {
				ctx, done := context.WithTimeout(c.ctx, wait)
				defer done()
				at := time.Now()
				err := call(ctx)
				// What waits in Raft's queue is answered when the lease ends, whatever the context says.
				if d := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || d < wait || d > wait+2*defaultHeartbeat {
					c.t.Errorf("%s on %s (leads: %v): %v after %s, not after %s", name, left.id, led, err, d, wait)
				}
				if writes := name == "set limits" || name == "submit"; errors.Is(err, ErrUnknownOutcome) && !writes {
					c.t.Errorf("%s on %s (leads: %v): %v, but nothing can have happened", name, left.id, led, err)
				}
			})
		}
		wg.Wait()
		held := make(chan error, 1)
		go func() { held <- left.SetLimits(c.ctx, membership.Limits{Rate: 6}) }()
		c.pass(time.Minute)
		for _, m := range c.members {
			c.net.heal(addrOf(m.id))
		}
		at := time.Now()
		if err := <-held; err != nil || time.Since(at) > 6*defaultHeartbeat {
			c.t.Errorf("a command that waited: %v, %s after the others are back", err, time.Since(at))
		}
	})
}

// TestVirtualPause pauses a change that could go on: it stays where it is for long, over a change of the leader, and
// goes on when it is resumed.
func TestVirtualPause(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grown("a", "b", "c")
		c.join("d")
		for _, m := range c.members {
			m.setSilent(true)
		}
		ch := c.submit(c.any(r), ChangeRequest{Add: []string{"d"}})
		if err := c.any(r).Pause(c.ctx, ""); err != nil {
			c.t.Fatal(err)
		}
		for _, m := range c.members {
			m.setSilent(false)
		}
		c.eventually("d has reported", func() bool { return len(membership.Waiting(c.leaderPlacement())) == 0 })
		at := c.leaderPlacement().Version
		for range 3 {
			c.pass(time.Duration(r.Int64N(int64(3 * time.Minute))))
			l := c.leader()
			c.net.isolate(addrOf(l.id))
			c.leaderOfRest(l.id)
			c.net.heal(addrOf(l.id))
		}
		if p := c.leaderPlacement(); p.Version != at || p.Running == nil || !p.Running.Paused {
			c.t.Errorf("a paused change went on from version %d: %s", at, p)
		}
		if err := c.any(r).Resume(c.ctx, ch.ID); err != nil {
			c.t.Fatal(err)
		}
		c.within(0, time.Minute, "the change ends", func() bool {
			h, _ := findChange(c.leaderPlacement(), ch.ID)
			return h.Outcome == membership.Done
		})
	})
}

// TestVirtualRemoveDown has a member die for good: it is removed after remove_down_after. One that is back in time stays.
func TestVirtualRemoveDown(t *testing.T) {
	after := 5 * time.Minute // the default
	if testing.Short() {
		after = time.Minute
	}
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grownRemoving(after, "a", "b", "c", "d")
		m := c.any(r)
		c.net.isolate(addrOf(m.id))
		c.pass(after - 10*time.Second)
		c.net.heal(addrOf(m.id))
		c.pass(after)
		if p := c.leaderPlacement(); len(p.Base) != 4 || p.Running != nil {
			c.t.Fatalf("%s was back in time, and is removed: %s", m.id, p)
		}
		m = c.any(r)
		led := m.IsLeader()
		m.kill()
		c.forget(m.id)
		most := after + defaultHeartbeat + time.Second
		if led {
			most += 6 * defaultHeartbeat // another has to lead first
		}
		c.within(after-defaultHeartbeat, most, m.id+" is being removed", func() bool { return !membership.In(c.leaderPlacement().Target, m.id) })
		c.within(0, time.Minute, m.id+" is forgotten", func() bool {
			_, listed := c.leaderPlacement().Member(m.id)
			return !listed && !slices.ContainsFunc(c.leader().Status().Servers, func(s Server) bool { return s.ID == m.id })
		})
	})
}

// TestVirtualClose closes members at random instants of their life, while a change runs, with calls under way and some
// of the members cut off.
func TestVirtualClose(t *testing.T) {
	closes := *virtualCloses
	if testing.Short() {
		closes /= 3
	}
	virtual(t, closes, func(c *cluster, r *rand.Rand) {
		ids := names(3 + r.IntN(3))
		all := addrs(ids...)
		expect := len(ids) * (len(ids) % 2) // an even number is bootstrapped by hand
		for _, id := range ids {
			c.start(id, func(cfg *Config) { production(cfg); cfg.BootstrapExpect, cfg.RetryJoin = expect, all })
		}
		if expect == 0 {
			if err := c.members["a"].Bootstrap(voters(ids...), true); err != nil {
				c.t.Fatal(err)
			}
		}
		ctx, done := context.WithCancel(c.ctx)
		var calls sync.WaitGroup
		for _, m := range c.members {
			for _, call := range m.calls(ctx, all) {
				pause := time.Duration(300+r.IntN(5000)) * time.Millisecond
				calls.Go(func() {
					for m.ctx.Err() == nil && ctx.Err() == nil {
						call()
						m.sleep(ctx, pause)
					}
					call() // once more after the end
				})
			}
		}
		c.pass(time.Duration(r.Int64N(int64(15 * time.Second))))
		if r.IntN(3) == 0 {
			c.net.isolate(addrOf(c.any(r).id))
			if r.IntN(2) == 0 {
				c.net.setMute()
			}
			c.pass(time.Duration(r.Int64N(int64(8 * time.Second))))
		}
		var wg sync.WaitGroup
		for _, m := range c.members {
			later := time.Duration(r.Int64N(int64(3*time.Second))) * time.Duration(r.IntN(2))
			wg.Go(func() {
				c.pass(later)
				at := time.Now()
				m.close()
				if d := time.Since(at); d > virtualCloseLimit {
					c.t.Errorf("%s closed after %s", m.id, d)
				}
			})
		}
		wg.Wait()
		done()
		calls.Wait() // a call without an answer stops the bubble
	})
}

// calls are what others may be doing with a member at any time.
func (m *member) calls(ctx context.Context, all []string) []func() error {
	return []func() error{
		func() error { _, err := m.LeaderPlacement(ctx); return err },
		func() error { return m.SetLimits(ctx, membership.Limits{Rate: time.Now().UnixNano()}) },
		func() error { return m.confirm() },
		func() error { return m.Join(ctx, all) },
		func() error { _, err := m.Submit(ctx, ChangeRequest{Remove: []string{m.id}}); return err },
		func() error { m.Status(); m.Placement(); return m.TransferLeadership() },
	}
}
