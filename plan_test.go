package chainmail

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/ring"
)

// TestPlanBytes plans a join: about as many keys and bytes are planned as move, also while a member does not answer.
func TestPlanBytes(t *testing.T) {
	nodes := cluster(t, 4, nil)
	ctx := limit(t, 30*time.Second)
	if _, err := nodes[0].Coordinator().Submit(ctx, coordinator.ChangeRequest{Remove: []string{"m4"}}); err != nil {
		t.Fatal(err)
	}
	<-nodes[3].Removed()
	joiner := start(t, func() Config { c := testConfig(t, "m5"); c.RetryJoin = []string{nodes[0].Addr()}; return c }())
	const keys, size = 300, 1000
	for i := range keys {
		if _, err := nodes[i%3].KV().Put(ctx, fmt.Sprint("k", i), make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	for nodes[0].Coordinator().Placement().Running != nil || !hasMember(nodes[0], "m5") {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			t.Fatal(nodes[0].Coordinator().Placement())
		}
	}
	check := func(silent ...string) {
		t.Helper()
		p, err := nodes[0].Plan(ctx, coordinator.ChangeRequest{Add: []string{"m5"}})
		if err != nil {
			t.Fatal(err)
		}
		e := p.Estimate
		if e == nil || !slices.Equal(e.Silent, silent) || len(e.Types) != 1 || e.Types[0].Type != "kv" {
			t.Fatalf("estimated: %+v", e)
		}
		// A joining fourth member holds about 3 of 4 keys.
		if k := float64(e.Keys) / keys; k < 0.5 || k > 1 {
			t.Errorf("%d of %d keys are planned to move", e.Keys, keys)
		}
		if each := float64(e.Bytes) / float64(e.Keys); each < size || each > 1.2*size {
			t.Errorf("%d keys with %d bytes are planned to move", e.Keys, e.Bytes)
		}
		if k := e.Types[0].Keys; math.Abs(float64(k)-keys) > keys/10 {
			t.Errorf("%d keys are taken to be there, of %d", k, keys)
		}
	}
	check()
	nodes[2].Close()
	check("m3")
	joiner.Close()
}

func hasMember(n *Node, id string) bool {
	_, ok := n.Coordinator().Placement().Member(id)
	return ok
}

// TestTotals adds up what some of the members hold.
func TestTotals(t *testing.T) {
	p := &membership.Placement{Ring: ring.Params{Hash: ring.HashV1, VNodes: 64}, Replicas: map[string]int{"": 3, "one": 1, "pin": membership.Pinned}}
	for _, id := range []string{"a", "b", "c", "d", "e"} {
		p.Base = append(p.Base, ring.Member{ID: id, Weight: 1})
	}
	r, err := ring.New(p.Ring, p.Base)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]core.TypeCount{}
	for id, share := range r.Held(3) {
		all[id] = map[string]core.TypeCount{"kv": {Keys: int(10000 * share), Bytes: int64(70000 * share)}, "one": {Keys: int(5000 * r.Held(1)[id])}, "pin": {Keys: 7}}
	}
	// Pinned keys do not move.
	for _, some := range [][]string{{"a", "b", "c", "d", "e"}, {"b", "d"}, {"c"}, {}} {
		told := maps.Clone(all)
		maps.DeleteFunc(told, func(id string, _ map[string]core.TypeCount) bool { return !slices.Contains(some, id) })
		got, err := totals(p, told)
		if err != nil {
			t.Fatal(err)
		}
		if len(some) == 0 {
			if len(got) != 0 {
				t.Errorf("nobody told anything: %+v", got)
			}
			continue
		}
		if len(got) != 2 || got[0].Replicas != 3 || math.Abs(float64(got[0].Keys)-10000) > 10 || math.Abs(float64(got[0].Bytes)-70000) > 10 ||
			got[1].Replicas != 1 || math.Abs(float64(got[1].Keys)-5000) > 10 {
			t.Errorf("told by %v: %+v", some, got)
		}
	}
}
