package demo

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// phase is a part of the story and about how many seconds it takes on a small machine, for the estimate of what is left.
type phase struct {
	name    string
	seconds float64
}

// running is the phase that is under way.
type running struct {
	phase
	index int
	since time.Time
	note  atomic.Value // string
}

func (d *demo) enter(i int) {
	d.phase.Store(&running{phase: d.plan[i], index: i, since: time.Now()})
	d.phase.Load().note.Store("")
}

// left estimates how long the rest takes.
func (d *demo) left() time.Duration {
	r := d.phase.Load()
	s := max(0, r.seconds-time.Since(r.since).Seconds())
	for _, p := range d.plan[r.index+1:] {
		s += p.seconds
	}
	return max(time.Duration(s*float64(time.Second)), time.Until(d.began.Add(d.opt.Duration))).Round(time.Second)
}

const (
	drawEvery = 200 * time.Millisecond
	lineEvery = 5 * time.Second
)

// show draws one line again and again on a terminal; else it prints a line for each new phase and every few seconds.
func (d *demo) show(ctx context.Context) {
	tick := time.NewTicker(drawEvery)
	defer tick.Stop()
	var lastOps int64
	var rate float64
	seen, said, at := -1, time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			if d.opt.TTY {
				fmt.Fprint(d.opt.Talk, "\r\x1b[K")
			}
			return
		case <-tick.C:
		}
		r := d.phase.Load()
		if r == nil {
			continue
		}
		errs := int64(0)
		if l := d.load.Load(); l != nil {
			ops := l.Ops()
			rate = 0.7*rate + 0.3*float64(ops-lastOps)/time.Since(at).Seconds()
			lastOps, errs = ops, l.Errors()
		}
		at = time.Now()
		line := fmt.Sprintf("[%d/%d] %s: %s %.0f requests/s, %d errors, about %s left", r.index+1, len(d.plan), r.name, comma(r.note.Load().(string)), rate, errs, d.left())
		switch {
		case d.opt.TTY:
			fmt.Fprint(d.opt.Talk, "\r\x1b[K", line)
		case r.index != seen || time.Since(said) > lineEvery:
			fmt.Fprintln(d.opt.Talk, line)
			seen, said = r.index, time.Now()
		}
	}
}

func comma(s string) string {
	if s != "" {
		s += ","
	}
	return s
}

// moved sums up what members have taken in bulk, over their restarts.
type moved struct {
	mu     sync.Mutex
	latest map[string][2]uint64 // member -> keys and bytes of its present process
	before [2]uint64            // of processes that have ended
}

func (m *moved) note(id string, keys, bytes uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.latest == nil {
		m.latest = map[string][2]uint64{}
	}
	old := m.latest[id]
	m.latest[id] = [2]uint64{max(old[0], keys), max(old[1], bytes)}
}

// lost takes a process's counts as final.
func (m *moved) lost(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, v := range m.latest[id] {
		m.before[i] += v
	}
	delete(m.latest, id)
}

func (m *moved) sum() [2]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.before
	for _, v := range m.latest {
		s[0], s[1] = s[0]+v[0], s[1]+v[1]
	}
	return s
}

func (d *demo) watchBytes(ctx context.Context) {
	tick := time.NewTicker(5 * drawEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d.load.Load() != nil {
				d.sampleMoved(ctx)
			}
		}
	}
}

func (d *demo) sampleMoved(ctx context.Context) {
	ctx, done := context.WithTimeout(ctx, 2*time.Second)
	defer done()
	ms, err := d.client.Members(ctx)
	if err != nil {
		return
	}
	for _, m := range ms {
		if m.Reachable {
			d.moved.note(m.ID, m.TakenKeys, m.BytesIn)
		}
	}
}
