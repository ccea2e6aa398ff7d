package store

import (
	"slices"
	"testing"

	"chainmail/engine/core"
)

// TestNextStarts: what the log may list stays, however often a member is started that cannot register.
func TestNextStarts(t *testing.T) {
	listed := func(inc, start uint64) *core.View {
		return &core.View{Members: []core.MemberInfo{{ID: "a", Incarnation: inc, Start: start}, {ID: "b", Incarnation: 7, Start: 1}}}
	}
	for name, x := range map[string]struct {
		starts []uint64
		view   *core.View
		want   []uint64
	}{
		"the first":               {nil, nil, []uint64{9}},
		"none is listed":          {[]uint64{1, 2}, nil, []uint64{1, 2, 9}},
		"the last is listed":      {[]uint64{1, 2}, listed(7, 2), []uint64{2, 9}},
		"the first is listed":     {[]uint64{1, 2}, listed(7, 1), []uint64{1, 2, 9}},
		"another is listed":       {[]uint64{1, 2}, listed(7, 5), []uint64{1, 2, 9}},
		"of another incarnation":  {[]uint64{1, 2}, listed(6, 2), []uint64{1, 2, 9}},
		"the log was not told":    {[]uint64{1, 2}, listed(7, 0), []uint64{1, 2, 9}},
		"the member is not there": {[]uint64{1, 2}, &core.View{}, []uint64{1, 2, 9}},
	} {
		given := slices.Clone(x.starts)
		if got := NextStarts(x.starts, 9, "a", 7, x.view); !slices.Equal(got, x.want) || !slices.Equal(given, x.starts) {
			t.Errorf("%s: %v, want %v", name, got, x.want)
		}
	}
	starts := []uint64{1}
	for i := range uint64(3 * mostStarts) {
		starts = NextStarts(starts, i+2, "a", 7, listed(7, 1))
		if n := len(starts); n > mostStarts || starts[0] != 1 || starts[n-1] != i+2 || n > 2 && starts[n-2] != i+1 {
			t.Fatalf("%d starts, the first %d, the last %d", n, starts[0], starts[n-1])
		}
	}
}
