package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// configurations reads all server lists in a member's log.
func configurations(t *testing.T, m *member) []raft.Configuration {
	t.Helper()
	first, err := m.stores.log.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := m.stores.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	var out []raft.Configuration
	for i := first; i <= last; i++ {
		var l raft.Log
		if err := m.stores.log.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if l.Type == raft.LogConfiguration {
			out = append(out, raft.DecodeConfiguration(l.Data))
		}
	}
	return out
}

// oneByOne checks that no two adjacent server lists differ by more than one server.
func oneByOne(t *testing.T, list []raft.Configuration) {
	t.Helper()
	for i := 1; i < len(list); i++ {
		was, is := list[i-1].Servers, list[i].Servers
		n := 0
		for _, s := range is {
			if !slices.Contains(was, s) {
				n++
			}
		}
		for _, s := range was {
			if !slices.ContainsFunc(is, func(o raft.Server) bool { return o.ID == s.ID }) {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%d servers changed at once: %v to %v", n, was, is)
		}
	}
}

func TestPromotion(t *testing.T) {
	c := founded(t, "a", "b", "c")
	c.join("d", "e", "f")
	if got := c.votes(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("members outside the ring got votes: %v", got)
	}
	// One more would make an even number: no vote.
	c.submit(c.leader(), ChangeRequest{Add: []string{"d"}})
	c.placed("a", "b", "c", "d")
	c.submit(c.leader(), ChangeRequest{Add: []string{"e", "f"}})
	c.placed("a", "b", "c", "d", "e", "f")
	c.eventually("five votes", func() bool { return len(c.votes()) == 5 })
	list := configurations(t, c.leader())
	oneByOne(t, list)
	most := 0
	for _, x := range list {
		n := 0
		for _, s := range x.Servers {
			if s.Suffrage == raft.Voter {
				n++
			}
		}
		most = max(most, n)
	}
	if most != 5 {
		t.Errorf("there were %d votes at a time, 5 are allowed", most)
	}
}

// TestVotePasses has a voter go in the very moment in which the change that replaces it is done. Those that came have no vote
// yet; one of them has to have it before the voter loses its own.
func TestVotePasses(t *testing.T) {
	c := founded(t, "a", "b", "c")
	m := c.follower()
	c.join("d", "e")
	c.submit(c.leader(), ChangeRequest{Add: []string{"d", "e"}, Remove: []string{m.id}})
	c.eventually(m.id+" is removed", func() bool { p := m.Placement(); return p.Running == nil && !p.Places(m.id) })
	if err := m.Depart(c.ctx, m.inc); err != nil {
		t.Fatal(err)
	}
	for _, x := range configurations(t, c.leader()) {
		voters, was := 0, false
		for _, s := range x.Servers {
			if s.Suffrage == raft.Voter {
				voters++
				was = was || string(s.ID) == m.id
			}
		}
		if !was && voters > 1 && voters < 3 {
			t.Errorf("%d votes without that of %s: %v", voters, m.id, x.Servers)
		}
	}
}

// TestHeirStays has a voter go while a change runs that removes another member: that one is on the ring yet, and gets no vote.
func TestHeirStays(t *testing.T) {
	t.Parallel()
	p := &membership.Placement{Stage: membership.StageCopy}
	var servers []raft.Server
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		p.Members = append(p.Members, membership.Member{ID: id})
		servers = append(servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(addrOf(id)), Suffrage: raft.Nonvoter})
		p.Base = append(p.Base, ring.Member{ID: id, Weight: 1})
	}
	for i := range 3 {
		servers[i].Suffrage = raft.Voter
	}
	p.Next = slices.Delete(slices.Clone(p.Base), 3, 4)
	all := func(string) bool { return true }
	for _, c := range []struct{ target, want string }{{"abcde", "d"}, {"abce", "e"}, {"abc", ""}} {
		p.Target = nil
		for _, id := range c.target {
			p.Target = append(p.Target, ring.Member{ID: string(id), Weight: 1})
		}
		got := ""
		if s := heir(p, servers, "a", 5, all); s != nil {
			got = string(s.ID)
		}
		if got != c.want {
			t.Errorf("a goes while the target is %s: its vote is for %q, not %q", c.target, got, c.want)
		}
	}
}

