package ring

import (
	"cmp"
	"fmt"
	"slices"
)

// Kind says what a step does.
type Kind uint8

const (
	Join Kind = iota + 1
	Leave
)

func (k Kind) String() string {
	if k == Join {
		return "join"
	}
	return "leave"
}

// Step is one transition of a chain: Base and Next differ by Member alone. Both are sorted by id.
type Step struct {
	Kind       Kind
	Member     Member
	Base, Next []Member
}

// String names the step: +id joins, -id leaves.
func (s Step) String() string {
	if s.Kind == Join {
		return "+" + s.Member.ID
	}
	return "-" + s.Member.ID
}

// Chain gives the steps from one member set to another: joins by id, then departing members that are down by id, then
// the other departing members by id. Joins come first so that no ring between has fewer members than the smaller end.
// It is an error if the target is empty, an id is given twice, or a member of both sets has another weight or zone.
func Chain(previous, target []Member, down func(id string) bool) ([]Step, error) {
	prev, err := byID(previous)
	if err != nil {
		return nil, err
	}
	next, err := byID(target)
	if err != nil {
		return nil, err
	}
	if len(target) == 0 {
		return nil, fmt.Errorf("ring: the target set is empty; at least one member must stay")
	}
	var joins, dead, live []Member
	for _, m := range next {
		i, ok := find(prev, m.ID)
		switch {
		case !ok:
			joins = append(joins, m)
		case prev[i] != m:
			return nil, fmt.Errorf("ring: member %s stays with another zone or weight (%+v, was %+v); remove it and add it again", m.ID, m, prev[i])
		}
	}
	for _, m := range prev {
		if _, ok := find(next, m.ID); ok {
			continue
		}
		if down != nil && down(m.ID) {
			dead = append(dead, m)
		} else {
			live = append(live, m)
		}
	}
	var steps []Step
	now := prev
	add := func(k Kind, m Member) {
		s := Step{Kind: k, Member: m, Base: now}
		i, _ := find(now, m.ID)
		if k == Join {
			s.Next = slices.Insert(slices.Clone(now), i, m)
		} else {
			s.Next = slices.Delete(slices.Clone(now), i, i+1)
		}
		now = s.Next
		steps = append(steps, s)
	}
	for _, m := range joins {
		add(Join, m)
	}
	for _, m := range slices.Concat(dead, live) {
		add(Leave, m)
	}
	return steps, nil
}

func byID(ms []Member) ([]Member, error) {
	out := slices.Clone(ms)
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for i := 1; i < len(out); i++ {
		if out[i].ID == out[i-1].ID {
			return nil, fmt.Errorf("ring: member %s is given twice", out[i].ID)
		}
	}
	return out, nil
}

func find(ms []Member, id string) (int, bool) {
	return slices.BinarySearchFunc(ms, id, func(m Member, id string) int { return cmp.Compare(m.ID, id) })
}
