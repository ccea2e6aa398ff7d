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
	var e entry
	for {
		p := n.coord.Placement()
		listed, err := false, e.failed(p, n.id)
		if m, ok := p.Member(n.id); ok && m.Incarnation == n.inc { // else the placement is from an earlier run of this member
			listed = true
			if membership.In(p.Base, n.id) {
				return n.WaitReady(ctx)
			}
		}
		if err == nil && listed && e == (entry{}) && !p.Places(n.id) {
			e, err = n.submitEntry(ctx)
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

// entry is what has become of the change that adds a member. The zero value: none was submitted, or another one ran.
type entry struct {
	change  string               // that was submitted
	refused *coordinator.Refusal // why there is none; it may be that the member is on the ring already
}

// failed says, once the placement is new enough to know, why the member is not on the ring.
func (e entry) failed(p *membership.Placement, id string) error {
	if p.Places(id) {
		return nil
	}
	if e.refused != nil && p.Version >= e.refused.Version {
		return e.refused
	}
	for _, ch := range p.History {
		if ch.ID == e.change {
			return fmt.Errorf("change %s ended as %s", ch.ID, ch.Outcome)
		}
	}
	return nil
}

func (n *Node) submitEntry(ctx context.Context) (entry, error) {
	ch, err := n.coord.Submit(ctx, coordinator.ChangeRequest{Add: []string{n.id}, By: n.id, Why: "enter"})
	var r *coordinator.Refusal
	switch {
	case errors.As(err, &r) && r.Code == membership.ErrRunning:
		return entry{}, nil
	case errors.As(err, &r) && r.Code == membership.ErrInvalid:
		return entry{refused: r}, nil
	}
	return entry{change: ch.ID}, err
}
