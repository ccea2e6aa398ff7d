package coordinator

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

const (
	queueTimeout = 2 * time.Second // for a place in Raft's queue
	retryPause   = 50 * time.Millisecond
)

// propose brings a command into the log and gives what became of it, on any member. Every command may be sent twice, so
// that it is sent again until something is known or ctx ends.
func (c *Coordinator) propose(ctx context.Context, cmd membership.Command) (membership.Result, error) {
	cmd.At = time.Now().UnixMilli()
	b, err := membership.Encode(cmd)
	if err != nil {
		return membership.Result{}, err
	}
	unknown := false // one of the attempts may have reached the log
	for {
		r, err := c.proposeOnce(ctx, b)
		if err == nil {
			return r, refusal(r)
		}
		if errors.Is(err, ErrRemoved) {
			return membership.Result{}, err
		}
		unknown = unknown || !notTaken(err)
		if end := c.sleep(ctx, retryPause); end != nil {
			if unknown {
				err = fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
			}
			return membership.Result{}, fmt.Errorf("%w: %w", err, end)
		}
	}
}

// notTaken says whether an attempt is known not to have reached the log. An error that comes from the way to the leader
// says nothing about that.
func notTaken(err error) bool {
	return !errors.Is(err, ErrUnknownOutcome) && (errors.Is(err, ErrNotLeader) || errors.Is(err, ErrNoLeader) || errors.Is(err, ErrClosed))
}

func refusal(r membership.Result) error {
	if r.Code == membership.OK || r.Code == membership.Unchanged {
		return nil
	}
	return &Refusal{r}
}

func (c *Coordinator) proposeOnce(ctx context.Context, b []byte) (membership.Result, error) {
	if c.raft.State() == raft.Leader {
		return c.applyHere(b)
	}
	ctx, done := context.WithTimeout(ctx, c.cfg.Heartbeat)
	defer done()
	leader, _ := c.raft.LeaderWithID()
	addr := string(leader)
	if addr == "" || addr == c.cfg.Self.Address {
		var err error
		if addr, err = c.askForLeader(ctx); err != nil {
			return membership.Result{}, err
		}
	}
	reply, err := c.cfg.Requests.Request(ctx, addr, KindPropose, b)
	if err != nil {
		return membership.Result{}, err
	}
	var r membership.Result
	return r, json.Unmarshal(reply, &r)
}

