package membership

import (
	"cmp"
	"fmt"
	"slices"

	"chainmail/ring"
)

// Apply gives the placement after a command and what became of it. It never changes what p refers to.
func Apply(p Placement, c Command) (Placement, Result) {
	n := p
	r := dispatch(&n, c)
	if r.Code != OK {
		r.Version = p.Version
		return p, r
	}
	n.Revision = p.Revision + 1
	r.Version = n.Version
	for i, m := range n.Members {
		if o, ok := p.Member(m.ID); !ok || o.Incarnation != m.Incarnation || o.Start != m.Start || o.Down != m.Down || o.Refilling != m.Refilling {
			n.edit(i).Marked = n.Revision
		}
	}
	return n, r
}

func dispatch(p *Placement, c Command) Result {
	if p.ClusterID == "" && c.Init == nil {
		return invalid("the cluster has not been formed yet; run bootstrap first")
	}
	switch {
	case c.Init != nil:
		return p.init(*c.Init)
	case c.Register != nil:
		return p.register(c.Register.Member, c.Register.Seen, c.Register.Starts)
	case c.Change != nil:
		return p.change(*c.Change, c.At)
	case len(c.Report) > 0:
		return p.report(c.Report)
	case c.Advance != nil:
		return p.advance(*c.Advance, c.At)
	case c.Abort != nil:
		return p.abort(*c.Abort, c.At)
	case c.Pause != nil:
		return p.pause(*c.Pause, true)
	case c.Resume != nil:
		return p.pause(*c.Resume, false)
	case c.Mark != nil:
		return p.mark(*c.Mark)
	case c.Limits != nil:
		return p.limits(c.Limits.Limits)
	case c.DeclareLost != nil:
		return p.declareLost(*c.DeclareLost)
	case c.SetReplicas != nil:
		return p.setReplicas(*c.SetReplicas)
	case c.Forget != nil:
		return p.forget(*c.Forget)
	case len(c.Pins) > 0:
		return p.pins(c.Pins)
	}
	return invalid("the command is empty")
}

func invalid(format string, args ...any) Result {
	return Result{Code: ErrInvalid, Text: fmt.Sprintf(format, args...)}
}

// bump makes a new version.
func (p *Placement) bump() { p.Version++ }

func (p *Placement) init(c Init) Result {
	if p.ClusterID != "" {
		return Result{Code: Unchanged, Text: "the cluster exists: " + p.ClusterID}
	}
	if _, err := ring.New(c.Ring, nil); err != nil {
		return invalid("%v", err)
	}
	if c.ClusterID == "" || c.Replicas < 1 || c.Replicas > ring.MaxReplicas {
		return invalid("a cluster needs an id and 1 to %d replicas, not %q and %d", ring.MaxReplicas, c.ClusterID, c.Replicas)
	}
	p.ClusterID, p.Ring, p.Limits = c.ClusterID, c.Ring, c.Limits
	p.Replicas = map[string]int{"": c.Replicas}
	p.bump()
	return Result{}
}

// find gives a member by id.
func (p *Placement) find(id string) (int, bool) {
	return slices.BinarySearchFunc(p.Members, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) })
}

// Member gives a member by id.
func (p *Placement) Member(id string) (Member, bool) {
	if i, ok := p.find(id); ok {
		return p.Members[i], true
	}
	return Member{}, false
}

// edit gives a member of a fresh copy of the list.
func (p *Placement) edit(i int) *Member {
	p.Members = slices.Clone(p.Members)
	return &p.Members[i]
}

// In says whether a set holds a member.
func In(set []ring.Member, id string) bool {
	return slices.ContainsFunc(set, func(m ring.Member) bool { return m.ID == id })
}

// Places says whether a member is on the ring in some way: before the active step, after it, or when the change has ended.
func (p *Placement) Places(id string) bool {
	return In(p.Base, id) || In(p.Next, id) || In(p.Target, id)
}

