package simtest

import (
	"fmt"
	"slices"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// unquiet says what is not served yet: an open call, a running change, a member that is incomplete, something left to hand
// over, a key whose copies differ on its set or are left elsewhere. "" means that all is well.
func (s *Sim) unquiet() string {
	if s.now <= s.healed.Add(loadAfterHeal) {
		return "callers go on"
	}
	if n := len(s.calls); n > 0 {
		return fmt.Sprintf("%d calls are open", n)
	}
	p := &s.log.p
	if p.Running != nil && !s.waitsForDead() {
		return fmt.Sprintf("change %s runs, %s, %v", p.Running.ID, p, membership.Waiting(p))
	}
	for _, h := range s.hosts {
		if why := s.restless(h); why != "" {
			return why
		}
	}
	return s.unequal()
}

// waitsForDead says whether the change that runs is stuck for a true reason: all that it waits for is the member that is gone.
func (s *Sim) waitsForDead() bool {
	if s.dead == nil || s.now <= s.healed.Add(lostAfter) {
		return false
	}
	why := membership.Waiting(&s.log.p)
	for _, w := range why {
		if w.Member != s.dead.id {
			return false
		}
	}
	return len(why) > 0
}

func (s *Sim) restless(h *host) string {
	if h == s.dead {
		return ""
	}
	if !h.up() {
		return h.id + " is down"
	}
	st, v := h.core.Stats(), s.log.newest()
	if st.Revision != v.Revision {
		return fmt.Sprintf("%s is at revision %d of %d", h.id, st.Revision, v.Revision)
	}
	if m, _ := v.Member(h.id); m.Refilling || m.Down || !s.log.knows(h) {
		return fmt.Sprintf("%s is %+v", h.id, m)
	}
	if st.Calls > 0 || st.Held > 0 || st.HeldBytes > 0 || st.HandingOver > 0 || st.Wanted > 0 || st.Orphans > 0 {
		return fmt.Sprintf("%s has something left to do: %+v", h.id, st)
	}
	return ""
}

// unequal names a key whose copies differ within its set, are missing there, or are left outside. A member that missed the
// purge of a delete may keep the delete until the key is used again.
func (s *Sim) unequal() string {
	want := map[core.Key]core.Record{}
	for _, h := range s.hosts {
		if h == s.dead {
			continue
		}
		for _, r := range h.core.Snapshot() {
			if !slices.Contains(s.log.set(r.Key), h.id) {
				if s.log.p.Running != nil { // stuck: who is on a later ring keeps what it has
					continue
				}
				return fmt.Sprintf("%s still holds %s, promise %s, stamp %s, of %v", h.id, r.Key, r.Meta.Promised, r.Meta.Stamp, s.log.set(r.Key))
			}
			if len(r.Pages) == 0 {
				continue
			}
			if old, ok := want[r.Key]; ok && (old.Meta.Stamp != r.Meta.Stamp || digest(old.Pages) != digest(r.Pages)) {
				return fmt.Sprintf("copies of %s differ: %s, and at %s %s", r.Key, old.Meta.Stamp, h.id, r.Meta.Stamp)
			}
			want[r.Key] = r
		}
	}
	for _, k := range s.checks.all() {
		r, ok := want[k.key]
		if why := s.missing(k.key, r, ok); why != "" {
			return why
		}
		if !ok && !s.o.Trouble.Loss && !k.newest.IsZero() && !s.checks.deleted(k.key, k.newest) {
			return fmt.Sprintf("nobody holds %s, of which %s was answered", k.key, k.newest)
		}
	}
	return ""
}

func (s *Sim) missing(k core.Key, r core.Record, ok bool) string {
	if !ok {
		return ""
	}
	set := s.log.set(k)
	for _, id := range set {
		if s.host(id) == s.dead {
			continue
		}
		e := s.host(id).core.Explain(k)
		if e.Copy.Stamp != r.Meta.Stamp && s.o.Trouble.Loss {
			// More members lost their memory than a key can bear: one that found nobody who knew it began anew, and one that
			// came later still had it. The next use of the key takes the newest.
			continue
		}
		if e.Copy.Stamp != r.Meta.Stamp {
			return fmt.Sprintf("%s of %v holds %s of %s, others %s", id, set, e.Copy.Stamp, k, r.Meta.Stamp)
		}
		if marked(r) && e.Owner == id && !s.host(id).drained && e.Activation == "" {
			return fmt.Sprintf("%s is marked active and does not run at its owner %s", k, id)
		}
	}
	return ""
}

func marked(r core.Record) bool {
	return slices.ContainsFunc(r.Pages, func(p core.Page) bool { return p.Name == core.ActivePage })
}
