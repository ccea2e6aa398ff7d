package simtest

import (
	"fmt"
	"slices"
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/internal/bridge"
	"chainmail/ring"
)

// oracle is the log: totally ordered commands, applied by membership.Apply, that members learn late, in jumps, or from
// each other. Proposals may be lost, come late, be applied twice, or take effect though their proposer is told nothing.
type oracle struct {
	s     *Sim
	p     membership.Placement
	views []*core.View // all that there ever were; the one of revision r is views[r-1]
	base  *ring.Ring
	next  *ring.Ring
	n     int       // submitted changes
	dead  core.Time // no leader until then: nothing is applied
}

const (
	// lateMost is how long a late proposal takes at most: long enough for its step or its proposer to be gone.
	lateMost = 5 * time.Second
	// earlier is how many placements back the log may begin when it tells a member again.
	earlier = 8
)

func (l *oracle) init(s *Sim) { l.s = s }

// apply adds a command to the log.
func (l *oracle) apply(c membership.Command) membership.Result {
	p, r := membership.Apply(l.p, c)
	if r.Code != membership.OK {
		if r.Code != membership.Unchanged {
			l.s.trace.add(l.s.now, "log refuses %s: %s", r.Code, r.Text)
		}
		return r
	}
	old := l.p
	l.p = p
	if v := bridge.View(&p); v != nil {
		l.views = append(l.views, v)
		l.rings(&old)
		l.s.trace.add(l.s.now, "log r%d %s", p.Revision, p.String())
		l.s.checks.placed(&old, &p)
		if p.Version != old.Version && len(p.Base) > 0 && !l.s.calm && l.s.chance(l.s.o.Log.Leave) {
			l.s.leaveBehind(l.s.host(p.Base[l.s.rand.IntN(len(p.Base))].ID))
		}
		if len(p.Base) > 0 && !l.s.calm && l.s.chance(l.blinds(&old)) {
			l.s.blind(l.s.host(l.blinded(&old)), l.s.between(50*time.Millisecond, 3*time.Second))
		}
		if p.Stage == membership.StageSwitch && old.Stage != p.Stage {
			for _, m := range p.Base {
				if !membership.In(p.Next, m.ID) && !l.s.calm && l.s.chance(l.s.o.Log.Left) {
					l.s.blind(l.s.host(m.ID), l.s.between(time.Second, 4*time.Second))
				}
			}
		}
		l.spread(v)
	}
	l.s.after(l.s.between(time.Millisecond, 10*time.Millisecond), l.drive)
	return r
}

// blinds says how often a member must not learn of the placement that has taken the place of another: less often if the
// version is the same, for of those there are many.
func (l *oracle) blinds(old *membership.Placement) float64 {
	if l.p.Version == old.Version {
		return l.s.o.Log.Blind / 8
	}
	return l.s.o.Log.Blind
}

// blinded draws who does not learn of a placement: often who has just left, if somebody has.
func (l *oracle) blinded(old *membership.Placement) string {
	for _, m := range old.Base {
		if !membership.In(l.p.Base, m.ID) && l.s.chance(0.5) {
			return m.ID
		}
	}
	return l.p.Base[l.s.rand.IntN(len(l.p.Base))].ID
}

func (l *oracle) rings(old *membership.Placement) {
	build := func(r **ring.Ring, was, is []ring.Member) {
		if *r != nil && slices.Equal(was, is) {
			return
		}
		var err error
		if *r, err = ring.New(l.p.Ring, is); err != nil {
			l.s.fail("placement has no ring: %v", err)
		}
	}
	build(&l.base, old.Base, l.p.Base)
	build(&l.next, old.Next, l.p.Next)
}

func (l *oracle) spread(v *core.View) {
	for _, h := range l.s.hosts {
		if !l.s.calm && l.s.chance(l.s.o.Log.Skip) {
			l.s.fault("log-skip")
			continue
		}
		l.s.after(l.s.between(time.Millisecond, l.s.o.Log.Lag+time.Millisecond), func() { l.tell(h, v) })
	}
}

// propose brings a command to the log, as a member or a driver does it: the outcome may never be known.
func (l *oracle) propose(c membership.Command, done func(membership.Result)) {
	s := l.s
	d := s.between(time.Millisecond, 20*time.Millisecond)
	times := 1
	if !s.calm {
		if s.chance(s.o.Log.Lost) {
			s.fault("log-lost")
			return
		}
		if s.chance(s.o.Log.Late) {
			s.fault("log-late")
			d += s.between(0, lateMost)
		}
		if s.chance(s.o.Log.Dup) {
			s.fault("log-double")
			times = 2
		}
	}
	for range times {
		s.after(d, func() {
			if l.late(c) {
				return
			}
			r := l.apply(c)
			if done != nil && (s.calm || !s.chance(s.o.Log.Lost)) {
				done(r)
			}
		})
		d += s.between(0, 500*time.Millisecond)
	}
}

