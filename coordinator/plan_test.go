package coordinator

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// checksOf gives the checks of a plan by name.
func checksOf(p *membership.Placement, s Status, q ChangeRequest) map[string]PlanCheck {
	target, _, _ := membership.Preview(p, membership.ChangeCommand{Add: q.Add, Remove: q.Remove})
	out := map[string]PlanCheck{}
	for _, x := range planChecks(p, s, q, target) {
		out[x.Name] = x
	}
	return out
}

// five is a placement of a, b, c and d with e standing by.
func five(t *testing.T) (*membership.Placement, Status) {
	t.Helper()
	var p membership.Placement
	apply := func(c membership.Command) {
		t.Helper()
		var r membership.Result
		if p, r = membership.Apply(p, c); r.Code != membership.OK {
			t.Fatalf("%+v", r)
		}
	}
	s := Status{LeaderID: "a"}
	apply(membership.Command{Init: &membership.Init{ClusterID: "c1", Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}, Replicas: 3}})
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		apply(membership.Command{Register: &membership.Register{Member: membership.Member{ID: id, Incarnation: 1, Address: addrOf(id), Weight: 1}}})
		s.Servers = append(s.Servers, Server{ID: id, Address: addrOf(id), Voter: id < "d", Leader: id == "a"})
	}
	apply(membership.Command{Change: &membership.ChangeCommand{Add: []string{"a", "b", "c", "d"}}})
	return &p, s
}

func with(p *membership.Placement, c membership.Command) *membership.Placement {
	next, _ := membership.Apply(*p, c)
	return &next
}

func down(id string) membership.Command {
	return membership.Command{Mark: &membership.Mark{Member: id, Incarnation: 1, Down: true}}
}

func TestPlanChecks(t *testing.T) {
	t.Parallel()
	p, s := five(t)
	add := ChangeRequest{Add: []string{"e"}}
	for name, x := range checksOf(p, s, add) {
		if !x.OK || x.Warning || x.Why != "" {
			t.Errorf("%s of a healthy cluster: %+v", name, x)
		}
	}
	running := with(p, membership.Command{Change: &membership.ChangeCommand{Add: []string{"e"}}})
	refilling := with(with(p, down("d")), membership.Command{Register: &membership.Register{Member: membership.Member{ID: "b", Incarnation: 2, Address: addrOf("b"), Weight: 1}, Seen: 1}})
	for _, x := range []struct {
		fails string
		p     *membership.Placement
		s     Status
		q     ChangeRequest
		warns bool
	}{
		{"no-other-change", running, s, ChangeRequest{Remove: []string{"a"}}, false},
		{"leader", p, Status{Servers: s.Servers}, add, false},
		{"voters", with(with(p, down("a")), down("b")), s, add, false},
		{"up e", with(p, down("e")), s, add, false},
		{"quorums", refilling, s, add, false},
		{"replicas", p, s, ChangeRequest{Remove: []string{"a", "b"}}, true},
	} {
		got, ok := checksOf(x.p, x.s, x.q)[x.fails]
		if !ok || got.OK || got.Why == "" || got.Warning != x.warns {
			t.Errorf("%s: %+v", x.fails, got)
		}
	}
	if x := checksOf(running, s, ChangeRequest{Remove: []string{"e"}, Retarget: true})["no-other-change"]; !x.OK {
		t.Errorf("a retarget is refused: %+v", x)
	}
	if (ChangePlan{Checks: []PlanCheck{{OK: true}, {Warning: true}}}).OK() != true || (ChangePlan{Checks: []PlanCheck{{}}}).OK() {
		t.Error("a warning stops a change, or a failed check does not")
	}
}

func TestPlanVotes(t *testing.T) {
	t.Parallel()
	p, s := five(t)
	for _, x := range []struct {
		add, remove []string
		most        int
		want        []string
	}{
		{[]string{"e"}, nil, 5, []string{"promote d once it has caught up", "promote e once it has caught up"}},
		{[]string{"e"}, nil, 3, nil},
		{nil, []string{"d"}, 5, []string{"remove d"}},
		{nil, []string{"b"}, 5, []string{"demote voter b", "remove b", "promote d once it has caught up"}},
		{[]string{"e"}, []string{"a"}, 3, []string{"transfer leadership from a", "demote voter a", "remove a", "promote d once it has caught up"}},
	} {
		target, _, r := membership.Preview(p, membership.ChangeCommand{Add: x.add, Remove: x.remove})
		if r.Code != membership.OK {
			t.Fatal(r)
		}
		if got := planVotes(p, s.Servers, target, x.most); !slices.Equal(got, x.want) {
			t.Errorf("add %v remove %v, at most %d votes: %q, not %q", x.add, x.remove, x.most, got, x.want)
		}
	}
}

