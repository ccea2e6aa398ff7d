package core

import (
	"fmt"
	"testing"

	"chainmail/ring"
)

// TestOnlyTheListedStartAnswers: a member may have been given an older state of its store. What it promises and acknowledges by
// that would not count, and the log alone tells: until it lists the very start the member answers nobody.
func TestOnlyTheListedStartAnswers(t *testing.T) {
	for listed, want := range map[uint64]bool{0: false, 6: false, 7: true, 8: false} {
		s := newScene(2, func(string) *Saved { return nil })
		v := s.view(1, 5, 0, Stable, "ab", "ab", "", map[string]int{"": 2})
		v.Members[1].Start = listed
		s.cores["b"].cfg.Start = 7
		s.step("b", 0, &ViewChanged{View: v})
		s.queue = nil
		s.step("b", 0, &Recv{Message{From: "a", To: "b", FromInc: 1, Version: 5, Body: &Prepare{Op: 1, Key: Key{"x", "k"}, Epoch: Epoch{Version: 5, Number: 1, Member: "a"}}}})
		if got := len(s.queue) > 0; got != want {
			t.Errorf("start 7 answers a Prepare: %t, with %d listed", got, listed)
		}
		owner := Key{Type: "x"} // one that b owns
		for i := 0; s.cores["b"].Explain(owner).Owner != "b"; i++ {
			owner.Name = fmt.Sprint(i)
		}
		s.queue = nil
		s.step("b", 0, &Recv{Message{From: "a", To: "b", FromInc: 1, Version: 5, Body: &Ask{ID: 1, Key: owner, Method: "m", Deadline: 1000 * ms}}})
		_, redirects := s.queue[0].Body.(*Answer)
		if redirects == want || len(s.cores["b"].acts) > 0 != want {
			t.Errorf("start 7 runs what it is asked: %t, with %d listed", !redirects, listed)
		}
	}
}

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
