package simtest

import (
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// faultKinds are all kinds of faults, by the names under which they are counted.
var faultKinds = []string{
	"abort", "ambush", "behind", "blind", "clog", "crash", "cut", "dead", "delay", "double", "echo", "flip-disk", "flip-page", "hold", "isolation", "log-double", "log-late",
	"log-lost", "log-skip", "loss", "lost", "mark", "outage", "pause", "put-back", "sharp", "stall", "torn", "twin",
	"unsynced", "wipe",
}

// fault counts one.
func (s *Sim) fault(kind string) { s.Faults[kind]++ }

// reachKinds are all kinds of what is rare and has to come about.
var reachKinds = []string{"drain", "fetch-cut", "floor-restored", "local-read", "overload", "pull-cut", "too-large", "write-to-all"}

// reach counts one.
func (s *Sim) reach(kind string) { s.Reach[kind]++ }

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

// faults starts what goes wrong in the first phase.
func (s *Sim) faults() {
	o := &s.o
	stalls := o.Disk.Stalls
	if !o.Cluster.Durable { // there is no disk
		stalls = 0
	}
	s.every(o.Trouble.Changes, s.log.submit)
	s.every(o.Trouble.Crashes, func() {
		s.crash(s.anyHost())
		if s.chance(o.Trouble.Twins) {
			s.fault("twin")
			s.crash(s.anyHost())
		}
	})
	s.every(o.Trouble.Pauses, func() { s.pause(s.anyHost()) })
	s.every(o.Trouble.WrongMarks, func() {
		h := s.anyHost()
		s.fault("mark")
		s.log.mark(h, true)
		s.after(s.between(10*time.Millisecond, 2*time.Second), func() { s.log.mark(h, false) })
	})
	s.every(o.Net.Cuts, func() { s.breakLink(s.net.cut, "cut", 3*time.Second) })
	s.every(o.Net.Clogs, func() { s.breakLink(s.net.clog, "clog", 4*time.Second) })
	s.every(o.Net.Isolations, func() { s.isolate(s.anyHost()) })
	s.every(o.Log.Outages, func() {
		s.fault("outage")
		s.log.dead = s.now.Add(s.between(50*time.Millisecond, 3*time.Second))
		s.trace.add(s.now, "the log has no leader until %s", at(s.log.dead))
	})
	s.every(o.Log.Behind, func() { s.leaveBehind(s.anyHost()) })
	s.every(stalls, func() {
		h := s.anyHost()
		s.fault("stall")
		h.stalled = s.now.Add(s.between(20*time.Millisecond, 2*time.Second))
		s.trace.add(s.now, "the disk of %s hangs until %s", h.id, at(h.stalled))
	})
}

// leaveBehind keeps the log's news from a member: its own log is silent, and about half of its peers do not reach it. What
// it says arrives.
func (s *Sim) leaveBehind(h *host) {
	s.fault("behind")
	h.deaf = s.now.Add(s.between(50*time.Millisecond, 3*time.Second))
	s.trace.add(s.now, "%s is left behind until %s", h.id, at(h.deaf))
	for _, o := range s.hosts {
		if o != h && s.chance(0.5) {
			s.net.cut[link{o.id, h.id}] = h.deaf
		}
	}
}

// blind keeps placements from a member, those of the log and those that peers send, and nothing else. Some of its peers do
// not hear it: it goes on with the others by what it knows, while they may have gone on without it.
func (s *Sim) blind(h *host, d time.Duration) {
	s.fault("blind")
	h.blind = s.now.Add(d)
	h.deaf = max(h.deaf, h.blind)
	s.trace.add(s.now, "%s is told of no placement until %s", h.id, at(h.blind))
	for _, o := range s.hosts {
		if o != h && s.chance(0.25) {
			s.net.cut[link{h.id, o.id}] = h.blind
		}
	}
}

// breakLink cuts or clogs one direction between two members.
func (s *Sim) breakLink(links map[link]core.Time, what string, most time.Duration) {
	l := link{s.anyHost().id, s.anyHost().id}
	if l.from == l.to {
		return
	}
	s.fault(what)
	links[l] = s.now.Add(s.between(50*time.Millisecond, most))
	s.trace.add(s.now, "%s %s->%s until %s", what, l.from, l.to, at(links[l]))
}

// isolate cuts all links of a member: to it, from it, or both. PeerLost tells some of its peers.
func (s *Sim) isolate(h *host) {
	s.fault("isolation")
	until := s.now.Add(s.between(50*time.Millisecond, 4*time.Second))
	way := s.rand.IntN(3)
	s.trace.add(s.now, "%s is isolated until %s, way %d", h.id, at(until), way)
	for _, o := range s.hosts {
		if o == h {
			continue
		}
		if way != 1 {
			s.net.cut[link{o.id, h.id}] = until
		}
		if way != 0 {
			s.net.cut[link{h.id, o.id}] = until
		}
		if s.chance(0.3) {
			o.later(s.between(0, 500*time.Millisecond), func() { o.step(&core.PeerLost{Member: h.id}) })
		}
	}
	if s.chance(0.5) {
		s.after(s.between(0, time.Second), func() { s.log.mark(h, true) })
		s.after(timeLeft(s.now, until)+s.between(0, time.Second), func() { s.log.mark(h, false) })
	}
}

// pause stops a process and lets it go on where it was: all timers and messages come to it late and at once.
func (s *Sim) pause(h *host) {
	if !h.up() || s.now < h.awake {
		return
	}
	s.fault("pause")
	h.awake = s.now.Add(s.between(50*time.Millisecond, 4*time.Second))
	s.trace.add(s.now, "%s pauses until %s", h.id, at(h.awake))
	if s.chance(0.5) {
		s.after(s.between(0, time.Second), func() { s.log.mark(h, true) })
		s.after(timeLeft(s.now, h.awake)+s.between(0, time.Second), func() { s.log.mark(h, false) })
	}
}

// crash ends a member and starts it again later. Its memory is lost only if no key's set has lost as many members as it
// tolerates, but for loss runs: beyond that nothing is promised.
func (s *Sim) crash(h *host) {
	if !h.up() {
		return
	}
	wipe := !s.o.Cluster.Durable || s.chance(s.o.Trouble.Wipes)
	if wipe && !s.o.Trouble.Loss && !s.log.tolerates(h) {
		return
	}
	s.crashFor(h, wipe, s.backAfter)
}

// backAfter draws how long a member stays away.
func (s *Sim) backAfter() time.Duration {
	if s.chance(0.3) {
		return s.between(time.Millisecond, 150*time.Millisecond)
	}
	return s.between(10*time.Millisecond, 4*time.Second)
}

// crashFor ends a member and starts it again after a while. Others may notice, and the log may be told.
func (s *Sim) crashFor(h *host, wipe bool, back func() time.Duration) {
	s.fault("crash")
	if wipe {
		s.fault("wipe")
	}
	known := s.log.knows(h)
	h.crash(wipe)
	if !wipe {
		s.spoil(h, known)
	}
	s.after(s.between(0, 500*time.Millisecond), func() {
		if !h.up() {
			s.log.mark(h, true)
		}
	})
	for _, o := range s.hosts {
		if o != h && s.chance(0.7) {
			o.later(s.between(0, 200*time.Millisecond), func() {
				if !h.up() {
					o.step(&core.PeerLost{Member: h.id})
				}
			})
		}
	}
	s.after(back(), h.start)
}

// spoil makes the disk of a member that has crashed a bad one, if its keys can bear that. The log will find an older one out if it
// has listed the last process.
func (s *Sim) spoil(h *host, known bool) {
	flip, older := s.chance(s.o.Disk.Flips), known && len(h.older) > 0 && s.chance(s.o.Disk.Older)
	switch {
	case !flip && !older || !s.o.Trouble.Loss && !s.log.tolerates(h):
	case flip:
		h.flip()
	default:
		h.putBack()
	}
}

// ambush strikes when a replica has answered an owner and the two may be all that know it: the owner reaches nobody else for a
// while, and the replica loses its memory, the owner crashes, or it is taken for dead.
func (s *Sim) ambush(h *host, m core.Message) {
	code := core.CodeRefused
	switch b := m.Body.(type) {
	case *core.Promise:
		code = b.Code
	case *core.Accepted:
		code = b.Code
	}
	owner := s.host(m.To)
	if code != core.CodeOK || s.calm || owner == h || !owner.up() || !s.chance(s.o.Trouble.Ambush) {
		return
	}
	s.fault("ambush")
	until := s.now.Add(s.between(200*time.Millisecond, 2*time.Second))
	kind := s.rand.IntN(4)
	s.trace.add(s.now, "ambush %d: %s reaches only %s until %s", kind, owner.id, h.id, at(until))
	for _, o := range s.hosts {
		if o != h && o != owner {
			s.net.cut[link{owner.id, o.id}] = until
		}
	}
	soon := func() time.Duration { return s.between(time.Millisecond, 50*time.Millisecond) }
	wipe := func() {
		if !s.calm && h.up() && s.log.tolerates(h) {
			s.crashFor(h, true, soon)
		}
	}
	switch kind {
	case 0: // what the replica has said counts still, and it asks others than the owner when it is back
		s.after(0, func() {
			s.net.cut[link{owner.id, h.id}] = until
			wipe()
		})
	case 1:
		forgets := !s.o.Cluster.Durable || s.chance(s.o.Trouble.Wipes)
		owner.later(soon(), func() {
			if !s.calm && (!forgets || s.log.tolerates(owner)) {
				s.crashFor(owner, forgets, soon)
			}
		})
	default: // another one takes the key over; the owner hears of that, or it does not and a member that knew forgets
		s.log.mark(owner, true)
		s.after(timeLeft(s.now, until), func() { s.log.mark(owner, false) })
		if s.chance(0.5) {
			s.net.cut[link{owner.id, h.id}] = until
		}
		if kind == 3 {
			for _, o := range s.hosts {
				s.net.cut[link{o.id, owner.id}], s.net.cut[link{owner.id, o.id}] = until, until
			}
			owner.blind = max(owner.blind, until)
			s.after(max(0, timeLeft(s.now, until)-soon()), wipe)
		}
	}
}

// sharp crashes a member right after it has told a peer something that the peer goes by.
func (s *Sim) sharp(h *host, b core.Body) {
	switch b.(type) {
	case *core.Promise, *core.Accepted, *core.Confirmed, *core.Pulled, *core.Offered:
		if !s.calm && s.chance(s.o.Trouble.Sharp) {
			s.fault("sharp")
			h.later(s.between(0, 2*time.Millisecond), func() { s.crash(h) })
		}
	}
}

// heal ends all faults and starts the second phase.
func (s *Sim) heal() {
	s.calm = true
	s.healed = s.now
	s.trace.add(s.now, "all faults end")
	s.net.heal()
	if s.o.Trouble.Dead {
		s.bury()
	}
	for _, h := range s.hosts {
		h.awake, h.stalled = min(h.awake, s.now), min(h.stalled, s.now)
		run := h.run
		s.after(0, func() { h.wake(run) })
	}
	s.settle()
}

// bury ends a member for good, with all that it has.
func (s *Sim) bury() {
	first := s.rand.IntN(len(s.hosts))
	for i := range s.hosts {
		if h := s.hosts[(first+i)%len(s.hosts)]; s.dead == nil && h.inc != 0 && s.log.dispensable(h) {
			s.fault("dead")
			s.dead = h
			s.trace.add(s.now, "%s is gone for good", h.id)
			if h.up() {
				h.crash(true)
			}
			h.inc, h.disk = 0, newDisk()
			s.log.mark(h, true)
		}
	}
}

// settleEvery is how often the second phase does what a log with a leader does: it clears marks, tells the newest placement
// and drives the change.
const settleEvery = 200 * time.Millisecond

// lostAfter is when a person gives up what a loss run has destroyed.
const lostAfter = 15 * time.Second

func (s *Sim) settle() {
	for _, h := range s.hosts {
		if m, ok := s.log.p.Member(h.id); ok && m.Down && h.up() && m.Incarnation == h.inc {
			s.log.mark(h, false)
		}
		if v := s.log.newest(); h.up() && h.seen < v.Revision {
			s.log.tell(h, v)
		}
	}
	if s.dead != nil { // a proposal of its own that came late may have cleared that
		if m, ok := s.log.p.Member(s.dead.id); ok && !m.Down {
			s.log.mark(s.dead, true)
		}
	}
	if r := s.log.p.Running; r != nil && r.Paused {
		s.log.apply(membership.Command{Resume: &membership.ChangeRef{ID: r.ID}})
	}
	if s.o.Trouble.Loss && s.now > s.healed.Add(lostAfter) {
		s.declareLost()
	}
	s.log.drive()
	s.after(settleEvery, s.settle)
}

// declareLost gives up what members that are still refilling have lost, as a person does.
func (s *Sim) declareLost() {
	var bans []membership.Ban
	for _, m := range s.log.p.Members {
		if m.Refilling {
			bans = append(bans, membership.Ban{Member: m.ID, Incarnation: m.Incarnation})
		}
	}
	if n := len(s.log.p.Lost); len(bans) > 0 && n == 0 {
		s.fault("lost")
		s.log.apply(membership.Command{DeclareLost: &membership.DeclareLost{Bans: bans}})
	}
}
