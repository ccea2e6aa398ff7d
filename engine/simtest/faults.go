package simtest

import (
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// every does something again and again in the first phase.
func (s *Sim) every(mean time.Duration, do func()) {
	if mean <= 0 {
		return
	}
	var again func()
	again = func() {
		if s.calm {
			return
		}
		do()
		s.after(s.exp(mean), again)
	}
	s.after(s.exp(mean), again)
}

func (s *Sim) anyHost() *host { return s.hosts[s.rand.IntN(len(s.hosts))] }

func (s *Sim) faults() {
	s.every(s.o.Changes, s.log.submit)
	s.every(s.o.Cuts, func() {
		a, b := s.anyHost(), s.anyHost()
		if a == b {
			return
		}
		s.Faults++
		k := [2]string{a.id, b.id}
		s.net.cut[k] = true
		s.trace.add(s.now, "cut %s->%s", a.id, b.id)
		s.after(s.between(50*time.Millisecond, 3*time.Second), func() { delete(s.net.cut, k) })
	})
	s.every(s.o.Pauses, func() {
		h := s.anyHost()
		if h.up() && s.now >= h.awake {
			s.Faults++
			h.awake = s.now.Add(s.between(50*time.Millisecond, 4*time.Second))
			s.trace.add(s.now, "%s pauses until %s", h.id, at(h.awake))
			if s.chance(0.5) {
				s.after(s.between(0, time.Second), func() { s.log.mark(h, true) })
				s.after(time.Duration(h.awake-s.now)+s.between(0, time.Second), func() { s.log.mark(h, false) })
			}
		}
	})
	s.every(s.o.WrongMarks, func() {
		h := s.anyHost()
		s.Faults++
		s.log.mark(h, true)
		s.after(s.between(10*time.Millisecond, 2*time.Second), func() { s.log.mark(h, false) })
	})
	s.every(s.o.Crashes, func() { s.crash(s.anyHost()) })
}

// crash ends a member and starts it again later. In memory mode it does so only if no key's set has lost as many
// members as it tolerates: beyond that nothing is promised.
func (s *Sim) crash(h *host) {
	if !h.up() || !s.o.Durable && !s.tolerates(h) {
		return
	}
	s.Faults++
	h.crash()
	s.after(s.between(0, 500*time.Millisecond), func() {
		if !h.up() {
			s.log.mark(h, true)
		}
	})
	for _, o := range s.hosts {
		if o != h && o.up() && s.chance(0.7) {
			s.after(s.between(0, 200*time.Millisecond), func() {
				if o.up() && !h.up() {
					o.step(&core.PeerLost{Member: h.id})
				}
			})
		}
	}
	s.after(s.between(10*time.Millisecond, 4*time.Second), h.start)
}

// tolerates says whether every range keeps enough members that remember: at most W-1 of S, and of what S and S' share,
// may be without memory (the checker's rule for a crash).
func (s *Sim) tolerates(h *host) bool {
	v := s.log.newest()
	if v == nil {
		return false
	}
	without := map[string]bool{h.id: true}
	for _, o := range s.hosts {
		m, ok := v.Member(o.id)
		if !o.up() || ok && (m.Refilling || m.Incarnation != o.inc) {
			without[o.id] = true
		}
	}
	p := &s.log.p
	if !membership.In(p.Base, h.id) && !membership.In(p.Next, h.id) {
		return true
	}
	n := 0
	for id := range without {
		if membership.In(p.Base, id) || membership.In(p.Next, id) {
			n++
		}
	}
	// The sets are subsets of the rings: counting all members of the rings is on the safe side.
	least := min(s.o.Replicas, len(p.Base), len(p.Next))
	return n <= core.W(least)-1
}

// heal ends all faults and starts the second phase.
func (s *Sim) heal() {
	s.calm = true
	s.healed = s.now
	s.trace.add(s.now, "all faults end")
	clear(s.net.cut)
	for _, h := range s.hosts {
		h.awake = min(h.awake, s.now)
		run := h.run
		s.after(0, func() { h.wake(run) })
	}
	var settle func()
	settle = func() {
		for _, h := range s.hosts {
			if m, ok := s.log.p.Member(h.id); ok && m.Down && h.up() && m.Incarnation == h.inc {
				s.log.mark(h, false)
			}
			if v := s.log.newest(); h.up() && h.seen < v.Revision {
				s.log.tell(h, v)
			}
		}
		s.log.drive()
		s.after(200*time.Millisecond, settle)
	}
	settle()
}
