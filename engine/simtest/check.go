package simtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// history is what callers have seen of one list. A list that only grows is linearizable exactly if all that was
// observed are prefixes of one another, each observation is at least as long as every one that was complete before
// its call began, an append's own number is the last of what it observed, and no number is there twice.
type history struct {
	key      core.Key
	longest  []byte // observed and answered
	bare     []byte // longest of all, local reads too
	attempts int
	acked    map[uint32]bool
	refused  map[uint32]bool // answered as certainly not run
}

func (s *Sim) history(k core.Key) *history {
	h := s.keys[k]
	if h == nil {
		h = &history{key: k, acked: map[uint32]bool{}, refused: map[uint32]bool{}}
		s.keys[k] = h
	}
	return h
}

func (h *history) unknown(*op) {}

func (h *history) answered(s *Sim, o *op, r core.Result) {
	if r.Code != core.CodeOK {
		if !o.read && (r.Code == core.CodeUnavailable || r.Code == core.CodeOverloaded || r.Code == core.CodeRejected || r.Code == core.CodeRedirect) {
			h.refused[o.id] = true
		}
		return
	}
	list := r.Body
	short, long := list, h.longest
	if len(short) > len(long) {
		short, long = long, short
	}
	if !bytes.HasPrefix(long, short) {
		s.fail("FORK of %s: #%d saw %s, before %s was answered", o.key, o.id, ids(list), ids(h.longest))
		return
	}
	if o.local {
		return // may be old
	}
	if len(list) < o.least || !o.read && len(list) <= o.least {
		s.fail("STALE: #%d of %s saw %s, but %d entries had been answered when it began", o.id, o.key, ids(list), o.least/4)
		return
	}
	if !o.read {
		h.acked[o.id] = true
		if binary.BigEndian.Uint32(list[len(list)-4:]) != o.id {
			s.fail("append #%d of %s was answered with %s", o.id, o.key, ids(list))
		}
	}
	if len(list) > len(h.longest) {
		h.longest = list
	}
}

func ids(b []byte) string {
	var out []uint32
	for ; len(b) >= 4; b = b[4:] {
		out = append(out, binary.BigEndian.Uint32(b))
	}
	return fmt.Sprint(out)
}

// final checks a whole history once nothing runs any more.
func (h *history) final(s *Sim) {
	seen := map[uint32]bool{}
	for b := h.longest; len(b) >= 4; b = b[4:] {
		id := binary.BigEndian.Uint32(b)
		if seen[id] {
			s.fail("append #%d of %s took effect twice: %s", id, h.key, ids(h.longest))
		}
		if h.refused[id] {
			s.fail("append #%d of %s took effect though it was refused", id, h.key)
		}
		seen[id] = true
	}
	for id := range h.acked {
		if !seen[id] {
			s.fail("LOST: append #%d of %s was answered and is gone: %s", id, h.key, ids(h.longest))
		}
	}
}

// checkHost looks at the copies that a step may have changed: no two states have one stamp.
func (s *Sim) checkHost(h *host) {
	s.hostChecks++
	if s.hostChecks%17 != 0 { // the copies keep their stamps long enough to be met
		return
	}
	for _, r := range h.core.Snapshot() {
		if r.Meta.Stamp.IsZero() {
			continue
		}
		if r.Meta.Promised.Less(r.Meta.Stamp.Epoch) {
			s.fail("%s holds %s with stamp %s above its promise %s", h.id, r.Key, r.Meta.Stamp, r.Meta.Promised)
		}
		d := digest(r.Pages)
		k := stampOf{r.Key, r.Meta.Stamp}
		if old, ok := s.stamps[k]; ok && old != d {
			s.fail("two states of %s have stamp %s: %s and at %s %s", r.Key, r.Meta.Stamp, old, h.id, d)
		}
		s.stamps[k] = d
	}
}

