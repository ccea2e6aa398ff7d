package engine

import (
	"sync"

	"chainmail/engine/core"
)

// item is an input for the core, or a query.
type item struct {
	in core.Input
	do func(*core.Core)
}

// inbox is the queue before the core. put never fails: what this member gives itself is bounded by what it has under way.
// offer fails when the queue is long: messages of others are dropped then, and callers are refused. Engine.attend has what
// is there looked at.
type inbox struct {
	wake chan struct{} // capacity 1: there is something for the loop

	mu    sync.Mutex
	items []item
	spare []item
}

func (q *inbox) init() { q.wake = make(chan struct{}, 1) }

func (q *inbox) put(it item) {
	q.mu.Lock()
	q.items = append(q.items, it)
	q.mu.Unlock()
}

func (q *inbox) offer(it item) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) >= maxQueue {
		return false
	}
	q.items = append(q.items, it)
	return true
}

// poke wakes the loop.
func (q *inbox) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take gives all that waits. The result is valid until the next call.
func (q *inbox) take() []item {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.swap()
}

// takeOne is take if no more than one item waits; ok is false if more do.
func (q *inbox) takeOne() (out []item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) > 1 {
		return nil, false
	}
	return q.swap(), true
}

// swap is take. The caller holds mu.
func (q *inbox) swap() []item {
	out := q.items
	clear(q.spare)
	q.items, q.spare = q.spare[:0], out
	return out
}
