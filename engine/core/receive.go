package core

import (
	"fmt"
	"slices"
)

// receive takes one message. Requests of a newer version wait until this member has caught up; what comes from an
// incarnation that the placement does not list never changes anything.
func (c *Core) receive(m Message) {
	switch b := m.Body.(type) {
	case *NewView:
		c.adopt(b.View)
		return
	case *WantNewView:
		if c.view != nil && c.view.v.Revision > b.Revision {
			c.pushView(m.From)
		}
		return
	}
	if c.view == nil || m.Version > c.view.v.Version {
		c.wantNewer(m.From, m.Version)
		if !isAnswer(m.Body) {
			c.park(m)
			return
		}
		if c.view == nil {
			return
		}
	}
	switch b := m.Body.(type) {
	case *Ask:
		c.ask(m, b)
		return
	case *Answer:
		c.answered(m, b)
		return
	}
	from, listed := c.view.v.Member(m.From)
	if !c.registered() || !listed || from.Incarnation != m.FromInc {
		return
	}
	switch b := m.Body.(type) {
	case *Prepare:
		c.prepare(m, b)
	case *Promise:
		c.promised(m, b)
	case *Accept:
		c.accept(m, b)
	case *Accepted:
		c.roundAnswer(m.From, b.Key, b.Op, b.Code, b.Promised)
	case *Confirm:
		c.confirm(m, b)
	case *Confirmed:
		c.roundAnswer(m.From, b.Key, b.Op, b.Code, b.Promised)
	case *Pull:
		c.pull(m, b)
	case *Pulled:
		c.pulled(m, b)
	case *Fetch:
		c.fetch(m, b)
	case *Fetched:
		c.fetched(m, b)
	case *Offer:
		c.offered(m, b)
	case *Offered:
		c.offerAnswered(m, b)
	case *Release:
		c.release(m, b)
	case *Released:
		c.releasedBy(m, b)
	case *Purge:
		c.purge(m, b)
	}
}

// park keeps a request until this member has caught up. One that there is no room for is dropped: a replica's is sent again,
// and the sender of a caller's message is told that it was not run.
func (c *Core) park(m Message) {
	b, ask := m.Body.(*Ask)
	switch {
	case len(c.parked) < maxParked:
		m.came = max(c.now, 1)
		c.parked = append(c.parked, m)
		if ask {
			c.timers.set(b.Deadline, timer{kind: timerParked})
		}
	case ask:
		c.send(m.From, &Answer{ID: b.ID, Result: c.result(CodeOverloaded, fmt.Sprintf("member %s has %d messages waiting for placement %d", c.cfg.Self, len(c.parked), m.Version))})
	}
}

// expireParked answers the callers' messages that wait for a placement and whose time is up.
func (c *Core) expireParked() {
	c.parked = slices.DeleteFunc(c.parked, func(m Message) bool {
		b, ask := m.Body.(*Ask)
		if !ask || b.Deadline > c.now {
			return false
		}
		c.send(m.From, &Answer{ID: b.ID, Result: c.result(CodeUnavailable, fmt.Sprintf("member %s does not have placement %d yet", c.cfg.Self, m.Version))})
		return true
	})
}

func isAnswer(b Body) bool {
	switch b.(type) {
	case *Answer, *Promise, *Accepted, *Confirmed, *Pulled, *Fetched, *Offered, *Released:
		return true
	}
	return false
}

// counts says whether this member is of the sets of a key whose quorums count. One that is of a later ring alone keeps its copy
// for then; the owner gives it nothing.
func (c *Core) counts(p *placed) bool {
	return slices.Contains(p.s, c.cfg.Self) || slices.Contains(p.sn, c.cfg.Self)
}

// admit says whether this member may take a replica's part for a key in a request of the given version.
func (c *Core) admit(m Message, s *slot) Code {
	p := c.place(s)
	if m.Version < p.fence {
		c.pushView(m.From)
		return CodeStale
	}
	if !c.counts(p) {
		return CodeMoved
	}
	if !c.filledKey(s) {
		c.fillOne(s)
		return CodeReceiving
	}
	return CodeOK
}

// effective is a slot's promise, the member's floor included.
func (c *Core) effective(s *slot) Epoch {
	if s.promised.Less(c.floor) {
		return c.floor
	}
	return s.promised
}

