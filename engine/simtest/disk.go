package simtest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"chainmail/engine/core"
)

// disk is what a member has stored. In memory mode it lives as long as the process.
type disk struct {
	view    *core.View
	records map[core.Key]core.Record
	starts  []uint64
}

func (d *disk) clone() disk { return disk{d.view, maps.Clone(d.records), d.starts} }

func newDisk() disk { return disk{records: map[core.Key]core.Record{}} }

// saved gives what a start reads back, in the order of keys.
func (d *disk) saved() *core.Saved {
	out := &core.Saved{View: d.view}
	for _, r := range d.records {
		out.Records = append(out.Records, r)
	}
	slices.SortFunc(out.Records, func(a, b core.Record) int { return compareKeys(a.Key, b.Key) })
	return out
}

// damaged says whether a page does not match its checksum: then a store is not opened.
func (d *disk) damaged() bool {
	for _, r := range d.records {
		for _, p := range r.Pages {
			if core.PageSum(p.Name, p.Data) != p.Sum {
				return true
			}
		}
	}
	return false
}

// flip changes a byte of some page, if there is one.
func (h *host) flip() {
	var keys []core.Key
	for k, r := range h.disk.records {
		if slices.ContainsFunc(r.Pages, hasData) {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 {
		return
	}
	slices.SortFunc(keys, compareKeys)
	r := h.disk.records[keys[h.s.rand.IntN(len(keys))]]
	r.Pages = h.s.flipped(r.Pages)
	h.disk.records[r.Key] = r
	h.inc, h.bent = 0, true
	h.s.fault("flip-disk")
	h.s.trace.add(h.s.now, "the disk of %s has another byte of %s", h.id, r.Key)
}

func hasData(p core.Page) bool { return len(p.Data) > 0 }

// flipped gives pages of which one has another bit in its data. One of them has data.
func (s *Sim) flipped(ps []core.Page) []core.Page {
	ps = slices.Clone(ps)
	n := s.rand.IntN(len(ps))
	for !hasData(ps[n]) {
		n = (n + 1) % len(ps)
	}
	p := &ps[n]
	p.Data = slices.Clone(p.Data)
	p.Data[s.rand.IntN(len(p.Data))] ^= 1 << s.rand.IntN(8)
	return ps
}

// open opens the disk of a host as a store is opened: one that is damaged is refused, and somebody takes it away.
func (h *host) open() {
	bad := h.disk.damaged()
	if bad != h.bent {
		h.s.fail("%s opens its disk: damaged %v, want %v", h.id, bad, h.bent)
	}
	if bad {
		h.disk, h.bent = newDisk(), false
	}
}

// backup is a copy of a disk that was made while the member was down.
type backup struct {
	disk      disk
	inc, boot uint64
}

// mostBackups is how many are kept of a member.
const mostBackups = 4

func (h *host) backUp() {
	if !h.s.o.Cluster.Durable || h.s.o.Disk.Older == 0 || h.inc == 0 {
		return
	}
	h.older = append(h.older, backup{h.disk.clone(), h.inc, h.boot})
	h.older = h.older[max(0, len(h.older)-mostBackups):]
}

// putBack gives a member a disk from before its last start, or one before. The log has listed that start, so that it will refuse
// this one; until then the member may not count for anything.
func (h *host) putBack() {
	b := h.older[h.s.rand.IntN(len(h.older))]
	h.disk, h.inc, h.boot, h.stale = b.disk.clone(), b.inc, b.boot, true
	h.must = h.s.checks.answeredStamps()
	h.s.fault("put-back")
	h.s.trace.add(h.s.now, "%s has its disk of start %d of incarnation %x again", h.id, h.boot, h.inc)
}

func compareKeys(a, b core.Key) int {
	if c := strings.Compare(a.Type, b.Type); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// floor is what every key's promise is at least.
func (d *disk) floor() core.Epoch {
	return d.records[core.Key{Type: "@core", Name: "floor"}].Meta.Promised
}

// put applies one change of a copy and gives the copy before and after it.
func (d *disk) put(p *core.Put) (before, after core.Record) {
	before = d.records[p.Key]
	if p.Drop {
		delete(d.records, p.Key)
		return before, core.Record{Key: p.Key}
	}
	after = core.Record{Key: p.Key, Meta: p.Meta}
	pages := map[string]core.Page{}
	if !p.Full {
		for _, pg := range before.Pages {
			pages[pg.Name] = pg
		}
	}
	for _, pg := range p.Pages {
		pages[pg.Name] = pg
	}
	for _, n := range p.Removed {
		delete(pages, n)
	}
	for _, pg := range pages {
		after.Pages = append(after.Pages, pg)
	}
	slices.SortFunc(after.Pages, func(a, b core.Page) int { return strings.Compare(a.Name, b.Name) })
	d.records[p.Key] = after
	return before, after
}

// persist carries out one Persist of a host, and has each change of a copy checked.
func (h *host) persist(p *core.Persist) {
	by := h.by[p]
	delete(h.by, p)
	if p.View != nil {
		h.s.checks.view(h, p.View)
		h.disk.view = p.View
	}
	for i := range p.Puts {
		before, after := h.disk.put(&p.Puts[i])
		h.s.checks.put(h, &p.Puts[i], by, before, after)
	}
}

// drain carries out the effects in order. What comes before a Persist need not wait; what follows it waits until the disk
// has it, and all that has gathered by then goes in one sync.
func (h *host) drain() {
	if h.syncing {
		return
	}
	batch := h.out
	h.out = nil
	first := slices.IndexFunc(batch, isPersist)
	if !h.s.o.Cluster.Durable || first < 0 {
		h.doAll(batch)
		return
	}
	h.syncing = true
	h.doAll(batch[:first])
	if h.syncing = h.up(); !h.syncing {
		return
	}
	batch = batch[first:]
	h.unsynced = batch
	d := h.s.between(h.s.o.Disk.Fsync/4, h.s.o.Disk.Fsync)
	d = max(d, timeLeft(h.s.now, h.stalled))
	h.synced = h.s.now.Add(d)
	h.torn(d)
	run := h.run
	h.s.after(d, func() {
		if h.run != run || !h.up() {
			return
		}
		h.syncing, h.unsynced = false, nil
		h.doAll(batch)
		h.drain()
	})
}

func isPersist(e core.Effect) bool { _, ok := e.(*core.Persist); return ok }

// torn crashes a member in the middle of a sync, of a large one more often: these are few.
func (h *host) torn(d time.Duration) {
	n := 0
	for _, e := range h.unsynced {
		if p, ok := e.(*core.Persist); ok {
			n += len(p.Puts)
		}
	}
	if s := h.s; !s.calm && s.chance(s.o.Disk.Torn*float64(min(n, 8))) {
		h.later(s.between(0, d), func() {
			if !s.calm {
				s.crashFor(h, false, s.backAfter)
			}
		})
	}
}

// tear decides what a disk has of what was being written when a process died. A store makes all of it durable or nothing
// (store.Store). The core asks for less, that what comes first is durable first: with Pieces some of the first changes are.
func (h *host) tear() {
	var puts []*core.Persist // of one change each
	for _, e := range h.unsynced {
		p, ok := e.(*core.Persist)
		if !ok {
			continue
		}
		if p.View != nil {
			puts = append(puts, h.part(p, &core.Persist{View: p.View}))
		}
		for i := range p.Puts {
			puts = append(puts, h.part(p, &core.Persist{Puts: p.Puts[i : i+1]}))
		}
	}
	if len(puts) == 0 {
		return
	}
	n := len(puts) * h.s.rand.IntN(2)
	if h.s.o.Disk.Pieces {
		n = h.s.rand.IntN(len(puts) + 1)
	}
	h.s.fault("unsynced")
	if n > 0 && n < len(puts) {
		h.s.fault("torn")
	}
	h.s.trace.add(h.s.now, "the disk of %s has %d of %d changes", h.id, n, len(puts))
	for _, p := range puts[:n] {
		h.persist(p)
	}
}

// part is a part of what a Persist says.
func (h *host) part(of, p *core.Persist) *core.Persist {
	h.by[p] = h.by[of]
	return p
}

func (h *host) doAll(batch []core.Effect) {
	for _, e := range batch {
		if p, ok := e.(*core.Persist); ok {
			h.persist(p)
		}
	}
	run := h.run
	for _, e := range batch {
		if h.run == run { // carrying one out may have ended the process
			h.do(e)
		}
	}
}
