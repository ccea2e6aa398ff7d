package membership_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// failer is a test of the standard library or of rapid.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// clone copies everything that a placement refers to.
func clone(t failer, p membership.Placement) (out membership.Placement) {
	t.Helper()
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatalf("clone: %v", err)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("clone: %v", err)
	}
	return out
}

// step applies a command and checks what holds for every command: the input stays as it is, the numbers grow as they
// should, and the sets fit together.
func step(t failer, p membership.Placement, c membership.Command) (membership.Placement, membership.Result) {
	t.Helper()
	before, digest := clone(t, p), membership.Digest(&p)
	next, r := membership.Apply(p, c)
	if membership.Digest(&p) != digest {
		t.Fatalf("Apply changed its input:\n%+v\n%+v", before, clone(t, p))
	}
	changed := membership.Digest(&next) != digest
	switch {
	case r.Code == membership.OK && next.Revision != p.Revision+1:
		t.Fatalf("revision went from %d to %d", p.Revision, next.Revision)
	case r.Code != membership.OK && changed:
		t.Fatalf("a command that is %s changed the placement:\n%+v\n%+v", r.Code, before, clone(t, next))
	case next.Version < p.Version || next.Version > p.Version+uint64(max(1, len(c.Report))): // each refilled member is a version
		t.Fatalf("version went from %d to %d", p.Version, next.Version)
	case r.Version != next.Version:
		t.Fatalf("the result tells version %d, the placement has %d", r.Version, next.Version)
	}
	if quorums(p) != quorums(next) && next.Version == p.Version {
		t.Fatalf("quorums changed within version %d:\n%s\n%s", p.Version, quorums(p), quorums(next))
	}
	fork(t, p, next)
	consistent(t, next)
	ended(t, p, next)
	return next, r
}

// fork applies other commands to the same input and checks that the first result stays as it is: the two share no
// memory that is written to.
func fork(t failer, p, next membership.Placement) {
	t.Helper()
	digest := membership.Digest(&next)
	others := []membership.Command{{Abort: &membership.ChangeRef{}}}
	for _, m := range p.Members {
		what := membership.Copied
		if p.Stage == membership.StageSwitch {
			what = membership.Filled
		}
		others = append(others, membership.Command{Report: []membership.Report{{Member: m.ID, Incarnation: m.Incarnation, Step: p.Step, What: what}}})
		others = append(others, membership.Command{Pins: []membership.Pin{{Member: m.ID, Type: "fork", Keys: 1}}})
		seen := m.Incarnation
		m.Incarnation += 1000
		others = append(others, membership.Command{Register: &membership.Register{Member: m, Seen: seen}})
	}
	for _, c := range others {
		membership.Apply(p, c)
		if membership.Digest(&next) != digest {
			t.Fatalf("another command to the same input changed the result of the first: %+v", c)
		}
	}
}

// quorums is all that quorums depend on. A new version is needed whenever it changes.
func quorums(p membership.Placement) string {
	type who struct {
		ID          string
		Incarnation uint64
		Refilling   bool
	}
	var ms []who
	for _, m := range p.Members {
		if membership.In(p.Base, m.ID) || membership.In(p.Next, m.ID) {
			ms = append(ms, who{m.ID, m.Incarnation, m.Refilling})
		}
	}
	counts := maps.Clone(p.Replicas)
	maps.DeleteFunc(counts, func(typ string, n int) bool { return typ != "" && n == p.Replicas[""] }) // as if it were not named
	b, _ := json.Marshal([]any{p.Base, p.Next, p.Stage, ms, len(p.Lost), counts})
	return string(b)
}

func consistent(t failer, p membership.Placement) {
	t.Helper()
	for _, set := range [][]ring.Member{p.Previous, p.Target, p.Base, p.Next} {
		if !slices.IsSortedFunc(set, func(a, b ring.Member) int { return strings.Compare(a.ID, b.ID) }) {
			t.Fatalf("set %s is not sorted", membership.SetString(set))
		}
		for _, m := range set {
			if _, ok := p.Member(m.ID); !ok {
				t.Fatalf("%s is in a set and not a member", m.ID)
			}
		}
	}
	differ := 0
	for _, m := range p.Base {
		if !slices.Contains(p.Next, m) {
			differ++
		}
	}
	for _, m := range p.Next {
		if !slices.Contains(p.Base, m) {
			differ++
		}
	}
	stable := p.Stage == membership.StageStable
	switch {
	case stable && (differ != 0 || p.Running != nil || !slices.Equal(p.Base, p.Target) || !slices.Equal(p.Base, p.Previous) || len(p.Reports) > 0):
		t.Fatalf("stable, but not at rest: %s, running %v, %d reports", &p, p.Running, len(p.Reports))
	case !stable && (differ != 1 || p.Running == nil):
		t.Fatalf("base and next differ by %d members, running %v: %s", differ, p.Running, &p)
	case len(p.Base) > 0 && len(p.Next) == 0, p.Began > p.Step, p.Step > p.Version:
		t.Fatalf("impossible: %s began %d step %d", &p, p.Began, p.Step)
	case len(p.History) > membership.MaxHistory:
		t.Fatalf("%d changes are kept", len(p.History))
	}
	for _, r := range p.Reports {
		if m, ok := p.Member(r.Member); r.Step != p.Step || ok && m.Incarnation != r.Incarnation {
			t.Fatalf("report %+v is kept at step %d, %s has incarnation %x", r, p.Step, m.ID, m.Incarnation)
		}
	}
	for _, m := range p.Members {
		placed := membership.In(p.Base, m.ID) || membership.In(p.Next, m.ID) || membership.In(p.Target, m.ID)
		if placed == (m.State == membership.Standby) || m.Refilling && !membership.In(p.Base, m.ID) {
			t.Fatalf("%s is %s, refilling %v, in %s", m.ID, m.State, m.Refilling, &p)
		}
		if slices.Contains(p.Banned, membership.Ban{Member: m.ID, Incarnation: m.Incarnation}) {
			t.Fatalf("%s lives with a banned incarnation", m.ID)
		}
	}
	reachable(t, p)
}

// reachable checks that a chain leads from the active step to the target.
func reachable(t failer, p membership.Placement) {
	t.Helper()
	if p.Stage == membership.StageStable {
		return
	}
	steps := membership.Steps(&p)
	if len(steps) == 0 {
		t.Fatalf("no chain: %s", &p)
	}
	at := p.Base
	for _, s := range steps {
		if !slices.Equal(s.Base, at) {
			t.Fatalf("chain is broken at %s: %s", s, &p)
		}
		at = s.Next
	}
	if !slices.Equal(steps[0].Next, p.Next) || !slices.Equal(at, p.Target) {
		t.Fatalf("chain does not go over next to the target: %s", &p)
	}
}

// ended checks that a change that runs no more is in the history, with its outcome.
func ended(t failer, p, next membership.Placement) {
	t.Helper()
	was := p.Running
	if was == nil || next.Running != nil && next.Running.ID == was.ID {
		return
	}
	for _, h := range next.History {
		if h.ID == was.ID {
			if h.Outcome == membership.Running || h.Ended == 0 {
				t.Fatalf("change %s ended as %s at version %d", h.ID, h.Outcome, h.Ended)
			}
			return
		}
	}
	t.Fatalf("change %s is gone without a trace", was.ID)
}
