package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// sleep waits for d, unless ctx ends or the coordinator is closed.
func (c *Coordinator) sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrClosed
	}
}

// Bootstrap forms the cluster with the given voters, id to address; this member must be one of them. It may be given
// the same voters on several of them. If a cluster is formed already it is ErrFormed, or nothing with ifNeeded.
func (c *Coordinator) Bootstrap(voters map[string]string, ifNeeded bool) error {
	c.formMu.Lock()
	defer c.formMu.Unlock()
	if voters[c.cfg.Self.ID] == "" {
		return fmt.Errorf("bootstrap: member %s is not among the voters; run it on one that is", c.cfg.Self.ID)
	}
	if c.raft.LastIndex() > 0 {
		if ifNeeded {
			return nil
		}
		return fmt.Errorf("bootstrap on member %s: %w; use join to add members to it", c.cfg.Self.ID, ErrFormed)
	}
	var cfg raft.Configuration
	for _, id := range sorted(voters) {
		cfg.Servers = append(cfg.Servers, raft.Server{ID: raft.ServerID(id), Address: raft.ServerAddress(voters[id]), Suffrage: raft.Voter})
	}
	err := c.ask(func() error { return c.raft.BootstrapCluster(cfg).Error() })
	if errors.Is(err, raft.ErrCantBootstrap) {
		if ifNeeded {
			return nil
		}
		err = ErrFormed
	}
	if err != nil {
		return fmt.Errorf("bootstrap on member %s: %w", c.cfg.Self.ID, err)
	}
	c.gate.open()
	return nil
}

// Join asks the cluster at any of the addresses to take this member in. It then follows the log, without a vote and
// without a part in the ring.
func (c *Coordinator) Join(ctx context.Context, addrs []string) error {
	q, err := json.Marshal(joinRequest{c.cfg.Self.ID, c.cfg.Self.Address, c.cfg.ClusterName, !c.gate.isOpen()})
	if err != nil {
		return err
	}
	last := errors.New("no address was given")
	for _, addr := range addrs {
		if addr == c.cfg.Self.Address {
			continue
		}
		last = fmt.Errorf("%s: %w", addr, ErrNoLeader)
		for range 2 { // the first one may name the leader
			var s Status
			b, err := c.cfg.Requests.Request(ctx, addr, KindJoin, q)
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil {
				last = err
				break
			}
			if s.State == "leader" {
				c.gate.open()
				return nil
			}
			if s.LeaderAddr == "" {
				break
			}
			addr = s.LeaderAddr
		}
		if errors.Is(last, ErrWrongCluster) {
			break
		}
	}
	return fmt.Errorf("join as member %s: %w", c.cfg.Self.ID, last)
}

// Joined says whether this member is part of a cluster, even if the log has not come here yet.
func (c *Coordinator) Joined() bool { return c.gate.isOpen() }

// admit takes a member in as a non-voter, if this member leads; else it says who does.
func (c *Coordinator) admit(q joinRequest) ([]byte, error) {
	if q.ClusterName != c.cfg.ClusterName {
		return nil, fmt.Errorf("member %s is of cluster %q, this is %q: %w", q.ID, q.ClusterName, c.cfg.ClusterName, ErrWrongCluster)
	}
	if c.IsLeader() {
		for _, s := range c.servers() {
			if string(s.Address) == q.Address && string(s.ID) != q.ID {
				return nil, fmt.Errorf("member %s comes with address %s, which member %s has: %w", q.ID, q.Address, s.ID, ErrAddress)
			}
		}
		if err := c.letIn(q); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
	}
	return json.Marshal(c.Status())
}

// letIn makes a member a server of Raft. One that is empty although it has a vote has lost its disk: the vote is taken
// from it, and it gets it back when it has caught up. That this is committed, or confirmed, by a majority in which the
// empty one does not count shows that this member leads and knows all that was committed.
func (c *Coordinator) letIn(q joinRequest) error {
	known, votes := false, false
	for _, s := range c.servers() {
		if string(s.ID) == q.ID {
			known, votes = string(s.Address) == q.Address, s.Suffrage == raft.Voter
		}
	}
	// One that has not registered is about to form the cluster with the others.
	if _, registered := c.Placement().Member(q.ID); q.Empty && votes && registered {
		c.log.Warn("a voter comes back without its log: it is demoted", "member", q.ID)
		if err := c.ask(func() error { return c.raft.DemoteVoter(raft.ServerID(q.ID), 0, queueTimeout).Error() }); err != nil {
			return err
		}
	}
	if !known { // for a known id this changes the address alone
		return c.ask(func() error {
			return c.raft.AddNonvoter(raft.ServerID(q.ID), raft.ServerAddress(q.Address), 0, queueTimeout).Error()
		})
	}
	if q.Empty {
		return c.confirm()
	}
	return nil
}

