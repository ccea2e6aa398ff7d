package coordinator

import (
	"context"
	"fmt"
	"math"
	"slices"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// LossRequest is what a person gives up: all that only the named members had.
type LossRequest struct {
	Members       []string `json:"members"`
	ExpectVersion uint64   `json:"expect_version"` // of the LossPlan that was looked at; 0: any
	By            string   `json:"by,omitempty"`
	Why           string   `json:"why,omitempty"`
}

// LossPlan says what a declared loss would give up, at one version of the placement.
type LossPlan struct {
	Version uint64       `json:"version"`
	Members []LossMember `json:"members"`
	Others  []string     `json:"others"` // of the ring, that are up and complete
	Types   []LossOfType `json:"types"`
	Silent  []string     `json:"silent,omitempty"` // of Others, that did not tell what they hold
}

// LossMember is a named member.
type LossMember struct {
	ID          string `json:"id"`
	Incarnation uint64 `json:"incarnation"`
	Down        bool   `json:"down"`     // else it runs, without its memory
	GivenUp     bool   `json:"given_up"` // by an earlier loss
	OnRing      bool   `json:"on_ring"`  // it has to fill again, or be removed
	Pinned      int    `json:"pinned"`   // keys that are nowhere else
}

// LossOfType is what is at stake of the types with one replica count, in shares of the circle and in about how many keys.
type LossOfType struct {
	Type       string  `json:"type"` // "" for all that have the default count
	Replicas   int     `json:"replicas"`
	Anew       float64 `json:"anew"`        // every replica is named: keys begin anew
	Behind     float64 `json:"behind"`      // a majority is named: keys may be without their last writes
	Keys       int     `json:"keys"`        // there were, by what the others hold; -1: not known
	KeysAnew   int     `json:"keys_anew"`   // of them; -1: not known
	KeysBehind int     `json:"keys_behind"` // of them; -1: not known
}

// PlanLoss computes what a loss would give up, by the leader's placement. What the log would refuse is a *Refusal.
func (c *Coordinator) PlanLoss(ctx context.Context, q LossRequest) (LossPlan, error) {
	p, err := c.LeaderPlacement(ctx)
	if err != nil {
		return LossPlan{}, fmt.Errorf("plan loss: %w", err)
	}
	_, r := membership.Apply(*p, membership.Command{DeclareLost: lossOf(p, q)})
	if err := refusal(r); err != nil {
		return LossPlan{}, fmt.Errorf("plan loss: %w", err)
	}
	return planLoss(p, q.Members)
}

func planLoss(p *membership.Placement, ids []string) (LossPlan, error) {
	out := LossPlan{Version: p.Version, Others: []string{}, Types: []LossOfType{}}
	for _, id := range unique(ids) {
		m, _ := p.Member(id)
		x := LossMember{ID: id, Incarnation: m.Incarnation, Down: m.Down, GivenUp: m.GivenUp, OnRing: p.Places(id)}
		for _, pin := range p.Pins {
			if pin.Member == id {
				x.Pinned += pin.Keys
			}
		}
		out.Members = append(out.Members, x)
	}
	for _, m := range p.Base {
		if x, _ := p.Member(m.ID); !x.Down && !x.Refilling {
			out.Others = append(out.Others, m.ID)
		}
	}
	r, err := ring.New(p.Ring, p.Base)
	if err != nil {
		return out, err
	}
	for _, typ := range sortedTypes(p.Replicas) {
		if n := p.Replicas[typ]; n != membership.Pinned {
			x := LossOfType{Type: typ, Replicas: n, Keys: -1, KeysAnew: -1, KeysBehind: -1}
			for a := range r.Arcs() {
				x.add(a.Size(), r.Replicas(a.Hi, n), ids)
			}
			out.Types = append(out.Types, x)
		}
	}
	return out, nil
}

// SetTotals fills in about how many keys there are. Types that are not named in the log have the default count.
func (p *LossPlan) SetTotals(types []TypeTotal) {
	for i := range p.Types {
		x := &p.Types[i]
		x.Keys = 0
		for _, t := range types {
			named := slices.ContainsFunc(p.Types, func(o LossOfType) bool { return o.Type == t.Type })
			if x.Type == t.Type || x.Type == "" && !named {
				x.Keys += t.Keys
			}
		}
		x.KeysBehind = int(math.Round(float64(x.Keys) * x.Behind))
		x.KeysAnew = int(math.Round(float64(x.Keys) * x.Anew))
	}
}

// add counts an arc. A write is acknowledged by a majority of a set: all of it may be among the named ones.
func (x *LossOfType) add(share float64, set, named []string) {
	n := 0
	for _, id := range set {
		if slices.Contains(named, id) {
			n++
		}
	}
	switch {
	case n == len(set):
		x.Anew += share
	case n > len(set)/2:
		x.Behind += share
	}
}

func sortedTypes(replicas map[string]int) []string {
	var out []string
	for typ := range replicas {
		out = append(out, typ)
	}
	slices.Sort(out)
	return out
}

func unique(ids []string) []string {
	out := slices.Clone(ids)
	slices.Sort(out)
	return slices.Compact(out)
}

// lossOf names the incarnations that the members have in a placement.
func lossOf(p *membership.Placement, q LossRequest) *membership.DeclareLost {
	d := &membership.DeclareLost{ExpectVersion: q.ExpectVersion, By: q.By, Why: q.Why}
	for _, id := range unique(q.Members) {
		m, _ := p.Member(id)
		d.Bans = append(d.Bans, membership.Ban{Member: id, Incarnation: m.Incarnation})
	}
	return d
}

// DeclareLost gives up the copies of members that are down, or up without their memory, and gives the loss as the log has
// it. Sent again with the version that it was made for, it is the same loss.
func (c *Coordinator) DeclareLost(ctx context.Context, q LossRequest) (membership.Loss, error) {
	p, err := c.LeaderPlacement(ctx)
	if err != nil {
		return membership.Loss{}, fmt.Errorf("declare lost: %w", err)
	}
	if l, ok := lossAfter(p, q); ok {
		return l, nil
	}
	d := lossOf(p, q)
	if d.ExpectVersion == 0 {
		d.ExpectVersion = p.Version // the incarnations are those of this version
	}
	if err := c.order(ctx, "declare lost", membership.Command{DeclareLost: d}); err != nil {
		return membership.Loss{}, err
	}
	return membership.Loss{Version: d.ExpectVersion + 1, Bans: d.Bans, By: d.By, Why: d.Why}, nil
}

// lossAfter finds the loss that a request became. The members' incarnations are others by then.
func lossAfter(p *membership.Placement, q LossRequest) (membership.Loss, bool) {
	for _, l := range p.Lost {
		var ids []string
		for _, b := range l.Bans {
			ids = append(ids, b.Member)
		}
		if q.ExpectVersion != 0 && l.Version == q.ExpectVersion+1 && l.By == q.By && l.Why == q.Why && slices.Equal(ids, unique(q.Members)) {
			return l, true
		}
	}
	return membership.Loss{}, false
}
