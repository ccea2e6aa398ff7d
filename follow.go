package chainmail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/internal/bridge"
	"chainmail/ring"
	"chainmail/transport"
)

// follow brings every new placement to the parts that need it.
func (n *Node) follow() {
	w := n.coord.Watch()
	defer w.Close()
	var last *membership.Placement
	placed, leaves := false, false // this member was on the ring at some time; it was told to leave
	for {
		select {
		case p := <-w.C():
			n.place(last, p)
			n.events.compare(last, p)
			last = p
			m, _ := p.Member(n.id) // placements from before this run list another one, or none
			placed = placed || p.Places(n.id) && m.Incarnation == n.inc
		case <-n.leaves:
			leaves = true
		case <-n.ctx.Done():
			return
		}
		if last != nil && n.goes(last, placed, leaves) && n.departing.CompareAndSwap(false, true) {
			n.wg.Go(n.depart)
		}
	}
}

// goes says whether this member may be let go. One that a change removed goes by itself; a standby, also one whose joining
// was aborted, when it is told to.
func (n *Node) goes(p *membership.Placement, placed, leaves bool) bool {
	if p.Places(n.id) || p.Running != nil {
		return false
	}
	m, listed := p.Member(n.id)
	mine := listed && m.Incarnation == n.inc
	return placed && (mine && m.Removed || !listed) || leaves && mine
}

// place tells the parts of a new placement; last is the one before it, nil at first.
func (n *Node) place(last, p *membership.Placement) {
	if !n.bind(p.ClusterID) {
		return
	}
	moved := false
	n.locate(func(places map[string]string) {
		for _, m := range p.Members {
			moved = moved || places[m.ID] != "" && places[m.ID] != m.Address
			places[m.ID] = m.Address
		}
	})
	if moved {
		n.transport.Readdress()
	}
	id := transport.Identity{ClusterID: p.ClusterID, Member: n.id, Incarnation: n.inc, Version: p.Version, RingDigest: n.cfg.digestOf(p)}
	n.identity.Store(&id)
	n.engine.SetView(bridge.View(p), n.coord.IsLeader())
}

// locate changes where members are found. Those that have gone stay: they may still wait for answers.
func (n *Node) locate(change func(places map[string]string)) {
	for {
		old := n.places.Load()
		places := maps.Clone(*old)
		change(places)
		if n.places.CompareAndSwap(old, &places) {
			break
		}
	}
	n.sendEarly()
}

// meet notes the members of a placement that a peer has sent: the engine goes by it at once, and its messages to those that
// have just been listed must not be lost until this member's log lists them, too.
func (n *Node) meet(v *core.View) {
	places := *n.places.Load()
	unknown := func(m core.MemberInfo) bool { return m.Address != "" && places[m.ID] == "" }
	if !slices.ContainsFunc(v.Members, unknown) {
		return
	}
	n.locate(func(to map[string]string) {
		for _, m := range v.Members {
			if unknown(m) && to[m.ID] == "" {
				to[m.ID] = m.Address
			}
		}
	})
}

// ringDigests gives the digests of placements' rings, and keeps the last: a ring takes some milliseconds.
type ringDigests struct {
	mu   sync.Mutex
	last *membership.Placement
	sum  uint64
}

func (d *ringDigests) of(p *membership.Placement) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.last; o == nil || o.Ring != p.Ring || !slices.Equal(o.Base, p.Base) || !slices.Equal(o.Next, p.Next) || !slices.Equal(o.Target, p.Target) {
		d.last, d.sum = p, ringDigest(p)
	}
	return d.sum
}

// ringDigest covers all rings of a placement, 0 if there are none.
func ringDigest(p *membership.Placement) (sum uint64) {
	var last []ring.Member
	var one uint64
	for _, set := range [][]ring.Member{p.Base, p.Next, p.Target} {
		if one == 0 || !slices.Equal(last, set) {
			r, err := ring.New(p.Ring, set)
			if err != nil {
				return 0
			}
			last, one = set, r.Digest()
		}
		sum = sum*31 + one
	}
	return sum
}

