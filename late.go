package chainmail

import (
	"sync"
	"time"

	"chainmail/engine/core"
)

// lateness tells how much longer a message was on its way than the quickest ones from its sender. Members' clocks are not
// compared: each message carries its sender's instant, and what its distance to the receiver's is beyond the smallest ever
// seen is time that the message has waited, in queues or in a network that was cut. Without that a request that is delivered
// when the network heals would pass for a new one, although it was repeated, took effect and was forgotten meanwhile.
type lateness struct {
	mu    sync.Mutex
	peers map[string]*distance
}

// distance is between the clocks of a sender and of this member, as far as it is known.
type distance struct {
	inc   uint64
	least core.Time
	at    core.Time
}

const (
	// clockDrift is by how much of the time that passes two clocks may drift apart: the smallest distance grows by that.
	clockDrift = 10000
	// otherClock is what no message waits: its sender was started again, with the same incarnation and another clock.
	otherClock = 3600 * core.Time(time.Second)
	// lateNoticed is what counts: less is the noise of busy machines, and no key forgets so fast.
	lateNoticed = 100 * core.Time(time.Millisecond)
)

// of gives how late a message is that was sent at an instant of its sender and arrives now.
func (l *lateness) of(member string, inc uint64, sent, now core.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, p := now-sent, l.peers[member]
	if p == nil || p.inc != inc || d-p.least > otherClock || p.least-d > otherClock {
		if l.peers == nil {
			l.peers = map[string]*distance{}
		}
		l.peers[member] = &distance{inc, d, now}
		return 0
	}
	p.least = min(p.least+(now-p.at)/clockDrift, d)
	p.at = now
	if late := d - p.least; late > lateNoticed {
		return time.Duration(late)
	}
	return 0
}

// aged makes a message that is late as old as it is: its caller's deadline is nearer, and its request was made longer ago.
func aged(a *core.Ask, late time.Duration) {
	if late <= 0 {
		return
	}
	a.Deadline -= core.Time(late)
	if a.RequestID != "" {
		a.Tried += late
	}
}
