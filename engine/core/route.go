package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// call is one caller's message at this member until it is answered.
type call struct {
	Call
	came     Time
	sentTo   string // the member that has it now; "" while it waits to be routed
	sentInc  uint64
	ask      uint64 // number of this attempt at another member, 0 if none has it
	waiting  bool
	attempts int
	why      string // what the last refusal said
}

// held is a message at the owner of its key, from its arrival until it is answered.
type held struct {
	origin string
	id     uint64
	key    Key
	method string
	body   []byte
	reqID  string
	tried  time.Duration // as in Call, when it came
	came   Time
	path   []Key // as in Call
	local  bool  // the answer may come from the owner's state alone
	until  Time  // when it is answered even if it has not run; before the caller gives up
}

// Methods of the engine's own. TouchMethod makes the owner write its state under a new epoch; the runner sees it where the
// key is marked active, so that it starts what the mark stands for. IdleMethod asks the runner whether a marked activation
// that nobody has asked for a while may end: Executed.Stop says yes.
const (
	TouchMethod = "@touch"
	IdleMethod  = "@idle"
)

const (
	retryFirst = 2 * ms
	retryMost  = 50 * ms
	// answerMargin is how much before the caller's deadline a held message is refused, so that the reason arrives.
	answerMargin = 50 * ms
)

// call takes a caller's message.
func (c *Core) call(in *Call) {
	p := &call{Call: *in, came: c.now}
	if n := len(in.Key.Name); n == 0 || n > c.cfg.Limits.Name {
		c.emit(&Reply{ID: in.ID, Result: c.result(CodeRejected, fmt.Sprintf("key of type %q has %d bytes; 1 to %d are allowed", in.Key.Type, n, c.cfg.Limits.Name))})
		return
	}
	c.calls[in.ID] = p
	c.timers.set(in.Deadline, timer{kind: timerCall, id: in.ID})
	c.route(p)
}

// route sends a message to the owner of its key.
func (c *Core) route(p *call) {
	p.waiting, p.sentTo = false, ""
	c.recall(p)
	if c.view == nil {
		c.wait(p, "no placement is known yet")
		return
	}
	if !c.registered() { // the owner would not know where to send the answer
		c.wait(p, "this member is not registered in the placement")
		return
	}
	s := c.slots.find(p.Key)
	if s == nil {
		s = c.slot(p.Key)
		defer c.slots.release(s)
	}
	pl := c.place(s)
	if pl.owner == "" {
		c.wait(p, c.nobody(p.Key, pl))
		return
	}
	p.sentTo = pl.owner
	if pl.owner == c.cfg.Self {
		c.enqueue(s, &held{origin: c.cfg.Self, id: p.ID, key: p.Key, method: p.Method, body: p.Body, reqID: p.RequestID, tried: p.tried(c.now), came: c.now, path: p.Path, local: p.ReadLocal, until: margin(c.now, p.Deadline)})
		return
	}
	m, _ := c.view.v.Member(pl.owner)
	p.sentInc = m.Incarnation
	p.ask = c.nextOp()
	c.asks[p.ask] = p
	c.send(pl.owner, &Ask{ID: p.ask, Key: p.Key, Method: p.Method, Data: p.Body, RequestID: p.RequestID, Tried: p.tried(c.now), Path: p.Path, ReadLocal: p.ReadLocal, Deadline: margin(c.now, p.Deadline)})
}

// nobody says why a key has no owner.
func (c *Core) nobody(k Key, p *placed) string {
	if c.view.replicas(k.Type) == Pinned && len(p.s) == 0 {
		return fmt.Sprintf("%s is pinned to %q, which is not a member on the ring; a key of this type is written key@member", k, PinnedTo(k))
	}
	return fmt.Sprintf("no member of %v is up and complete: %s", p.s, c.view.v.where())
}

// tried is how long ago a request was first made that is sent now: its caller may say that it sends it again.
func (p *call) tried(now Time) time.Duration {
	if p.Tried <= 0 {
		return 0
	}
	return p.Tried + time.Duration(now-p.came)
}

// age is how long ago a request was first made. One that is made for the first time has none, unless it has waited for long
// before the activation was there that runs it: its caller may have had it repeated elsewhere since then, and what is
// committed elsewhere after that fences this activation.
func (h *held) age(opened, now Time) time.Duration {
	waited := time.Duration(now - h.came)
	if h.tried <= 0 && (h.reqID == "" || min(waited, time.Duration(opened-h.came)) <= freshWaiting) {
		return 0
	}
	return h.tried + waited
}

