package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// Kinds of the requests between coordinators.
const (
	KindPropose   uint8 = 0x40 + iota // a command for the leader; the answer is a membership.Result
	KindStatus                        // the answer is a Status
	KindJoin                          // a joinRequest for the leader; the answer is a Status
	KindPlacement                     // the leader's placement, as a snapshot
	KindDepart                        // a member that was removed has handed everything over: a departRequest
	KindDigest                        // a digestRequest; the answer is a digestAnswer
	KindLast
)

type joinRequest struct {
	ID          string `json:"id"`
	Address     string `json:"address"`
	ClusterName string `json:"cluster_name"`
	Empty       bool   `json:"empty,omitempty"` // it has no Raft state and takes no part in Raft before the leader has answered
}

type departRequest struct {
	ID          string `json:"id"`
	Incarnation uint64 `json:"incarnation"`
}

// HandleRequest answers another member's coordinator.
func (c *Coordinator) HandleRequest(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	switch kind {
	case KindPropose:
		if c.raft.State() != raft.Leader {
			return nil, ErrNotLeader
		}
		cmd, err := membership.Decode(payload)
		if err != nil {
			return nil, err
		}
		if cmd.Register != nil {
			c.health.heard(cmd.Register.Member.ID)
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
	case KindDigest:
		var q digestRequest
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("digest request: %w", err)
		}
		return json.Marshal(c.answerDigest(q))
	case KindDepart:
		var q departRequest
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, fmt.Errorf("depart request: %w", err)
		}
		return nil, c.letGo(ctx, q.ID, q.Incarnation)
	}
	return nil, fmt.Errorf("coordinator request of kind %d is not known", kind)
}

// confirm asks a majority whether this member leads.
func (c *Coordinator) confirm() error {
	err := c.ask(func() error { return c.raft.VerifyLeader().Error() })
	if err != nil && !errors.Is(err, ErrClosed) {
		return fmt.Errorf("%w: %w", ErrNotLeader, err)
	}
	return err
}

// ask waits for an answer of Raft. What waits in one of Raft's queues when it stops is never answered, so that Close waits
// for all who ask before it stops Raft. That is not for long: without a majority Raft gives up when its lease ends.
func (c *Coordinator) ask(f func() error) error {
	c.askMu.Lock()
	if c.ctx.Err() != nil {
		c.askMu.Unlock()
		return ErrClosed
	}
	c.asking.Add(1)
	c.askMu.Unlock()
	defer c.asking.Done()
	return f()
}

// lastAnswers keeps new questions from being asked, and waits for the answers to the others; it ends every loop.
func (c *Coordinator) lastAnswers() {
	c.askMu.Lock()
	c.stop()
	c.askMu.Unlock()
	done := make(chan struct{})
	go func() { c.asking.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(answerLimit): // a disk that hangs
		c.log.Warn("raft did not answer in time", "member", c.cfg.Self.ID)
	}
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
		if err == nil || errors.Is(err, ErrRemoved) {
			return b, err
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
		if st, err := c.statusSoon(ctx, string(s.Address)); err == nil && st.LeaderAddr != "" {
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
