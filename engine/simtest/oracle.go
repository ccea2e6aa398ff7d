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
// each other. Proposals may be lost, or take effect though their proposer is told nothing.
type oracle struct {
	s     *Sim
	p     membership.Placement
	views []*core.View // all that there ever were
	n     int          // submitted changes
}

func (l *oracle) init(s *Sim) { l.s = s }

func (l *oracle) apply(c membership.Command) membership.Result {
	p, r := membership.Apply(l.p, c)
	if r.Code != membership.OK {
		l.s.trace.add(l.s.now, "log refuses %s: %s", r.Code, r.Text)
		return r
	}
	old := l.p
	l.p = p
	v := bridge.View(&p)
	l.views = append(l.views, v)
	l.s.trace.add(l.s.now, "log r%d %s", p.Revision, p.String())
	l.s.checkPlacement(&old, &p)
	for _, h := range l.s.hosts {
		if !l.s.calm && l.s.chance(l.s.o.LogSkip) {
			continue
		}
		l.s.after(l.s.between(time.Millisecond, l.s.o.LogLag+time.Millisecond), func() { l.tell(h, v) })
	}
	l.s.after(l.s.between(time.Millisecond, 10*time.Millisecond), l.drive)
	return r
}

// form makes the cluster: all members register, the first ones form the ring.
func (l *oracle) form() {
	l.apply(membership.Command{Init: &membership.Init{ClusterID: "sim", Ring: ring.Params{Hash: ring.HashV1, VNodes: l.s.o.VNodes}, Replicas: l.s.o.Replicas}})
	var add []string
	for _, h := range l.s.hosts[:l.s.o.Start] {
		add = append(add, h.id)
	}
	for _, h := range l.s.hosts {
		l.register(h)
	}
	l.apply(membership.Command{Change: &membership.ChangeCommand{Add: add}})
}

func (l *oracle) register(h *host) {
	l.apply(membership.Command{Register: &membership.Register{Member: membership.Member{ID: h.id, Incarnation: h.inc, Address: h.id, Weight: 1}}})
}

func (l *oracle) lists(h *host) bool {
	m, ok := l.p.Member(h.id)
	return ok && m.Incarnation == h.inc && !m.Down
}

// tell gives a member a placement, if it lives and has seen no newer one.
func (l *oracle) tell(h *host, v *core.View) {
	if v == nil || !h.up() || v.Revision <= h.seen {
		return
	}
	h.seen = v.Revision
	h.step(&core.ViewChanged{View: v})
}

func (l *oracle) newest() *core.View {
	if len(l.views) == 0 {
		return nil
	}
	return l.views[len(l.views)-1]
}

// catchUp gives a member some placement from the end of the log.
func (l *oracle) catchUp(h *host) {
	if n := len(l.views); n > 0 {
		k := n - 1
		if !l.s.calm {
			k -= l.s.rand.IntN(min(n, 3))
		}
		v := l.views[k]
		run := h.run
		l.s.after(l.s.between(time.Millisecond, 30*time.Millisecond), func() {
			if h.run == run {
				l.tell(h, v)
			}
		})
	}
}

func (l *oracle) report(h *host, e *core.Report) {
	if !l.s.calm && l.s.chance(l.s.o.LostProposals) {
		return
	}
	r := membership.Report{Member: h.id, Incarnation: h.inc, Step: e.Step, What: bridge.What(e.What)}
	l.s.after(l.s.between(time.Millisecond, 20*time.Millisecond), func() {
		l.s.trace.add(l.s.now, "%s reports %s for %d", h.id, r.What, r.Step)
		l.apply(membership.Command{Report: []membership.Report{r}})
	})
}

// drive proposes the advance that is due, as the leader's driver does.
func (l *oracle) drive() {
	if membership.Ready(&l.p) {
		l.apply(membership.Command{Advance: &membership.Advance{Version: l.p.Version, Stage: l.p.Stage}})
	}
}

func (l *oracle) mark(h *host, down bool) {
	m, _ := l.p.Member(h.id)
	l.apply(membership.Command{Mark: &membership.Mark{Member: h.id, Incarnation: m.Incarnation, Down: down}})
}

// submit starts a random change, or aborts or retargets the running one.
func (l *oracle) submit() {
	r := l.s.rand
	if l.p.Running != nil {
		if !l.s.chance(l.s.o.Aborts) {
			return
		}
		l.s.Faults++
		if r.IntN(2) == 0 {
			l.apply(membership.Command{Abort: &membership.ChangeRef{}})
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
	l.n++
	if l.s.chance(0.3) {
		c.Key = fmt.Sprint("key-", l.n)
	}
	l.apply(membership.Command{Change: c})
}
