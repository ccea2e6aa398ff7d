package engine

import (
	"fmt"
	"runtime/debug"
	"time"

	"chainmail/engine/core"
)

// loop steps the core for all who do not do it themselves.
func (e *Engine) loop() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-e.in.wake:
		case <-tick.C:
			ticked = true
		case <-e.ctx.Done():
			return
		}
		e.turn.Lock()
		e.work(e.in.take())
		if ticked {
			e.work([]item{{in: &core.Tick{}}})
		}
		e.commits.flush(true)
		e.turn.Unlock()
	}
}

// later puts an input into the inbox for the loop.
func (e *Engine) later(it item) {
	e.in.put(it)
	e.in.poke()
}

// attend has what the caller has just put into the inbox looked at: by the caller itself if that is all that waits, else by
// the loop. A caller that steps the core runs the Inline handler, if any, that its input is for: one that may hold a lock that
// such a handler takes must leave it to the loop.
func (e *Engine) attend(self bool) {
	if !self || !e.help() {
		e.in.poke()
	}
}

// help steps the core in the goroutine of who has put something into the inbox: most find the core idle, and a switch to the
// loop and back takes longer than the work. It waits for nobody, and does no work of others: false if somebody else is at it,
// if more waits, or if the store is behind.
func (e *Engine) help() bool {
	if !e.turn.TryLock() {
		return false
	}
	defer e.endHelp()
	if e.ctx.Err() != nil {
		return true
	}
	if e.commits.behind() {
		return false
	}
	batch, ok := e.in.takeOne()
	if !ok {
		return false
	}
	e.alone = true
	e.work(batch)
	e.commits.flush(false)
	return true
}

// endHelp ends the process if the core has panicked, as it does in the loop: whoever recovers from a panic of a caller's would
// go on with a core that is broken.
func (e *Engine) endHelp() {
	if p := recover(); p != nil {
		text := fmt.Sprintf("%v\n%s", p, debug.Stack())
		go panic(text)
		select {}
	}
	e.alone = false
	e.turn.Unlock()
}

// work steps the core with a batch. The caller holds turn.
func (e *Engine) work(batch []item) {
	for _, it := range batch {
		if it.do != nil {
			it.do(e.core)
			continue
		}
		e.local = e.local[:0] // a handler that ends its goroutine leaves something
		e.step(it.in)
		for i := 0; i < len(e.local); i++ { // it grows meanwhile
			e.step(e.local[i])
		}
		clear(e.local)
	}
}

func (e *Engine) step(in core.Input) {
	e.out = e.core.Step(e.Now(), in, e.out[:0])
	for _, x := range e.out {
		e.carryOut(x)
	}
	clear(e.out)
}
