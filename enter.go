package chainmail

import (
	"context"
	"errors"
	"fmt"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

// Enter puts this member on the ring: it is to Leave what coming is to going. A member that has only joined, by
// Config.RetryJoin, follows the log and owns nothing. Enter submits the change that adds it, after other changes have ended,
// and returns when the member holds its ranges and serves. The first members of a cluster are on the ring without it. If ctx
// ends first the change goes on.
func (n *Node) Enter(ctx context.Context) error {
	w := n.coord.Watch()
	defer w.Close()
	submitted := ""
	for {
		p := n.coord.Placement()
		on, err := n.entered(p, submitted)
		if on {
			return n.WaitReady(ctx)
		}
		if m, listed := p.Member(n.id); err == nil && submitted == "" && listed && m.Incarnation == n.inc && !p.Places(n.id) {
			submitted, err = n.submitEntry(ctx)
		}
		if err != nil {
			return fmt.Errorf("enter as member %s: %w", n.id, err)
		}
		select {
		case <-w.C(): // all that it waits for is in the placement
		case <-n.removed:
			return n.banned
		case <-n.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("enter as member %s: %w; placement %s", n.id, ctx.Err(), p)
		}
	}
}

// entered says whether this member is on the ring by a placement; it is an error if the change for it has ended otherwise.
// Before the log lists this incarnation nothing is known: the placement is from an earlier run of the member.
func (n *Node) entered(p *membership.Placement, submitted string) (bool, error) {
	if m, ok := p.Member(n.id); ok && m.Incarnation == n.inc && membership.In(p.Base, n.id) {
		return true, nil
	}
	for _, ch := range p.History {
		if ch.ID == submitted && !p.Places(n.id) {
			return false, fmt.Errorf("change %s ended as %s", ch.ID, ch.Outcome)
		}
	}
	return false, nil
}

// submitEntry gives the id of the change, "" if another one runs.
func (n *Node) submitEntry(ctx context.Context) (string, error) {
	ch, err := n.coord.Submit(ctx, coordinator.ChangeRequest{Add: []string{n.id}, By: n.id, Why: "enter"})
	var r *coordinator.Refusal
	if errors.As(err, &r) && r.Code == membership.ErrRunning {
		return "", nil
	}
	return ch.ID, err
}