func (c *Coordinator) applyHere(b []byte) (membership.Result, error) {
	var f raft.ApplyFuture
	err := c.ask(func() error {
		f = c.raft.Apply(b, queueTimeout)
		return f.Error()
	})
	switch {
	case err == nil:
		return f.Response().(membership.Result), nil
	case errors.Is(err, ErrClosed):
		return membership.Result{}, err
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return membership.Result{}, fmt.Errorf("%w: %w", ErrNotLeader, err)
	case errors.Is(err, raft.ErrRaftShutdown):
		return membership.Result{}, ErrClosed
	default:
		return membership.Result{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	}
}

// ChangeRequest is what an operator asks for.
type ChangeRequest struct {
	Add           []string `json:"add,omitempty"`
	Remove        []string `json:"remove,omitempty"`
	ExpectVersion uint64   `json:"expect_version,omitempty"` // 0: any
	Key           string   `json:"idempotency_key,omitempty"`
	Retarget      bool     `json:"retarget,omitempty"`    // take the place of the running change
	DropPinned    bool     `json:"drop_pinned,omitempty"` // the pinned keys of who goes may be lost
	By            string   `json:"by,omitempty"`
	Why           string   `json:"why,omitempty"`
}

// Submit starts a change and gives it as the log has it. The same idempotency key gives the same change again.
func (c *Coordinator) Submit(ctx context.Context, q ChangeRequest) (membership.Change, error) {
	if q.Key == "" {
		q.Key = randomID()
	}
	r, err := c.propose(ctx, membership.Command{Change: &membership.ChangeCommand{
		Add: q.Add, Remove: q.Remove, ExpectVersion: q.ExpectVersion, Key: q.Key, Retarget: q.Retarget, DropPinned: q.DropPinned, By: q.By, Why: q.Why}})
	if err != nil {
		return membership.Change{ID: r.ID}, fmt.Errorf("submit change: %w", err)
	}
	return c.Change(ctx, r.ID)
}

// Change gives a change by id, "" for the running one; it asks the leader if this member does not know it.
func (c *Coordinator) Change(ctx context.Context, id string) (membership.Change, error) {
	if ch, ok := findChange(c.Placement(), id); ok {
		return ch, nil
	}
	p, err := c.LeaderPlacement(ctx)
	if err != nil {
		return membership.Change{}, err
	}
	if ch, ok := findChange(p, id); ok {
		return ch, nil
	}
	text := "no such change; list them to see the known ones"
	if id == "" {
		text = "no change is running"
	}
	return membership.Change{}, &Refusal{membership.Result{Code: membership.ErrUnknownChange, ID: id, Version: p.Version, Text: text}}
}

func findChange(p *membership.Placement, id string) (membership.Change, bool) {
	if p.Running != nil && (id == "" || p.Running.ID == id) {
		return *p.Running, true
	}
	for _, h := range p.History {
		if h.ID == id {
			return h, true
		}
	}
	return membership.Change{}, false
}

// NewKey makes an idempotency key.
func NewKey() string { return randomID() }

func randomID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (c *Coordinator) order(ctx context.Context, what string, cmd membership.Command) error {
	if _, err := c.propose(ctx, cmd); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// steer orders something about a change. The running one is named before that: sent again, the command must not meet the
// next change.
func (c *Coordinator) steer(ctx context.Context, what, id string, command func(*membership.ChangeRef) membership.Command) error {
	if id == "" {
		p, err := c.LeaderPlacement(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if p.Running == nil {
			return fmt.Errorf("%s: %w", what, &Refusal{membership.Result{Code: membership.ErrUnknownChange, Version: p.Version, Text: "no change is running"}})
		}
		id = p.Running.ID
	}
	return c.order(ctx, what, command(&membership.ChangeRef{ID: id}))
}

// Abort ends a change where it stands, "" for the running one. Steps that are done stay done.
func (c *Coordinator) Abort(ctx context.Context, id string) error {
	return c.steer(ctx, "abort change", id, func(r *membership.ChangeRef) membership.Command { return membership.Command{Abort: r} })
}

// Pause keeps a change from advancing, Resume lets it go on.
func (c *Coordinator) Pause(ctx context.Context, id string) error {
	return c.steer(ctx, "pause change", id, func(r *membership.ChangeRef) membership.Command { return membership.Command{Pause: r} })
}

// Resume is described at Pause.
func (c *Coordinator) Resume(ctx context.Context, id string) error {
	return c.steer(ctx, "resume change", id, func(r *membership.ChangeRef) membership.Command { return membership.Command{Resume: r} })
}

// SetLimits sets the transfer limits of all members.
func (c *Coordinator) SetLimits(ctx context.Context, l membership.Limits) error {
	return c.order(ctx, "set limits", membership.Command{Limits: &membership.LimitsCommand{Limits: l}})
}

// ReportPins tells the log how many pinned keys members hold.
func (c *Coordinator) ReportPins(ctx context.Context, ps []membership.Pin) error {
	return c.order(ctx, "report pinned keys", membership.Command{Pins: ps})
}

// SetReplicas records the replica count of an actor type, or membership.Pinned.
func (c *Coordinator) SetReplicas(ctx context.Context, typ string, n int) error {
	return c.order(ctx, "set replicas", membership.Command{SetReplicas: &membership.SetReplicas{Type: typ, N: n}})
}

// Report tells the log what the engine reports.
func (c *Coordinator) Report(ctx context.Context, rs []membership.Report) error {
	return c.order(ctx, "report", membership.Command{Report: rs})
}

// Register tells the log this member's incarnation, and the numbers that its starts have drawn as far as its store knows them,
// this one's last. It returns when the log has it.
func (c *Coordinator) Register(ctx context.Context, incarnation uint64, starts []uint64) error {
	m, n := c.cfg.Self, len(starts)-1
	m.Incarnation, m.Start = incarnation, starts[n]
	listed, _ := c.Placement().Member(m.ID)
	return c.order(ctx, "register member "+m.ID, membership.Command{Register: &membership.Register{Member: m, Seen: listed.Incarnation, Starts: starts[:n]}})
}
