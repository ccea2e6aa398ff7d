package core

import (
	"fmt"
	"maps"
	"testing"

	"chainmail/ring"
)

// TestCount counts in steps of any size, and gets each copy once.
func TestCount(t *testing.T) {
	var c Core
	c.slots.init()
	want := map[string]TypeCount{}
	for i := range 500 {
		s := c.slot(Key{[]string{"kv", "counter"}[i%2], fmt.Sprint("k", i)})
		s.promised = Epoch{Version: 1, Number: 1}
		switch {
		case i%10 == 0: // a promise, or a deleted key
		case i%10 == 1:
			s.stamp.Seq = 1
		default:
			s.pages = listOf([]Page{{Name: "a", Data: make([]byte, i)}, {Name: "b", Data: make([]byte, 3)}})
			x := want[s.id.Type]
			want[s.id.Type] = TypeCount{x.Keys + 1, x.Bytes + int64(i) + 3}
		}
		c.touch(s)
	}
	for _, most := range []int{1, 7, 100, 499, 500, 10000} {
		got := map[string]TypeCount{}
		steps, from, more := 0, ring.Token(0), true
		for ; more; steps++ {
			from, more = c.Count(from, most, got)
		}
		if !maps.Equal(got, want) {
			t.Errorf("in steps of %d: %v, not %v", most, got, want)
		}
		if least := 500 / most; steps < least {
			t.Errorf("%d steps of %d", steps, most)
		}
	}
}
