package core

// timer is one thing to look at again. Stale ones are recognised by who handles them.
type timer struct {
	kind timerKind
	id   uint64
	op   uint64
}

type timerKind uint8

const (
	timerCall    timerKind = iota // a call's deadline: id
	timerRetry                    // a call that waits to be routed again: id
	timerHeld                     // an activation's waiting messages have deadlines: id
	timerMailbox                  // a message in an activation's mailbox has a deadline: id
	timerParked                   // a message that waits for a placement has one
	timerAct                      // an activation's operation is sent again: id, op
	timerIdle                     // an activation may be idle: id
)

// tickShift makes the wheel's slots about 4 ms wide.
const tickShift = 22

// wheel keeps timers by slot of time. Timers of one slot fire in the order in which they were set.
type wheel struct {
	slots map[int64][]timer
	done  int64 // last slot that has fired
}

func (w *wheel) init(now Time) {
	w.slots = map[int64][]timer{}
	w.done = int64(now) >> tickShift
}

func (w *wheel) set(at Time, t timer) {
	s := max(int64(at)>>tickShift+1, w.done+1)
	w.slots[s] = append(w.slots[s], t)
}

func (w *wheel) run(now Time, fire func(timer)) {
	for end := int64(now) >> tickShift; w.done < end; {
		w.done++
		ts, ok := w.slots[w.done]
		if !ok {
			continue
		}
		delete(w.slots, w.done)
		for _, t := range ts {
			fire(t)
		}
	}
}

func (c *Core) fire(t timer) {
	switch t.kind {
	case timerCall:
		c.callExpired(t.id)
	case timerRetry:
		if p := c.calls[t.id]; p != nil && p.waiting {
			c.route(p)
		}
	case timerHeld:
		if a := c.acts[t.id]; a != nil {
			c.expireHeld(a)
		}
	case timerMailbox:
		if a := c.acts[t.id]; a != nil {
			c.mailboxExpired(a)
		}
	case timerParked:
		c.expireParked()
	case timerAct:
		if a := c.acts[t.id]; a != nil && a.op == t.op && a.due != 0 && a.due <= c.now {
			a.due = 0
			c.again(a)
		}
	case timerIdle:
		if a := c.acts[t.id]; a != nil {
			c.idle(a)
		}
	}
}
