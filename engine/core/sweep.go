package core

import (
	"iter"
	"maps"
	"slices"
	"time"
)

const (
	sweepSlots = 4096 // copies looked at in one tick
	// sweepStarts is how many activations the walk has under way at once: what callers ask meanwhile waits behind their
	// messages, here and at the replicas. Those that take longer than startsWait are not waited for.
	sweepStarts = 32
	startsWait  = 500 * ms
	// Fewer are under way where this member does not keep up: half as many after a tick that comes so late, and one more
	// after each that does not.
	fewestStarts = 4
	tickLate     = 20 * ms
	sweepEvery   = 5 * time.Second
	offerEntries = 128
	offerBytes   = 256 << 10
	offerAgain   = 500 * ms
	offersOpen   = 1024 // copies being handed over at once
	purgeAfter   = RepeatMost + 3*time.Second
)

// sweepState walks the copies after a placement change and now and then: it reactivates what is marked, hands over and
// drops what this member need not hold, repairs what others may have missed, and purges deletes. The walk finds what is due;
// what has to wait for its turn is looked at again then.
type sweepState struct {
	bucket  int // next bucket; beyond the last one: the walk is over
	again   Time
	orphans int   // found in the walk so far
	left    int   // orphans of the last complete walk
	starts  []Key // that have to run here
	offers  []Key // to be offered to others
	open    map[Key]*slot
	out     map[string]*offerBatch // to be sent, by member
	back    map[string]bool        // members that were lost and are back: they may have missed commits
	gone    map[string]bool        // members that were lost: what they committed last may be at a minority of those left
	resumed bool                   // this member was lost and is back: others may lack what it holds
	mute    map[string]bool        // members that did not take what was offered in time: they are as if back in the next walk
	started int                    // activations that were started in this wave and have not committed yet
	wave    uint64                 // begins anew when they take too long
	last    Time                   // when the last one of them was
	allowed int                    // how many there may be now, fewestStarts to sweepStarts
	ticked  Time
	walked  []keyed // the copies of a bucket, while it is walked
}

// offer is a copy that is being handed over.
type offer struct {
	stamp  Stamp
	since  Time
	sent   Time
	acked  []string // members that hold the stamp or a newer one
	purge  bool     // a delete that all must hold, not a copy to drop
	repair bool     // a copy that stays here, for members that may have missed it
	to     []string // a repair's members; nil: all others of S and S'
	fence  uint64   // of the key when the offer was made
	reason string
}

type offerBatch struct {
	entries []Entry
	bytes   int
}

