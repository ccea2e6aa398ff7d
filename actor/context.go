package actor

import (
	"context"
	"sync"
	"time"
)

// turnCtx is the context of a handler. The timer of its deadline is made when somebody waits for it: most handlers do not.
type turnCtx struct {
	context.Context // the activation's
	turn            *Turn
	deadline        time.Time

	mu    sync.Mutex
	timed context.Context // nil until Done is called
	stop  context.CancelFunc
	over  bool
}

func (c *turnCtx) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *turnCtx) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		c.timed, c.stop = context.WithDeadline(c.Context, c.deadline)
		if c.over {
			c.stop()
		}
	}
	return c.timed.Done()
}

func (c *turnCtx) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.timed != nil:
		return c.timed.Err()
	case c.Context.Err() != nil:
		return c.Context.Err()
	case c.over:
		return context.Canceled
	case time.Now().After(c.deadline):
		return context.DeadlineExceeded
	}
	return nil
}

func (c *turnCtx) Value(k any) any {
	if k == (turnKey{}) {
		return c.turn
	}
	return c.Context.Value(k)
}

// end ends it when the handler has returned, or before.
func (c *turnCtx) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.stop != nil {
		c.stop()
	}
}

// streamCtx is the context of a stream's handler: it is the instance's work, and the turn is the one that the handler runs
// in just now.
type streamCtx struct {
	context.Context
	i *instance
}

func (c streamCtx) Value(k any) any {
	if k == (turnKey{}) {
		return c.i.turn
	}
	return c.Context.Value(k)
}
