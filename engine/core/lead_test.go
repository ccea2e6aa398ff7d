package core

import (
	"slices"
	"testing"
)

// TestLeaderTells has the member that leads the log tell the others of the stages of a change, each once, and of nothing else.
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
	first := s.view(2, 2, 2, Copy, "ab", "abc", "c", nil)
	for _, x := range []struct {
		view *View
		lead bool
		want []string
	}{
		{s.view(1, 1, 1, Stable, "ab", "ab", "c", nil), true, nil}, // the first that this member knows
		{first, true, []string{"b"}},                               // c is down
		{first, true, nil},
		{s.view(3, 2, 2, Copy, "ab", "abc", "c", nil), true, nil}, // a report changes nothing
		{s.view(4, 3, 2, Switch, "ab", "abc", "", nil), false, nil},
		{s.view(5, 4, 4, Stable, "abc", "abc", "", nil), true, []string{"b", "c"}},
		{s.view(6, 4, 4, Stable, "abc", "abc", "c", nil), true, nil},
	} {
		if got := told(x.view, x.lead); !slices.Equal(got, x.want) {
			t.Errorf("%v was told to %v, want %v", x.view, got, x.want)
		}
	}
}
