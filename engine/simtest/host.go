package simtest

import (
	"fmt"
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/engine/store"
)

// host is one member: its process, its disk and what the log has told it.
type host struct {
	s      *Sim
	id     string
	member membership.Member // what it registers, but for the incarnation
	core   *core.Core        // nil while it is down
	inc    uint64            // 0: it has lost what it had and not begun anew
	boot   uint64
	older  []backup // of its disk, made while it was down
	stale  bool     // one of them was put back, and the log has not refused it yet
	bent   bool     // a byte on its disk is another one: it has no incarnation until the store is taken away
	run    int      // number of the process: what an older one has under way is void
	calls  uint64   // made by this process

	awake   core.Time    // paused until
	queue   []core.Input // that came while it was paused
	stalled core.Time    // its disk hangs until
	synced  core.Time    // the last sync ends

	disk     disk
	out      []core.Effect                // not carried out yet
	by       map[*core.Persist]*core.View // that each of them was given out by
	syncing  bool
	unsynced []core.Effect
	seen     uint64    // newest revision that the log has given this process
	deaf     core.Time // the log tells it nothing until then
	blind    core.Time // no placement that a peer sends arrives until then
	must     map[core.Key]mustHold
	gave     map[core.Key]uint64 // version by which it dropped a copy last
	came     int                 // messages of callers from other members
	arrived  map[uint32]arrival  // when, by the number of the call; of this process
	turns    map[fromTo]arrival  // the last that was run
	shown    map[core.Key]*shown // what local reads are answered from
	drained  bool
}

func newHost(s *Sim, n int) *host {
	h := &host{s: s, id: fmt.Sprintf("m%d", n), disk: newDisk(), gave: map[core.Key]uint64{}}
	h.member = membership.Member{ID: h.id, Address: h.id, Weight: 1}
	if z := s.o.Cluster.Zones; z > 0 {
		h.member.Zone = fmt.Sprintf("z%d", s.rand.IntN(z))
	}
	if s.o.Cluster.Weights {
		h.member.Weight = 1 + s.rand.IntN(3)
	}
	return h
}

func (h *host) up() bool { return h.core != nil }

// idle types end their activations soon, so that runs see many.
var types = map[string]core.TypeConfig{
	"list": {Idle: 700 * time.Millisecond}, "act": {Active: true, Idle: 4 * time.Second}, "cnt": {Idle: 100 * time.Millisecond}, "reg": {Idle: 2 * time.Second}, "box": {Idle: 150 * time.Millisecond},
	"all": {All: true, Idle: 500 * time.Millisecond}, "loc": {Local: true, Idle: 3 * time.Second},
}

