package coordinator

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"chainmail/coordinator/membership"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		self, leader string
		n            int
		have         map[string]uint64
		odd          bool
	}{
		"all the same":               {"a", "b", 3, map[string]uint64{"a": 1, "b": 1, "c": 1}, false},
		"one of three":               {"a", "b", 3, map[string]uint64{"a": 2, "b": 1, "c": 1}, true},
		"the leader of three":        {"a", "a", 3, map[string]uint64{"a": 2, "b": 1, "c": 1}, true},
		"of the two in three":        {"b", "a", 3, map[string]uint64{"a": 2, "b": 1, "c": 1}, false},
		"each of three":              {"a", "b", 3, map[string]uint64{"a": 1, "b": 2, "c": 3}, false},
		"one of three, one is away":  {"a", "b", 3, map[string]uint64{"a": 2, "b": 1}, false},
		"the follower of two":        {"a", "b", 2, map[string]uint64{"a": 2, "b": 1}, true},
		"the leader of two":          {"b", "b", 2, map[string]uint64{"a": 2, "b": 1}, false},
		"one of two, no leader":      {"a", "", 2, map[string]uint64{"a": 2, "b": 1}, false},
		"half with the leader":       {"a", "a", 4, map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 1}, false},
		"half without the leader":    {"c", "a", 4, map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 1}, true},
		"two alike of five":          {"a", "a", 5, map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 1, "e": 1}, true},
		"two of five, one is away":   {"a", "a", 5, map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 1}, false},
		"one of five, two are away":  {"a", "a", 5, map[string]uint64{"a": 2, "c": 1, "d": 1}, false},
		"nobody answers":             {"a", "b", 3, map[string]uint64{"a": 2}, false},
		"the only one":               {"a", "a", 1, map[string]uint64{"a": 2}, false},
		"each of two other ones":     {"a", "a", 5, map[string]uint64{"a": 2, "b": 3, "c": 1, "d": 1, "e": 1}, true},
		"three of five, two and one": {"c", "a", 5, map[string]uint64{"a": 2, "b": 2, "c": 1, "d": 3, "e": 3}, false},
	} {
		if v := judge(x.self, x.leader, x.n, x.have); v.odd != x.odd {
			t.Errorf("%s: odd %v, %s", name, v.odd, v.text)
		}
	}
}

func TestRecentPlacements(t *testing.T) {
	t.Parallel()
	f := newFSM()
	if p := f.at(7); p != nil {
		t.Errorf("an empty state machine has %s", p)
	}
	f = formedFSM(t)
	for i := range int64(100) {
		f.Apply(entry(t, i+1))
	}
	for revision, want := range map[uint64]uint64{100: 100, 1000: 100, 99: 99, 37: 37, 36: 0, 1: 0} {
		got := uint64(0)
		if p := f.at(revision); p != nil {
			got = p.Revision
		}
		if got != want {
			t.Errorf("at revision %d: %d, not %d", revision, got, want)
		}
	}
	f.set(&membership.Placement{ClusterID: "c1", Revision: 90, Limits: membership.Limits{Rate: 7}}) // restored from a snapshot
	if p := f.at(90); p == nil || p.Limits.Rate != 7 {
		t.Errorf("after a snapshot: %v", p)
	}
	if p := f.at(95); p == nil || p.Revision != 90 {
		t.Errorf("after a snapshot the newest is %v", p)
	}
}

const compareDefault = defaultHeartbeat * 5 / 2

// stopped waits until exactly these members have stopped, and gives the error of the first.
func (c *cluster) stopped(ids ...string) error {
	c.t.Helper()
	c.eventually("the odd ones stop", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return c.members[id].Err() == nil })
	})
	c.pass(4 * compareDefault)
	for id, m := range c.members {
		if err := m.Err(); err != nil && !slices.Contains(ids, id) {
			c.t.Errorf("%s has stopped too: %v", id, err)
		}
	}
	return c.members[ids[0]].Err()
}

func spoil(p *membership.Placement) { p.Replicas = map[string]int{"": 2, "x": 9} }

// TestVirtualOddOne spoils one member's placement, the leader's or another's: it stops, and the others go on.
func TestVirtualOddOne(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.mayFork = true
		c.grown(names(3 + r.IntN(3))...)
		odd := c.any(r)
		odd.Corrupt(spoil)
		if r.IntN(2) == 0 { // more entries follow: the difference stays
			if err := c.any(r).SetLimits(c.ctx, membership.Limits{Rate: 4}); err != nil {
				c.t.Fatal(err)
			}
		}
		at := time.Now()
		err := c.stopped(odd.id)
		if d := time.Since(at); d > 10*compareDefault {
			c.t.Errorf("it took %s", d)
		}
		if !errors.Is(err, ErrDiverged) {
			c.t.Errorf("%s stopped with %v", odd.id, err)
		}
		for _, part := range []string{"member " + odd.id + " has digest ", "version ", "revision ", " is what ", "remove it from the ring"} {
			if !strings.Contains(err.Error(), part) {
				c.t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		if s := odd.Status().State; s != "shutdown" {
			c.t.Errorf("%s has stopped and is %s", odd.id, s)
		}
		c.forget(odd.id)
		odd.close()
		if err := c.leader().SetLimits(c.ctx, membership.Limits{Rate: 5}); err != nil {
			c.t.Errorf("the others do not go on: %v", err)
		}
	})
}

// TestVirtualOddMinority spoils two of five in different ways, and of two members the leader or the other: the other stops.
func TestVirtualOddMinority(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.mayFork = true
		c.grown(names(5)...)
		c.members["b"].Corrupt(spoil)
		c.members["d"].Corrupt(func(p *membership.Placement) { p.Version++ })
		c.stopped("b", "d")
	})
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.mayFork = true
		c.grown("a", "b")
		l, f := c.leader(), c.follower()
		c.any(r).Corrupt(spoil)
		c.stopped(f.id)
		if l.Err() != nil {
			c.t.Error("the leader of two has stopped")
		}
	})
}

// TestVirtualOddUndecided cuts one of three off and spoils another: nobody can say who is right until the third is back.
func TestVirtualOddUndecided(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.mayFork = true
		c.grown("a", "b", "c")
		away := c.follower()
		c.net.isolate(addrOf(away.id))
		odd := c.any(r)
		for odd == away {
			odd = c.any(r)
		}
		odd.Corrupt(spoil)
		c.pass(10 * compareDefault)
		for id, m := range c.members {
			if m.Err() != nil {
				c.t.Errorf("%s has stopped: %v", id, m.Err())
			}
		}
		c.net.heal(addrOf(away.id))
		c.stopped(odd.id)
	})
}
