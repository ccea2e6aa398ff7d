package membership

import (
	"cmp"
	"fmt"
	"slices"

	"chainmail/ring"
)

// change starts a change, or takes the place of the running one.
func (p *Placement) change(c ChangeCommand, at int64) Result {
	if r, seen := p.sameKey(c); seen {
		return r
	}
	if p.Running != nil && !c.Retarget {
		return Result{Code: ErrRunning, ID: p.Running.ID, Text: "change " + p.Running.ID + " is running; wait for it, abort it, or retarget it"}
	}
	if p.Running == nil && c.Retarget {
		return Result{Code: ErrUnknownChange, Text: "no change is running that could be retargeted"}
	}
	target, steps, r := Preview(p, c)
	if r.Code != OK {
		return r
	}
	if p.Running != nil {
		p.conclude(Retargeted, at)
	}
	ch := Change{ID: fmt.Sprintf("c-%d", p.Revision+1), Key: c.Key, Add: slices.Clone(c.Add), Remove: slices.Clone(c.Remove), By: c.By, Why: c.Why,
		Started: p.Version + 1, Steps: len(steps), StartedAt: at}
	p.Running = &ch
	p.Previous, p.Target = p.Base, target
	for _, id := range c.Remove {
		if i, ok := p.find(id); ok {
			p.edit(i).Removed = true
		}
	}
	if len(p.Base) == 0 { // nothing is placed yet: nothing to copy
		p.Base, p.Previous = target, target
		ch.StepDone = ch.Steps
		steps = nil
	}
	p.bump()
	p.start(steps, at)
	return Result{ID: ch.ID}
}

// Preview gives the member set that a change leads to and the chain to it, or why it is refused. Whether another change
// runs is not looked at.
func Preview(p *Placement, c ChangeCommand) ([]ring.Member, []ring.Step, Result) {
	if c.ExpectVersion != 0 && c.ExpectVersion != p.Version {
		return nil, nil, Result{Code: ErrStale, Text: fmt.Sprintf("planned for version %d, now %d; plan again", c.ExpectVersion, p.Version)}
	}
	target, r := p.goal(c)
	if r.Code != OK {
		return nil, nil, r
	}
	if r := p.pinned(c); r.Code != OK {
		return nil, nil, r
	}
	steps, err := ring.Chain(p.Base, target, p.isDown)
	if err != nil {
		return nil, nil, invalid("%v", err)
	}
	return target, steps, Result{}
}

// pinned refuses to remove members that hold pinned keys, unless the change says that they may go.
func (p *Placement) pinned(c ChangeCommand) Result {
	if c.DropPinned {
		return Result{}
	}
	for _, x := range p.Pins {
		if slices.Contains(c.Remove, x.Member) {
			return Result{Code: ErrPinned, Text: fmt.Sprintf("member %s holds %d pinned keys of type %s, which no other member has: they would be lost; move their content, or say drop_pinned", x.Member, x.Keys, x.Type)}
		}
	}
	return Result{}
}

// sameKey finds a change with the same idempotency key.
func (p *Placement) sameKey(c ChangeCommand) (Result, bool) {
	if c.Key == "" {
		return Result{}, false
	}
	all := p.History
	if p.Running != nil {
		all = append(slices.Clip(all), *p.Running)
	}
	for _, h := range all {
		if h.Key != c.Key {
			continue
		}
		if slices.Equal(h.Add, c.Add) && slices.Equal(h.Remove, c.Remove) {
			return Result{Code: Unchanged, ID: h.ID}, true
		}
		return Result{Code: ErrKeyReused, ID: h.ID, Text: fmt.Sprintf("idempotency key %q belongs to change %s with another body", c.Key, h.ID)}, true
	}
	return Result{}, false
}

// goal gives the member set that a change leads to.
func (p *Placement) goal(c ChangeCommand) ([]ring.Member, Result) {
	if len(c.Add)+len(c.Remove) == 0 {
		return nil, invalid("the change adds and removes nobody")
	}
	out := slices.Clone(p.Target)
	for _, id := range c.Remove {
		i := slices.IndexFunc(out, func(m ring.Member) bool { return m.ID == id })
		if i < 0 {
			if _, ok := p.Member(id); !ok {
				return nil, Result{Code: ErrUnknownMember, Text: "no member " + id}
			}
			return nil, invalid("member %s is not on the ring and cannot be removed from it", id)
		}
		out = slices.Delete(out, i, i+1)
	}
	for _, id := range c.Add {
		m, ok := p.Member(id)
		switch {
		case !ok:
			return nil, Result{Code: ErrUnknownMember, Text: "no member " + id + " has joined"}
		case In(out, id) || slices.Contains(c.Remove, id):
			return nil, invalid("member %s is on the ring or named twice and cannot be added", id)
		case m.Incarnation == 0:
			return nil, invalid("member %s has not registered yet; start it first", id)
		}
		out = append(out, ring.Member{ID: m.ID, Zone: m.Zone, Weight: m.Weight})
	}
	if len(out) == 0 {
		return nil, invalid("the change would remove every member; at least one must stay")
	}
	slices.SortFunc(out, func(a, b ring.Member) int { return cmp.Compare(a.ID, b.ID) })
	return out, Result{}
}

