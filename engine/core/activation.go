package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// activation is the live instance of a key on its owner.
//
//	releasing ──► preparing ──► active ──► (ended)
//	     the former owner      W(S) and W(S')     moved, fenced, idle
//	     has let go            have promised
type activation struct {
	id      uint64
	slot    *slot
	state   actState
	epoch   Epoch
	version uint64 // of the quorums that op's answers count for
	op      uint64 // the operation under way: release, prepare or round
	due     Time   // when it is sent again, 0 if it is not
	tries   int
	answers map[string]replicaAnswer // to op
	have    Stamp                    // own stamp when the Prepare was sent
	former  string                   // releasing: who is asked to let go, until giveUp
	giveUp  Time

	pages     map[string]Page // speculative state: all that has been executed
	size      int             // bytes of pages, names included
	committed Stamp
	seq       uint64
	full      bool // the next commit carries all pages: the write-back
	loaded    bool // the runner has the state as it is

	mailbox   []*held
	watched   Time // when mailboxExpired looks at it, 0 for never
	executing *held
	execSeq   uint64
	batch     batch  // executed, not sent
	round     *round // sent, not committed

	missed bool   // a replica has not agreed to the last commit yet
	wave   uint64 // of the sweep that started it, until its first commit; 0: none

	ending    string // not "": why it ends as soon as nothing is under way
	releasers []releaser
	used      Time
	opened    Time // when it became active, or was prepared anew
}

type actState uint8

const (
	releasing actState = iota
	preparing
	active
)

func (s actState) String() string { return [...]string{"releasing", "preparing", "active"}[s] }

type replicaAnswer struct {
	code  Code
	stamp Stamp
	pages []Page
}

type releaser struct {
	member string
	op     uint64
}

const (
	// releaseWait is how long a new owner waits for the former one to finish before it takes the key from it.
	releaseWait = 500 * ms
	// releaseAgain is the pause before it is asked again: a message may be lost while connections are made.
	releaseAgain = 50 * ms
	// ownDeadline is that of messages of the engine's own: nobody waits for them.
	ownDeadline = 1000 * 1000 * ms
	// resendFirst and resendMost bound the pause before an operation is sent again to those who have not answered.
	resendFirst   = 100 * ms
	resendMost    = 800 * ms
	refusedPause  = 8 * ms
	receivingWait = 12 * ms
)

// activate starts an activation of a key that this member owns.
func (c *Core) activate(s *slot) {
	a := &activation{id: c.nextOp(), slot: s, used: c.now}
	s.act = a
	c.acts[a.id] = a
	former := c.formerOwner(s)
	m, ok := c.view.v.Member(former)
	if former == "" || !ok || m.Down {
		c.startPrepare(a)
		return
	}
	a.state = releasing
	a.former, a.giveUp = former, c.now+releaseWait
	c.newOp(a)
	c.askRelease(a)
}

func (c *Core) askRelease(a *activation) {
	c.send(a.former, &Release{Op: a.op, Key: a.slot.id})
	c.wake(a, releaseAgain)
}

func (c *Core) newOp(a *activation) {
	delete(c.byOp, a.op)
	a.op = c.nextOp()
	c.byOp[a.op] = a
	a.due = 0
	a.answers = map[string]replicaAnswer{}
}

// wake has the activation's operation looked at again after a while, or sooner if that is settled already: however many
// answers ask for it, it is sent again once.
func (c *Core) wake(a *activation, d Time) {
	if a.due != 0 && a.due <= c.now+d {
		return
	}
	a.due = c.now + d
	c.timers.set(a.due, timer{kind: timerAct, id: a.id, op: a.op})
}

