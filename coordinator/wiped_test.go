package coordinator

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// wipe kills a member and starts it again under its name without anything that it had.
func (c *cluster) wipe(m *member, set func(*Config)) *member {
	c.t.Helper()
	m.kill()
	back := c.start(m.id, set)
	back.setIncarnation(m.incarnation() + 1)
	return back
}

func (c *cluster) hasVote(id string) bool { return slices.Contains(c.votes(), id) }

// TestVirtualWipedVoter wipes a voter: its vote is taken before it takes part again, and it has one again when it has caught
// up. It finds the leader by the addresses it is given, or by the leader's own messages.
func TestVirtualWipedVoter(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		ids := names(3 + 2*r.IntN(2))
		c.grown(ids...)
		c.pass(time.Minute)
		m := c.any(r)
		byAddress := r.IntN(2) == 0
		back := c.wipe(m, func(cfg *Config) {
			production(cfg)
			if byAddress {
				cfg.RetryJoin = addrs(ids...)
			}
		})
		c.eventually(m.id+" has the log", func() bool { return back.Placement().ClusterID != "" })
		lists := configurations(c.t, c.leader())
		oneByOne(c.t, lists)
		taken := false
		for _, l := range lists {
			taken = taken || slices.Contains(l.Servers, raft.Server{ID: raft.ServerID(m.id), Address: raft.ServerAddress(addrOf(m.id)), Suffrage: raft.Nonvoter})
		}
		if !taken {
			c.t.Errorf("%s has the log and kept its vote: %v", m.id, lists)
		}
		c.eventually(m.id+" has a vote again", func() bool { return c.hasVote(m.id) && len(c.votes()) == len(ids) })
	})
}

// TestVirtualWipedVoterDecides cuts off a voter, has the others commit, cuts those off except for the one that is wiped then:
// with its vote, the one that knows nothing of what was committed would lead.
func TestVirtualWipedVoterDecides(t *testing.T) {
	virtual(t, *virtualRuns, func(c *cluster, r *rand.Rand) {
		c.grown("a", "b", "c")
		behind := c.follower()
		c.net.isolate(addrOf(behind.id))
		if err := c.leaderOfRest(behind.id).SetLimits(c.ctx, membership.Limits{Rate: 77}); err != nil {
			c.t.Fatal(err)
		}
		var rest []*member
		for _, m := range c.members {
			if m != behind {
				rest = append(rest, m)
			}
		}
		slices.SortFunc(rest, func(a, b *member) int { return int(a.id[0]) - int(b.id[0]) })
		k := r.IntN(2)
		lost, knows := rest[k], rest[1-k]
		c.net.isolate(addrOf(knows.id))
		back := c.wipe(lost, func(cfg *Config) { production(cfg); cfg.RetryJoin = addrs("a", "b", "c") })
		c.net.heal(addrOf(behind.id))
		c.pass(5 * time.Minute)
		if behind.IsLeader() || back.IsLeader() || back.raft.LastIndex() > 0 {
			c.t.Errorf("%s leads: %v, %s leads: %v and has a log up to %d", behind.id, behind.IsLeader(), back.id, back.IsLeader(), back.raft.LastIndex())
		}
		c.net.heal(addrOf(knows.id))
		c.eventually("all know what was committed", func() bool {
			return behind.Placement().Limits.Rate == 77 && back.Placement().Limits.Rate == 77 && c.hasVote(back.id)
		})
	})
}

// TestGate holds what passes while a member has nothing, and what opens it.
func TestGate(t *testing.T) {
	t.Parallel()
	formed, later := uint64(formedLog), uint64(formedLog+1)
	for name, x := range map[string]struct {
		msgs []any
		want bool // the last one passes
	}{
		"entries":                        {[]any{&raft.AppendEntriesRequest{}}, false},
		"a snapshot":                     {[]any{&raft.InstallSnapshotRequest{}}, false},
		"an election on demand":          {[]any{&raft.TimeoutNowRequest{}}, false},
		"a candidate with a log":         {[]any{&raft.RequestVoteRequest{LastLogIndex: later}}, false},
		"a pre-candidate with a log":     {[]any{&raft.RequestPreVoteRequest{LastLogIndex: later}}, false},
		"a candidate of a new cluster":   {[]any{&raft.RequestVoteRequest{LastLogIndex: formed}}, true},
		"a pre-candidate of a new one":   {[]any{&raft.RequestPreVoteRequest{LastLogIndex: formed}}, true},
		"entries of a leader it elected": {[]any{&raft.RequestVoteRequest{LastLogIndex: formed}, &raft.AppendEntriesRequest{}}, true},
	} {
		g := newGate(false)
		got := false
		for _, m := range x.msgs {
			got = g.passes(m)
		}
		if got != x.want {
			t.Errorf("%s: passes %v", name, got)
		}
	}
	g := newGate(false)
	g.passes(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("l:1")}})
	g.passes(&raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("m:1")}})
	if addr := <-g.heard; addr != "l:1" {
		t.Errorf("the leader heard of is %s", addr)
	}
	g.open()
	if !g.passes(&raft.TimeoutNowRequest{}) || !newGate(true).passes(&raft.AppendEntriesRequest{}) {
		t.Error("an open gate holds something back")
	}
	resp := make(chan raft.RPCResponse, 1)
	refuse(raft.RPC{RespChan: resp})
	if r := <-resp; !errors.Is(r.Error, errNotLetIn) {
		t.Errorf("refused with %v", r.Error)
	}
}
