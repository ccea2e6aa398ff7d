package simtest

import (
	"fmt"
	"time"

	"chainmail/engine/core"
)

// network carries messages with delay, loss, doubling, reordering and one-way cuts.
type network struct {
	s   *Sim
	cut map[[2]string]bool
}

func (n *network) init(s *Sim) { n.s, n.cut = s, map[[2]string]bool{} }

// send delivers a message to the member's present process, if it lives then.
func (n *network) send(m core.Message) {
	s := n.s
	times := 1
	if !s.calm {
		if n.cut[[2]string{m.From, m.To}] || s.chance(s.o.Loss) {
			return
		}
		if _, ask := m.Body.(*core.Ask); !ask && s.chance(s.o.Dup) { // a transport gives a caller's message at most once
			times = 2
		}
	}
	for range times {
		d := s.o.Delay + s.between(0, s.o.Jitter)
		if !s.calm && s.chance(0.002) {
			d += s.between(0, 3*time.Second) // a straggler
		}
		s.after(d, func() {
			if n.cut[[2]string{m.From, m.To}] && !s.calm {
				return
			}
			if h := s.host(m.To); h != nil && h.up() {
				s.trace.add(s.now, "%s<-%s v%d %s", m.To, m.From, m.Version, brief(m.Body))
				h.step(&core.Recv{Msg: m})
			}
		})
	}
}

func (s *Sim) host(id string) *host {
	for _, h := range s.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// brief writes a body for a trace, deterministically and short.
func brief(b core.Body) string {
	switch b := b.(type) {
	case *core.Ask:
		return fmt.Sprintf("ask#%d %s %s", b.ID, b.Key, b.Method)
	case *core.Answer:
		return fmt.Sprintf("answer#%d %s %s", b.ID, b.Result.Code, b.Result.Text)
	case *core.Prepare:
		return fmt.Sprintf("prepare %s %s have %s", b.Key, b.Epoch, b.Have)
	case *core.Promise:
		return fmt.Sprintf("promise %s %s promised %s stamp %s", b.Key, b.Code, b.Promised, b.Stamp)
	case *core.Accept:
		return fmt.Sprintf("accept %s %s prev %s full %v", b.Key, b.Stamp, b.Prev, b.Full)
	case *core.Accepted:
		return fmt.Sprintf("accepted %s %s promised %s", b.Key, b.Code, b.Promised)
	case *core.Confirm:
		return fmt.Sprintf("confirm %s %s", b.Key, b.Epoch)
	case *core.Confirmed:
		return fmt.Sprintf("confirmed %s %s promised %s", b.Key, b.Code, b.Promised)
	case *core.Pull:
		return fmt.Sprintf("pull %d mode %d from %x since %d one %v %s", b.Session, b.Mode, uint64(b.From), b.Since, b.One, b.Key)
	case *core.Pulled:
		s := fmt.Sprintf("pulled %d mode %d %s empty %v done %v one %v", b.Session, b.Mode, b.Code, b.Empty, b.Done, b.One)
		for _, e := range b.Entries {
			s += fmt.Sprintf(" [%s %s %s %v]", e.Key, e.Meta.Promised, e.Meta.Stamp, e.Has)
		}
		return s
	case *core.Offer:
		s := "offer"
		for _, e := range b.Entries {
			s += fmt.Sprintf(" [%s %s %v]", e.Key, e.Meta.Stamp, e.Has)
		}
		return s
	case *core.Offered:
		s := "offered"
		for _, e := range b.Answers {
			s += fmt.Sprintf(" [%s %s %s]", e.Key, e.Code, e.Stamp)
		}
		return s
	case *core.Purge:
		return fmt.Sprintf("purge %s %s", b.Key, b.Stamp)
	case *core.NewView:
		return "newview " + b.View.String()
	}
	return fmt.Sprintf("kind %d", b.Kind())
}