// release ends the activation of a key that has another owner, once what is under way has been committed.
func (c *Core) release(m Message, b *Release) {
	s := c.slots.find(b.Key)
	if s != nil && s.act != nil {
		if c.place(s).owner != c.cfg.Self {
			if r := (releaser{m.From, b.Op}); !slices.Contains(s.act.releasers, r) {
				s.act.releasers = append(s.act.releasers, r)
			}
			c.windDown(s.act, "moved")
			return
		}
		c.pushView(m.From)
	}
	c.send(m.From, &Released{Op: b.Op, Key: b.Key})
}

func (c *Core) releasedBy(_ Message, b *Released) {
	if a := c.byOp[b.Op]; a != nil && a.state == releasing {
		c.startPrepare(a)
	}
}

// startPrepare asks the replicas for a promise under an epoch that was never used.
func (c *Core) startPrepare(a *activation) {
	p := c.place(a.slot)
	a.state = preparing
	a.version = p.fence
	a.epoch = Epoch{Version: c.view.v.Version, Number: c.nextNumber(), Member: c.cfg.Self}
	a.have = a.slot.stamp
	c.newOp(a)
	c.sendPrepare(a, nil)
	c.wake(a, c.resendAfter(a))
}

func (c *Core) resendAfter(a *activation) Time {
	d := min(resendFirst<<min(a.tries, 6), resendMost)
	a.tries++
	return d + Time(mix(a.op)%uint64(d/4))
}

func (c *Core) sendPrepare(a *activation, only func(replicaAnswer) bool) {
	p := c.place(a.slot)
	for _, id := range union(p.s, p.sn) {
		if x, ok := a.answers[id]; !ok || only != nil && only(x) {
			c.send(id, &Prepare{Op: a.op, Key: a.slot.id, Epoch: a.epoch, Have: a.have})
		}
	}
}

// promised counts one answer to a Prepare.
func (c *Core) promised(m Message, b *Promise) {
	a := c.byOp[b.Op]
	if a == nil || a.state != preparing {
		return
	}
	if x, ok := a.answers[m.From]; ok && x.code == CodeOK {
		return
	}
	if !soundPages(b.Pages) {
		c.note("corrupt page in a promise", b.Key, m.From, b.Stamp.String())
		return // it is asked again
	}
	a.answers[m.From] = replicaAnswer{b.Code, b.Stamp, b.Pages}
	switch b.Code {
	case CodeRefused:
		c.number = max(c.number, b.Promised.Number)
		if b.Promised.Version > c.view.v.Version {
			c.wantNewer(m.From, b.Promised.Version)
		}
		c.pause(a, refusedPause<<min(a.tries, 5))
		a.tries++
	case CodeReceiving:
		c.wake(a, receivingWait)
	case CodeOK:
		if p := c.place(a.slot); c.quorum(p, W, func(id string) bool { x, ok := a.answers[id]; return ok && x.code == CodeOK }) {
			c.opened(a)
		}
	}
}

// pause lets an activation prepare again after a while.
func (c *Core) pause(a *activation, d Time) {
	ans := a.answers
	c.newOp(a)
	a.answers = ans
	a.state = preparing
	a.epoch = Epoch{}
	c.wake(a, d/2+Time(mix(a.op)%uint64(d)))
}

// quorum says whether enough members satisfy ok: need(|S|), and in the switch stage need(|S'|) too.
func (c *Core) quorum(p *placed, need func(int) int, ok func(id string) bool) bool {
	count := func(set []string) int {
		n := 0
		for _, id := range set {
			if ok(id) {
				n++
			}
		}
		return n
	}
	if count(p.s) < need(len(p.s)) {
		return false
	}
	return c.view.v.Stage != Switch || count(p.sn) >= need(len(p.sn))
}