// findCluster joins what is there, or forms the cluster when as many members as are expected see each other and none of
// them has found one: joining comes first, so that no second cluster is formed beside a running one. They have to see the
// same members: two that each see another part of those that are listed would form two clusters.
func (c *Coordinator) findCluster() {
	var leader []string // one that has this member among its servers and was refused
	for c.raft.LastIndex() == 0 {
		ctx, done := context.WithTimeout(c.ctx, c.cfg.RetryInterval)
		peers, agree, formed := c.look(ctx)
		switch {
		case formed || len(leader) > 0:
			if err := c.Join(ctx, append(leader, c.cfg.RetryJoin...)); err != nil {
				level := hclog.Info
				if errors.Is(err, ErrAddress) || errors.Is(err, ErrWrongCluster) {
					level = hclog.Error // time does not mend it
				}
				c.log.Log(level, "join failed, trying again", "error", err)
			}
		case c.cfg.BootstrapExpect == 0 || len(peers) < c.cfg.BootstrapExpect:
		case len(peers) > c.cfg.BootstrapExpect:
			c.log.Error("too many members expect to form the cluster; bootstrap it by hand", "seen", sorted(peers), "expected", c.cfg.BootstrapExpect)
		case agree && sorted(peers)[0] == c.cfg.Self.ID:
			if err := c.Bootstrap(peers, true); err != nil {
				c.log.Error("bootstrap failed", "error", err)
			}
		}
		done()
		again := time.NewTimer(min(c.cfg.RetryInterval, time.Second))
		select {
		case addr := <-c.gate.heard:
			c.log.Info("a leader lists this member, whose Raft state is empty: asking it to be let in", "member", c.cfg.Self.ID, "peer", addr)
			leader = []string{addr}
		case <-again.C:
		case <-c.ctx.Done():
		}
		again.Stop()
		if c.ctx.Err() != nil {
			return
		}
	}
}

// look asks who is at the addresses to join: the ids and addresses of those that expect as many first members as this
// one, this one's too, whether they see the same ones, and whether anybody there is part of a cluster. Members of a
// cluster with another name do not count.
func (c *Coordinator) look(ctx context.Context) (peers map[string]string, agree, formed bool) {
	sees := map[string][]string{}
	peers = map[string]string{c.cfg.Self.ID: c.cfg.Self.Address}
	for _, addr := range c.cfg.RetryJoin {
		if addr == c.cfg.Self.Address {
			continue
		}
		s, err := c.statusAt(ctx, addr)
		if err == nil && s.ClusterName != c.cfg.ClusterName {
			err = fmt.Errorf("member %s is of cluster %q: %w", s.Member, s.ClusterName, ErrWrongCluster)
		}
		if errors.Is(err, ErrWrongCluster) {
			c.log.Error("the member there cannot be joined", "peer", addr, "error", err)
			continue
		}
		if err != nil {
			c.log.Debug("no answer", "peer", addr, "error", err)
			continue
		}
		// Others only join; this member may be listed with another name of its address.
		if s.Expects == c.cfg.BootstrapExpect && s.Member != c.cfg.Self.ID {
			peers[s.Member], sees[s.Member] = addr, s.Sees
		}
		formed = formed || s.HasState
	}
	mine := sorted(peers)
	c.sees.Store(&mine)
	agree = true
	for _, others := range sees {
		agree = agree && slices.Equal(others, mine)
	}
	return peers, agree, formed
}

func sorted(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// formRing makes the first entries of a new cluster: its id, and the change that puts the initial voters on the ring
// once all have registered.
func (c *Coordinator) formRing(p *membership.Placement) {
	ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
	defer done()
	if p.ClusterID == "" {
		_, err := c.propose(ctx, membership.Command{Init: &membership.Init{ClusterID: randomID(), Ring: c.cfg.Ring, Replicas: c.cfg.Replicas, Limits: c.cfg.Limits}})
		c.warn("form the cluster", err)
		return
	}
	if len(p.Base) > 0 || len(p.History) > 0 {
		return
	}
	var add []string
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		if _, ok := p.Member(string(s.ID)); !ok {
			return
		}
		add = append(add, string(s.ID))
	}
	slices.Sort(add)
	_, err := c.propose(ctx, membership.Command{Change: &membership.ChangeCommand{Add: add, Key: "bootstrap", By: c.cfg.Self.ID, Why: "first members"}})
	c.warn("place the first members", err)
}

func (c *Coordinator) warn(what string, err error) {
	if err != nil && c.ctx.Err() == nil {
		c.log.Warn(what+" failed, trying again", "error", err)
	}
}
