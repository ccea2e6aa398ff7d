package core

import (
	"testing"

	"chainmail/ring"
)

// TestShrinkWithoutTheDead removes a member that is down from a set of three, so that the set becomes smaller.
func TestShrinkWithoutTheDead(t *testing.T) {
	ids := []string{"a", "b", "c"}
	view := func(revision, version uint64, stage Stage) *View {
		v := &View{Revision: revision, Version: version, Step: version, Began: 6, Stage: stage, Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}, Replicas: map[string]int{"": 3}}
		for i, id := range ids {
			m := ring.Member{ID: id, Weight: 1}
			v.Base = append(v.Base, m)
			if id != "c" {
				v.Target = append(v.Target, m)
			}
			v.Members = append(v.Members, MemberInfo{ID: id, Incarnation: uint64(i + 1), Down: id == "c"})
		}
		v.Next = v.Target
		if stage == Stable {
			v.Next = v.Base
			v.Target = v.Base
		}
		return v
	}
	cores := map[string]*Core{}
	for i, id := range ids[:2] {
		cores[id] = New(Config{Self: id, Incarnation: uint64(i + 1), Boot: 1, Durable: true}, 0, nil)
	}
	reports := map[string]map[Reported]bool{"a": {}, "b": {}}
	var queue []Message
	step := func(id string, now Time, in Input) {
		for _, x := range cores[id].Step(now, in, nil) {
			switch x := x.(type) {
			case *Send:
				queue = append(queue, x.Msg)
			case *Report:
				reports[id][x.What] = true
			}
		}
	}
	for now := Time(0); now < 20000*ms; now += 20 * ms {
		for _, id := range ids[:2] {
			switch now {
			case 0:
				step(id, now, &ViewChanged{view(1, 5, Stable)})
			case 1000 * ms:
				step(id, now, &ViewChanged{view(2, 6, Copy)})
			case 3000 * ms:
				step(id, now, &ViewChanged{view(3, 7, Switch)})
			}
			step(id, now, &Tick{})
		}
		for len(queue) > 0 {
			m := queue[0]
			queue = queue[1:]
			if cores[m.To] != nil {
				step(m.To, now, &Recv{m})
			}
		}
	}
	for _, id := range ids[:2] {
		if !reports[id][ReportFilled] {
			step, _ := cores[id].Progress()
			t.Errorf("%s does not report filled: %+v", id, step)
		}
	}
}
