package chainmail

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"chainmail/actor"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/engine/wire"
	"chainmail/internal/bridge"
	"chainmail/transport"
)

// handler takes what the transport gives to a node.
type handler struct{ n *Node }

func (h handler) opened() bool {
	select {
	case <-h.n.ready:
		return true
	default:
		return false
	}
}

// OnFrame gives a message to the engine. What comes before the engine is there, or claims another sender, is dropped.
func (h handler) OnFrame(from transport.Peer, _ transport.Lane, _ uint8, payload []byte, more bool) {
	if !h.opened() {
		return
	}
	now := h.n.engine.Now()
	m, err := wire.Parse(payload, now)
	if err == nil {
		var late time.Duration
		if m.Sent != 0 { // it comes from an engine
			late = h.n.late.of(from.Member, m.FromInc, m.Sent, now)
		}
		switch b := m.Body.(type) {
		case *core.Ask:
			h.n.lastAsk.Store(int64(now))
			aged(b, late)
		case *core.NewView:
			h.n.meet(b.View)
		}
	}
	switch {
	case err != nil:
		h.n.log.Warn("message cannot be read", "peer", from.Member, "error", err)
	case m.From != from.Member || m.To != h.n.id:
		h.n.log.Warn("message of another sender or receiver", "peer", from.Member, "member", m.From)
	case h.answered(m, now, more):
	case !h.n.engine.Deliver(m, more):
		if a, ok := m.Body.(*core.Ask); ok {
			h.n.send(core.Message{From: h.n.id, To: m.From, FromInc: h.n.inc, Body: &core.Answer{ID: a.ID, Result: core.Result{Code: core.CodeOverloaded, Text: "member " + h.n.id + " has too many messages waiting"}}}, h.n.engine.Now(), !more)
		}
	}
}

// answered answers a local read that needs nothing of the engine.
func (h handler) answered(m core.Message, now core.Time, more bool) bool {
	a, ok := m.Body.(*core.Ask)
	if !ok || a.ID == 0 || now > a.Deadline {
		return false
	}
	version := h.n.identity.Load().Version
	body, here := h.n.host.Answer(a.Key, a.Method, a.Path, a.Data)
	if !here {
		return false
	}
	h.n.send(core.Message{From: h.n.id, To: m.From, FromInc: h.n.inc, Version: version, Body: &core.Answer{ID: a.ID, Result: core.Result{Body: body, Version: version}}}, now, !more)
	return true
}

