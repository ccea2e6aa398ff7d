package core

import "testing"

// TestShrinkWithoutTheDead removes a member that is down from a set of three, so that the set becomes smaller.
func TestShrinkWithoutTheDead(t *testing.T) {
	s := newScene(3, func(string) *Saved { return nil })
	s.dead["c"] = true
	reports := map[string]bool{}
	s.on = func(id string, x Effect) {
		if r, ok := x.(*Report); ok && r.What == ReportFilled {
			reports[id] = true
		}
	}
	r := map[string]int{"": 3}
	s.run(20000*ms, map[Time]*View{
		0:         s.view(1, 5, 6, Stable, "abc", "abc", "c", r),
		1000 * ms: s.view(2, 6, 6, Copy, "abc", "ab", "c", r),
		3000 * ms: s.view(3, 7, 6, Switch, "abc", "ab", "c", r),
	})
	for _, id := range []string{"a", "b"} {
		if !reports[id] {
			step, _ := s.cores[id].Progress()
			t.Errorf("%s does not report filled: %+v", id, step)
		}
	}
}