// late says whether a command finds no leader, or comes when all has healed and is of a time when it had not.
func (l *oracle) late(c membership.Command) bool {
	s := l.s
	switch {
	case !s.calm:
		return s.now < l.dead
	case c.Mark != nil:
		return c.Mark.Down && s.host(c.Mark.Member).up()
	case s.dead == nil:
		return false
	case c.Register != nil:
		return c.Register.Member.ID == s.dead.id
	}
	return c.Change != nil // it may count on who is gone
}

// form makes the cluster: all members register, the first ones form the ring.
func (l *oracle) form() {
	o := l.s.o.Cluster
	l.apply(membership.Command{Init: &membership.Init{ClusterID: "sim", Ring: ring.Params{Hash: ring.HashV1, VNodes: o.VNodes},
		Replicas: o.Replicas, Limits: membership.Limits{Rate: o.Rate, MaxConcurrent: o.Streams}}})
	if o.Counters > 0 {
		l.apply(membership.Command{SetReplicas: &membership.SetReplicas{Type: "cnt", N: o.Counters}})
	}
	if o.Acts > 0 {
		l.apply(membership.Command{SetReplicas: &membership.SetReplicas{Type: "act", N: o.Acts}})
	}
	var add []string
	for i, h := range l.s.hosts {
		l.apply(membership.Command{Register: h.registration(0)})
		if i < o.Start {
			add = append(add, h.id)
		}
	}
	l.apply(membership.Command{Change: &membership.ChangeCommand{Add: add}})
}

// lists says whether the log lists a member's process, and as one that is up.
func (l *oracle) lists(h *host) bool {
	m, _ := l.p.Member(h.id)
	return l.knows(h) && !m.Down
}

// knows says whether the log lists a member's process.
func (l *oracle) knows(h *host) bool {
	m, ok := l.p.Member(h.id)
	return ok && m.Incarnation == h.inc && m.Start == h.process()
}

// tell gives a member a placement, if it lives and has seen no newer one.
func (l *oracle) tell(h *host, v *core.View) {
	if v == nil || !h.up() || v.Revision <= h.seen || l.s.now < h.deaf && !l.s.calm {
		return
	}
	h.seen = v.Revision
	h.step(&core.ViewChanged{View: v, Lead: l.s.o.Log.Spread && h == l.s.hosts[v.Version/termVersions%uint64(len(l.s.hosts))]})
}

// termVersions is for how many versions a member leads.
const termVersions = 4

func (l *oracle) newest() *core.View {
	if len(l.views) == 0 {
		return nil
	}
	return l.views[len(l.views)-1]
}

// catchUp gives a member some placement from the end of the log.
func (l *oracle) catchUp(h *host) {
	n := len(l.views)
	if n == 0 {
		return
	}
	k := n - 1
	if !l.s.calm {
		k -= l.s.rand.IntN(min(n, earlier))
	}
	v := l.views[k]
	h.later(l.s.between(time.Millisecond, 30*time.Millisecond), func() { l.tell(h, v) })
}

func (l *oracle) report(h *host, e *core.Report) {
	r := membership.Report{Member: h.id, Incarnation: h.inc, Step: e.Step, What: bridge.What(e.What)}
	l.s.trace.add(l.s.now, "%s reports %s for %d", h.id, r.What, r.Step)
	l.propose(membership.Command{Report: []membership.Report{r}}, nil)
}

// drive proposes the advance that is due, as the leader's driver does. Two leaders may do so, one of them late.
func (l *oracle) drive() {
	if membership.Ready(&l.p) {
		l.propose(membership.Command{Advance: &membership.Advance{Version: l.p.Version, Stage: l.p.Stage}}, nil)
	}
}

func (l *oracle) mark(h *host, down bool) {
	m, _ := l.p.Member(h.id)
	l.propose(membership.Command{Mark: &membership.Mark{Member: h.id, Incarnation: m.Incarnation, Down: down}}, nil)
}

