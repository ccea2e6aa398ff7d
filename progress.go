package chainmail

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"chainmail/coordinator/membership"
)

// ChangeProgress is where a change stands.
type ChangeProgress struct {
	membership.Change
	Version uint64              `json:"version"`
	Stage   string              `json:"stage"`
	Step    string              `json:"step"`            // the active one, +id or -id
	Chain   []string            `json:"chain,omitempty"` // what is left, the active step first
	Waiting []membership.Waiter `json:"waiting,omitempty"`
	Filling []MemberStatus      `json:"filling,omitempty"` // members that fill now
	Errors  []ProgressError     `json:"errors,omitempty"`  // the last one of each member that is waited for or fetched from, newest first
}

// ProgressError is the last error that a change met at one member, and how long ago that was.
type ProgressError struct {
	Member string        `json:"member"`  // who failed
	Seen   string        `json:"seen_by"` // who noticed
	What   string        `json:"what"`
	Age    time.Duration `json:"age_ns"`
}

func (e ProgressError) String() string {
	return fmt.Sprintf("%s: %s, seen by %s %s ago", e.Member, e.What, e.Seen, e.Age.Round(100*time.Millisecond))
}

// Progress gives where a change stands, "" for the running one.
func (n *Node) Progress(ctx context.Context, id string) (ChangeProgress, error) {
	ch, err := n.coord.Change(ctx, id)
	if err != nil {
		return ChangeProgress{}, err
	}
	p := n.coord.Placement()
	out := ChangeProgress{Change: ch, Version: p.Version, Stage: p.Stage.String()}
	if p.Running == nil || p.Running.ID != ch.ID {
		return out, nil
	}
	for _, s := range membership.Steps(p) {
		out.Chain = append(out.Chain, s.String())
	}
	if len(out.Chain) > 0 {
		out.Step = out.Chain[0]
	}
	out.Waiting = membership.Waiting(p)
	for _, m := range n.Members(ctx) {
		if len(m.Filling) > 0 {
			out.Filling = append(out.Filling, m)
		}
		if !m.Reachable && slices.ContainsFunc(out.Waiting, func(w membership.Waiter) bool { return w.Member == m.ID }) {
			out.Errors = append(out.Errors, ProgressError{Member: m.ID, Seen: n.id, What: "not reachable: " + m.Error})
		}
	}
	out.Errors = append(out.Errors, sourceErrors(out.Filling)...)
	slices.SortStableFunc(out.Errors, func(a, b ProgressError) int { return cmp.Compare(a.Age, b.Age) })
	return out, nil
}

// sourceErrors gives the last error of each source of each member that fills.
func sourceErrors(filling []MemberStatus) (out []ProgressError) {
	for _, m := range filling {
		for _, f := range m.Filling {
			for _, s := range f.Sources {
				if s.LastError != "" {
					out = append(out, ProgressError{s.Member, m.ID, s.LastError, s.ErrorAge})
				}
			}
		}
	}
	return out
}

// String writes the steps of a chain as they are typed: +a, -b.
func (p ChangeProgress) String() string {
	return fmt.Sprintf("change %s %s, step %d of %d %s %s, chain %s", p.ID, p.Outcome, p.StepDone+1, p.Steps, p.Step, p.Stage, strings.Join(p.Chain, " "))
}