const registerTimeout = 2 * time.Second

func (n *Node) startNumber() uint64 { return n.starts[len(n.starts)-1] }

// is says whether a member is this start of this one.
func (n *Node) is(m membership.Member) bool {
	return m.Incarnation == n.inc && m.Start == n.startNumber()
}

// register tells the log this start, again if the log loses sight of it. A member that has been without a leader for
// long does so too: it may have been removed while it was away, and nobody sends it the log any more.
func (n *Node) register() {
	w := n.coord.Watch()
	defer w.Close()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	led := time.Now()
	var refused membership.Code // told already
	for {
		if n.coord.Led() {
			led = time.Now()
		}
		alone := time.Since(led) > 2*n.cfg.Membership.DownAfter // who leads has marked it down by then: this does not delay that
		if alone {
			led = time.Now() // the next time is after as long
		}
		p := n.coord.Placement()
		m, ok := p.Member(n.id)
		if !ok || !n.is(m) || m.Address != n.addr || alone {
			ctx, done := context.WithTimeout(n.ctx, registerTimeout)
			err := n.coord.Register(ctx, n.inc, n.starts)
			done()
			var r *coordinator.Refusal
			if errors.Is(err, coordinator.ErrRemoved) || errors.As(err, &r) && r.Code == membership.ErrBanned {
				n.log.Error("this member was removed", "member", n.id, "error", err)
				n.removedOnce.Do(func() {
					n.banned = fmt.Errorf("%w: %w", ErrRemoved, err)
					close(n.removed)
				})
				return
			}
			if r != nil && r.Code == membership.ErrSuperseded {
				n.engine.Fail(fmt.Errorf("%w: %w", ErrSuperseded, err))
				return
			}
			if err != nil {
				if r != nil && r.Code != refused {
					refused = r.Code
					n.log.Error("the log refuses to list this start: it takes part in nothing until that is mended", "member", n.id, "error", err)
				}
				n.log.Debug("not registered yet", "member", n.id, "error", err)
				select {
				case <-time.After(100 * time.Millisecond):
				case <-n.ctx.Done():
					return
				}
				continue
			}
		}
		select {
		case <-w.C():
		case <-look.C:
		case <-n.ctx.Done():
			return
		}
	}
}

// depart hands everything over after this member was removed, and tells the leader that it may be let go.
func (n *Node) depart() {
	n.log.Info("removed from the ring, handing copies over", "member", n.id)
	if err := n.handOver(n.ctx); err != nil {
		n.departing.Store(false)
		return
	}
	n.linger()
	if n.cfg.BeforeGoing != nil {
		n.cfg.BeforeGoing(n.ctx)
	}
	if err := n.coord.Depart(n.ctx, n.inc); err != nil && n.ctx.Err() == nil {
		n.log.Warn("the leader did not let this member go", "member", n.id, "error", err)
	}
	n.removedOnce.Do(func() { close(n.removed) })
}

const (
	// lingerQuiet is how long nobody must have sent a message here before a removed member goes: those whose placement is
	// behind still send some, and these are redirected. lingerMost bounds it.
	lingerQuiet = 250 * time.Millisecond
	lingerMost  = 3 * time.Second
)

// linger waits until the others know that nothing is here any more.
func (n *Node) linger() {
	began := n.engine.Now()
	for now := began; now < began.Add(lingerMost); now = n.engine.Now() {
		last := max(began, core.Time(n.lastAsk.Load()))
		if now >= last.Add(lingerQuiet) {
			return
		}
		select {
		case <-time.After(time.Duration(last.Add(lingerQuiet) - now)):
		case <-n.ctx.Done():
			return
		}
	}
}

var errStays = errors.New("the member is on the ring again")

const lookEvery = 20 * time.Millisecond

// handOver waits until the engine holds nothing any more, or the member is added again.
func (n *Node) handOver(ctx context.Context) error {
	for {
		if n.coord.Placement().Places(n.id) {
			return errStays
		}
		s, err := n.stats(ctx)
		if err != nil {
			return err
		}
		if s.Copies == 0 && s.Activations == 0 && s.HandingOver == 0 {
			return nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return fmt.Errorf("member %s still holds %s: %w", n.id, n.left(s), ctx.Err())
		}
	}
}

