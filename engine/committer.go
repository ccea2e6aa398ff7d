package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"chainmail/engine/core"
)

// committer carries out effects in order, with one write to the store for all that has gathered.
type committer struct {
	e    *Engine
	mine []core.Effect // of who holds the core's turn, until flush

	writes atomic.Uint64
	took   atomic.Int64 // nanoseconds

	mu   sync.Mutex
	room *sync.Cond
	wait []core.Effect
	wake chan struct{} // capacity 1
}

func (c *committer) init(e *Engine) {
	c.e = e
	c.room = sync.NewCond(&c.mu)
	c.wake = make(chan struct{}, 1)
}

func (c *committer) add(x core.Effect) { c.mine = append(c.mine, x) }

// behind says whether the committer has more to do than is good.
func (c *committer) behind() bool {
	if c.e.cfg.Store == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wait) > maxEffects
}

// flush hands over what was added. With wait it waits while the committer is far behind.
func (c *committer) flush(wait bool) {
	if len(c.mine) == 0 {
		return
	}
	c.mu.Lock()
	for wait && len(c.wait) > maxEffects && c.e.ctx.Err() == nil {
		c.room.Wait()
	}
	c.wait = append(c.wait, c.mine...)
	c.mu.Unlock()
	clear(c.mine)
	c.mine = c.mine[:0]
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *committer) run() {
	defer c.end()
	var spare []core.Effect
	for {
		select {
		case <-c.wake:
		case <-c.e.ctx.Done():
			return
		}
		c.mu.Lock()
		batch := c.wait
		c.wait = spare[:0]
		c.room.Broadcast()
		c.mu.Unlock()
		if err := c.commit(batch); err != nil {
			if c.e.ctx.Err() == nil { // else the engine was closed meanwhile
				c.e.Fail(fmt.Errorf("%w: %w", ErrStore, err))
			}
			return
		}
		clear(batch)
		spare = batch
	}
}

// end wakes a loop that waits for room. Under the lock: else it could miss this between its look at ctx and its wait.
func (c *committer) end() {
	c.mu.Lock()
	c.room.Broadcast()
	c.mu.Unlock()
}

// commit makes a batch durable and then carries out the rest of it.
func (c *committer) commit(batch []core.Effect) error {
	var puts []core.Put
	var view *core.View
	for _, x := range batch {
		if p, ok := x.(*core.Persist); ok {
			puts = append(puts, p.Puts...)
			if p.View != nil {
				view = p.View
			}
		}
	}
	if len(puts) > 0 || view != nil {
		began := time.Now()
		if err := c.e.cfg.Store.Apply(c.e.ctx, puts, view); err != nil {
			return err
		}
		c.writes.Add(1)
		c.took.Add(int64(time.Since(began)))
	}
	for _, x := range batch {
		c.e.release(x, c.e.toInbox, false)
	}
	return nil
}