// submit starts a random change, or aborts, retargets, pauses or resumes the running one.
func (l *oracle) submit() {
	r := l.s.rand
	if l.p.Running != nil {
		if l.s.o.Trouble.Holds && r.IntN(2) == 0 {
			l.hold()
			return
		}
		if !l.s.chance(l.s.o.Trouble.Aborts) {
			return
		}
		l.s.fault("abort")
		if r.IntN(2) == 0 {
			l.propose(membership.Command{Abort: &membership.ChangeRef{ID: l.p.Running.ID}}, nil)
			return
		}
	}
	var out, in []string
	for _, h := range l.s.hosts {
		m, ok := l.p.Member(h.id)
		switch {
		case !ok || m.Incarnation == 0:
		case membership.In(l.p.Target, h.id):
			in = append(in, h.id)
		default:
			out = append(out, h.id)
		}
	}
	pick := func(from []string, most int) []string {
		r.Shuffle(len(from), func(i, j int) { from[i], from[j] = from[j], from[i] })
		got := slices.Clone(from[:min(len(from), r.IntN(most+1))])
		slices.Sort(got)
		return got
	}
	c := &membership.ChangeCommand{Add: pick(out, 3), Remove: pick(in, 2), Retarget: l.p.Running != nil}
	for _, id := range c.Remove {
		if h := l.s.host(id); h.up() && l.s.chance(l.s.o.Trouble.Drains) {
			l.s.reach("drain")
			l.s.trace.add(l.s.now, "%s drains", id)
			h.drained = true
			h.step(&core.Drain{})
		}
	}
	l.n++
	if l.s.chance(0.3) {
		c.Key = fmt.Sprint("key-", l.n)
		c.ExpectVersion = l.p.Version
	}
	l.propose(membership.Command{Change: c}, nil)
}

func (l *oracle) hold() {
	l.s.fault("hold")
	ref := &membership.ChangeRef{ID: l.p.Running.ID}
	if l.p.Running.Paused {
		l.propose(membership.Command{Resume: ref}, nil)
		return
	}
	l.propose(membership.Command{Pause: ref}, nil)
}

// lacks says whether the incarnation that the log lists of a member has lost what it had, wholly or in part.
func (l *oracle) lacks(id string) bool {
	m, ok := l.p.Member(id)
	h := l.s.host(id)
	return !ok || m.Refilling || m.Incarnation != h.inc || h.stale
}

// tolerates says whether a member may lose its memory now: of no key's S and S' may as many have lost it as a write needs.
// The model that the protocol was chosen with allows more of S', because there a new incarnation is known to the log in
// the same instant; here the log may advance on what the dead one had reported.
func (l *oracle) tolerates(h *host) bool {
	if l.base == nil {
		return false
	}
	gone := func(id string) bool { return id == h.id || l.lacks(id) }
	for _, n := range l.counts() {
		for _, r := range []*ring.Ring{l.base, l.next} {
			for arc := range r.Arcs() {
				if !l.tolerated(l.base.Replicas(arc.Hi, n), l.next.Replicas(arc.Hi, n), h.id, gone) {
					return false
				}
			}
		}
	}
	return true
}

// dispensable says whether a member that has memory may go for good: each set that it is of can do without it, and so can
// those that have to fill from it.
func (l *oracle) dispensable(h *host) bool {
	stay := 0 // on all rings of the chain
	for _, m := range l.p.Base {
		if membership.In(l.p.Next, m.ID) && membership.In(l.p.Target, m.ID) {
			stay++
		}
	}
	if l.base == nil || l.lacks(h.id) || stay < core.W(2)+1 {
		return false
	}
	for _, n := range l.counts() {
		if n-1 < core.W(n) {
			return false
		}
		for _, r := range []*ring.Ring{l.base, l.next} {
			for arc := range r.Arcs() {
				set, gone := r.Replicas(arc.Hi, n), 0
				for _, id := range set {
					if id == h.id || l.lacks(id) {
						gone++
					}
				}
				if slices.Contains(set, h.id) && len(set)-gone < core.W(len(set)) {
					return false
				}
			}
		}
	}
	return true
}

func (l *oracle) tolerated(s, sn []string, id string, gone func(string) bool) bool {
	if !slices.Contains(s, id) && !slices.Contains(sn, id) {
		return true
	}
	for _, set := range [][]string{s, sn} {
		n := 0
		for _, m := range set {
			if gone(m) {
				n++
			}
		}
		if n > core.W(len(set))-1 {
			return false
		}
	}
	return true
}

func (l *oracle) counts() []int {
	c := l.s.o.Cluster
	out := []int{c.Replicas}
	for _, n := range []int{c.Counters, c.Acts} {
		if n > 0 {
			out = append(out, n)
		}
	}
	return out
}

// set gives a key's S at the newest placement.
func (l *oracle) set(k core.Key) []string { return l.setOn(l.base, k) }

func (l *oracle) setOn(r *ring.Ring, k core.Key) []string {
	c := l.s.o.Cluster
	n := c.Replicas
	switch {
	case k.Type == "cnt" && c.Counters > 0:
		n = c.Counters
	case k.Type == "act" && c.Acts > 0:
		n = c.Acts
	}
	return r.Replicas(ring.KeyToken(ring.HashV1, k.Type, k.Name), n)
}