// opened adopts the highest state among the answers. It is written back under the new epoch with the first commit,
// before anything is answered, unless no counted answer holds a copy at all.
func (c *Core) opened(a *activation) {
	best := replicaAnswer{stamp: a.slot.stamp}
	for _, id := range sortedKeys(a.answers) {
		if x := a.answers[id]; x.code == CodeOK && best.stamp.Less(x.stamp) {
			best = x
		}
	}
	if best.stamp == a.slot.stamp {
		best.pages = c.give(a.slot)
	}
	a.state, a.tries, a.opened = active, 0, c.now
	a.committed, a.full = best.stamp, !best.stamp.IsZero()
	a.pages, a.size = make(map[string]Page, len(best.pages)), 0
	for _, p := range best.pages {
		a.pages[p.Name] = p
		a.size += sizeOf(p.Name, p.Data)
	}
	delete(c.byOp, a.op)
	a.op = 0
	if d := c.cfg.Types[a.slot.id.Type].Idle; d > 0 {
		c.timers.set(c.now.Add(d), timer{kind: timerIdle, id: a.id})
	}
	c.pump(a)
}

// again is called when an operation has gone unanswered for a while.
func (c *Core) again(a *activation) {
	switch a.state {
	case releasing:
		if c.now < a.giveUp {
			c.askRelease(a)
			return
		}
		c.startPrepare(a)
	case preparing:
		if a.epoch.IsZero() {
			c.startPrepare(a)
			return
		}
		c.sendPrepare(a, func(x replicaAnswer) bool { return x.code != CodeOK })
	case active:
		if a.round == nil {
			c.repair(a)
			return
		}
		c.sendRound(a)
		if a.tries == 1 { // slow from here on: tell the callers in time
			for _, x := range slices.Concat(a.round.batch.answers, a.batch.answers) {
				c.timers.set(x.held.until, timer{kind: timerHeld, id: a.id})
			}
			for _, h := range a.mailbox {
				c.timers.set(h.until, timer{kind: timerHeld, id: a.id})
			}
		}
	}
	c.wake(a, c.resendAfter(a))
}

// pump runs the next message if none runs, and sends what has been executed if nothing is in flight.
func (c *Core) pump(a *activation) {
	if a.state != active {
		return
	}
	for a.executing == nil && a.ending == "" && len(a.mailbox) > 0 && c.mayRun(a) {
		h := a.mailbox[0]
		a.mailbox[0] = nil
		a.mailbox = a.mailbox[1:]
		c.hold(h, -1)
		if c.now >= h.until {
			c.answer(h, Result{Code: CodeUnavailable, Text: "the deadline passed before the message was run"})
			continue
		}
		if h.method == TouchMethod {
			a.full = true
			if _, marked := a.pages[ActivePage]; !marked {
				a.batch.add(h, Result{}, false)
				continue
			}
		}
		c.execute(a, h)
	}
	if len(a.mailbox) == 0 {
		a.mailbox = nil
	}
	c.flush(a)
	c.settle(a)
}

// mayRun says whether another message may run on a state that is not committed yet.
func (c *Core) mayRun(a *activation) bool {
	n := len(a.batch.answers)
	if a.round != nil {
		n += len(a.round.batch.answers)
	}
	most := c.cfg.Types[a.slot.id.Type].Pipeline
	return !a.batch.fullUp(&c.cfg.Sizes) && (most == 0 || n < most)
}

// shown is the stamp of the speculative state.
func (a *activation) shown() Stamp {
	switch {
	case a.batch.writes():
		return Stamp{a.epoch, a.seq + 1}
	case a.round != nil:
		return a.round.stamp
	}
	return a.committed
}

func (c *Core) execute(a *activation, h *held) {
	a.executing = h
	a.execSeq++
	c.emit(&Execute{Activation: a.id, Seq: a.execSeq, Key: h.key, Method: h.method, Body: h.body, RequestID: h.reqID, Tried: h.age(a.opened, c.now), Path: h.path,
		State: a.pages, Stamp: a.shown(), Now: c.now, Deadline: h.until, First: !a.loaded})
	a.loaded = true
}