func TestWantedVotes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ voters, could, most, want int }{
		{1, 0, 5, 1}, {1, 1, 5, 1}, {1, 2, 5, 3}, {2, 1, 5, 3}, {3, 1, 5, 3}, {3, 2, 5, 5}, {4, 0, 5, 4}, {4, 1, 5, 5}, {5, 9, 5, 5}, {3, 9, 3, 3},
		{3, 4, 4, 3}, {7, 0, 5, 7}, {6, 2, 5, 6}, {2, 0, 5, 2},
	} {
		if got := wantedVotes(c.voters, c.could, c.most); got != c.want {
			t.Errorf("%d votes, %d could, at most %d: %d, not %d", c.voters, c.could, c.most, got, c.want)
		}
	}
}

// TestLeaderKilled kills the leader in both stages of a change; the next one goes on.
func TestLeaderKilled(t *testing.T) {
	for _, stage := range []membership.Stage{membership.StageCopy, membership.StageSwitch} {
		t.Run(stage.String(), func(t *testing.T) {
			c := founded(t, "a", "b", "c")
			c.join("d")
			d := c.members["d"]
			if stage == membership.StageCopy {
				d.setSilent(true)
			}
			for _, id := range []string{"a", "b", "c"} {
				c.members[id].setSilent(true)
			}
			ch := c.submit(c.follower(), ChangeRequest{Add: []string{"d"}})
			c.eventually("stage "+stage.String(), func() bool { return d.Placement().Stage == stage })
			old := c.leader()
			old.kill()
			c.forget(old.id)
			for _, m := range c.members {
				m.setSilent(false)
			}
			c.eventually("the change ends", func() bool {
				h, ok := findChange(c.leaderPlacement(), ch.ID)
				return ok && h.Outcome == membership.Done
			})
			c.placed("a", "b", "c", "d")
			c.eventually("the dead member is marked", func() bool { m, _ := c.leaderPlacement().Member(old.id); return m.Down })
		})
	}
}

