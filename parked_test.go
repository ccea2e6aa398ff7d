package chainmail

import (
	"errors"
	"strings"
	"testing"
	"time"

	"chainmail/engine/core"
	"chainmail/internal/bridge"
)

// A message that its owner has no room for, because too many wait there for a placement, was not run: its caller is told so,
// and need not wait until its time is up.
func TestFullOfParkedIsOverloaded(t *testing.T) {
	nodes := cluster(t, 2, nil)
	caller, owner := nodes[0], nodes[1]
	key := keyOf(t, caller, "counter", owner.ID())
	ctx := limit(t, 20*time.Second)
	if _, err := caller.Counter().Add(ctx, key, 1); err != nil {
		t.Fatal(err)
	}
	v := bridge.View(caller.Coordinator().Placement())
	v.Version++
	v.Revision++
	const parked = 8192 // see core
	for range parked {
		owner.engine.Deliver(core.Message{From: "x", To: owner.ID(), Version: v.Version, Body: &core.Release{Key: core.Key{Type: "counter", Name: key}}}, false)
	}
	if _, err := owner.stats(ctx); err != nil { // it has taken them
		t.Fatal(err)
	}
	caller.engine.SetView(v, false)
	began := time.Now()
	_, err := caller.Counter().Add(ctx, key, 1)
	if !errors.Is(err, ErrOverloaded) || !strings.Contains(err.Error(), owner.ID()+" has 8192 messages waiting for placement") {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
	sum := int64(0)
	for errors.Is(err, ErrOverloaded) && ctx.Err() == nil { // until the owner has the placement from the caller's member
		time.Sleep(lookEvery)
		sum, err = caller.Counter().Add(ctx, key, 1)
	}
	if err != nil || sum != 2 {
		t.Errorf("with the placement: %d, %v", sum, err)
	}
}

// keyOf gives a key that a member owns.
func keyOf(t *testing.T, n *Node, typ, owner string) string {
	t.Helper()
	for i := range 1000 {
		key := "k" + strings.Repeat("x", i)
		if e, err := n.Explain(t.Context(), typ, key); err == nil && e[0].Owner == owner {
			return key
		}
	}
	t.Fatalf("no key of %s", owner)
	return ""
}