func (s *sweepState) init() {
	s.wave, s.allowed = 1, sweepStarts
	s.open, s.out, s.back, s.gone, s.mute = map[Key]*slot{}, map[string]*offerBatch{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
}

func (s *sweepState) restart() {
	s.bucket, s.again, s.orphans, s.starts, s.offers = 0, 0, 0, s.starts[:0], s.offers[:0]
	maps.Copy(s.back, s.mute)
	clear(s.mute)
}

// tickSweep does a bounded piece of the walk and of what waits for its turn.
func (c *Core) tickSweep() {
	w := &c.sweep
	if c.view == nil || !c.registered() {
		return
	}
	if w.bucket >= 1<<bucketBits {
		if w.again == 0 {
			w.left, w.again = w.orphans, c.now.Add(c.cfg.SweepEvery)
		}
		if len(w.offers) == 0 {
			clear(w.back)
			clear(w.gone)
			w.resumed = false
			if len(w.starts) == 0 && (c.now >= w.again || w.left > 0 && len(w.open) == 0) {
				w.restart()
			}
		}
	}
	for seen := 0; w.bucket < 1<<bucketBits && seen < sweepSlots*passedShare; w.bucket++ {
		w.walked = append(w.walked[:0], c.slots.bucket(w.bucket)...)
		for _, x := range w.walked {
			if seen++; c.passed(c.placeOf(x)) {
				continue
			}
			seen += passedShare
			c.sweepSlot(x.slot)
		}
		clear(w.walked)
	}
	c.startNext()
	c.offerNext()
	c.reoffer()
	c.flushOffers()
}

// sweepSlot looks at one copy.
func (c *Core) sweepSlot(s *slot) {
	if !c.place(s).stays {
		c.sweep.orphans++
	}
	switch c.due(s) {
	case dueDrop:
		c.drop(s)
	case dueStart:
		c.sweep.starts = append(c.sweep.starts, s.id)
	case dueHandOver, duePurge:
		c.sweep.offers = append(c.sweep.offers, s.id)
		return
	}
	if c.repairs(s, c.place(s)) {
		c.sweep.offers = append(c.sweep.offers, s.id)
	}
}

// startNext starts what the walk has found, as far as the allowance goes and other messages leave room.
func (c *Core) startNext() {
	w := &c.sweep
	w.adapt(c.now)
	if w.started >= w.allowed && c.now-w.last >= startsWait {
		w.started = 0
		w.wave++
	}
	n := 0
	for ; n < len(w.starts) && w.started < w.allowed && c.held < c.cfg.Limits.Held; n++ {
		if s := c.slots.find(w.starts[n]); s != nil && c.due(s) == dueStart {
			c.activate(s)
			s.act.wave = w.wave
			w.started++
			w.last = c.now
			c.tell(s.act, TouchMethod)
		}
	}
	w.starts = w.starts[n:]
}

// offerNext offers what the walk has found, as long as not too much is open.
func (c *Core) offerNext() {
	w := &c.sweep
	n := 0
	for ; n < len(w.offers) && len(w.open) < offersOpen; n++ {
		s := c.slots.find(w.offers[n])
		if s == nil {
			continue
		}
		switch c.due(s) {
		case dueHandOver:
			c.startOffer(s, false)
		case duePurge:
			c.startOffer(s, true)
		default:
			if p := c.place(s); c.repairs(s, p) {
				c.startRepair(s, c.missed(s, p))
			}
		}
	}
	w.offers = w.offers[n:]
}

// adapt sets how many activations may be under way.
func (s *sweepState) adapt(now Time) {
	if s.ticked != 0 && now-s.ticked > tickLate {
		s.allowed = max(s.allowed/2, fewestStarts)
	} else {
		s.allowed = min(s.allowed+1, sweepStarts)
	}
	s.ticked = now
}

// returned notes who was lost since the view before, by its marks or in a view between that was not seen here, and who is
// back or has filled what it lost. The walk that follows repairs by that.
func (c *Core) returned(old, v *View) {
	for _, m := range v.Members {
		o, ok := old.Member(m.ID)
		if !ok || m.Marked == o.Marked {
			continue
		}
		lost := m.Down || m.Refilling
		switch {
		case m.ID == c.cfg.Self:
			c.sweep.resumed = !lost
		case lost:
			c.sweep.gone[m.ID] = true
		default:
			c.sweep.back[m.ID] = true
			c.sweep.gone[m.ID] = c.sweep.gone[m.ID] || !o.Down && !o.Refilling
		}
	}
}

// repairs says whether others may lack a copy that stays here. A commit needs a majority alone, and who made it was to bring it
// to the others: unless it was lost. Every member that holds the copy offers it, for no one knows which others do.
func (c *Core) repairs(s *slot, p *placed) bool {
	return p.stays && !s.stamp.IsZero() &&
		(c.owed(s) || slices.ContainsFunc(p.s, c.isBack) || slices.ContainsFunc(p.sn, c.isBack))
}

func (c *Core) isBack(id string) bool { return c.sweep.back[id] }

// owed says whether any other may lack a copy: this member or the one that wrote it last was lost.
func (c *Core) owed(s *slot) bool { return c.sweep.resumed || c.sweep.gone[s.stamp.Epoch.Member] }

// missed gives the members that may lack a copy; nil for all.
func (c *Core) missed(s *slot, p *placed) (ids []string) {
	if c.owed(s) {
		return nil
	}
	for _, id := range union(p.s, p.sn) {
		if c.sweep.back[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// startRepair offers a copy to other members of S and S'; nil: to all. It takes the place of an offer that says less, and
// its members with it.
func (c *Core) startRepair(s *slot, to []string) {
	o, fence := s.offer, c.place(s).fence
	lost := func(id string) bool { return c.sweep.back[id] || c.sweep.gone[id] } // perhaps with what it said that it holds
	if s.stamp.IsZero() || o != nil && (o.purge || o.to == nil && o.stamp == s.stamp && o.fence == fence && !slices.ContainsFunc(o.acked, lost)) {
		return
	}
	if o != nil && (o.to == nil || to == nil) {
		to = nil
	} else if o != nil {
		to = union(o.to, to)
	}
	s.offer = &offer{stamp: s.stamp, since: c.now, repair: true, to: to, fence: fence}
	c.sweep.open[s.id] = s
	c.sendOffer(s)
}

// due is what the sweep has to do with a copy.
type due uint8

const (
	dueNothing due = iota
	dueDrop
	dueHandOver
	duePurge
	dueStart
)

// passed says whether nothing is due for copies of an arc, whatever they are.
func (c *Core) passed(p *placed) bool {
	return p.stays && p.owner != c.cfg.Self && len(c.sweep.back) == 0 && len(c.sweep.gone) == 0 && !c.sweep.resumed
}

func (c *Core) isDown(id string) bool {
	m, ok := c.view.v.Member(id)
	return !ok || m.Down
}

func (c *Core) due(s *slot) due {
	p := c.place(s)
	switch {
	case !p.stays:
		if s.stamp.IsZero() || c.view.replicas(s.id.Type) == Pinned { // nobody takes a pinned copy over
			return dueDrop
		}
		return dueHandOver
	case p.owner != c.cfg.Self || s.act != nil:
		return dueNothing
	case s.deleted():
		if c.now >= s.gone.Add(c.cfg.PurgeAfter) && c.view.v.Stage == Stable && !c.anyRefilling(p.s) {
			return duePurge
		}
		return dueNothing
	}
	// It may not be able to begin: the walk after the next placement looks again.
	if _, marked := s.page(ActivePage); marked && !c.drained && c.quorum(p, W, c.mayAnswer) {
		return dueStart
	}
	return dueNothing
}

// mayAnswer says whether a member is there and has its memory, for all that the placement says.
func (c *Core) mayAnswer(id string) bool {
	m, ok := c.view.v.Member(id)
	return ok && !m.Down && !m.Refilling
}

// begun notes that an activation that the walk has started needs no more of its allowance.
func (c *Core) begun(a *activation) {
	if a.wave == c.sweep.wave {
		c.sweep.started--
	}
	a.wave = 0
}

func (c *Core) startOffer(s *slot, purge bool) {
	if s.offer != nil {
		return
	}
	s.offer = &offer{stamp: s.stamp, since: c.now, purge: purge, fence: c.place(s).fence}
	c.sweep.open[s.id] = s
	c.sendOffer(s)
}

// sendOffer offers a copy to those that have not said that they hold it.
func (c *Core) sendOffer(s *slot) {
	s.offer.sent = c.now
	for id := range c.takers(s) {
		if !c.isDown(id) && !slices.Contains(s.offer.acked, id) {
			c.queueOffer(id, s, false)
		}
	}
}

// takers gives the members that are to hold what is offered.
func (c *Core) takers(s *slot) iter.Seq[string] {
	p, o := c.place(s), s.offer
	ids := p.s
	if o.repair {
		ids = union(p.s, p.sn)
	}
	return func(yield func(string) bool) {
		for _, id := range ids {
			if id != c.cfg.Self && (o.to == nil || slices.Contains(o.to, id)) && !yield(id) {
				return
			}
		}
	}
}

func (c *Core) queueOffer(to string, s *slot, pages bool) {
	b := c.sweep.out[to]
	if b == nil {
		b = &offerBatch{}
		c.sweep.out[to] = b
	}
	e := c.entry(s, pages)
	b.entries = append(b.entries, e)
	b.bytes += entryOverhead + pageBytes(e.Pages)
	if len(b.entries) >= c.cfg.Sizes.OfferEntries || b.bytes >= c.cfg.Sizes.OfferBytes {
		delete(c.sweep.out, to)
		c.send(to, &Offer{Seq: c.nextOp(), Entries: b.entries})
	}
}

func (c *Core) flushOffers() {
	for _, id := range sortedKeys(c.sweep.out) {
		c.send(id, &Offer{Seq: c.nextOp(), Entries: c.sweep.out[id].entries})
	}
	clear(c.sweep.out)
}

// reoffer repeats offers that were not answered and gives up those that no longer hold.
func (c *Core) reoffer() {
	for _, k := range sortedOffers(c.sweep.open) {
		s := c.sweep.open[k]
		if s.offer == nil || s.offer.stamp != s.stamp || s.offer.fence != c.place(s).fence || s.offer.stale(c, s) {
			c.abandon(s)
			continue
		}
		if c.now-s.offer.sent >= offerAgain {
			c.sendOffer(s)
		}
		c.checkOffer(s)
	}
}

// repairLimit ends offers to members that do not take them: others wait for their turn.
const repairLimit = 10000 * ms

// stale says whether an offer has lost its reason.
func (o *offer) stale(c *Core, s *slot) bool {
	switch {
	case o.repair:
		return c.now-o.since > repairLimit
	case o.purge:
		return s.act != nil
	}
	return c.place(s).stays
}

func sortedOffers(m map[Key]*slot) []Key {
	out := make([]Key, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b Key) int { return compareSlots(m[a], m[b]) })
	return out
}

// abandon ends an offer that does not hold any more. A repair goes on by the sets of now, or with the next walk.
func (c *Core) abandon(s *slot) {
	o := s.offer
	if o == nil || !o.repair || o.stamp != s.stamp || !c.place(s).stays {
		c.closeOffer(s)
		return
	}
	if !o.stale(c, s) {
		c.closeOffer(s)
		c.startRepair(s, nil)
		return
	}
	for id := range c.takers(s) {
		if !c.isDown(id) && !slices.Contains(o.acked, id) {
			c.sweep.mute[id] = true
		}
	}
	c.closeOffer(s)
}

func (c *Core) closeOffer(s *slot) {
	s.offer = nil
	delete(c.sweep.open, s.id)
}

// offered takes copies that a former member hands over: they are installed like writes, with the promise checked.
func (c *Core) offered(m Message, b *Offer) {
	ans := &Offered{Seq: b.Seq}
	for _, e := range b.Entries {
		s := c.slot(e.Key)
		a := OfferAnswer{Key: e.Key, Offer: e.Meta.Stamp, Code: c.admit(m, s)}
		if a.Code == CodeOK && s.stamp.Less(e.Meta.Stamp) {
			switch {
			case e.Meta.Stamp.Epoch.Less(c.effective(s)):
				a.Code = CodeRefused
			case !e.Has:
				a.Code = CodeNeedFull
			case !soundPages(e.Pages):
				a.Code = CodeNeedFull
			default:
				c.install(s, e.Meta.Stamp.Epoch, e.Meta.Stamp, e.Pages)
				if c.due(s) == dueStart {
					c.sweep.starts = append(c.sweep.starts, s.id)
				}
			}
		}
		a.Stamp = s.stamp
		ans.Answers = append(ans.Answers, a)
		c.slots.release(s)
	}
	c.send(m.From, ans)
}

// offerAnswered counts who holds what is to be dropped. An answer to an older stamp than the present one is nothing.
func (c *Core) offerAnswered(m Message, b *Offered) {
	for _, a := range b.Answers {
		s := c.slots.find(a.Key)
		if s == nil || s.offer == nil || s.stamp != a.Offer || s.offer.stamp != a.Offer {
			continue
		}
		s.offer.reason = m.From + " (" + a.Code.String() + ")"
		switch a.Code {
		case CodeOK:
			if s.offer.repair && s.stamp.Less(a.Stamp) && c.counts(c.place(s)) { // this copy is the one that is behind
				c.touchOwner(s)
				continue
			}
			if s.offer.purge && a.Stamp != s.stamp {
				c.closeOffer(s)
				continue
			}
			if !slices.Contains(s.offer.acked, m.From) {
				s.offer.acked = append(s.offer.acked, m.From)
			}
			c.checkOffer(s)
		case CodeNeedFull:
			c.queueOffer(m.From, s, true)
		case CodeRefused:
			c.touchOwner(s)
		}
	}
}

// touchOwner has the owner of a key write once under an epoch of its own: what replicas hold then is the same, whichever
// of them was ahead and whatever was promised meanwhile. It may not hear of that, or know of no such duty yet: the offer stays
// open, and each answer to it touches the owner again until the copy is another one.
func (c *Core) touchOwner(s *slot) {
	if o := c.place(s).owner; o != "" {
		c.send(o, &Ask{Key: s.id, Method: TouchMethod, Deadline: c.now + 10*offerAgain})
	}
}

// checkOffer drops a copy that every live member of S holds, or lets all of S forget a delete that all hold. Both look
// at the placement of this instant.
func (c *Core) checkOffer(s *slot) {
	p := c.place(s)
	o := s.offer
	if o == nil || o.stamp != s.stamp || o.fence != p.fence {
		return
	}
	some := false
	for id := range c.takers(s) {
		if (o.purge || !c.isDown(id)) && !slices.Contains(o.acked, id) {
			return
		}
		some = some || slices.Contains(o.acked, id)
	}
	if o.repair {
		c.closeOffer(s)
		return
	}
	if o.purge {
		c.purgeAll(s, p)
		return
	}
	if some && !p.stays {
		c.closeOffer(s)
		c.drop(s)
	}
}

func (c *Core) purgeAll(s *slot, p *placed) {
	c.closeOffer(s)
	if c.view.v.Stage != Stable || c.anyRefilling(p.s) || s.act != nil {
		return
	}
	for _, id := range p.s {
		c.send(id, &Purge{Key: s.id, Stamp: s.stamp})
	}
}
