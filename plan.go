package chainmail

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/ring"
)

// Plan gives what a change would do, with about how many keys and bytes move by what the members say they hold. Members
// that do not answer in time are named in the estimate, which is then made from the others.
func (n *Node) Plan(ctx context.Context, q coordinator.ChangeRequest) (coordinator.ChangePlan, error) {
	plan, err := n.coord.Plan(q)
	if err != nil {
		return plan, err
	}
	p := n.coord.Placement()
	counts, silent := n.countAll(ctx, p)
	types, err := totals(p, counts)
	if err != nil {
		return plan, err
	}
	if len(counts) > 0 {
		plan.SetTotals(types, silent)
	}
	return plan, nil
}

// PlanLoss gives what declaring members lost would give up, with about how many keys by what the others say they hold.
func (n *Node) PlanLoss(ctx context.Context, q coordinator.LossRequest) (coordinator.LossPlan, error) {
	plan, err := n.coord.PlanLoss(ctx, q)
	if err != nil || len(plan.Others) == 0 {
		return plan, err
	}
	p := n.coord.Placement()
	counts, silent := n.countAll(ctx, p)
	maps.DeleteFunc(counts, func(id string, _ map[string]core.TypeCount) bool { return !slices.Contains(plan.Others, id) })
	plan.Silent = slices.DeleteFunc(silent, func(id string) bool { return !slices.Contains(plan.Others, id) })
	types, err := totals(p, counts)
	if err != nil {
		return plan, err
	}
	if len(counts) > 0 {
		plan.SetTotals(types)
	}
	return plan, nil
}

// DeclareLost gives up the copies of members whose memory is gone for good; see coordinator.LossRequest. It is the way on
// for keys that wait for them, and loses what only they had.
func (n *Node) DeclareLost(ctx context.Context, q coordinator.LossRequest) (membership.Loss, error) {
	return n.coord.DeclareLost(ctx, q)
}

const (
	// countTimeout is how long members have to count: a million keys take less than a second.
	countTimeout = 3 * time.Second
	// countStep is how many keys the engine counts at once: messages wait for about a millisecond, on a busy machine.
	countStep = 1024
)

// countHere counts what this member holds, by type.
func (n *Node) countHere(ctx context.Context) (map[string]core.TypeCount, error) {
	out := map[string]core.TypeCount{}
	from, more := ring.Token(0), true
	for more {
		if err := n.engine.Do(ctx, func(c *core.Core) { from, more = c.Count(from, countStep, out) }); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// countAll asks the members of the ring what they hold.
func (n *Node) countAll(ctx context.Context, p *membership.Placement) (counts map[string]map[string]core.TypeCount, silent []string) {
	ctx, done := context.WithTimeout(ctx, countTimeout)
	defer done()
	counts = map[string]map[string]core.TypeCount{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range p.Base {
		wg.Go(func() {
			var have map[string]core.TypeCount
			b, err := n.request(ctx, m.ID, kindCount, nil)
			if err == nil {
				err = json.Unmarshal(b, &have)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, m.ID)
			} else {
				counts[m.ID] = have
			}
		})
	}
	wg.Wait()
	slices.Sort(silent)
	return counts, silent
}

// totals gives about how much there is of each type. Each member that has told its counts holds a known share of the
// circle as one of a type's replicas: what they hold together, by the shares that they hold together, is the whole.
func totals(p *membership.Placement, counts map[string]map[string]core.TypeCount) ([]coordinator.TypeTotal, error) {
	r, err := ring.New(p.Ring, p.Base)
	if err != nil {
		return nil, err
	}
	sum := map[string]core.TypeCount{}
	for _, have := range counts {
		for typ, x := range have {
			s := sum[typ]
			sum[typ] = core.TypeCount{Keys: s.Keys + x.Keys, Bytes: s.Bytes + x.Bytes}
		}
	}
	held := map[int]map[string]float64{}
	out := []coordinator.TypeTotal{}
	for _, typ := range slices.Sorted(maps.Keys(sum)) {
		k, ok := p.Replicas[typ]
		if !ok {
			k = p.Replicas[""]
		}
		if k == membership.Pinned {
			continue
		}
		if held[k] == nil {
			held[k] = r.Held(k)
		}
		share := 0.0
		for id := range counts {
			share += held[k][id]
		}
		if share > 0 {
			out = append(out, coordinator.TypeTotal{Type: typ, Replicas: k, Keys: int(math.Round(float64(sum[typ].Keys) / share)), Bytes: int64(math.Round(float64(sum[typ].Bytes) / share))})
		}
	}
	return out, nil
}