// TestPlan compares a plan with what the change then does.
func TestPlan(t *testing.T) {
	c := founded(t, "a", "b", "c")
	c.join("d", "e")
	l := c.leader()
	q := ChangeRequest{Add: []string{"d", "e"}, Remove: []string{"a"}}
	plan, err := l.Plan(q)
	if err != nil {
		t.Fatal(err)
	}
	if !plan.OK() || plan.Version != l.Placement().Version || !slices.Equal(plan.Target, []string{"b", "c", "d", "e"}) {
		t.Errorf("plan: %+v", plan)
	}
	var names []string
	for _, s := range plan.Steps {
		names = append(names, s.Step)
		if s.Ranges == 0 || len(s.Moves) == 0 {
			t.Errorf("step %s moves nothing", s.Step)
		}
	}
	if !slices.Equal(names, []string{"+d", "+e", "-a"}) {
		t.Errorf("steps are %v", names)
	}
	p := l.Placement()
	before, err := ring.New(p.Ring, p.Base)
	if err != nil {
		t.Fatal(err)
	}
	plan1, err := l.Plan(ChangeRequest{Add: []string{"d"}})
	if err != nil {
		t.Fatal(err)
	}
	after, err := ring.New(p.Ring, append(slices.Clone(p.Base), ring.Member{ID: "d", Weight: 1}))
	if err != nil {
		t.Fatal(err)
	}
	gained := 0.0
	for _, m := range plan1.Steps[0].Moves {
		if m.To != "d" || m.From == "" || m.From == "d" {
			t.Errorf("with one member more %s gains from %s", m.To, m.From)
		}
		gained += m.Share
	}
	if want := after.Held(3)["d"]; math.Abs(gained-want) > 1e-9 {
		t.Errorf("d gains %v of the circle and then holds %v", gained, want)
	}
	if !maps.Equal(plan1.BalanceBefore, before.Owned()) || !maps.Equal(plan1.BalanceAfter, after.Owned()) {
		t.Errorf("balance %v to %v", plan1.BalanceBefore, plan1.BalanceAfter)
	}
	// Planning changes nothing, and the plan's version can be asked for.
	if l.Placement().Revision != p.Revision {
		t.Error("a plan changed the placement")
	}
	q.ExpectVersion = plan.Version
	c.submit(l, q)
	c.placed(plan.Target...)
	var r *Refusal
	if _, err := l.Plan(q); !errors.As(err, &r) || r.Code != membership.ErrStale || r.Version == 0 {
		t.Errorf("a plan for an old version: %v", err)
	}
	if _, err := l.Plan(ChangeRequest{Add: []string{"nobody"}}); !errors.As(err, &r) || r.Code != membership.ErrUnknownMember {
		t.Errorf("a plan with an unknown member: %v", err)
	}
}

// TestPlanNames holds the names that the command line and the HTTP API rely on.
func TestPlanNames(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(ChangePlan{Add: []string{"d"}, Remove: []string{"a"}, Steps: []PlannedStep{{Moves: []PlannedMoves{{}}}}, Raft: []string{"x"},
		Checks: []PlanCheck{{Warning: true, Why: "w"}}, Estimate: &PlanEstimate{Types: []TypeTotal{{}}, Silent: []string{"d"}}})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) []string { return slices.Sorted(maps.Keys(v.(map[string]any))) }
	first := func(v any) any { return v.([]any)[0] }
	for _, x := range []struct {
		have any
		want []string
	}{
		{got, []string{"add", "balance_after", "balance_before", "checks", "estimate", "raft", "remove", "steps", "target", "version"}},
		{first(got["steps"]), []string{"moves", "ranges", "step"}},
		{first(first(got["steps"]).(map[string]any)["moves"]), []string{"bytes", "from", "keys", "share", "to"}},
		{got["estimate"], []string{"bytes", "keys", "silent", "types"}},
		{first(got["estimate"].(map[string]any)["types"]), []string{"bytes", "keys", "replicas", "type"}},
		{first(got["checks"]), []string{"name", "ok", "warning", "why"}},
	} {
		if !slices.Equal(keys(x.have), x.want) {
			t.Errorf("names are %v, not %v", keys(x.have), x.want)
		}
	}
}

// TestPlanTotals has types with other replica counts: what moves of each follows from its own count.
func TestPlanTotals(t *testing.T) {
	t.Parallel()
	params := ring.Params{Hash: ring.HashV1, VNodes: 64}
	set := func(ids ...string) *ring.Ring {
		var ms []ring.Member
		for _, id := range ids {
			ms = append(ms, ring.Member{ID: id, Weight: 1})
		}
		r, err := ring.New(params, ms)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	base, next := set("a", "b", "c"), set("a", "b", "c", "d")
	replicas := map[string]int{"": 3, "one": 1, "all": 4, "pin": membership.Pinned}
	plan := ChangePlan{Steps: []PlannedStep{planStep(ring.Step{Kind: ring.Join, Member: ring.Member{ID: "d"}}, base, next, replicas)}}
	for _, m := range plan.Steps[0].Moves {
		if m.From == "" && m.Share != 0 {
			t.Errorf("with three replicas somebody gives its place up for d: %+v", m)
		}
	}
	plan.SetTotals([]TypeTotal{{"kv", 3, 1000, 10000}, {"one", 1, 1000, 500000}, {"all", 4, 10, 70}}, []string{"c"})
	keys := 1000*next.Held(3)["d"] + 1000*next.Held(1)["d"] + 10
	bytes := 10000*next.Held(3)["d"] + 500000*next.Held(1)["d"] + 70
	if e := plan.Estimate; math.Abs(float64(e.Keys)-keys) > 5 || math.Abs(float64(e.Bytes)-bytes) > 5 || !slices.Equal(e.Silent, []string{"c"}) {
		t.Errorf("estimated are %+v, not %v keys and %v bytes", *e, keys, bytes)
	}
	// A member that leaves where there are no more than replicas: nobody takes its copies.
	plan = ChangePlan{Steps: []PlannedStep{planStep(ring.Step{Kind: ring.Leave}, base, set("a", "b"), replicas)}}
	plan.SetTotals([]TypeTotal{{"kv", 3, 1000, 10000}}, nil)
	if e := plan.Estimate; e.Keys != 0 || e.Bytes != 0 || len(plan.Steps[0].Moves) == 0 {
		t.Errorf("what nobody takes moves: %+v", *e)
	}
}
