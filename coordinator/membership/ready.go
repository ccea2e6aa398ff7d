package membership

import (
	"fmt"
	"slices"

	"chainmail/ring"
)

// Waiter is a member whose report the active step waits for.
type Waiter struct {
	Member string `json:"member"`
	What   What   `json:"what"`
	Down   bool   `json:"down,omitempty"`
	Why    string `json:"why"`
}

func (w Waiter) String() string {
	s := fmt.Sprintf("waiting for %s to report %s: %s", w.Member, w.What, w.Why)
	if w.Down {
		s += "; it is down"
	}
	return s
}

// Waiting lists whose reports the next advance still needs; nobody's means that it may be proposed. For the copy stage
// these are the members that gain ranges and are up. For the switch stage these are all that gain ranges, but for those that
// were given up while they were down, and as many others as make W(S') of every set S' that the step changes.
func Waiting(p *Placement) []Waiter {
	var out []Waiter
	add := func(id string, what What, why string) {
		if !slices.ContainsFunc(out, func(w Waiter) bool { return w.Member == id }) {
			out = append(out, Waiter{id, what, p.isDown(id), why})
		}
	}
	if p.Stage == StageStable {
		return nil
	}
	base, next, err := rings(p)
	if err != nil {
		return []Waiter{{Why: err.Error()}}
	}
	what := Filled
	if p.Stage == StageCopy {
		what = Copied
	}
	for _, n := range counts(p) {
		for _, m := range ring.Diff(base, next, n) {
			if m.Gains != "" && !p.reported(m.Gains, what) && (what == Filled || !p.isDown(m.Gains)) && !p.vacant(m.Gains) {
				add(m.Gains, what, "it gains ranges")
			}
			if what == Copied {
				continue
			}
			need := len(m.To)/2 + 1
			var rest []string
			for _, id := range m.To {
				if p.reported(id, what) {
					need--
				} else {
					rest = append(rest, id)
				}
			}
			for _, id := range rest {
				if need > 0 {
					add(id, what, fmt.Sprintf("a majority of %v must hold the copies", m.To))
				}
			}
		}
	}
	return out
}

// Ready says whether the active step may advance: its change is not paused and nobody is waited for.
func Ready(p *Placement) bool {
	return p.Stage != StageStable && !p.Running.Paused && len(Waiting(p)) == 0
}

// vacant says whether a member was given up while it was down. It counts for nothing until it is back and has filled all
// its ranges, whichever these are by then.
func (p *Placement) vacant(id string) bool {
	m, _ := p.Member(id)
	return m.Incarnation == 0 && m.Refilling
}

// reported says whether a member's present incarnation has made a report for the active stage. One that is refilling
// holds too little to have filled anything.
func (p *Placement) reported(id string, what What) bool {
	m, _ := p.Member(id)
	if what == Filled && m.Refilling {
		return false
	}
	return slices.Contains(p.Reports, Report{id, m.Incarnation, p.Step, what})
}

func rings(p *Placement) (base, next *ring.Ring, err error) {
	if base, err = ring.New(p.Ring, p.Base); err != nil {
		return nil, nil, err
	}
	next, err = ring.New(p.Ring, p.Next)
	return base, next, err
}

// counts lists the replica counts in use, ascending.
func counts(p *Placement) []int {
	var out []int
	for _, n := range p.Replicas {
		if n != Pinned {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