// TestDownStaysDown has the leadership move while a member is dead: a leader that has not heard long enough of its
// silence must not take it for alive.
func TestDownStaysDown(t *testing.T) {
	c := founded(t, "a", "b", "c", "d", "e")
	c.net.setMute()
	dead := c.follower()
	dead.kill()
	c.forget(dead.id)
	c.eventually("the dead member is marked", func() bool { m, _ := c.leaderPlacement().Member(dead.id); return m.Down })
	old := c.leader()
	seen := make(chan string, 1)
	ctx, done := context.WithCancel(c.ctx)
	watched := make(chan struct{})
	w := old.Watch()
	go func() {
		defer close(watched)
		defer w.Close()
		for {
			select {
			case p := <-w.C():
				if m, _ := p.Member(dead.id); !m.Down {
					select {
					case seen <- p.String():
					default:
					}
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := old.TransferLeadership(); err != nil {
		t.Fatal(err)
	}
	l := c.leader()
	c.eventually("the next leader has marked all that it wants to", func() bool { return l.health.down(dead.id, 5*l.cfg.DownAfter) })
	done()
	<-watched
	select {
	case p := <-seen:
		t.Errorf("the dead member was up for a while: %s", p)
	default:
	}
	// Who comes back is up again.
	back := c.start(dead.id, func(cfg *Config) { cfg.RetryJoin = addrs(l.id) })
	back.inc = 2
	c.eventually("it is up again", func() bool { m, _ := c.leaderPlacement().Member(dead.id); return !m.Down })
}

func TestForwarded(t *testing.T) {
	c := founded(t, "a", "b", "c")
	c.join("d")
	f := c.follower()
	f.setSilent(true)
	c.members["d"].setSilent(true)
	ch := c.submit(f, ChangeRequest{Add: []string{"d"}, Key: "k1", By: "ops", Why: "room"})
	if ch.Key != "k1" || ch.By != "ops" || ch.Outcome != membership.Running || !slices.Equal(ch.Add, []string{"d"}) {
		t.Errorf("change is %+v", ch)
	}
	if again := c.submit(c.leader(), ChangeRequest{Add: []string{"d"}, Key: "k1"}); again.ID != ch.ID {
		t.Errorf("the same key gave %s and %s", ch.ID, again.ID)
	}
	var r *Refusal
	if _, err := f.Submit(c.ctx, ChangeRequest{Remove: []string{"a"}}); !errors.As(err, &r) || r.Code != membership.ErrRunning || r.ID != ch.ID {
		t.Errorf("a second change: %v", err)
	}
	if _, err := f.Submit(c.ctx, ChangeRequest{Add: []string{"d"}, Key: "k1", Remove: []string{"a"}}); !errors.As(err, &r) || r.Code != membership.ErrKeyReused {
		t.Errorf("a key with another body: %v", err)
	}
	for _, step := range []func() error{
		func() error { return f.Pause(c.ctx, "") },
		func() error { return f.Resume(c.ctx, ch.ID) },
		func() error { return f.SetLimits(c.ctx, membership.Limits{Rate: 7}) },
		func() error { return f.Abort(c.ctx, "") },
		func() error { return f.SetReplicas(c.ctx, "kv", 2) },
	} {
		if err := step(); err != nil {
			t.Error(err)
		}
	}
	if err := f.Abort(c.ctx, ""); !errors.As(err, &r) || r.Code != membership.ErrUnknownChange {
		t.Errorf("abort of nothing: %v", err)
	}
	if _, err := f.DeclareLost(c.ctx, LossRequest{}); !errors.As(err, &r) || r.Code != membership.ErrInvalid {
		t.Errorf("loss of nothing: %v", err)
	}
	p, err := f.LeaderPlacement(c.ctx)
	if err != nil || p.Limits.Rate != 7 || p.Replicas["kv"] != 2 || p.Running != nil || p.History[len(p.History)-1].Outcome != membership.Aborted {
		t.Errorf("placement %+v, %v", p, err)
	}
	if _, err := f.Change(c.ctx, "c-4711"); !errors.As(err, &r) || r.Code != membership.ErrUnknownChange {
		t.Errorf("unknown change: %v", err)
	}
	if err := f.TransferLeadership(); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower gives the leadership away: %v", err)
	}
}

// TestLostAnswer loses the answers of the leader: the same command is sent again and takes effect once; if nothing is
// heard at all the outcome is unknown.
func TestLostAnswer(t *testing.T) {
	c := founded(t, "a", "b", "c")
	c.join("d")
	c.members["d"].setSilent(true)
	f := c.members["d"]
	lost := 0 // guarded by the network
	c.net.loseAnswers(func(from, _ string, kind uint8) bool {
		if from == addrOf("d") && kind == KindPropose && lost < 2 {
			lost++
			return true
		}
		return false
	})
	before := len(c.leaderPlacement().History)
	ch := c.submit(f, ChangeRequest{Add: []string{"d"}})
	c.net.loseAnswers(nil)
	if p := c.leaderPlacement(); p.Running == nil || p.Running.ID != ch.ID || len(p.History) != before {
		t.Errorf("after lost answers: running %+v, %d changes have ended", p.Running, len(p.History)-before)
	}
	c.net.loseAnswers(func(from, _ string, kind uint8) bool { return from == addrOf("d") && kind == KindPropose })
	ctx, done := context.WithTimeout(c.ctx, 3*testHeartbeat)
	defer done()
	err := f.SetLimits(ctx, membership.Limits{Rate: 9})
	c.net.loseAnswers(nil)
	if !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no answer at all: %v", err)
	}
	// Without a leader nothing has reached a log, and that is known.
	c.net.isolate(addrOf("d"))
	c.eventually("d has no leader", func() bool { return f.Status().LeaderID == "" })
	ctx, done = context.WithTimeout(c.ctx, testHeartbeat)
	defer done()
	if err := f.SetLimits(ctx, membership.Limits{Rate: 10}); !errors.Is(err, ErrNoLeader) || errors.Is(err, ErrUnknownOutcome) {
		t.Errorf("no leader: %v", err)
	}
	c.net.heal(addrOf("d"))
}

// TestIsolatedLeader cuts the leader off while it is asked: it does not apply what it is told, and takes the others' log
// when it is back.
func TestIsolatedLeader(t *testing.T) {
	c := founded(t, "a", "b", "c")
	old := c.leader()
	c.net.isolate(addrOf(old.id))
	ctx, done := context.WithTimeout(c.ctx, 4*testHeartbeat)
	defer done()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := old.SetLimits(ctx, membership.Limits{Rate: 1}); !errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("an isolated leader answers %v", err)
		}
	})
	wg.Go(func() {
		old.LeaderPlacement(ctx) // answers that were on their way when it was cut off may still confirm this one
		if p, err := old.LeaderPlacement(ctx); err == nil {
			t.Errorf("an isolated leader confirms its placement: %s", p)
		}
	})
	wg.Wait()
	if r := old.Placement().Limits.Rate; r != 0 {
		t.Error("an isolated leader has applied a command")
	}
	var next *member
	c.eventually("another leader", func() bool {
		for _, m := range c.members {
			if m != old && m.IsLeader() {
				next = m
			}
		}
		return next != nil
	})
	if err := next.SetLimits(c.ctx, membership.Limits{Rate: 2}); err != nil {
		t.Fatal(err)
	}
	c.net.heal(addrOf(old.id))
	c.eventually("all have the same", func() bool {
		for _, m := range c.members {
			if m.Placement().Limits.Rate != 2 || m.Placement().Revision != next.Placement().Revision {
				return false
			}
		}
		return true
	})
}

