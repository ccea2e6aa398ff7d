package simtest

import (
	"fmt"
	"slices"
	"time"

	"chainmail/engine/core"
)

// host is one member: its process, its disk and what the log has told it.
type host struct {
	s        *Sim
	id       string
	core     *core.Core // nil while it is down
	inc      uint64
	boot     uint64
	run      int          // number of the process: what an older one has under way is void
	awake    core.Time    // paused until
	queue    []core.Input // that came while it was paused
	disk     disk
	seen     uint64 // newest revision that the log has given it
	left     bool
	out      []core.Effect // not carried out yet
	syncing  bool
	unsynced []core.Effect
}

// disk is what survives a crash.
type disk struct {
	view    *core.View
	records map[core.Key]core.Record
}

func newHost(s *Sim, id string) *host {
	return &host{s: s, id: id, disk: disk{records: map[core.Key]core.Record{}}}
}

func (h *host) up() bool { return h.core != nil }

// start begins a process: with its disk, or with nothing and as a new incarnation.
func (h *host) start() {
	h.run++
	h.boot++
	var saved *core.Saved
	if h.inc == 0 || !h.s.o.Durable {
		h.inc = 1 + h.s.rand.Uint64N(1<<40)
		h.disk = disk{records: map[core.Key]core.Record{}}
	} else {
		saved = &core.Saved{View: h.disk.view}
		for _, r := range h.disk.records {
			saved.Records = append(saved.Records, r)
		}
		slices.SortFunc(saved.Records, func(a, b core.Record) int {
			return slices.Compare([]string{a.Key.Type, a.Key.Name}, []string{b.Key.Type, b.Key.Name})
		})
	}
	h.core = core.New(core.Config{Self: h.id, Incarnation: h.inc, Boot: h.boot, Durable: h.s.o.Durable,
		Types: map[string]core.TypeConfig{"list": {Idle: 700 * time.Millisecond}, "reg": {Idle: 100 * time.Millisecond}}}, h.s.now, saved)
	h.seen, h.awake, h.queue, h.out, h.syncing, h.unsynced = 0, 0, nil, nil, false, nil
	h.s.trace.add(h.s.now, "%s starts, incarnation %x boot %d", h.id, h.inc, h.boot)
	run := h.run
	var tick func()
	tick = func() {
		if h.run == run && h.up() {
			h.step(&core.Tick{})
			h.s.after(tickEvery, tick)
		}
	}
	h.s.after(h.s.between(0, tickEvery), tick)
	h.register()
	h.s.log.catchUp(h)
}

// register tells the log this incarnation until the placement lists it.
func (h *host) register() {
	run := h.run
	var again func()
	again = func() {
		if h.run != run || !h.up() || h.s.log.lists(h) {
			return
		}
		h.s.log.register(h)
		h.s.after(h.s.between(20*time.Millisecond, 200*time.Millisecond), again)
	}
	h.s.after(h.s.between(0, 20*time.Millisecond), again)
}

// crash ends the process: what was not durable is gone, and in memory mode everything is.
func (h *host) crash() {
	h.s.trace.add(h.s.now, "%s crashes", h.id)
	h.core = nil
	h.run++
	for _, e := range h.unsynced { // a part of what was being written may have reached the disk
		if p, ok := e.(*core.Persist); ok && h.s.chance(0.5) {
			h.disk.apply(p)
		} else if ok {
			break
		}
	}
	h.s.dropCalls(h)
}

// step gives an input to the core and carries out what it says, after the disk.
func (h *host) step(in core.Input) {
	if h.s.now < h.awake {
		h.queue = append(h.queue, in)
		if len(h.queue) == 1 {
			run := h.run
			h.s.after(time.Duration(h.awake-h.s.now), func() { h.wake(run) })
		}
		return
	}
	h.out = append(h.out, h.core.Step(h.s.now, in, nil)...)
	h.s.checkHost(h)
	h.drain()
}

func (h *host) wake(run int) {
	if h.run != run || !h.up() {
		return
	}
	q := h.queue
	h.queue = nil
	for _, in := range q {
		if h.up() && h.run == run {
			h.step(in)
		}
	}
}

// drain carries out the effects in order. What follows a Persist waits until the disk has it; all that has gathered by
// then goes in one sync.
func (h *host) drain() {
	if h.syncing {
		return
	}
	batch := h.out
	h.out = nil
	if !h.s.o.Durable || !slices.ContainsFunc(batch, isPersist) {
		h.doAll(batch)
		return
	}
	h.syncing = true
	h.unsynced = batch
	run := h.run
	h.s.after(h.s.between(h.s.o.Fsync/4, h.s.o.Fsync), func() {
		if h.run != run || !h.up() {
			return
		}
		h.syncing, h.unsynced = false, nil
		h.doAll(batch)
		h.drain()
	})
}

func isPersist(e core.Effect) bool { _, ok := e.(*core.Persist); return ok }

func (h *host) doAll(batch []core.Effect) {
	for _, e := range batch {
		if p, ok := e.(*core.Persist); ok {
			h.disk.apply(p)
		}
	}
	for _, e := range batch {
		h.do(e)
	}
}

func (d *disk) apply(p *core.Persist) {
	if p.View != nil {
		d.view = p.View
	}
	for _, put := range p.Puts {
		if put.Drop {
			delete(d.records, put.Key)
			continue
		}
		old := d.records[put.Key]
		pages := map[string]core.Page{}
		if !put.Full {
			for _, pg := range old.Pages {
				pages[pg.Name] = pg
			}
		}
		for _, pg := range put.Pages {
			pages[pg.Name] = pg
		}
		for _, n := range put.Removed {
			delete(pages, n)
		}
		r := core.Record{Key: put.Key, Meta: put.Meta}
		for _, pg := range pages {
			r.Pages = append(r.Pages, pg)
		}
		slices.SortFunc(r.Pages, func(a, b core.Page) int { return slices.Compare([]string{a.Name}, []string{b.Name}) })
		d.records[put.Key] = r
	}
}

func (h *host) do(e core.Effect) {
	s := h.s
	run := h.run
	switch e := e.(type) {
	case *core.Send:
		if e.Msg.To == h.id {
			s.after(0, func() {
				if h.run == run && h.up() {
					h.step(&core.Recv{Msg: e.Msg})
				}
			})
			return
		}
		s.net.send(e.Msg)
	case *core.Reply:
		s.replied(h, e)
	case *core.Execute:
		done := execute(e)
		s.after(s.between(0, s.o.HandlerDelay), func() {
			if h.run == run && h.up() {
				h.step(done)
			}
		})
	case *core.Report:
		s.log.report(h, e)
	case *core.WantView:
		s.after(s.between(time.Millisecond, 20*time.Millisecond), func() {
			if h.run == run && h.up() && s.chance(0.5) {
				s.log.catchUp(h)
			}
		})
	case *core.Note:
		s.trace.add(s.now, "%s note %s %s %s %s", h.id, e.What, e.Key, e.Peer, e.Text)
	case *core.Ended:
		s.trace.add(s.now, "%s ended %s %s", h.id, e.Key, e.Reason)
	case *core.Persist:
	default:
		panic(fmt.Sprintf("unknown effect %T", e))
	}
}