// recall makes the answer to the last attempt nothing: a redirect that comes twice must not send the message out again
// while the owner has it.
func (c *Core) recall(p *call) {
	delete(c.asks, p.ask)
	p.ask = 0
}

func margin(now, deadline Time) Time { return deadline - min((deadline-now)/8, answerMargin) }

// wait routes a message again a little later.
func (c *Core) wait(p *call, why string) {
	c.recall(p)
	p.waiting, p.sentTo, p.why = true, "", why
	d := min(retryFirst<<min(p.attempts, 10), retryMost)
	p.attempts++
	c.timers.set(c.now+d, timer{kind: timerRetry, id: p.ID})
}

// ask takes a message from another member.
func (c *Core) ask(m Message, b *Ask) {
	s := c.slot(b.Key)
	defer c.slots.release(s)
	pl := c.place(s)
	h := &held{origin: m.From, id: b.ID, key: b.Key, method: b.Method, body: b.Data, reqID: b.RequestID, tried: b.Tried, came: cmp.Or(m.came, c.now), path: b.Path, local: b.ReadLocal, until: b.Deadline}
	if !c.registered() { // nor may it have others promise anything
		c.answer(h, Result{Code: CodeRedirect, Text: "member " + c.cfg.Self + " is not registered in the placement"})
		return
	}
	if pl.owner != c.cfg.Self {
		if m.Version < c.view.v.Version {
			c.pushView(m.From)
		}
		c.answer(h, Result{Code: CodeRedirect, Owner: pl.owner, Text: "another member owns the key"})
		return
	}
	c.enqueue(s, h)
}

// answer gives a message's answer to where it came from.
func (c *Core) answer(h *held, r Result) {
	if r.Version == 0 {
		r.Version = c.view.v.Version
	}
	if h.id == 0 {
		return // a touch of this member's own
	}
	if h.origin == c.cfg.Self {
		if p := c.calls[h.id]; p != nil && p.sentTo == c.cfg.Self {
			c.finish(p, r)
		}
		return
	}
	c.send(h.origin, &Answer{ID: h.id, Result: r})
}

func (c *Core) answered(m Message, b *Answer) {
	if p := c.asks[b.ID]; p != nil && p.sentTo == m.From {
		c.finish(p, b.Result)
	}
}

// finish takes what the owner answered to a call. A redirect is followed.
func (c *Core) finish(p *call, r Result) {
	if r.Code == CodeRedirect {
		c.wait(p, fmt.Sprintf("%s redirected to %q: %s", p.sentTo, r.Owner, r.Text))
		return
	}
	c.done(p, r)
}

// done answers a call.
func (c *Core) done(p *call, r Result) {
	c.recall(p)
	delete(c.calls, p.ID)
	c.emit(&Reply{ID: p.ID, Result: r})
}

// callExpired answers a call whose time is up.
func (c *Core) callExpired(id uint64) {
	p := c.calls[id]
	if p == nil {
		return
	}
	r := c.result(CodeUnavailable, p.why)
	if p.sentTo != "" {
		r = c.result(CodeUnknownOutcome, fmt.Sprintf("%s, the owner of %s, did not answer in time: %s", p.sentTo, p.Key, c.view.v.where()))
	}
	c.done(p, r)
}

func (c *Core) result(code Code, text string) Result {
	r := Result{Code: code, Text: text}
	if c.view != nil {
		r.Version = c.view.v.Version
	}
	return r
}

// peerLost ends the calls that a lost member may or may not have run.
func (c *Core) peerLost(member string) {
	for _, id := range c.sortedCalls() {
		if p := c.calls[id]; p != nil && p.sentTo == member && member != c.cfg.Self {
			c.done(p, c.result(CodeUnknownOutcome, "the connection to "+member+" was lost"))
		}
	}
}

// reviewCalls looks at the calls that wait for an owner, or for one that has gone, after a placement change.
func (c *Core) reviewCalls() {
	for _, id := range c.sortedCalls() {
		p := c.calls[id]
		switch {
		case p == nil:
		case p.waiting:
			c.route(p)
		case p.sentTo != c.cfg.Self:
			if m, ok := c.view.v.Member(p.sentTo); !ok || m.Down || m.Incarnation != p.sentInc {
				c.done(p, c.result(CodeUnknownOutcome, p.sentTo+" went down before it answered"))
			}
		}
	}
}

func (c *Core) sortedCalls() []uint64 { return sortedKeys(c.calls) }