// depart has a member go as the engine does: removed by a change, then let go.
func (c *cluster) depart(m *member) {
	c.t.Helper()
	c.submit(m, ChangeRequest{Remove: []string{m.id}})
	c.eventually(m.id+" is removed", func() bool {
		p := m.Placement()
		return p.Running == nil && !membership.In(p.Base, m.id)
	})
	if err := m.Depart(c.ctx, m.inc); err != nil {
		c.t.Fatalf("depart of %s: %v", m.id, err)
	}
	m.close()
	c.forget(m.id)
}

func TestDepartOfLeader(t *testing.T) {
	c := founded(t, "a", "b", "c", "d")
	for range 2 {
		l := c.leader()
		c.depart(l)
		c.eventually(l.id+" is gone", func() bool {
			_, known := c.leaderPlacement().Member(l.id)
			return !known && !slices.ContainsFunc(c.leader().Status().Servers, func(s Server) bool { return s.ID == l.id })
		})
	}
	oneByOne(t, configurations(t, c.leader()))
	if n := len(c.votes()); n != 2 {
		t.Errorf("%d votes are left of 4", n)
	}
	// One that is still on the ring is not let go.
	ctx, done := context.WithTimeout(c.ctx, 3*testHeartbeat)
	defer done()
	if err := c.follower().Depart(ctx, 1); err == nil {
		t.Error("a member of the ring was let go")
	}
}

