package chainmail

import (
	"math"
	"sync"
	"time"

	"chainmail/engine/core"
)

// lateness tells how much longer a message was on its way than the quickest ones from its sender. Members' clocks are not
// compared: each message carries its sender's instant, and what its distance to the receiver's is beyond the smallest of the
// last seconds is time that the message has waited, in queues or in a network that was cut. Without that a request that is
// delivered when the network heals would pass for a new one, although it was repeated, took effect and was forgotten meanwhile.
type lateness struct {
	mu    sync.Mutex
	peers map[string]*distance
}

// distance is between the clocks of a sender and of this member, as far as it is known.
type distance struct {
	inc   uint64
	least [2]core.Time // since then, and before
	since core.Time
	at    core.Time
}

const (
	// clockDrift is by how much of the time that passes two clocks may drift apart: the smallest distance grows by that.
	clockDrift = 10000
	// distanceEvery is how often the smallest distance is looked for anew: clocks are set, and stand still while a machine sleeps.
	distanceEvery = core.Time(10 * time.Second)
	// lateNoticed is what counts: less is the noise of busy machines. See core.Ask.Delayed for what follows.
	lateNoticed = 100 * core.Time(time.Millisecond)

	unknownDistance = core.Time(math.MaxInt64 / 2)
)

// of gives how late a message is that was sent at an instant of its sender and arrives now.
func (l *lateness) of(member string, inc uint64, sent, now core.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, p := now-sent, l.peers[member]
	if p == nil || p.inc != inc {
		if l.peers == nil {
			l.peers = map[string]*distance{}
		}
		l.peers[member] = &distance{inc, [2]core.Time{d, unknownDistance}, now, now}
		return 0
	}
	drift := (now - p.at) / clockDrift
	p.least[0], p.least[1], p.at = p.least[0]+drift, p.least[1]+drift, now
	if now-p.since > distanceEvery {
		p.least, p.since = [2]core.Time{unknownDistance, p.least[0]}, now
	}
	late := d - min(p.least[0], p.least[1])
	p.least[0] = min(p.least[0], d)
	if late > lateNoticed {
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
	a.Delayed(late)
}
