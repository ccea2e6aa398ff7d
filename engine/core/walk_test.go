package core

import "testing"

// TestSumsAreKept compares the sums that copies keep with what they are, after a handoff in which promises and states came
// from several sources.
func TestSumsAreKept(t *testing.T) {
	s := newScene(4, aheadAtC)
	s.run(2000*ms, map[Time]*View{
		0:         s.view(1, 6, 6, Stable, "abc", "abc", "", nil),
		200 * ms:  s.view(2, 7, 7, Copy, "abc", "abcd", "", nil),
		1000 * ms: s.view(3, 8, 7, Switch, "abc", "abcd", "", nil),
	})
	for _, id := range s.ids {
		c, n := s.cores[id], 0
		c.slots.ascend(0, 0, func(x *slot) bool {
			if n++; x.sum != sumCopy(x, x.promised) {
				t.Errorf("%s keeps another sum of %v", id, x.id)
			}
			return true
		})
		if n == 0 {
			t.Errorf("%s has no copies", id)
		}
	}
}

// TestJoinSweepsOnce has a sweep begin anew when a step ends, and not at the stages before.
func TestJoinSweepsOnce(t *testing.T) {
	s := newScene(4, func(string) *Saved { return nil })
	c := s.cores["a"]
	for i, x := range []struct {
		view *View
		anew bool
	}{
		{s.view(1, 1, 1, Stable, "abc", "abc", "", nil), true},
		{s.view(2, 2, 2, Copy, "abc", "abcd", "", nil), false},
		{s.view(3, 3, 2, Switch, "abc", "abcd", "", nil), false},
		{s.view(4, 4, 4, Stable, "abcd", "abcd", "", nil), true},
		{s.view(5, 5, 5, Copy, "abcd", "abc", "", nil), false},
		{s.view(6, 6, 6, Copy, "abcd", "acd", "", nil), true}, // retargeted: what was to stay may not
		{s.view(7, 7, 6, Switch, "abcd", "acd", "", nil), false},
		{s.view(8, 8, 8, Stable, "acd", "acd", "", nil), true},
		{s.view(9, 8, 8, Stable, "acd", "acd", "d", nil), true}, // down
	} {
		c.sweep.bucket = 7
		s.step("a", 0, &ViewChanged{View: x.view})
		if anew := c.sweep.bucket == 0; anew != x.anew {
			t.Errorf("view %d: the sweep began anew: %v, want %v", i+1, anew, x.anew)
		}
	}
}