// TestDepartAnswerLost lets a member go, but it is not told: it has to find out from others, since Raft does not tell it.
func TestDepartAnswerLost(t *testing.T) {
	c := founded(t, "a", "b", "c", "d")
	f := c.follower()
	first := true // guarded by the network
	c.net.loseAnswers(func(from, _ string, kind uint8) bool {
		if kind == KindDepart && first {
			first = false
			c.net.cut[addrOf(f.id)] = true // so that it loses sight of the leader; the network is locked
			return true
		}
		return false
	})
	heal := make(chan struct{})
	go func() {
		defer close(heal)
		for f.Status().LeaderID != "" && c.ctx.Err() == nil {
			f.sleep(c.ctx, time.Millisecond)
		}
		c.net.heal(addrOf(f.id))
	}()
	c.depart(f)
	<-heal
	if first {
		t.Error("no answer was lost")
	}
}

// TestDepartOfOldIncarnation has a member that was removed come back with a new memory before the old process says that it
// goes: the old one is told so, and the new one stays.
func TestDepartOfOldIncarnation(t *testing.T) {
	c := founded(t, "a", "b", "c", "d")
	d := c.members["d"]
	c.submit(d, ChangeRequest{Remove: []string{"d"}})
	c.placed("a", "b", "c")
	if err := d.Register(c.ctx, 2, []uint64{1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Depart(c.ctx, 1); !errors.Is(err, ErrRemoved) {
		t.Errorf("the old incarnation departs: %v", err)
	}
	m, ok := c.leaderPlacement().Member("d")
	if !ok || m.Incarnation != 2 || !slices.ContainsFunc(c.leader().Status().Servers, func(s Server) bool { return s.ID == "d" }) {
		t.Errorf("the new incarnation: %+v, %v", m, c.leader().Status().Servers)
	}
	d.setIncarnation(2)
	if err := d.Depart(c.ctx, 2); err != nil {
		t.Errorf("the new incarnation departs: %v", err)
	}
	if err := d.Depart(c.ctx, 2); err != nil {
		t.Errorf("told a second time: %v", err)
	}
	d.close()
	c.forget("d")
}

// TestRejoinAfterRemoval has a removed member come back with a new memory: it is a standby like any other, and is not let
// go again when it is down for a while.
func TestRejoinAfterRemoval(t *testing.T) {
	c := founded(t, "a", "b", "c", "d")
	d := c.members["d"]
	c.depart(d)
	back := c.start("d", func(cfg *Config) { cfg.RetryJoin = addrs("a", "b", "c") })
	back.inc = 2
	c.eventually("d is back", func() bool { m, ok := c.leaderPlacement().Member("d"); return ok && m.Incarnation == 2 })
	back.kill()
	c.forget("d")
	c.eventually("d is down", func() bool { m, ok := c.leaderPlacement().Member("d"); return !ok || m.Down })
	looked := c.leaderPlacement().Revision
	for range 10 { // the leader looks at votes and removed members at each of these
		l := c.leader()
		if err := l.SetLimits(c.ctx, membership.Limits{Rate: int64(c.leaderPlacement().Revision)}); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		c.eventually("the leader has looked", func() bool { return time.Since(at) > testHeartbeat })
	}
	if _, ok := c.leaderPlacement().Member("d"); !ok || c.leaderPlacement().Revision <= looked {
		t.Error("a standby that had been removed before was forgotten")
	}
}

// TestDeadIsRemoved has the leader remove a member that is down for long, and its server.
func TestDeadIsRemoved(t *testing.T) {
	c := newCluster(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		c.start(id, func(cfg *Config) { cfg.RemoveDownAfter = 5 * testHeartbeat })
	}
	if err := c.members["a"].Bootstrap(voters("a", "b", "c", "d"), false); err != nil {
		t.Fatal(err)
	}
	c.placed("a", "b", "c", "d")
	dead := c.follower()
	dead.kill()
	c.forget(dead.id)
	c.eventually("it is removed and forgotten", func() bool {
		p := c.leaderPlacement()
		_, known := p.Member(dead.id)
		return !known && p.Running == nil && len(c.leader().Status().Servers) == 3
	})
	if h := c.leaderPlacement().History; h[len(h)-1].Outcome != membership.Done || h[len(h)-1].Why == "" {
		t.Errorf("the removal is %+v", h[len(h)-1])
	}
}