func (p *Placement) isBanned(id string, inc uint64) bool {
	return slices.Contains(p.Banned, Ban{id, inc})
}

func (p *Placement) ban(id string, inc uint64) {
	if inc != 0 && !p.isBanned(id, inc) {
		p.Banned = append(slices.Clip(p.Banned), Ban{id, inc})
	}
}

func (p *Placement) register(m Member, seen uint64, starts []uint64) Result {
	switch {
	case m.ID == "" || m.Incarnation == 0 || m.Address == "":
		return invalid("member %q registers without an id, an incarnation or an address", m.ID)
	case p.isBanned(m.ID, m.Incarnation):
		return Result{Code: ErrBanned, Text: fmt.Sprintf("incarnation %x of member %s was removed; start it with an empty data directory", m.Incarnation, m.ID)}
	}
	// What no ring can be made of would stop every member once it is placed.
	if _, err := ring.New(ring.Params{Hash: p.Ring.Hash, VNodes: 1}, []ring.Member{{ID: m.ID, Zone: m.Zone, Weight: m.Weight}}); err != nil {
		return invalid("%v", err)
	}
	for _, o := range p.Members {
		if o.ID != m.ID && o.Address == m.Address {
			return invalid("member %s has address %s already; member %s needs its own, or forget %s first", o.ID, o.Address, m.ID, o.ID)
		}
	}
	i, known := p.find(m.ID)
	if !known {
		m.State, m.Down, m.Refilling, m.Removed = Standby, false, false, false
		p.Members = slices.Insert(slices.Clone(p.Members), i, m)
		return Result{}
	}
	return p.reregister(i, m, seen, starts)
}

func (p *Placement) reregister(i int, m Member, seen uint64, starts []uint64) Result {
	old := p.Members[i]
	if old.Incarnation != m.Incarnation && old.Incarnation != seen {
		return Result{Code: ErrStale, Text: fmt.Sprintf("member %s registers incarnation %x after %x, but %x is listed; look again", m.ID, m.Incarnation, seen, old.Incarnation)}
	}
	if old.Incarnation == m.Incarnation && old.Start != 0 && old.Start != m.Start && !slices.Contains(starts, old.Start) {
		return Result{Code: ErrSuperseded, Text: fmt.Sprintf("start %x of incarnation %x of member %s registers, and its store does not know of start %x", m.Start, m.Incarnation, m.ID, old.Start)}
	}
	if p.Places(m.ID) && (old.Zone != m.Zone || old.Weight != m.Weight) {
		return invalid("member %s is on the ring with zone %q and weight %d; remove it before it comes back with %q and %d", m.ID, old.Zone, old.Weight, m.Zone, m.Weight)
	}
	next := m
	next.State, next.Refilling, next.Down, next.Removed, next.Marked, next.GivenUp = old.State, old.Refilling, false, old.Removed, old.Marked, old.GivenUp
	if next == old {
		return Result{Code: Unchanged}
	}
	if old.Incarnation != m.Incarnation {
		p.ban(m.ID, old.Incarnation)
		p.dropReports(m.ID)
		if old.State == Standby { // one that is leaving still leaves
			next.Removed = false
		}
		if In(p.Base, m.ID) {
			next.Refilling = true
		}
		next.GivenUp = next.GivenUp && next.Refilling
		if In(p.Base, m.ID) || In(p.Next, m.ID) {
			p.bump()
		}
	}
	*p.edit(i) = next
	return Result{}
}

func (p *Placement) dropReports(id string) {
	p.Reports = slices.DeleteFunc(slices.Clone(p.Reports), func(r Report) bool { return r.Member == id })
}

