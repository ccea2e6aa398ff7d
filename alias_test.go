package chainmail

import (
	"bytes"
	"testing"
	"time"
)

// An answer is the caller's to change, also one that the key remembers for a repeat.
func TestAnswersAreTheCallers(t *testing.T) {
	nodes := cluster(t, 1, nil)
	ctx := limit(t, 10*time.Second)
	one := []byte{0, 0, 0, 0, 0, 0, 0, 1}
	var first []byte
	for i := range 3 {
		a, err := nodes[0].Ask(ctx, "counter", "k", "add", one, RequestID("r"))
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = bytes.Clone(a.Body)
		} else if !bytes.Equal(a.Body, first) {
			t.Errorf("repeat %d is answered with %x, not %x", i, a.Body, first)
		}
		a.Body[0] ^= 1
	}
}
