package chainmail

import (
	"maps"
	"testing"

	"chainmail/engine/core"
)

// TestMeet has a placement of a peer add members that the log has not listed yet, and change nothing that the log has said.
func TestMeet(t *testing.T) {
	n := &Node{}
	n.places.Store(&map[string]string{"a": "h:1"})
	n.meet(&core.View{Members: []core.MemberInfo{{ID: "a", Address: "h:9"}, {ID: "b", Address: "h:2"}, {ID: "c"}}})
	if got, want := *n.places.Load(), map[string]string{"a": "h:1", "b": "h:2"}; !maps.Equal(got, want) {
		t.Errorf("members are found at %v, want %v", got, want)
	}
}
