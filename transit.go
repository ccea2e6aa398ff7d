package chainmail

import (
	"math"
	"sync"
	"time"
)

// transits tells how long messages were on their way, by the clocks of both ends. What the fastest of the last minutes took is
// how far those differ, up to clocksApart: what looks older than that may have been held up somewhere, and all before it.
type transits struct {
	mu sync.Mutex
	by map[string]*transit // by sender
}

type transit struct {
	least [2]time.Duration // since then, and before
	since time.Time
}

const (
	clocksApart    = 2 * time.Second
	transitEvery   = time.Minute // how often least begins anew: clocks may be set
	transitUnknown = time.Duration(math.MaxInt64)
)

// of gives how long a message was on its way that took so long by the clocks. Of the first one of a sender the clocks are
// believed.
func (t *transits) of(member string, took time.Duration) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, x := time.Now(), t.by[member]
	if x == nil {
		if t.by == nil {
			t.by = map[string]*transit{}
		}
		x = &transit{least: [2]time.Duration{transitUnknown, transitUnknown}, since: now}
		t.by[member] = x
	}
	if now.Sub(x.since) > transitEvery && x.least[0] != transitUnknown {
		x.least = [2]time.Duration{transitUnknown, x.least[0]}
		x.since = now
	}
	least := min(x.least[0], x.least[1])
	x.least[0] = min(x.least[0], took)
	if least == transitUnknown {
		least = 0
	}
	return max(took-min(least, clocksApart), 0)
}
