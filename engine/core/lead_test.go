package core

import (
	"slices"
	"testing"
)

// TestLeaderTells has the member that leads the log tell the others of a placement that changes something, once, and of no other.
func TestLeaderTells(t *testing.T) {
	s := newScene(3, func(string) *Saved { return nil })
	told := func(v *View, lead bool) (out []string) {
		s.queue = nil
		s.step("a", 0, &ViewChanged{View: v, Lead: lead})
		for _, m := range s.queue {
			if b, ok := m.Body.(*NewView); ok && b.View == v {
				out = append(out, m.To)
			}
		}
		return out
	}
	stable := s.view(1, 1, 1, Stable, "ab", "ab", "c", nil)
	if got := told(stable, true); !slices.Equal(got, []string{"b"}) {
		t.Errorf("a placement at which c is down was told to %v, want b", got)
	}
	if got := told(stable, true); got != nil {
		t.Errorf("the same one was told to %v", got)
	}
	if got := told(s.view(2, 1, 1, Stable, "ab", "ab", "c", nil), true); got != nil {
		t.Errorf("one that changes nothing was told to %v", got)
	}
	if got := told(s.view(3, 2, 2, Copy, "ab", "abc", "", nil), false); got != nil {
		t.Errorf("who does not lead told %v", got)
	}
	if got := told(s.view(4, 3, 3, Switch, "ab", "abc", "", nil), true); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("the next one was told to %v, want b and c", got)
	}
}
