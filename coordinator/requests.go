package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// Kinds of the requests between coordinators.
const (
	KindPropose   uint8 = 0x40 + iota // a command for the leader; the answer is a membership.Result
	KindStatus                        // the answer is a Status
	KindJoin                          // a joinRequest for the leader; the answer is a Status
	KindPlacement                     // the leader's placement, as a snapshot
	KindDepart                        // a member that was removed has handed everything over: its id
	KindLast
)

type joinRequest struct {
	ID          string `json:"id"`
	Address     string `json:"address"`
	ClusterName string `json:"cluster_name"`
}

// HandleRequest answers another member's coordinator.
func (c *Coordinator) HandleRequest(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	switch kind {
	case KindPropose:
		if c.raft.State() != raft.Leader {
			return nil, ErrNotLeader
		}
		if _, err := membership.Decode(payload); err != nil {
			return nil, err
		}
		r, err := c.applyHere(payload)
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	case KindStatus:
		return json.Marshal(c.Status())
	case KindJoin:
		var q joinRequest
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("join request: %w", err)
		}
		return c.admit(q)
	case KindPlacement:
		if err := c.raft.VerifyLeader().Error(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotLeader, err)
		}
		return membership.Snapshot(c.Placement())
	case KindDepart:
		return nil, c.letGo(ctx, string(payload))
	}
	return nil, fmt.Errorf("coordinator request of kind %d is not known", kind)
}

// leaderRequest asks the leader, wherever it is; it is asked again until ctx ends while none is known.
func (c *Coordinator) leaderRequest(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	for {
		var b []byte
		err := error(ErrNoLeader)
		if addr, _ := c.raft.LeaderWithID(); c.IsLeader() {
			b, err = c.HandleRequest(ctx, kind, payload)
		} else if addr != "" {
			b, err = c.cfg.Requests.Request(ctx, string(addr), kind, payload)
		}
		if err == nil {
			return b, nil
		}
		if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrNoLeader) {
			return nil, err
		}
		if err := c.sleep(ctx, retryPause); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoLeader, err)
		}
	}
}

// LeaderPlacement gives the placement that the leader, confirmed by a majority, has.
func (c *Coordinator) LeaderPlacement(ctx context.Context) (*membership.Placement, error) {
	b, err := c.leaderRequest(ctx, KindPlacement, nil)
	if err != nil {
		return nil, err
	}
	return membership.Restore(b)
}
