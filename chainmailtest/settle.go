package chainmailtest

import (
	"context"
	"errors"
	"fmt"

	"chainmail"
	"chainmail/coordinator/membership"
)

// Settle waits until nothing is left to be done: no change runs, every member that runs serves and knows the newest
// placement, those that do not are known to be down, votes are where they should be, and no member holds copies that
// belong to others. Members that cannot reach each other never settle: Heal first.
func (c *Cluster) Settle() {
	c.t.Helper()
	c.until("the cluster has settled", func(ctx context.Context) error {
		all := c.all()
		n := newest(all)
		if n == nil {
			return errors.New("no member runs")
		}
		p := n.Coordinator().Placement()
		if p.Running != nil || p.Stage != membership.StageStable || len(p.Base) == 0 {
			return fmt.Errorf("placement %s waits for %v", p, membership.Waiting(p))
		}
		for _, m := range all {
			if err := m.settled(ctx, p); err != nil {
				return err
			}
		}
		if err := votesSettled(n, p); err != nil {
			return err
		}
		return swept(ctx, n, all)
	})
}

// settled says what a member, or the others of it, still has to see.
func (m *member) settled(ctx context.Context, p *membership.Placement) error {
	listed, ok := p.Member(m.id)
	switch {
	case m.removed && ok && membership.In(p.Base, m.id):
		return fmt.Errorf("%s is on the ring", m.id)
	case m.removed || !ok && !m.works():
		return nil
	case !m.works():
		if !listed.Down {
			return fmt.Errorf("%s is not known to be down", m.id)
		}
		return nil
	case listed.Down || listed.Refilling:
		return fmt.Errorf("%s is down %t, refilling %t", m.id, listed.Down, listed.Refilling)
	}
	if mine := m.node.Coordinator().Placement(); mine.Revision != p.Revision {
		return fmt.Errorf("%s is at revision %d of %d", m.id, mine.Revision, p.Revision)
	}
	for _, x := range m.node.Ready(ctx) {
		if !x.OK {
			return fmt.Errorf("%s is not ready: %s: %s", m.id, x.Name, x.Why)
		}
	}
	return nil
}

// votesSettled says whether all have a vote who should: an even number of votes is not aimed at.
func votesSettled(n *chainmail.Node, p *membership.Placement) error {
	voters, could := 0, 0
	for _, s := range n.Coordinator().Status().Servers {
		m, ok := p.Member(s.ID)
		fit := ok && !m.Down && !m.NonVoter && membership.In(p.Base, m.ID)
		switch {
		case !ok || m.Removed:
			return fmt.Errorf("%s is still in the log's group", s.ID)
		case s.Voter:
			voters++
		case fit:
			could++
		}
	}
	if more := min(voters+could, firstVoters); voters < more-1 || voters < more && more%2 == 1 {
		return fmt.Errorf("%d members vote, %d more could", voters, could)
	}
	return nil
}

// swept says whether members still hold copies that belong to others.
func swept(ctx context.Context, n *chainmail.Node, all []member) error {
	for _, s := range n.Members(ctx) {
		for _, m := range all {
			if m.id == s.ID && m.works() && (!s.Reachable || !s.Complete && membership.In(n.Coordinator().Placement().Base, s.ID) || s.Orphans > 0 || s.Held > 0) {
				return fmt.Errorf("%s has %d copies of others, holds %d messages, reachable %t, complete %t", s.ID, s.Orphans, s.Held, s.Reachable, s.Complete)
			}
		}
	}
	return nil
}
