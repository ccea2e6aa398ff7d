package coordinator

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	aloneAfter = 10 // heartbeat timeouts without a leader are long: elections take one or two
	aloneAgain = time.Minute
)

// alone knows since when there is no leader. All but why is the leader loop's.
type alone struct {
	since, told time.Time
	why         atomic.Pointer[string]
}

// lookForLeader says in the log that there has been no leader for long, and again after a while.
func (c *Coordinator) lookForLeader(now time.Time) {
	a := &c.alone
	if c.Led() || c.raft.LastIndex() == 0 {
		a.since, a.told = time.Time{}, time.Time{}
		a.why.Store(nil)
		return
	}
	if a.since.IsZero() {
		a.since = now
	}
	if now.Sub(a.since) < aloneAfter*c.cfg.Heartbeat || now.Sub(a.told) < aloneAgain {
		return
	}
	a.told = now
	why := c.whyAlone(now.Sub(a.since))
	a.why.Store(&why)
	c.log.Warn("no leader for long", "member", c.cfg.Self.ID, "elapsed", now.Sub(a.since).Round(time.Second).String(), "why", why)
}

func (c *Coordinator) whyAlone(d time.Duration) string {
	why := fmt.Sprintf("no leader is known to member %s for %s or more", c.cfg.Self.ID, d.Round(time.Second))
	for _, s := range c.servers() {
		if string(s.ID) == c.cfg.Self.ID && string(s.Address) != c.cfg.Self.Address {
			return fmt.Sprintf("%s; Raft knows it at %s, but it is at %s: if a majority of the voters is at other addresses than before, none is elected; "+
				"start a majority at the old addresses, and then one after the other at new ones", why, s.Address, c.cfg.Self.Address)
		}
	}
	return why + "; start the other voters, or see that they can be reached"
}

// Alone says why there has been no leader for long, "" if there is one or it is not long yet.
func (c *Coordinator) Alone() string {
	if why := c.alone.why.Load(); why != nil {
		return *why
	}
	return ""
}
