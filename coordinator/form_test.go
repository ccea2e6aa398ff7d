package coordinator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"chainmail/coordinator/membership"
)

func TestBootstrap(t *testing.T) {
	c := newCluster(t)
	for _, id := range []string{"a", "b", "c"} {
		c.start(id, nil)
	}
	if err := c.members["a"].Bootstrap(voters("b", "c"), false); err == nil || !strings.Contains(err.Error(), "not among the voters") {
		t.Errorf("bootstrap without the member itself: %v", err)
	}
	for _, id := range []string{"a", "b", "c"} { // the same on all of them
		if err := c.members[id].Bootstrap(voters("a", "b", "c"), true); err != nil {
			t.Errorf("bootstrap on %s: %v", id, err)
		}
	}
	c.placed("a", "b", "c")
	for _, m := range c.members {
		if err := m.Bootstrap(voters("a", "b", "c"), false); !errors.Is(err, ErrFormed) {
			t.Errorf("second bootstrap on %s: %v", m.id, err)
		}
		if err := m.Bootstrap(voters("a", "b", "c"), true); err != nil {
			t.Errorf("bootstrap on %s if needed: %v", m.id, err)
		}
	}
	if got := c.votes(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("voters are %v", got)
	}
	if h := c.leaderPlacement().History; len(h) != 1 || h[0].Outcome != membership.Done {
		t.Errorf("history of a new cluster: %+v", h)
	}
}

func TestBootstrapExpect(t *testing.T) {
	c := newCluster(t)
	all := addrs("a", "b", "c", "d", "e")
	for _, id := range []string{"a", "b", "c"} {
		c.start(id, func(cfg *Config) { cfg.BootstrapExpect, cfg.RetryJoin = 3, all })
	}
	c.placed("a", "b", "c")
	// Those that come later find it, whatever they expect: even one that would be enough on its own.
	c.start("d", func(cfg *Config) { cfg.RetryJoin = all })
	c.start("A", func(cfg *Config) { cfg.BootstrapExpect, cfg.RetryJoin = 1, all })
	c.placed("a", "b", "c")
	c.eventually("d and A register", func() bool { return len(c.leaderPlacement().Members) == 5 })
	id := c.leaderPlacement().ClusterID
	for _, m := range c.members {
		if p := m.Placement(); p.ClusterID != id {
			t.Errorf("%s is in cluster %s, the others in %s", m.id, p.ClusterID, id)
		}
	}
	if got := c.votes(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("voters are %v", got)
	}
}

// TestNoClusterOfDisagreement has two members that each see another part of those that are listed: neither may form a cluster.
func TestNoClusterOfDisagreement(t *testing.T) {
	c := newCluster(t)
	list := map[string][]string{"a": addrs("a", "b", "c"), "b": addrs("b", "c", "d"), "c": addrs("a", "b", "c"), "d": addrs("b", "c", "d")}
	for id, l := range list {
		c.start(id, func(cfg *Config) { cfg.BootstrapExpect, cfg.RetryJoin = 3, l })
	}
	c.eventually("all have looked twice", func() bool {
		for id, m := range c.members {
			if s := m.sees.Load(); s == nil || len(*s) != 3 || !slices.Contains(*s, id) {
				return false
			}
		}
		return true
	})
	for range 5 {
		for _, m := range c.members {
			if _, agree, formed := m.look(c.ctx); agree || formed {
				t.Errorf("%s: agreed %v, formed %v", m.id, agree, formed)
			}
		}
	}
}

func TestJoinOfAnotherCluster(t *testing.T) {
	c := founded(t, "a")
	x := c.start("x", func(cfg *Config) { cfg.ClusterName, cfg.RetryJoin = "other", addrs("a") })
	ctx, done := context.WithTimeout(c.ctx, 5*c.beat)
	defer done()
	if err := x.Register(ctx, 1, []uint64{1}); !errors.Is(err, ErrNoLeader) {
		t.Errorf("registering with another cluster: %v", err)
	}
	if err := x.Join(c.ctx, addrs("x", "a")); !errors.Is(err, ErrWrongCluster) {
		t.Errorf("join of another cluster: %v", err)
	}
	if err := x.Join(c.ctx, addrs("nobody")); !errors.Is(err, errCut) {
		t.Errorf("join of nobody: %v", err)
	}
	if _, err := c.members["a"].admit(joinRequest{"y", addrOf("a"), "test", true}); !errors.Is(err, ErrAddress) || ErrorOf(ErrorCode(err)) != ErrAddress || !strings.Contains(err.Error(), "member a has") {
		t.Errorf("join with an address that is taken: %v", err)
	}
	if err := x.Join(c.ctx, nil); err == nil {
		t.Error("join without an address")
	}
	if p := c.members["a"].Placement(); len(c.members["a"].Status().Servers) != 1 || len(p.Members) != 1 {
		t.Errorf("a stranger was taken in: %s", p)
	}
}

// TestRestart has a member with a data directory come back, and one whose Raft state was wiped refused.
func TestRestart(t *testing.T) {
	dir := t.TempDir()
	c := newCluster(t)
	kept := func(cfg *Config) { cfg.DataDir = dir }
	a := c.start("a", kept)
	if err := a.Bootstrap(voters("a"), false); err != nil {
		t.Fatal(err)
	}
	c.placed("a")
	c.eventually("the mark of a formed cluster", func() bool { return a.formedBefore() })
	if _, _, _, err := c.open("b", kept); err == nil {
		t.Fatal("two processes use one data directory")
	}
	before := *a.Placement()
	a.close()

	a = c.start("a", kept)
	if err := a.Bootstrap(voters("a"), false); !errors.Is(err, ErrFormed) {
		t.Errorf("bootstrap after a restart: %v", err)
	}
	c.placed("a")
	if p := a.Placement(); p.ClusterID != before.ClusterID || p.Version < before.Version {
		t.Errorf("%s of cluster %s became %s of %s", &before, before.ClusterID, p, p.ClusterID)
	}
	a.close()

	for _, name := range []string{raftFile, "snapshots"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, _, err := c.open("a", kept); !errors.Is(err, ErrWiped) {
		t.Errorf("a wiped voter starts: %v", err)
	}
	if _, _, _, err := c.open("a", kept); !errors.Is(err, ErrWiped) {
		t.Errorf("a wiped voter starts at the second try: %v", err)
	}
}

func TestConfig(t *testing.T) {
	h := newNetwork().host("a")
	good := Config{Self: membership.Member{ID: "a", Address: "a"}, Streams: h, Requests: h}
	if err := good.complete(); err != nil || good.Lease >= good.Heartbeat || good.Replicas != 3 || good.Self.Weight != 1 {
		t.Errorf("defaults: %v, %+v", err, good)
	}
	for name, set := range map[string]func(*Config){
		"no id":         func(c *Config) { c.Self.ID = "" },
		"no address":    func(c *Config) { c.Self.Address = "" },
		"no streams":    func(c *Config) { c.Streams = nil },
		"no requests":   func(c *Config) { c.Requests = nil },
		"trailing logs": func(c *Config) { c.SnapshotThreshold, c.TrailingLogs = 100, 99 },
	} {
		bad := good
		set(&bad)
		if _, err := Open(bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
