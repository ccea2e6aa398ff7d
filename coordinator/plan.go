package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// ChangePlan says what a change would do: a dry run, true for one version of the placement.
type ChangePlan struct {
	Version       uint64             `json:"version"`
	Add           []string           `json:"add,omitempty"`
	Remove        []string           `json:"remove,omitempty"`
	Target        []string           `json:"target"`
	Steps         []PlannedStep      `json:"steps"`
	BalanceBefore map[string]float64 `json:"balance_before"` // owned share of the circle, by member
	BalanceAfter  map[string]float64 `json:"balance_after"`
	Raft          []string           `json:"raft,omitempty"` // what happens to votes, in words
	Checks        []PlanCheck        `json:"checks"`
	Estimate      *PlanEstimate      `json:"estimate,omitempty"` // nil: nobody has told what the members hold
}

// PlanEstimate is what a plan's keys and bytes are estimated from. The log knows neither: the members tell what they hold
// now, and keys are taken to be spread evenly over the circle.
type PlanEstimate struct {
	Types  []TypeTotal `json:"types"`
	Keys   int         `json:"keys"`             // copies that move in all steps
	Bytes  int64       `json:"bytes"`            // of their states
	Silent []string    `json:"silent,omitempty"` // members that did not tell what they hold; it is taken from the others
}

// TypeTotal is about how much there is of one type of actors, each key counted once.
type TypeTotal struct {
	Type     string `json:"type"`
	Replicas int    `json:"replicas"`
	Keys     int    `json:"keys"`
	Bytes    int64  `json:"bytes"`
}

// PlannedStep is one step of the chain.
type PlannedStep struct {
	Step   string         `json:"step"` // +id joins, -id leaves
	Ranges int            `json:"ranges"`
	Moves  []PlannedMoves `json:"moves"`

	shares map[int]map[pair]float64 // by replica count in use
}

type pair struct{ from, to string }

// PlannedMoves is what one member gains in a step, and from whom.
type PlannedMoves struct {
	From  string  `json:"from"`  // "" if nobody gives its place up: there were fewer members than replicas
	To    string  `json:"to"`    // "" if nobody takes it
	Share float64 `json:"share"` // of the circle, for types with the default replica count
	Keys  int     `json:"keys"`  // estimates, see PlanEstimate
	Bytes int64   `json:"bytes"`
}

// PlanCheck is a condition that was looked at before anything is done. A warning does not stop the change.
type PlanCheck struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Warning bool   `json:"warning,omitempty"`
	Why     string `json:"why,omitempty"`
}

// OK says whether nothing stands against the change.
func (p ChangePlan) OK() bool {
	return !slices.ContainsFunc(p.Checks, func(c PlanCheck) bool { return !c.OK && !c.Warning })
}

// Plan computes what a change would do by this member's placement. A change that the log would refuse is a *Refusal.
func (c *Coordinator) Plan(q ChangeRequest) (ChangePlan, error) {
	p := c.Placement()
	target, steps, r := membership.Preview(p, membership.ChangeCommand{Add: q.Add, Remove: q.Remove, ExpectVersion: q.ExpectVersion, DropPinned: true})
	r.Version = p.Version
	if err := refusal(r); err != nil {
		return ChangePlan{}, fmt.Errorf("plan change: %w", err)
	}
	out := ChangePlan{Version: p.Version, Add: q.Add, Remove: q.Remove, Steps: []PlannedStep{}}
	for _, m := range target {
		out.Target = append(out.Target, m.ID)
	}
	now, err := ring.New(p.Ring, p.Base)
	if err != nil {
		return ChangePlan{}, err
	}
	out.BalanceBefore = now.Owned()
	for _, s := range steps {
		next, err := ring.New(p.Ring, s.Next)
		if err != nil {
			return ChangePlan{}, err
		}
		out.Steps = append(out.Steps, planStep(s, now, next, p.Replicas))
		now = next
	}
	out.BalanceAfter = now.Owned()
	s := c.Status()
	out.Raft = planVotes(p, s.Servers, target, c.cfg.MaxVoters)
	out.Checks = planChecks(p, s, q, target)
	return out, nil
}

func planStep(s ring.Step, base, next *ring.Ring, replicas map[string]int) PlannedStep {
	out := PlannedStep{Step: s.String(), Moves: []PlannedMoves{}, shares: map[int]map[pair]float64{}}
	pairs := map[pair]bool{}
	for _, n := range replicas {
		if out.shares[n] != nil || n == membership.Pinned { // pinned keys stay where they are
			continue
		}
		out.shares[n] = map[pair]float64{}
		for _, m := range ring.Diff(base, next, n) {
			if n == replicas[""] {
				out.Ranges++
			}
			k := pair{m.Loses, m.Gains}
			out.shares[n][k] += m.Range.Size()
			pairs[k] = true
		}
	}
	for _, k := range slices.SortedFunc(maps.Keys(pairs), func(a, b pair) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	}) {
		out.Moves = append(out.Moves, PlannedMoves{From: k.from, To: k.to, Share: out.shares[replicas[""]][k]})
	}
	return out
}