func (p *Placement) isDown(id string) bool {
	m, _ := p.Member(id)
	return m.Down
}

// start begins the first of the given steps, or ends the change if there is none. The version is the present one.
func (p *Placement) start(steps []ring.Step, at int64) {
	p.Reports = nil
	p.Step, p.Began = p.Version, p.Version
	if len(steps) == 0 {
		p.Next, p.Target = p.Base, p.Base
		p.Stage = StageStable
		p.conclude(Done, at)
		p.Previous = p.Base
	} else {
		p.Next, p.Stage = steps[0].Next, StageCopy
	}
	p.states()
}

// conclude puts the running change into the history.
func (p *Placement) conclude(o Outcome, at int64) {
	if p.Running == nil {
		return
	}
	ch := *p.Running
	ch.Outcome, ch.Ended, ch.EndedAt, ch.Paused = o, p.Version, at, false
	p.History = append(slices.Clip(p.History), ch)
	if d := len(p.History) - MaxHistory; d > 0 {
		p.History = slices.Clone(p.History[d:])
	}
	p.Running = nil
}

// states derives every member's state from the sets.
func (p *Placement) states() {
	p.Members = slices.Clone(p.Members)
	for i := range p.Members {
		m := &p.Members[i]
		switch in := In(p.Base, m.ID) || In(p.Next, m.ID); {
		case In(p.Target, m.ID):
			m.State, m.Removed = Active, false
		case in:
			m.State = Leaving
		default:
			m.State = Standby
		}
		if !In(p.Base, m.ID) && !In(p.Next, m.ID) {
			m.Refilling, m.GivenUp = false, false
		}
	}
}

// Steps gives the rest of the chain, from Base to Target, with the down hints of now.
func Steps(p *Placement) []ring.Step {
	if p.Stage == StageStable {
		return nil
	}
	steps, err := ring.Chain(p.Base, p.Target, p.isDown)
	if err != nil {
		return nil
	}
	// The active step stays first whatever has been marked since it began.
	if len(steps) > 0 && !slices.Equal(steps[0].Next, p.Next) {
		rest, err := ring.Chain(p.Next, p.Target, p.isDown)
		if err == nil {
			return append([]ring.Step{stepTo(p.Base, p.Next)}, rest...)
		}
	}
	return steps
}

// stepTo names the one step between two sets.
func stepTo(base, next []ring.Member) ring.Step {
	s := ring.Step{Base: base, Next: next}
	for _, m := range next {
		if !In(base, m.ID) {
			s.Kind, s.Member = ring.Join, m
		}
	}
	for _, m := range base {
		if !In(next, m.ID) {
			s.Kind, s.Member = ring.Leave, m
		}
	}
	return s
}

// advance moves the active step on if it is still at the version and stage that was seen, and all needed reports are in.
func (p *Placement) advance(c Advance, at int64) Result {
	if p.Stage == StageStable || c.Version != p.Version || c.Stage != p.Stage {
		return Result{Code: ErrStale, Text: fmt.Sprintf("made for version %d %s, now %d %s", c.Version, c.Stage, p.Version, p.Stage)}
	}
	if p.Running.Paused {
		return Result{Code: ErrNotReady, ID: p.Running.ID, Text: "change " + p.Running.ID + " is paused"}
	}
	if w := Waiting(p); len(w) > 0 {
		return Result{Code: ErrNotReady, ID: p.Running.ID, Text: w[0].String()}
	}
	id := p.Running.ID
	p.bump()
	if p.Stage == StageCopy {
		p.Stage, p.Step, p.Reports = StageSwitch, p.Version, nil
		return Result{ID: id}
	}
	ch := *p.Running
	ch.StepDone++
	p.Running = &ch
	p.Base = p.Next
	steps, err := ring.Chain(p.Base, p.Target, p.isDown)
	if err != nil { // both ends come from sets that were checked
		panic("membership: no chain from a ring of the change to its target: " + err.Error())
	}
	p.start(steps, at)
	return Result{ID: id}
}

func (p *Placement) running(ref ChangeRef) Result {
	switch {
	case p.Running != nil && (ref.ID == "" || ref.ID == p.Running.ID):
		return Result{}
	case slices.ContainsFunc(p.History, func(h Change) bool { return h.ID == ref.ID }):
		return Result{Code: Unchanged, ID: ref.ID, Text: "change " + ref.ID + " has ended"}
	}
	return Result{Code: ErrUnknownChange, ID: ref.ID, Text: fmt.Sprintf("no change %q is running", ref.ID)}
}

// abort ends the running change where it stands: the active step is given up and the members of its Base stay. Steps
// that are done stay done; going back behind them is an ordinary change.
func (p *Placement) abort(ref ChangeRef, at int64) Result {
	if r := p.running(ref); r.Code != OK {
		return r
	}
	id := p.Running.ID
	p.bump()
	p.conclude(Aborted, at)
	p.Target = p.Base
	p.start(nil, at)
	return Result{ID: id}
}

func (p *Placement) pause(ref ChangeRef, on bool) Result {
	if r := p.running(ref); r.Code != OK {
		return r
	}
	if p.Running.Paused == on {
		return Result{Code: Unchanged, ID: p.Running.ID}
	}
	ch := *p.Running
	ch.Paused = on
	p.Running = &ch
	return Result{ID: ch.ID}
}