func digest(ps []core.Page) string {
	f := fnv.New64a()
	for _, p := range ps {
		fmt.Fprintf(f, "%s %s %x|", p.Name, p.Stamp, p.Data)
	}
	return fmt.Sprintf("%x", f.Sum64())
}

// checkPlacement holds the log to its own rules.
func (s *Sim) checkPlacement(old, p *membership.Placement) {
	diff := 0
	for _, m := range p.Base {
		if !membership.In(p.Next, m.ID) {
			diff++
		}
	}
	for _, m := range p.Next {
		if !membership.In(p.Base, m.ID) {
			diff++
		}
	}
	if diff > 1 || (diff == 0) != (p.Stage == membership.StageStable) || p.Version < old.Version || p.Revision != old.Revision+1 {
		s.fail("placement %s after %s", p, old)
	}
}

// quiet says whether all is served: no call open, no change running, everybody complete, nothing left to hand over, and
// the copies of every key equal on its set and nowhere else.
func (s *Sim) quiet() bool { return s.unquiet() == "" }

func (s *Sim) unquiet() string {
	if s.now < s.healed.Add(11*time.Second) {
		return "not long healed"
	}
	if n := len(s.calls); n > 0 {
		return fmt.Sprintf("%d calls are open", n)
	}
	p := &s.log.p
	if p.Running != nil {
		return fmt.Sprintf("change %s runs, %s, %v", p.Running.ID, p, membership.Waiting(p))
	}
	v := s.log.newest()
	for _, h := range s.hosts {
		if !h.up() {
			return h.id + " is down"
		}
		st := h.core.Stats()
		if st.Revision != v.Revision {
			return fmt.Sprintf("%s is at revision %d of %d", h.id, st.Revision, v.Revision)
		}
		m, _ := v.Member(h.id)
		if m.Refilling || m.Down || m.Incarnation != h.inc {
			return fmt.Sprintf("%s is %+v", h.id, m)
		}
	}
	return s.unequal()
}

// unequal names a key whose copies differ within its set, or are left outside.
func (s *Sim) unequal() string {
	want := map[core.Key]string{}
	for _, h := range s.hosts {
		for _, r := range h.core.Snapshot() {
			if r.Meta.Stamp.IsZero() {
				continue
			}
			e := h.core.Explain(r.Key)
			if !slices.Contains(e.Base, h.id) {
				return fmt.Sprintf("%s still holds %s of %v", h.id, r.Key, e.Base)
			}
			d := r.Meta.Stamp.String() + " " + digest(r.Pages)
			if old, ok := want[r.Key]; ok && old != d {
				return fmt.Sprintf("copies of %s differ: %s, and at %s %s", r.Key, old, h.id, d)
			}
			want[r.Key] = d
		}
	}
	for _, k := range sortedKeysOf(s.keys) {
		if len(s.keys[k].longest) == 0 {
			continue
		}
		for _, h := range s.hosts {
			e := h.core.Explain(k)
			if slices.Contains(e.Base, h.id) && e.Copy.Stamp.IsZero() {
				return fmt.Sprintf("%s of %v holds nothing of %s", h.id, e.Base, k)
			}
		}
	}
	return ""
}

func sortedKeysOf(m map[core.Key]*history) []core.Key {
	out := make([]core.Key, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b core.Key) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func sortedCalls(m map[callID]*op) []callID {
	out := make([]callID, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b callID) int { return cmp.Compare(a.id, b.id) })
	return out
}

func (s *Sim) lastReads() {
	for _, k := range sortedKeysOf(s.keys) {
		s.invoke(s.hosts[s.rand.IntN(len(s.hosts))], &op{key: k, read: true, final: true}, callLimit)
	}
}

func (s *Sim) finalChecks() {
	if s.bad == nil && len(s.calls) > 0 {
		s.fail("%d last reads were not answered", len(s.calls))
	}
	for _, k := range sortedKeysOf(s.keys) {
		s.keys[k].final(s)
	}
}