// SetTotals fills in about how many keys and bytes the steps move.
func (p *ChangePlan) SetTotals(types []TypeTotal, silent []string) {
	p.Estimate = &PlanEstimate{Types: types, Silent: silent}
	for _, s := range p.Steps {
		for i := range s.Moves {
			m := &s.Moves[i]
			keys, bytes := 0.0, 0.0
			for _, t := range types {
				share := s.shares[t.Replicas][pair{m.From, m.To}]
				keys += share * float64(t.Keys)
				bytes += share * float64(t.Bytes)
			}
			m.Keys, m.Bytes = int(math.Round(keys)), int64(math.Round(bytes))
			if m.To != "" { // what nobody takes is not moved
				p.Estimate.Keys += m.Keys
				p.Estimate.Bytes += m.Bytes
			}
		}
	}
}

// planVotes says in words which Raft steps follow a change.
func planVotes(p *membership.Placement, servers []Server, target []ring.Member, most int) []string {
	var out []string
	var could []string
	voters := 0
	for _, s := range servers {
		m, ok := p.Member(s.ID)
		switch gone := membership.In(p.Target, s.ID) && !membership.In(target, s.ID); {
		case s.Voter && gone && s.Leader:
			out = append(out, "transfer leadership from "+s.ID, "demote voter "+s.ID, "remove "+s.ID)
		case s.Voter && gone:
			out = append(out, "demote voter "+s.ID, "remove "+s.ID)
		case gone:
			out = append(out, "remove "+s.ID)
		case s.Voter:
			voters++
		case ok && !m.NonVoter && !m.Down && membership.In(target, s.ID):
			could = append(could, s.ID)
		}
	}
	for _, id := range could[:max(0, wantedVotes(voters, len(could), most)-voters)] {
		out = append(out, "promote "+id+" once it has caught up")
	}
	return out
}

func planChecks(p *membership.Placement, s Status, q ChangeRequest, target []ring.Member) []PlanCheck {
	var out []PlanCheck
	check := func(name string, ok bool, format string, args ...any) {
		x := PlanCheck{Name: name, OK: ok}
		if !ok {
			x.Why = fmt.Sprintf(format, args...)
		}
		out = append(out, x)
	}
	warn := func(name string, ok bool, format string, args ...any) {
		check(name, ok, format, args...)
		out[len(out)-1].Warning = !ok
	}
	running := ""
	if p.Running != nil {
		running = p.Running.ID
	}
	check("no-other-change", running == "" || q.Retarget, "change %s is running; wait for it, abort it, or retarget it", running)
	check("leader", s.LeaderID != "", "no leader is known")
	voters, healthy := voterCounts(p, s.Servers)
	check("voters", healthy > voters/2, "%d of %d voters are up; the log needs a majority to take the change's steps", healthy, voters)
	for _, id := range q.Remove { // Preview has refused unknown ones
		_, ok := p.Member(id)
		check("known "+id, ok, "no member %s", id)
	}
	for _, id := range q.Add {
		m, ok := p.Member(id)
		check("registered "+id, ok && m.Incarnation != 0, "member %s has not registered; start it first", id)
		check("up "+id, !m.Down, "member %s is down; it could not fill its ranges", id)
	}
	down, refilling := 0, 0
	for _, m := range p.Members {
		switch {
		case !membership.In(p.Base, m.ID) || m.GivenUp && slices.Contains(q.Remove, m.ID): // no step waits for its copies
		case m.Down:
			down++
		case m.Refilling:
			refilling++
		}
	}
	quorum := p.Replicas[""]/2 + 1
	check("quorums", down+refilling < quorum, "%d members of the ring are down and %d are refilling: keys of which %d replicas are among them would wait", down, refilling, quorum)
	for _, x := range p.Pins {
		if slices.Contains(q.Remove, x.Member) {
			out = append(out, PlanCheck{Name: "pinned", Warning: q.DropPinned, Why: fmt.Sprintf("%d keys of type %s are pinned to %s and are lost when it goes", x.Keys, x.Type, x.Member)})
		}
	}
	warn("replicas", len(target) >= p.Replicas[""], "%d members are fewer than the %d replicas of a key", len(target), p.Replicas[""])
	return out
}

// voterCounts gives how many servers have a vote and how many of them are up by the placement.
func voterCounts(p *membership.Placement, servers []Server) (voters, healthy int) {
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		if m, ok := p.Member(s.ID); ok && !m.Down {
			healthy++
		}
	}
	return voters, healthy
}
