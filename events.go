package chainmail

import (
	"fmt"
	"sync"
	"time"

	"chainmail/coordinator/membership"
)

// Event is something that happened to the cluster, as this member saw it.
type Event struct {
	Seq     uint64    `json:"seq"`
	At      time.Time `json:"at"`
	Version uint64    `json:"version"`
	Text    string    `json:"text"`
}

// keptEvents bounds what Events gives.
const keptEvents = 256

type events struct {
	mu   sync.Mutex
	list []Event
	seq  uint64
	more chan struct{} // closed and replaced at each event
	shut bool
}

func (e *events) init() { e.more = make(chan struct{}) }

func (e *events) add(version uint64, format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seq++
	e.list = append(e.list, Event{e.seq, time.Now(), version, fmt.Sprintf(format, args...)})
	if len(e.list) > keptEvents {
		e.list = append([]Event(nil), e.list[len(e.list)-keptEvents:]...)
	}
	if !e.shut {
		close(e.more)
		e.more = make(chan struct{})
	}
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.shut {
		e.shut = true
		close(e.more)
	}
}

// compare turns the difference of two placements into events.
func (e *events) compare(old, p *membership.Placement) {
	if old == nil || p.Version == 0 {
		return
	}
	for _, m := range p.Members {
		switch o, ok := old.Member(m.ID); {
		case !ok:
			e.add(p.Version, "member %s registered", m.ID)
		case o.Incarnation != m.Incarnation && m.Incarnation == 0:
			e.add(p.Version, "what member %s had was given up", m.ID)
		case o.Incarnation != m.Incarnation:
			e.add(p.Version, "member %s came back without its memory", m.ID)
		case o.Down != m.Down:
			e.add(p.Version, "member %s is %s", m.ID, map[bool]string{true: "down", false: "up"}[m.Down])
		case o.Refilling && !m.Refilling:
			e.add(p.Version, "member %s holds its ranges again", m.ID)
		case o.State != m.State:
			e.add(p.Version, "member %s is %s", m.ID, m.State)
		}
	}
	if p.Version != old.Version {
		e.add(p.Version, "placement %s", p)
	}
	for _, h := range p.History {
		if old.Running != nil && h.ID == old.Running.ID {
			e.add(p.Version, "change %s %s", h.ID, h.Outcome)
		}
	}
}

// Events gives the kept events after a sequence number, and a channel that is closed when there are more.
func (n *Node) Events(after uint64) ([]Event, <-chan struct{}) {
	n.events.mu.Lock()
	defer n.events.mu.Unlock()
	var out []Event
	for _, x := range n.events.list {
		if x.Seq > after {
			out = append(out, x)
		}
	}
	return out, n.events.more
}