func (p *Placement) report(rs []Report) Result {
	changed := false
	for _, r := range rs {
		i, ok := p.find(r.Member)
		if !ok || p.Members[i].Incarnation != r.Incarnation {
			continue
		}
		if r.What == Refilled {
			if p.Members[i].Refilling {
				m := p.edit(i)
				m.Refilling, m.GivenUp = false, false
				p.bump()
				changed = true
			}
			continue
		}
		stage := map[What]Stage{Copied: StageCopy, Filled: StageSwitch}[r.What]
		if stage == StageStable || p.Stage != stage || r.Step != p.Step || slices.Contains(p.Reports, r) {
			continue
		}
		p.Reports = append(slices.Clip(p.Reports), r)
		changed = true
	}
	if !changed {
		return Result{Code: Unchanged}
	}
	return Result{}
}

func (p *Placement) mark(c Mark) Result {
	i, ok := p.find(c.Member)
	if !ok {
		return Result{Code: ErrUnknownMember, Text: "no member " + c.Member}
	}
	if m := p.Members[i]; m.Incarnation != c.Incarnation || m.Down == c.Down {
		return Result{Code: Unchanged}
	}
	p.edit(i).Down = c.Down
	return Result{}
}

func (p *Placement) limits(l Limits) Result {
	if l.Rate < 0 || l.MaxConcurrent < 0 || l.MaxConcurrent > 64 {
		return invalid("limits must be a rate of 0 or more bytes per second and 0 to 64 transfers, not %d and %d", l.Rate, l.MaxConcurrent)
	}
	if p.Limits == l {
		return Result{Code: Unchanged}
	}
	p.Limits = l
	return Result{}
}

func (p *Placement) setReplicas(c SetReplicas) Result {
	if c.N != Pinned && (c.N < 1 || c.N > ring.MaxReplicas) {
		return invalid("type %q asks for %d replicas; 1 to %d are allowed", c.Type, c.N, ring.MaxReplicas)
	}
	if p.Replicas[c.Type] == c.N {
		return Result{Code: Unchanged}
	}
	if _, known := p.Replicas[c.Type]; known {
		return invalid("type %q has %d replicas; the count of a type in use cannot be changed yet", c.Type, p.Replicas[c.Type])
	}
	moves := c.N != p.Replicas[""] // until now the type's keys were placed by that
	if moves && p.Stage != StageStable {
		return Result{Code: ErrRunning, ID: p.Running.ID, Text: "replica counts can be set only while no change runs"}
	}
	next := map[string]int{c.Type: c.N}
	for k, v := range p.Replicas {
		next[k] = v
	}
	p.Replicas = next
	if moves {
		p.bump()
	}
	return Result{}
}

func (p *Placement) forget(c Forget) Result {
	id := c.Member
	i, ok := p.find(id)
	if !ok {
		return Result{Code: Unchanged}
	}
	if inc := p.Members[i].Incarnation; c.Incarnation != 0 && c.Incarnation != inc {
		return Result{Code: ErrStale, Text: fmt.Sprintf("incarnation %x of member %s was to be forgotten, but %x is listed; look again", c.Incarnation, id, inc)}
	}
	if p.Places(id) || p.Members[i].State != Standby {
		return invalid("member %s is %v; remove it with a change first", id, p.Members[i].State)
	}
	p.ban(id, p.Members[i].Incarnation)
	p.dropReports(id)
	p.Pins = slices.DeleteFunc(slices.Clone(p.Pins), func(x Pin) bool { return x.Member == id })
	p.Members = slices.Delete(slices.Clone(p.Members), i, i+1)
	return Result{}
}

func (p *Placement) pins(ps []Pin) Result {
	out := slices.Clone(p.Pins)
	for _, x := range ps {
		if _, ok := p.Member(x.Member); !ok || p.Replicas[x.Type] != Pinned {
			return invalid("pins of member %s, type %q: no such member, or no pinned type", x.Member, x.Type)
		}
		out = slices.DeleteFunc(out, func(o Pin) bool { return o.Member == x.Member && o.Type == x.Type })
		if x.Keys > 0 {
			out = append(out, x)
		}
	}
	if slices.Equal(out, p.Pins) {
		return Result{Code: Unchanged}
	}
	p.Pins = out
	return Result{}
}