func (c *Core) prepare(m Message, b *Prepare) {
	s := c.slot(b.Key)
	ans := &Promise{Op: b.Op, Key: b.Key, Code: c.admit(m, s)}
	if ans.Code == CodeOK {
		if b.Epoch.Less(c.effective(s)) || b.Epoch == s.promised && b.Epoch.Member != m.From {
			ans.Code = CodeRefused
		} else {
			c.promise(s, b.Epoch)
			c.overtaken(s)
			ans.Stamp = s.stamp
			if b.Have.Less(s.stamp) {
				ans.Pages = c.give(s)
			}
		}
	}
	ans.Promised = c.effective(s)
	c.send(m.From, ans)
	c.slots.release(s)
}

// overtaken ends an activation here that another one has taken the key from while its handler runs: what that does can
// never be committed, and it may be waiting for something. What is in flight is left to be answered.
func (c *Core) overtaken(s *slot) {
	if a := s.act; a != nil && a.state == active && a.executing != nil && a.round == nil && a.epoch.Less(s.promised) {
		c.end(a, "fenced")
	}
}

func (c *Core) accept(m Message, b *Accept) {
	s := c.slot(b.Key)
	ans := &Accepted{Op: b.Op, Key: b.Key, Code: c.admit(m, s)}
	switch {
	case ans.Code == CodeOK && !soundPages(b.Pages):
		c.note("corrupt page in an accept", b.Key, m.From, b.Stamp.String())
		ans.Code = CodeNeedFull // what the owner holds may be sound
		if m.From == c.cfg.Self {
			c.spoiled(s, "commit")
		}
	case ans.Code == CodeOK:
		ans.Code = c.acceptCommit(s, b)
	}
	ans.Promised = c.effective(s)
	c.send(m.From, ans)
	c.slots.release(s)
}

// acceptCommit applies a commit to the copy: never under a higher promise, never over a higher stamp, a delta only to
// exactly the state before it.
func (c *Core) acceptCommit(s *slot, b *Accept) Code {
	if b.Stamp.Epoch.Less(c.effective(s)) {
		return CodeRefused
	}
	if !s.stamp.Less(b.Stamp) {
		return CodeOK // it was accepted before
	}
	if b.Full {
		c.install(s, b.Stamp.Epoch, b.Stamp, b.Pages)
		return CodeOK
	}
	if s.stamp != b.Prev {
		return CodeNeedFull
	}
	s.pages = s.pages.merge(b.Pages, b.Removed)
	s.stamp = b.Stamp
	if s.promised.Less(b.Stamp.Epoch) {
		s.promised = b.Stamp.Epoch
	}
	c.touch(s)
	c.put(Put{Key: s.id, Meta: CopyMeta{s.promised, s.stamp}, Pages: b.Pages, Removed: b.Removed})
	return CodeOK
}

func (c *Core) confirm(m Message, b *Confirm) {
	s := c.slot(b.Key)
	ans := &Confirmed{Op: b.Op, Key: b.Key, Code: c.admit(m, s)}
	if ans.Code == CodeOK {
		if b.Epoch.Less(c.effective(s)) {
			ans.Code = CodeRefused
		} else {
			c.promise(s, b.Epoch)
		}
	}
	ans.Promised = c.effective(s)
	c.send(m.From, ans)
	c.slots.release(s)
}

// purge forgets a deleted key once all of a stable set hold the delete. What stays is a floor above its epoch, so that
// nothing that was committed before the delete can come back.
func (c *Core) purge(m Message, b *Purge) {
	s := c.slots.find(b.Key)
	v := c.view.v
	if s == nil || v.Stage != Stable || m.Version != v.Version || s.stamp != b.Stamp || !s.deleted() {
		return
	}
	p := c.place(s)
	if !slices.Contains(p.s, c.cfg.Self) || c.anyRefilling(p.s) {
		return
	}
	e := b.Stamp.Epoch
	floor := Epoch{Version: e.Version, Number: e.Number + 1}
	if s.promised.Less(floor) {
		s.promised = floor
	}
	c.discard(s)
}

func (c *Core) anyRefilling(set []string) bool {
	for _, id := range set {
		if m, ok := c.view.v.Member(id); !ok || m.Refilling {
			return true
		}
	}
	return false
}
