package core

// batch is what an activation has executed and not yet sent: it becomes one commit, or one confirmation if nothing in
// it changed the state. Its answers leave in the order of execution.
type batch struct {
	answers []pendingAnswer
	changed map[string]bool // page names; false: removed
	cleared bool            // all pages that were there before are gone
	bytes   int
}

type pendingAnswer struct {
	held   *held
	result Result
	writes bool // it changed the state: if that is not committed it may have happened or not
}

const (
	// batchMessages and batchBytes bound what one commit carries, so that answers do not wait long behind it.
	batchMessages = 256
	batchBytes    = 1 << 20
)

func (b *batch) empty() bool  { return len(b.answers) == 0 }
func (b *batch) writes() bool { return b.cleared || len(b.changed) > 0 }

func (b *batch) fullUp(z *Sizes) bool {
	return len(b.answers) >= z.BatchMessages || b.bytes >= z.BatchBytes
}

func (b *batch) add(h *held, r Result, writes bool) {
	b.answers = append(b.answers, pendingAnswer{h, r, writes})
}

// change applies a handler's changes to the speculative state.
func (b *batch) change(a *activation, changes []Change, marked bool) {
	if b.changed == nil {
		b.changed = map[string]bool{}
	}
	stamp := Stamp{a.epoch, a.seq + 1}
	put := func(name string, data []byte) {
		a.pages[name] = Page{Name: name, Stamp: stamp, Sum: PageSum(name, data), Data: data}
		b.changed[name] = true
		b.bytes += len(name) + len(data)
	}
	for _, ch := range changes {
		switch {
		case ch.Name == "" && ch.Delete:
			a.pages = map[string]Page{}
			clear(b.changed)
			b.cleared = true
		case ch.Delete:
			delete(a.pages, ch.Name)
			b.changed[ch.Name] = false
		default:
			put(ch.Name, ch.Data)
		}
	}
	if marked && len(a.pages) > 0 {
		if _, ok := a.pages[ActivePage]; !ok {
			put(ActivePage, nil)
		}
	}
}

// round is one commit or confirmation in flight. One is in flight at a time for an activation.
type round struct {
	batch  batch
	commit bool
	stamp  Stamp
	accept Accept // of a commit, without Op
}

// flush sends what has been executed if nothing is in flight.
func (c *Core) flush(a *activation) {
	if a.state != active || a.round != nil || a.batch.empty() {
		return
	}
	b := a.batch
	a.batch = batch{}
	r := &round{batch: b, stamp: a.committed}
	if b.writes() || a.full {
		r.commit = true
		a.seq++
		r.stamp = Stamp{a.epoch, a.seq}
		r.accept = Accept{Key: a.slot.id, Stamp: r.stamp, Prev: a.committed, Full: a.full || b.cleared}
		if r.accept.Full {
			for _, name := range sortedKeys(a.pages) {
				r.accept.Pages = append(r.accept.Pages, a.pages[name])
			}
		} else {
			for _, name := range sortedKeys(b.changed) {
				if b.changed[name] {
					r.accept.Pages = append(r.accept.Pages, a.pages[name])
				} else {
					r.accept.Removed = append(r.accept.Removed, name)
				}
			}
		}
		a.full = false
	}
	a.round = r
	a.tries = 0
	a.version = c.place(a.slot).fence
	c.newOp(a)
	c.sendRound(a)
	c.wake(a, c.resendAfter(a))
}

// sendRound sends the round to the members of S and S' that have not agreed to it.
func (c *Core) sendRound(a *activation) {
	p := c.place(a.slot)
	for _, id := range union(p.s, p.sn) {
		if x, ok := a.answers[id]; !ok || x.code != CodeOK {
			c.sendRoundTo(a, id)
		}
	}
}

func (c *Core) sendRoundTo(a *activation, id string) {
	if !a.round.commit {
		c.send(id, &Confirm{Op: a.op, Key: a.slot.id, Epoch: a.epoch})
		return
	}
	b := a.round.accept
	b.Op = a.op
	c.send(id, &b)
}

