package engine

import (
	"context"
	"sync"

	"chainmail/engine/core"
)

// reporter tells the log what the core reports. The newest report of a kind replaces an older one; the core repeats
// what the placement does not show, so that a failure here needs no retry.
type reporter struct {
	e    *Engine
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	next [core.ReportRefilled + 1]*core.Report
}

func (r *reporter) init(e *Engine) {
	r.e = e
	r.wake = make(chan struct{}, 1)
}

func (r *reporter) put(x core.Report) {
	r.mu.Lock()
	r.next[x.What] = &x
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reporter) run() {
	for {
		select {
		case <-r.wake:
		case <-r.e.ctx.Done():
			return
		}
		r.mu.Lock()
		todo := r.next
		clear(r.next[:])
		r.mu.Unlock()
		for _, x := range todo {
			if x == nil {
				continue
			}
			ctx, done := context.WithTimeout(r.e.ctx, reportTimeout)
			if err := r.e.cfg.Report(ctx, *x); err != nil {
				r.e.log.Debug("report failed", "step", x.Step, "error", err)
			}
			done()
		}
	}
}