func (h handler) OnRequest(ctx context.Context, _ transport.Peer, kind uint8, payload []byte) ([]byte, error) {
	select {
	case <-h.n.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if kind >= coordinator.KindPropose && kind < coordinator.KindLast {
		return h.n.coord.HandleRequest(ctx, kind, payload)
	}
	return h.n.handleRequest(ctx, kind, payload)
}

func (h handler) OnPeerDown(member string) {
	if h.opened() {
		h.n.engine.PeerLost(member)
	}
}

// diverged has the members find out who of them has other rings.
func (h handler) diverged() {
	if h.opened() {
		h.n.coord.Suspect()
	}
}

// Admit refuses incarnations that were removed.
func (h handler) Admit(peer transport.Identity, _ transport.Class) error {
	if !h.opened() {
		return nil
	}
	p := h.n.coord.Placement()
	if slices.Contains(p.Banned, membership.Ban{Member: peer.Member, Incarnation: peer.Incarnation}) {
		if m, ok := p.Member(peer.Member); !ok || m.Incarnation != peer.Incarnation {
			return fmt.Errorf("member %s, incarnation %x, version %d: %w", peer.Member, peer.Incarnation, p.Version, transport.ErrRemoved)
		}
	}
	return nil
}

func (h handler) ErrorCode(err error) uint16 { return coordinator.ErrorCode(err) }

// requester lets the coordinator ask others over the transport; coded errors come back as what they were.
type requester struct{ t *transport.Transport }

func (r requester) Request(ctx context.Context, addr string, kind uint8, payload []byte) ([]byte, error) {
	b, _, err := r.t.Request(ctx, addr, kind, payload)
	return b, decoded(err)
}

func decoded(err error) error {
	var re *transport.RemoteError
	if errors.As(err, &re) {
		if known := coordinator.ErrorOf(re.Code); known != nil {
			what, said := strings.CutSuffix(re.Text, known.Error())
			if !said {
				what += ": "
			}
			return fmt.Errorf("%s%w", what, known)
		}
	}
	if errors.Is(err, transport.ErrRemoved) {
		return fmt.Errorf("%w: %w", coordinator.ErrRemoved, err)
	}
	return err
}

var laneOf = [...]transport.Lane{wire.Messages: transport.Messages, wire.Replication: transport.Replication, wire.Bulk: transport.Bulk}

// send gives a message to the transport. A caller's message that could not be sent was not run: it is routed again. An
// answer to a member that has just joined, and that this one's log does not list yet, waits until it does.
func (n *Node) send(m core.Message, now core.Time, alone bool) {
	k := m.Body.Kind()
	o := outgoing.Get().(*envelope)
	o.m, o.now = m, now
	err := n.transport.SendFunc(m.To, laneOf[wire.LaneOf(k)], uint8(k), alone, o.add)
	o.m = core.Message{}
	outgoing.Put(o)
	if err == nil {
		return
	}
	switch b := m.Body.(type) {
	case *core.Ask:
		if b.ID != 0 && n.engine != nil {
			r := core.Result{Code: core.CodeRedirect, Text: err.Error()}
			if errors.Is(err, transport.ErrTooBig) { // too long for the next one too
				r.Code = core.CodeRejected
			}
			n.engine.Deliver(core.Message{From: m.To, To: n.id, Body: &core.Answer{ID: b.ID, Result: r}}, true)
		}
	case *core.Answer:
		switch {
		case errors.Is(err, transport.ErrTooBig):
			m.Body = &core.Answer{ID: b.ID, Result: core.Result{Code: core.CodeApp, AppCode: actor.CodeUnknown, Version: b.Result.Version, Text: "the answer is not told: " + err.Error()}}
			n.send(m, now, alone)
		case errors.Is(err, transport.ErrUnknownMember):
			n.early.put(m)
			n.sendEarly() // it may have been listed just now
		}
	}
}

// envelope is a message that is being encoded. They are kept: a function made for each message would cost more than the rest.
type envelope struct {
	m   core.Message
	now core.Time
	add func(dst []byte) []byte
}

var outgoing = sync.Pool{New: func() any {
	o := &envelope{}
	o.add = func(dst []byte) []byte { return wire.Append(dst, &o.m, o.now) }
	return o
}}

func (n *Node) sendEarly() {
	places := *n.places.Load()
	for _, m := range n.early.take(func(id string) bool { return places[id] != "" }) {
		n.send(m, n.engine.Now(), false)
	}
}

// earlyAnswers are answers to members that are not listed yet.
type earlyAnswers struct {
	mu   sync.Mutex
	list []core.Message
}

// earlyMost bounds them; the oldest ones go.
const earlyMost = 1024

func (e *earlyAnswers) put(m core.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, m)
	if d := len(e.list) - earlyMost; d > 0 {
		e.list = slices.Delete(e.list, 0, d)
	}
}

// take gives those to members that are listed now.
func (e *earlyAnswers) take(listed func(id string) bool) (out []core.Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = slices.DeleteFunc(e.list, func(m core.Message) bool {
		if !listed(m.To) {
			return false
		}
		out = append(out, m)
		return true
	})
	return out
}

// report tells the log what the engine reports.
func (n *Node) report(ctx context.Context, r core.Report) error {
	return n.coord.Report(ctx, []membership.Report{{Member: n.id, Incarnation: n.inc, Step: r.Step, What: bridge.What(r.What)}})
}

// wantView gives the engine the newest placement of the local log again.
func (n *Node) wantView() { n.engine.SetView(bridge.View(n.coord.Placement()), n.coord.IsLeader()) }
