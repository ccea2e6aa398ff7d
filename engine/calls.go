package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"chainmail/engine/core"
)

// Call is what Ask sends. Its Body must not be changed afterwards: the message may be waiting still when Ask has given up.
type Call struct {
	Key       core.Key
	Method    string
	Shown     string // what errors call the method; "": Method
	Body      []byte
	RequestID string
	Tried     time.Duration // as in core.Call
	Path      []core.Key    // likewise
	ReadLocal bool
}

// DefaultTimeout is the deadline of a call whose context has none.
const DefaultTimeout = 5 * time.Second

// fewCalls is how many callers may wait for a new one to step the core itself: where more do, what they have to send goes
// out together when the loop does it.
const fewCalls = 2

// Ask gives a message to its actor, wherever it is, and waits for the answer. When ctx ends first the outcome is unknown.
// A member that has too many messages waiting refuses it at once.
func (e *Engine) Ask(ctx context.Context, c Call) (core.Result, error) {
	if e.ctx.Err() != nil {
		return core.Result{}, ErrClosed
	}
	deadline := e.deadline(ctx)
	id, answer, n := e.calls.begin(deadline)
	if answer == nil {
		return core.Result{}, ErrClosed
	}
	if !e.in.offer(c.input(id, deadline)) {
		e.calls.take(id)
		return core.Result{Code: core.CodeOverloaded, Text: fmt.Sprintf("member %s has %d messages waiting", e.cfg.Core.Self, maxQueue)}, nil
	}
	e.attend(n <= fewCalls)
	select {
	case r := <-answer:
		e.calls.free(answer)
		return r, nil
	case <-ctx.Done():
	}
	// The core answers at the deadline; its answer says more than ctx.Err does.
	select {
	case r := <-answer:
		return r, nil
	case <-time.After(2 * tickEvery):
	}
	e.calls.answer(id, core.Result{Code: core.CodeUnknownOutcome, Text: "the caller gave up: " + ctx.Err().Error()})
	return <-answer, nil // that, or one that came just before it
}

// Tell gives a message to its actor, wherever it is, and does not wait: nobody learns what becomes of it. ctx bounds
// nothing but its deadline at the actor.
func (e *Engine) Tell(ctx context.Context, c Call) error {
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	if !e.in.offer(c.input(e.calls.number(), e.deadline(ctx))) {
		return fmt.Errorf("member %s has %d inputs waiting: %w", e.cfg.Core.Self, maxQueue, ErrFull)
	}
	e.attend(false) // who does not wait may well hold a lock
	return nil
}

func (e *Engine) deadline(ctx context.Context) core.Time {
	if d, ok := ctx.Deadline(); ok {
		return e.Now().Add(time.Until(d))
	}
	return e.Now().Add(DefaultTimeout)
}

func (c *Call) input(id uint64, deadline core.Time) item {
	return item{in: &core.Call{ID: id, Key: c.Key, Method: c.Method, Body: c.Body, RequestID: c.RequestID, Tried: c.Tried, Path: c.Path, ReadLocal: c.ReadLocal, Deadline: deadline}}
}

// watchEvery is how often calls are looked for whose time is over and that the core has not answered.
const watchEvery = 50 * time.Millisecond

// watch ends calls that the core does not end: a core that waits for its disk must not keep a caller without a deadline of
// its own, and one that has stopped answers nobody. A timer for each call would cost more than all else of it.
func (e *Engine) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			e.calls.expire(e.Now().Add(-2*tickEvery), core.Result{Code: core.CodeUnknownOutcome, Text: "the caller gave up: " + context.DeadlineExceeded.Error()})
		case <-e.ctx.Done():
			e.calls.end(core.Result{Code: core.CodeUnknownOutcome, Text: "member " + e.cfg.Core.Self + " is closing"})
			return
		}
	}
}

// calls are those of callers at this member that are not answered yet. Who takes one out sends its answer, so that there is
// one.
type calls struct {
	mu    sync.Mutex
	last  uint64
	open  map[uint64]openCall // nil once the engine has ended
	spare sync.Pool           // of channels of calls that were answered: empty, and known to nobody else
}

type openCall struct {
	answer chan core.Result // capacity 1
	until  core.Time
}

// begin notes a call and says how many there are; without a channel there is none.
func (c *calls) begin(until core.Time) (id uint64, answer chan core.Result, n int) {
	answer, _ = c.spare.Get().(chan core.Result)
	if answer == nil {
		answer = make(chan core.Result, 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return 0, nil, 0
	}
	c.last++
	c.open[c.last] = openCall{answer, until}
	return c.last, answer, len(c.open)
}

// number gives a number to a message that is no call.
func (c *calls) number() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

func (c *calls) free(answer chan core.Result) { c.spare.Put(answer) }

// take ends a call; nil if it has ended.
func (c *calls) take(id uint64) chan core.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := c.open[id]
	delete(c.open, id)
	return x.answer
}

func (c *calls) answer(id uint64, r core.Result) {
	if answer := c.take(id); answer != nil {
		answer <- r
	}
}

func (c *calls) expire(now core.Time, r core.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, x := range c.open {
		if x.until < now {
			delete(c.open, id)
			x.answer <- r // it has room
		}
	}
}

// end answers all calls; there are no new ones then.
func (c *calls) end(r core.Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.open {
		x.answer <- r
	}
	c.open = nil
}