// enqueue puts a message into the mailbox of its key, which this member owns, and starts an activation if none runs.
func (c *Core) enqueue(s *slot, h *held) {
	switch {
	case c.now >= h.until:
		c.answer(h, Result{Code: CodeUnavailable, Text: "the deadline passed before the message was run"})
		return
	case s.act != nil && s.act.ending != "":
		c.answer(h, Result{Code: CodeRedirect, Owner: c.place(s).owner, Text: "the activation is ending"})
		return
	case s.act != nil && len(s.act.mailbox) >= cmp.Or(c.cfg.Types[s.id.Type].Mailbox, c.cfg.Limits.Mailbox):
		c.answer(h, Result{Code: CodeOverloaded, Text: fmt.Sprintf("%s has %d messages waiting", s.id, len(s.act.mailbox))})
		return
	case c.held >= c.cfg.Limits.Held || c.heldB+len(h.body) > c.cfg.Limits.HeldBytes:
		c.answer(h, Result{Code: CodeOverloaded, Text: fmt.Sprintf("member %s holds %d messages", c.cfg.Self, c.held)})
		return
	}
	if s.act == nil {
		c.activate(s)
	}
	a := s.act
	a.mailbox = append(a.mailbox, h)
	a.used = c.now
	c.hold(h, 1)
	if a.state == active {
		c.pump(a)
	}
	if a.state != active || a.round != nil && a.tries > 1 {
		c.timers.set(h.until, timer{kind: timerHeld, id: a.id})
	} else if len(a.mailbox) > 0 {
		c.watchMailbox(a)
	}
}

// watchMailbox sets the timer of the message that waits in a mailbox and whose time is up first: one for all of them, since many
// may wait for a busy key.
func (c *Core) watchMailbox(a *activation) {
	first := a.mailbox[len(a.mailbox)-1].until
	if a.watched == 0 {
		for _, h := range a.mailbox {
			first = min(first, h.until)
		}
	}
	if a.watched == 0 || first < a.watched {
		a.watched = first
		c.timers.set(first, timer{kind: timerMailbox, id: a.id})
	}
}

func (c *Core) mailboxExpired(a *activation) {
	if a.watched == 0 || a.watched > c.now {
		return // set for a message that was the first one then
	}
	a.watched = 0
	c.expireMailbox(a)
	if len(a.mailbox) > 0 {
		c.watchMailbox(a)
	}
}

func (c *Core) hold(h *held, d int) {
	c.held += d
	c.heldB += d * len(h.body)
}

// expireHeld answers the messages of a slow activation whose time is up: those that have not run, those that
// changed nothing and saw what is not confirmed, and those whose write may be committed later.
func (c *Core) expireHeld(a *activation) {
	c.expireMailbox(a)
	if a.round != nil {
		c.expireSent(a, &a.round.batch)
		c.expireSent(a, &a.batch)
	}
	if len(a.mailbox) == 0 && a.state != active && a.ending == "" {
		c.end(a, "idle")
	}
}

// expireMailbox answers the messages that have not run and whose time is up.
func (c *Core) expireMailbox(a *activation) {
	keep := a.mailbox[:0]
	for _, h := range a.mailbox {
		if h.until > c.now {
			keep = append(keep, h)
			continue
		}
		c.hold(h, -1)
		c.answer(h, Result{Code: CodeUnavailable, Text: a.why(c)})
	}
	clear(a.mailbox[len(keep):])
	a.mailbox = keep
}

// expireSent answers what waits for replicas beyond its time; the batch stays, with nobody to tell.
func (c *Core) expireSent(a *activation, b *batch) {
	for i := range b.answers {
		if x := &b.answers[i]; x.held.id != 0 && x.held.until <= c.now {
			code := CodeUnavailable
			if x.writes {
				code = CodeUnknownOutcome
			}
			c.answer(x.held, Result{Code: code, Text: a.why(c)})
			x.held.id = 0
		}
	}
}

// why says what an activation waits for: its handler, or the step, and who has not answered or does not count.
func (a *activation) why(c *Core) string {
	if a.executing != nil {
		return fmt.Sprintf("%s is running %s", a.slot.id, a.executing.method)
	}
	p := c.place(a.slot)
	var miss []string
	for _, id := range union(p.s, p.sn) {
		if x, ok := a.answers[id]; !ok {
			miss = append(miss, id+" (no answer)")
		} else if x.code != CodeOK {
			miss = append(miss, id+" ("+x.code.String()+")")
		}
	}
	v, need := c.view.v, c.quorumOf(a)
	joint := ""
	if v.Stage == Switch {
		joint = fmt.Sprintf(" and %d of %v", need(len(p.sn)), p.sn)
	}
	return fmt.Sprintf("key %s is %s: %s, needs %d of %v%s, missing %s", a.slot.id, a.state, v.where(),
		need(len(p.s)), p.s, joint, strings.Join(miss, ", "))
}
