package actor

import (
	"strings"
	"testing"
)

type chain struct {
	Next *chain
	N    int
}

type pointers *pointers

// What is nested deeper than can be read back is refused when it is written, and so is what has no end.
func TestDepth(t *testing.T) {
	long := func(n int) (c *chain) {
		for range n {
			c = &chain{Next: c}
		}
		return c
	}
	ring, list, dict := &chain{}, make([]any, 1), map[string]any{}
	ring.Next, list[0], dict["it"] = ring, list, dict
	var point pointers
	point = &point
	var self any
	self = &self
	for _, c := range []Codec{MsgPack, JSON} {
		fine := long(maxDepth - 2)
		b, err := c.Marshal(&fine)
		if err != nil {
			t.Fatal(err)
		}
		var back *chain
		if err := c.Unmarshal(b, &back); err != nil {
			t.Errorf("what was written is not read: %v", err)
		}
		beyond := long(maxDepth + 1)
		for name, v := range map[string]any{"long": &beyond, "ring": &ring, "list": &list, "map": &dict, "pointers": &point, "any": &self} {
			if _, err := c.Marshal(v); err == nil || !strings.Contains(err.Error(), "is nested more than 1000 deep, or has itself inside") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