func (n *Node) stats(ctx context.Context) (s core.Stats, err error) {
	err = n.engine.Do(ctx, func(c *core.Core) { s = c.Stats() })
	return s, err
}

// LeaveOption changes a Leave.
type LeaveOption func(*coordinator.ChangeRequest)

// DropPinned lets a member leave that holds pinned keys: they are lost.
func DropPinned() LeaveOption { return func(q *coordinator.ChangeRequest) { q.DropPinned = true } }

// leftNamed is how much of what is left an error names.
const leftNamed = 5

// left names what a member that goes still has.
func (n *Node) left(s core.Stats) string {
	var names []string
	ctx, done := context.WithTimeout(n.ctx, time.Second)
	defer done()
	if err := n.engine.Do(ctx, func(c *core.Core) { names = c.Left(leftNamed) }); err != nil || len(names) == 0 {
		return fmt.Sprintf("%d copies and %d activations", s.Copies, s.Activations)
	}
	return fmt.Sprintf("%d copies and %d activations, such as %s", s.Copies, s.Activations, strings.Join(names, ", "))
}

// leftOrClosed is what Leave says of a closed node: that it has left, if it has.
func (n *Node) leftOrClosed() error {
	select {
	case <-n.removed:
		return nil
	default:
		return ErrClosed
	}
}

// Leave removes this member from the cluster: it submits the change, goes on serving until its ranges have moved, and
// hands over what it still holds. It returns when the removal is committed and the leader has let the member go; close it
// then. If ctx ends first the change goes on, the error says what is left, and the contexts of the handlers and bodies that
// still run here have ended. ErrLastMember and ErrNoCluster: there is nobody to leave. A member that
// holds pinned keys does not leave unless DropPinned says that they may be lost: ErrPinned. On a node that was closed before it
// had left it is ErrClosed.
func (n *Node) Leave(ctx context.Context, opts ...LeaveOption) error {
	q := coordinator.ChangeRequest{Remove: []string{n.id}, By: n.id, Why: "leave"}
	for _, o := range opts {
		o(&q)
	}
	for {
		if n.ctx.Err() != nil { // what a closed node knows of the cluster is old
			return n.leftOrClosed()
		}
		p := n.coord.Placement()
		if !n.coord.Joined() {
			return fmt.Errorf("leave as member %s: %w; stop it instead", n.id, ErrNoCluster)
		}
		if !membership.In(p.Target, n.id) {
			break
		}
		if len(p.Target) == 1 {
			return fmt.Errorf("leave as member %s: %w; stop it instead", n.id, ErrLastMember)
		}
		_, err := n.coord.Submit(ctx, q)
		var r *coordinator.Refusal
		if err == nil || errors.As(err, &r) && r.Code == membership.ErrInvalid {
			break
		}
		if errors.As(err, &r) && r.Code == membership.ErrPinned {
			return fmt.Errorf("leave as member %s: %w: %w", n.id, ErrPinned, err)
		}
		if errors.As(err, &r) && r.Code != membership.ErrRunning {
			return fmt.Errorf("leave as member %s: %w", n.id, err)
		}
		select { // another change runs: wait for it
		case <-time.After(5 * lookEvery):
		case <-ctx.Done():
			n.host.Interrupt()
			return fmt.Errorf("leave as member %s: %w: %w", n.id, ctx.Err(), err)
		}
	}
	select {
	case n.leaves <- struct{}{}:
	default: // told before
	}
	select {
	case <-n.removed:
		return nil
	case <-n.ctx.Done():
		return n.leftOrClosed()
	case <-ctx.Done():
		s, _ := n.stats(n.ctx)
		left := n.left(s) // before what runs is interrupted
		n.host.Interrupt()
		return fmt.Errorf("leave as member %s: %w; left are %s, placement %s", n.id, ctx.Err(), left, n.coord.Placement())
	}
}