// sendWhole gives a replica that lacks the state before a commit all of it, from this member's own copy.
func (c *Core) sendWhole(to string, k Key) {
	s := c.slots.find(k)
	if s == nil || s.act == nil || s.act.state != active {
		return
	}
	a := s.act
	if a.round != nil && a.round.commit && s.stamp == a.round.stamp || a.round == nil && s.stamp == a.committed {
		c.send(to, &Accept{Op: a.op, Key: s.id, Stamp: s.stamp, Full: true, Pages: c.give(s)})
	}
}

// roundAnswer counts one replica's answer to the round in flight.
func (c *Core) roundAnswer(from string, k Key, op uint64, code Code, promised Epoch) {
	if code == CodeNeedFull {
		c.sendWhole(from, k)
	}
	a := c.byOp[op]
	if a == nil || a.state != active {
		return
	}
	if code == CodeRefused { // also after the commit: it would never take what is given to it under this epoch
		c.number = max(c.number, promised.Number)
		c.end(a, "fenced")
		return
	}
	if a.round == nil {
		c.agreed(a, from, code)
		return
	}
	if x, ok := a.answers[from]; ok && x.code == CodeOK {
		return
	}
	a.answers[from] = replicaAnswer{code: code}
	switch code {
	case CodeReceiving:
		c.wake(a, receivingWait)
	case CodeOK:
		if p := c.place(a.slot); c.quorum(p, c.quorumOf(a), func(id string) bool { x, ok := a.answers[id]; return ok && x.code == CodeOK }) {
			c.committed(a)
		}
	}
}

// quorumOf gives how many of a set of n have to agree to the round in flight, or to the Prepare.
func (c *Core) quorumOf(a *activation) func(n int) int {
	if a.round != nil && a.round.commit && c.cfg.Types[a.slot.id.Type].All {
		return func(n int) int { return n }
	}
	return W
}

// settled tells the runner that nothing is under way, if it wants to know.
func (c *Core) settled(a *activation) {
	if c.cfg.Types[a.slot.id.Type].Local && a.round == nil && a.executing == nil && a.batch.empty() && !a.full {
		c.emit(&Settled{a.id})
	}
}

// committed answers a round's messages and goes on. Replicas that have not agreed to a commit are given it again later.
func (c *Core) committed(a *activation) {
	r := a.round
	a.round, a.tries = nil, 0
	a.committed = r.stamp
	c.begun(a)
	c.settled(a)
	for _, x := range r.batch.answers {
		x.result.Stamp = r.stamp
		c.answer(x.held, x.result)
	}
	all := c.caughtUp(a, "", CodeOK)
	if r.commit {
		a.missed = !all
	} else if a.missed { // the confirmation has taken the place of the commit's answers
		c.startRepair(a.slot, nil)
	}
	c.pump(a)
	if c.acts[a.id] == a && a.round == nil && a.missed && r.commit {
		c.wake(a, repairFirst)
	}
}

const (
	// repairFirst and repairMost bound the pause before a replica that missed a commit is given the state again.
	repairFirst = 500 * ms
	repairMost  = 8000 * ms
)

// caughtUp notes a late answer to the last round and says whether all replicas have agreed to it.
func (c *Core) caughtUp(a *activation, from string, code Code) bool {
	if from != "" {
		a.answers[from] = replicaAnswer{code: code}
	}
	p := c.place(a.slot)
	for _, id := range union(p.s, p.sn) {
		if x, ok := a.answers[id]; !ok || x.code != CodeOK {
			return false
		}
	}
	delete(c.byOp, a.op)
	a.op = 0
	return true
}

// agreed notes that every replica has the last commit.
func (c *Core) agreed(a *activation, from string, code Code) {
	if c.caughtUp(a, from, code) {
		a.missed = false
	}
}

// repair gives the last committed state to the replicas that have not said that they hold it.
func (c *Core) repair(a *activation) {
	if c.caughtUp(a, "", CodeOK) || a.committed.IsZero() {
		return
	}
	p := c.place(a.slot)
	for _, id := range union(p.s, p.sn) {
		if x, ok := a.answers[id]; ok && x.code == CodeOK {
			continue
		}
		if m, ok := c.view.v.Member(id); ok && !m.Down {
			c.sendWhole(id, a.slot.id)
		}
	}
	c.wake(a, min(repairFirst<<min(a.tries, 6), repairMost))
	a.tries++
}