// start begins a process: with its disk, or with nothing and as a new incarnation.
func (h *host) start() {
	if h.up() || h == h.s.dead {
		return
	}
	h.run++
	h.open()
	h.backUp()
	h.boot++
	var saved *core.Saved
	if h.inc == 0 {
		h.inc = 1 + h.s.rand.Uint64N(1<<40)
		h.must = h.s.checks.answeredStamps()
		h.boot, h.stale = 1, false
	} else {
		saved = h.disk.saved()
		if !h.disk.floor().IsZero() {
			h.s.reach("floor-restored")
		}
	}
	h.disk.starts = store.NextStarts(h.disk.starts, h.process(), h.id, h.inc, h.disk.view)
	o := h.s.o.Cluster
	h.core = core.New(core.Config{Self: h.id, Incarnation: h.inc, Boot: h.boot, Start: h.process(), Durable: true, Types: types, Limits: o.Limits, Sizes: o.Sizes, PurgeAfter: o.PurgeAfter, SweepEvery: o.SweepEvery}, h.s.now, saved)
	h.seen, h.awake, h.stalled = 0, 0, 0
	h.calls = 0
	h.queue, h.out, h.syncing, h.unsynced = nil, nil, false, nil
	h.by = map[*core.Persist]*core.View{}
	h.arrived, h.turns = map[uint32]arrival{}, map[fromTo]arrival{}
	h.shown, h.drained = map[core.Key]*shown{}, false
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

// process is the number that no other start of the member has.
func (h *host) process() uint64 { return uint64(h.run) + 1 }

// registration is what the member tells the log of this process.
func (h *host) registration(seen uint64) *membership.Register {
	m, n := h.member, len(h.disk.starts)-1
	m.Incarnation, m.Start = h.inc, h.disk.starts[n]
	return &membership.Register{Member: m, Seen: seen, Starts: h.disk.starts[:n]}
}

// registerAgain is how often a process looks whether the log still lists it.
const registerAgain = 200 * time.Millisecond

// register tells the log this incarnation whenever the placement does not list it. If it was banned, as by a proposal of
// an older process that came late, or has an older disk, the member begins anew.
func (h *host) register() {
	run := h.run
	var again func()
	again = func() {
		if h.run != run || !h.up() {
			return
		}
		if h.s.log.lists(h) {
			h.s.after(registerAgain, again)
			return
		}
		var seen uint64 // as this member's core knows the log, which may be behind
		if v := h.core.View(); v != nil {
			listed, _ := v.Member(h.id)
			seen = listed.Incarnation
		}
		h.s.log.propose(membership.Command{Register: h.registration(seen)}, func(r membership.Result) {
			if h.run == run && r.Code == membership.ErrSuperseded && !h.stale {
				h.s.fail("%s is refused, and its disk is its own: %s", h.id, r.Text)
			}
			if h.run == run && (r.Code == membership.ErrBanned || r.Code == membership.ErrSuperseded) {
				h.crash(true)
				h.start()
			}
		})
		h.s.after(h.s.between(20*time.Millisecond, 200*time.Millisecond), again)
	}
	h.s.after(h.s.between(0, 20*time.Millisecond), again)
}

// crash ends the process: what was not durable is gone, and with wipe everything is.
func (h *host) crash(wipe bool) {
	h.s.trace.add(h.s.now, "%s crashes, wiped %v", h.id, wipe)
	h.core = nil
	h.run++
	h.tear()
	h.unsynced, h.out = nil, nil
	if wipe {
		h.inc, h.disk, h.stale = 0, newDisk(), false
	}
	h.s.dropCalls(h)
}

// step gives an input to the core and carries out what it says, after the disk.
func (h *host) step(in core.Input) {
	if h.s.now < h.awake {
		h.queue = append(h.queue, in)
		if len(h.queue) == 1 {
			run := h.run
			h.s.after(timeLeft(h.s.now, h.awake), func() { h.wake(run) })
		}
		return
	}
	h.s.checks.came(h, in)
	n := len(h.out)
	h.out = h.core.Step(h.s.now, in, h.out)
	for _, e := range h.out[n:] {
		if p, ok := e.(*core.Persist); ok {
			h.by[p] = h.core.View()
		}
	}
	h.s.checks.stepped(h)
	h.drain()
}

func timeLeft(now, until core.Time) time.Duration { return time.Duration(max(0, until-now)) }

// wake gives a process that was paused all that came meanwhile.
func (h *host) wake(run int) {
	q := h.queue
	if h.run != run {
		return
	}
	h.queue = nil
	for _, in := range q {
		if h.run == run && h.up() {
			h.step(in)
		}
	}
}

// do carries out one effect.
func (h *host) do(e core.Effect) {
	s := h.s
	switch e := e.(type) {
	case *core.Send:
		s.checks.sent(h, e.Msg)
		s.sharp(h, e.Msg.Body)
		s.ambush(h, e.Msg)
		if e.Msg.To == h.id {
			h.later(0, func() { h.step(&core.Recv{Msg: e.Msg}) })
			return
		}
		s.net.send(e.Msg)
	case *core.Reply:
		s.replied(h, e)
	case *core.Execute:
		s.checks.runs(h, e)
		s.checks.opened(h, e.Key)
		done := execute(e, s.o.Load.Window)
		h.ran(e, done)
		check := s.checks.state(e)
		h.later(s.between(0, s.o.Load.Handler), func() {
			check()
			h.step(done)
		})
	case *core.Report:
		s.log.report(h, e)
	case *core.WantView:
		if s.chance(0.5) {
			s.log.catchUp(h)
		}
	case *core.Note:
		s.trace.add(s.now, "%s note %s %s %s %s", h.id, e.What, e.Key, e.Peer, e.Text)
	case *core.Ended:
		s.trace.add(s.now, "%s ended %s %s", h.id, e.Key, e.Reason)
		if x := h.shown[e.Key]; x != nil && x.activation == e.Activation {
			delete(h.shown, e.Key)
		}
	case *core.Settled:
		h.settled(e)
	case *core.Corrupt:
		s.fail("%s finds a damaged page in the %s of %s", h.id, e.What, e.Key)
	case *core.Persist:
	default:
		panic(fmt.Sprintf("unknown effect %T", e))
	}
}

// later does something after a while if the same process still runs.
func (h *host) later(d time.Duration, do func()) {
	run := h.run
	h.s.after(d, func() {
		if h.run == run && h.up() {
			do()
		}
	})
}
