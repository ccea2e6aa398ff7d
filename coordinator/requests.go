package coordinator

import (
	"context"
	"encoding/json"
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
		if err := c.confirm(); err != nil {
			return nil, err
		}
		return membership.Snapshot(c.Placement())
	case KindDepart:
		return nil, c.letGo(ctx, string(payload))
	}
	return nil, fmt.Errorf("coordinator request of kind %d is not known", kind)
}

// confirm asks a majority whether this member leads. Raft leaves such a question unanswered when it stops: Close waits
// for those that have been asked.
func (c *Coordinator) confirm() error {
	c.asking.RLock()
	defer c.asking.RUnlock()
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	if err := c.raft.VerifyLeader().Error(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return nil
}

// leaderRequest asks the leader, wherever it is, until it has answered or ctx ends: a leader that does not answer may be
// about to lose its place. What is asked may be asked twice.
func (c *Coordinator) leaderRequest(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	for {
		var b []byte
		err := error(ErrNoLeader)
		if c.IsLeader() {
			b, err = c.HandleRequest(ctx, kind, payload)
		} else if addr := c.leaderAddr(ctx); addr != "" {
			try, done := context.WithTimeout(ctx, max(c.cfg.Heartbeat, queueTimeout))
			b, err = c.cfg.Requests.Request(try, addr, kind, payload)
			done()
		}
		if err == nil {
			return b, nil
		}
		if end := c.sleep(ctx, retryPause); end != nil {
			return nil, fmt.Errorf("%w: %w", err, end)
		}
	}
}

// leaderAddr gives the leader's address. A member that has been taken out of the Raft group is told nothing any more: it
// asks the other members.
func (c *Coordinator) leaderAddr(ctx context.Context) string {
	if addr, _ := c.raft.LeaderWithID(); addr != "" {
		return string(addr)
	}
	for _, s := range c.servers() {
		if string(s.ID) == c.cfg.Self.ID {
			continue
		}
		ctx, done := context.WithTimeout(ctx, c.cfg.Heartbeat/2)
		b, err := c.cfg.Requests.Request(ctx, string(s.Address), KindStatus, nil)
		done()
		var st Status
		if err == nil && json.Unmarshal(b, &st) == nil && st.LeaderAddr != "" {
			return st.LeaderAddr
		}
	}
	return ""
}

// LeaderPlacement gives the placement that the leader, confirmed by a majority, has.
func (c *Coordinator) LeaderPlacement(ctx context.Context) (*membership.Placement, error) {
	b, err := c.leaderRequest(ctx, KindPlacement, nil)
	if err != nil {
		return nil, err
	}
	return membership.Restore(b)
}
