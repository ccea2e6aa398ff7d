package core

import (
	"testing"

	"chainmail/ring"
)

// TestFloorOutlivesRestart begins anew with what was saved after a floor was raised: every key is promised at least to it.
func TestFloorOutlivesRestart(t *testing.T) {
	floor := Epoch{Version: 7}
	c := Core{cfg: Config{Durable: true}}
	c.raiseFloor(floor)
	saved := &Saved{View: &View{
		Revision: 1, Version: 9, Base: []ring.Member{{ID: "a", Weight: 1}}, Next: []ring.Member{{ID: "a", Weight: 1}}, Target: []ring.Member{{ID: "a", Weight: 1}},
		Members: []MemberInfo{{ID: "a", Incarnation: 1}}, Ring: ring.Params{Hash: ring.HashV1, VNodes: 1}, Replicas: map[string]int{"": 1},
	}}
	for _, e := range c.out {
		for _, p := range e.(*Persist).Puts {
			saved.Records = append(saved.Records, Record{Key: p.Key, Meta: p.Meta})
		}
	}
	again := New(Config{Self: "a", Incarnation: 1, Boot: 2, Durable: true}, 0, saved)
	if got := again.Explain(Key{"list", "k"}).Copy.Promised; got != floor {
		t.Errorf("a key without a copy is promised to %v, want %v", got, floor)
	}
}