// executed takes a handler's outcome into the batch that is sent next.
func (c *Core) executed(in *Executed) {
	a := c.acts[in.Activation]
	if a == nil || a.executing == nil || a.execSeq != in.Seq {
		return
	}
	h := a.executing
	a.executing = nil
	r, writes := Result{Body: in.Body}, false
	if in.AppCode != 0 {
		r = Result{Code: CodeApp, AppCode: in.AppCode, Text: in.Text, Body: in.Body}
	}
	if size, why := c.checkChanges(a, in.Changes); why != "" {
		r = Result{Code: CodeRejected, Text: why}
		a.loaded = false // the handler's own view has the change in it
	} else if len(in.Changes) > 0 {
		a.size, writes = size, true
		a.batch.change(a, in.Changes, c.cfg.Types[a.slot.id.Type].Active && !in.Stop)
	}
	if h.local && len(in.Changes) == 0 && a.round == nil && a.batch.empty() && !a.full {
		r.Stamp = a.committed
		c.settled(a)
		c.answer(h, r)
	} else {
		a.batch.add(h, r, writes)
	}
	if in.Stop {
		c.windDown(a, cmp.Or(in.Reason, "idle"))
		return
	}
	c.pump(a)
}

// checkChanges gives the bytes of the pages after some changes, or why they are not allowed.
func (c *Core) checkChanges(a *activation, changes []Change) (size int, why string) {
	for _, ch := range changes {
		if len(ch.Name) > c.cfg.Limits.Name {
			return 0, fmt.Sprintf("a page of %s has a name of %d bytes; at most %d are allowed", a.slot.id, len(ch.Name), c.cfg.Limits.Name)
		}
	}
	if size = a.sizeAfter(changes); size > max(a.size, c.cfg.Limits.State) {
		return 0, fmt.Sprintf("state of %s would take %d bytes; at most %d are allowed", a.slot.id, size, c.cfg.Limits.State)
	}
	return size, ""
}

// sizeAfter gives the bytes of the pages after some changes.
func (a *activation) sizeAfter(changes []Change) int {
	size, had := a.size, func(name string) int { return pageSize(a.pages, name) }
	var new map[string]int
	if len(changes) > 1 {
		new = make(map[string]int, len(changes))
	}
	for _, ch := range changes {
		if ch.Name == "" && ch.Delete {
			size, had = 0, func(string) int { return 0 }
			clear(new)
			continue
		}
		old, again := new[ch.Name]
		if !again {
			old = had(ch.Name)
		}
		n := 0
		if !ch.Delete {
			n = sizeOf(ch.Name, ch.Data)
		}
		size += n - old
		if new != nil {
			new[ch.Name] = n
		}
	}
	return size
}

func pageSize(pages map[string]Page, name string) int {
	p, ok := pages[name]
	if !ok {
		return 0
	}
	return sizeOf(name, p.Data)
}

// pageRoom is what a page takes in a message beside its name and data: its stamp, its sum and the lengths. All pages of a key
// travel in one message: many small ones must not make it longer than such a message may be.
const pageRoom = 24

func sizeOf(name string, data []byte) int { return len(name) + len(data) + pageRoom }

// windDown lets an activation finish what it has executed and refuses the rest.
func (c *Core) windDown(a *activation, reason string) {
	if a.ending == "" {
		a.ending = reason
	}
	owner := c.place(a.slot).owner
	for _, h := range a.mailbox {
		c.hold(h, -1)
		c.answer(h, Result{Code: CodeRedirect, Owner: owner, Text: "the key moved"})
	}
	a.mailbox = nil
	if a.state != active {
		c.end(a, reason)
		return
	}
	c.flush(a)
	c.settle(a)
}

// settle ends an activation that is winding down and has nothing under way.
func (c *Core) settle(a *activation) {
	if a.ending != "" && a.executing == nil && a.round == nil && a.batch.empty() && c.acts[a.id] == a {
		c.end(a, a.ending)
	}
}

