package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

const leadEvery = 100 * time.Millisecond

// lead is the leader's loop. What it does is a function of the placement and of what it sees now; another leader does
// the same.
func (c *Coordinator) lead() {
	w := c.Watch()
	defer w.Close()
	tick := time.NewTicker(leadEvery)
	defer tick.Stop()
	leading := c.raft.LeaderCh() // not Config.NotifyCh: Raft would stand still while nobody reads that
	var since time.Time          // leading since; zero: not leading
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-leading:
		case p := <-w.C():
			if err := c.noteFormed(p); err != nil {
				c.log.Error("cannot note that the cluster is formed", "error", err)
			}
		case <-tick.C:
		case <-c.nudge:
		}
		c.lookForLeader(time.Now())
		if !c.IsLeader() {
			if !since.IsZero() {
				since = time.Time{}
				c.health.over()
			}
			continue
		}
		if since.IsZero() {
			since = time.Now()
			c.health.fresh()
			c.log.Info("leading", "member", c.cfg.Self.ID)
		}
		c.moveOn(since)
	}
}

func (c *Coordinator) moveOn(since time.Time) {
	p := c.Placement()
	if p.ClusterID == "" || len(p.Base) == 0 {
		c.formRing(p)
		return
	}
	if c.due(p) {
		ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
		_, err := c.propose(ctx, membership.Command{Advance: &membership.Advance{Version: p.Version, Stage: p.Stage}})
		done()
		c.warn("advance the change", err)
	}
	if time.Since(since) > max(c.cfg.DownAfter, 2*c.cfg.Heartbeat) { // each member's heartbeat has been answered or has failed
		c.markMembers(p)
	}
	c.balanceVotes(p)
}

// due says whether the active step may advance. A placement that was found not to be ready stays so.
func (c *Coordinator) due(p *membership.Placement) bool {
	if p.Stage == membership.StageStable || p.Revision == c.notReady {
		return false
	}
	if !membership.Ready(p) {
		c.notReady = p.Revision
		return false
	}
	return true
}

// markMembers tells the log who is down and who is up again, and has removed who was down for too long.
func (c *Coordinator) markMembers(p *membership.Placement) {
	asked := map[string]bool{} // who is sent heartbeats
	for _, s := range c.servers() {
		asked[string(s.ID)] = true
	}
	for _, m := range p.Members {
		// One that another leader marked is up again only if it answers this one: its first silence may be too young yet.
		down := m.ID != c.cfg.Self.ID && (c.health.down(m.ID, c.cfg.DownAfter) || m.Down && (!asked[m.ID] || c.health.down(m.ID, 0)))
		if down != m.Down {
			ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
			_, err := c.propose(ctx, membership.Command{Mark: &membership.Mark{Member: m.ID, Incarnation: m.Incarnation, Down: down}})
			done()
			c.warn("mark "+m.ID, err)
			c.log.Info("member marked", "member", m.ID, "down", down)
		}
		if down && c.cfg.RemoveDownAfter > 0 && p.Running == nil && len(p.Base) > 1 && membership.In(p.Base, m.ID) && c.health.down(m.ID, c.cfg.RemoveDownAfter) {
			ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
			_, err := c.Submit(ctx, ChangeRequest{Remove: []string{m.ID}, ExpectVersion: p.Version, By: c.cfg.Self.ID, Why: fmt.Sprintf("down for more than %s", c.cfg.RemoveDownAfter)})
			done()
			c.warn("remove "+m.ID, err)
			return
		}
	}
}

// Depart tells the leader that this incarnation of this member, which a change has removed, has handed everything over.
// It returns when the member is no longer part of the Raft group. If another incarnation has taken its place it is
// ErrRemoved: what that one does is its own affair.
func (c *Coordinator) Depart(ctx context.Context, incarnation uint64) error {
	b, err := json.Marshal(departRequest{c.cfg.Self.ID, incarnation})
	if err != nil {
		return err
	}
	_, err = c.leaderRequest(ctx, KindDepart, b)
	return err
}

// letGo removes an incarnation that has departed from Raft and from the list of members. Another one of that member that
// has come since stays as it is.
func (c *Coordinator) letGo(ctx context.Context, id string, incarnation uint64) error {
	if !c.IsLeader() {
		return ErrNotLeader
	}
	// The servers first: if a newer incarnation changes them after this, their removal fails.
	f := c.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	p := c.Placement()
	m, listed := p.Member(id)
	if !listed && slices.Contains(p.Banned, membership.Ban{Member: id, Incarnation: incarnation}) {
		return nil // done before; a server of that name is a newer one that has not registered yet
	}
	if listed && m.Incarnation != incarnation {
		return fmt.Errorf("incarnation %x of member %s departs, but %x is listed: %w", incarnation, id, m.Incarnation, ErrRemoved)
	}
	if p.Places(id) {
		return fmt.Errorf("member %s is still on the ring at version %d; remove it with a change first", id, p.Version)
	}
	if id == c.cfg.Self.ID {
		c.handLeadershipOver()
		return ErrNotLeader
	}
	if err := c.removeServer(id, f.Configuration().Servers, f.Index()); err != nil {
		return err
	}
	if !listed {
		return nil
	}
	_, err := c.propose(ctx, membership.Command{Forget: &membership.Forget{Member: id, Incarnation: incarnation}})
	return err
}

// removeServer takes a server out of Raft, if the servers are still those of that index.
func (c *Coordinator) removeServer(id string, servers []raft.Server, index uint64) error {
	for _, s := range servers {
		if string(s.ID) != id {
			continue
		}
		if s.Suffrage == raft.Voter {
			// Who goes right after a change that brought others leaves its vote to one of them, lest the next to fail is one
			// too many.
			if given, err := c.passVote(c.Placement(), id); err != nil {
				return fmt.Errorf("member %s has a vote that nobody could take over: %w", id, err)
			} else if given {
				return fmt.Errorf("member %s has a vote that another takes over now; try again", id)
			}
			if !c.canSpare(id) {
				return fmt.Errorf("member %s has a vote that is needed now; try again later", id)
			}
			if err := c.ask(func() error {
				f := c.raft.DemoteVoter(raft.ServerID(id), index, queueTimeout)
				err := f.Error()
				index = f.Index()
				return err
			}); err != nil {
				return fmt.Errorf("%w: %w", ErrNotLeader, err)
			}
		}
		if err := c.ask(func() error { return c.raft.RemoveServer(raft.ServerID(id), index, queueTimeout).Error() }); err != nil {
			return fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
	}
	return nil
}