// end is the end of an activation. What was executed and not sent never happened; what is in flight may have. What changed
// nothing is run again.
func (c *Core) end(a *activation, reason string) {
	if c.acts[a.id] != a {
		return
	}
	delete(c.acts, a.id)
	delete(c.byOp, a.op)
	c.begun(a)
	a.slot.act = nil
	retry := Result{Code: CodeRedirect, Owner: c.place(a.slot).owner, Text: "the activation ended: " + reason}
	if a.round != nil {
		for _, x := range a.round.batch.answers {
			r := retry
			if x.writes {
				r = Result{Code: CodeUnknownOutcome, Text: "the activation ended while the write was being committed: " + reason}
			}
			c.answer(x.held, r)
		}
	}
	for _, x := range a.batch.answers {
		c.answer(x.held, retry)
	}
	if a.executing != nil {
		c.answer(a.executing, retry)
	}
	for _, h := range a.mailbox {
		c.hold(h, -1)
		c.answer(h, retry)
	}
	for _, r := range a.releasers {
		c.send(r.member, &Released{Op: r.op, Key: a.slot.id})
	}
	c.emit(&Ended{Activation: a.id, Key: a.slot.id, Reason: reason})
	// What was in flight may be here and nowhere else, or the other way round. What is in no ring is handed over anyway.
	if (a.missed || a.round != nil && a.round.commit) && c.place(a.slot).stays {
		c.startRepair(a.slot, nil)
	}
	c.slots.release(a.slot)
}

// idle ends an activation that has had no messages for its type's idle time.
func (c *Core) idle(a *activation) {
	d := c.cfg.Types[a.slot.id.Type].Idle
	if left := a.used.Add(d) - c.now; left > 0 {
		c.timers.set(c.now+left, timer{kind: timerIdle, id: a.id})
		return
	}
	if a.state == active && len(a.mailbox) == 0 && a.executing == nil && a.round == nil && a.batch.empty() {
		if _, marked := a.pages[ActivePage]; !marked {
			c.end(a, "idle")
			return
		}
		c.tell(a, IdleMethod)
	}
	c.timers.set(c.now.Add(d), timer{kind: timerIdle, id: a.id})
}

// tell gives an activation a message of the engine's own.
func (c *Core) tell(a *activation, method string) {
	a.mailbox = append(a.mailbox, &held{origin: c.cfg.Self, key: a.slot.id, method: method, local: method == IdleMethod, until: c.now + ownDeadline})
	c.held++
	c.pump(a)
}

// reviewActivations brings the activations in line with a new placement: the same owner goes on with its epoch and the
// new quorums, another owner's activation ends here.
func (c *Core) reviewActivations(of map[uint64]*activation) {
	var ids []uint64
	for _, a := range of {
		if p := c.place(a.slot); p.owner != c.cfg.Self || a.ending != "" || a.version != p.fence {
			ids = append(ids, a.id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if a := c.acts[id]; a != nil {
			c.reviewActivation(a)
		}
	}
}

func (c *Core) reviewActivation(a *activation) {
	p := c.place(a.slot)
	switch {
	case p.owner != c.cfg.Self:
		c.reviewRound(a, p)
		c.windDown(a, "moved")
	case a.ending != "":
		c.reviewRound(a, p)
	case a.state == preparing && a.version < p.fence:
		c.startPrepare(a)
	case a.state == active:
		c.reviewRound(a, p)
	}
}

// reviewRound sends what is in flight again if the key's quorums changed: answers of two versions are never added up.
func (c *Core) reviewRound(a *activation, p *placed) {
	if a.version == p.fence || a.round == nil && a.op == 0 {
		return
	}
	a.version = p.fence
	if a.round == nil {
		c.newOp(a)
		c.wake(a, repairFirst)
		return
	}
	c.newOp(a)
	c.sendRound(a)
	c.wake(a, c.resendAfter(a))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// union gives a and what b has besides, in that order.
func union(a, b []string) []string {
	if len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) {
		return a
	}
	out := slices.Clone(a)
	for _, id := range b {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// mix spreads a number over 64 bits: it takes the place of random jitter.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
