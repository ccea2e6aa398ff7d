package ring

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A table of random tokens is as even as chance makes it: a member's share deviates by 1/sqrt(256) = 6 % as a rule, so
// what ten members get depends on their names. These names were chosen because they keep the limits; others do not
// ("n01" to "n10": 1.19 of the mean; "node1" to "node10": the tenth takes 0.088). They guard the table, and do not
// promise anything for all names: for that see TestBalanceOfManyNames. With two replicas some of these pass 1.15, too.
var nameFormats = []string{"n%d", "m-%d", "node-%d", "member-%d", "chainmail-%d", "10.0.0.%d:7000"}

func named(format string, n int) []Member {
	out := make([]Member, n)
	for i := range out {
		out[i] = Member{ID: fmt.Sprintf(format, i+1), Weight: 1}
	}
	return out
}

// maxToMean compares the largest share of n replicas with the mean.
func maxToMean(r *Ring, n int) float64 {
	most := 0.0
	for _, share := range r.Held(n) {
		most = max(most, share)
	}
	return most * float64(r.Len()) / float64(n)
}

func TestBalance(t *testing.T) {
	for _, f := range nameFormats {
		r := must(t, hundred, named(f, 10))
		for _, n := range []int{1, 3} { // owners, and the usual replica count
			if got := maxToMean(r, n); got > 1.15 {
				t.Errorf("%s: the fullest member holds %.3f of the mean as one of %d", f, got, n)
			}
		}
	}
}

// Shares are measured by keys here, not by arcs: a hash that lumps keys together would show.
func TestBalanceOfKeys(t *testing.T) {
	const keys = 100_000
	r := must(t, hundred, named("m-%d", 10))
	count := map[string]int{}
	for i := range keys {
		count[r.Owner(KeyToken(HashV1, "counter", fmt.Sprintf("user-%d", i)))]++
	}
	for id, share := range r.Owned() {
		if got := float64(count[id]) / keys; math.Abs(got-share) > 0.005 {
			t.Errorf("%s has %.4f of the keys and %.4f of the circle", id, got, share)
		}
		if got := float64(count[id]) / keys * 10; got > 1.15 {
			t.Errorf("%s has %.3f of the mean of the keys", id, got)
		}
	}
}

func TestBalanceOfManyNames(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 0))
	const rings = 200
	var owned, held []float64
	for range rings {
		r := must(t, hundred, named(fmt.Sprintf("%08x-%%d", rnd.Uint32()), 10))
		owned, held = append(owned, maxToMean(r, 1)), append(held, maxToMean(r, 3))
	}
	slices.Sort(owned)
	slices.Sort(held)
	t.Logf("owned: median %.3f, 9 of 10 below %.3f, worst %.3f", owned[rings/2], owned[rings*9/10], owned[rings-1])
	t.Logf("held by three: median %.3f, 9 of 10 below %.3f, worst %.3f", held[rings/2], held[rings*9/10], held[rings-1])
	if owned[rings*9/10] > 1.15 || owned[rings-1] > 1.30 || held[rings-1] > 1.15 {
		t.Error("the shares are less even than chance makes them")
	}
}

func TestSharesFollowWeights(t *testing.T) {
	ms := []Member{{ID: "m-1", Weight: 1}, {ID: "m-2", Weight: 1}, {ID: "m-3", Weight: 2}, {ID: "m-4", Weight: 4}}
	owned := must(t, hundred, ms).Owned()
	for _, m := range ms {
		if want := float64(m.Weight) / 8; owned[m.ID] < want*0.85 || owned[m.ID] > want*1.15 {
			t.Errorf("%s owns %.3f, want about %.3f", m.ID, owned[m.ID], want)
		}
	}
}

func TestHeldAddsUp(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		ms := append(someMembers(rnd, 8), Member{ID: "one", Weight: 1})
		r := must(t, someParams(rnd), ms)
		for n := 1; n <= MaxReplicas; n++ {
			held, sum := r.Held(n), 0.0
			for _, m := range ms {
				sum += held[m.ID]
			}
			if want := float64(min(n, len(ms))); len(held) != len(ms) || math.Abs(sum-want) > 1e-9 {
				t.Fatalf("%+v hold %v as one of %d, %f in all, want %f", ms, held, n, sum, want)
			}
		}
	})
}

// The tenth member takes about a tenth (of these names), and what moves goes to it alone.
func TestMinimalMovement(t *testing.T) {
	for _, f := range nameFormats {
		ms := named(f, 10)
		base, next := must(t, hundred, ms[:9]), must(t, hundred, ms)
		moved := 0.0
		for _, m := range Diff(base, next, 1) {
			moved += m.Range.Size()
			if m.Gains != ms[9].ID {
				t.Errorf("%s: %+v", f, m)
			}
		}
		if math.Abs(moved-0.1) > 0.01 {
			t.Errorf("%s: %.4f of the circle moves, want 0.1 and at most a tenth of that more or less", f, moved)
		}
		if own := next.Owned()[ms[9].ID]; math.Abs(own-moved) > 1e-12 {
			t.Errorf("%s: %.6f moves, the new member owns %.6f", f, moved, own)
		}
	}
}

func TestMinimalMovementOfKeys(t *testing.T) {
	const keys = 100_000
	ms := named("m-%d", 10)
	base, next := must(t, hundred, ms[:9]), must(t, hundred, ms)
	moved := 0
	for i := range keys {
		x := KeyToken(HashV1, "counter", fmt.Sprintf("user-%d", i))
		if a, b := base.Owner(x), next.Owner(x); a != b {
			moved++
			if b != ms[9].ID {
				t.Fatalf("%x moves from %s to %s", x, a, b)
			}
		}
	}
	if moved < keys*9/100 || moved > keys*11/100 {
		t.Errorf("%d of %d keys move", moved, keys)
	}
}

// Of many names the mean must be a tenth: chance evens out, an error in the table would not.
func TestMinimalMovementOnAverage(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 0))
	const rings = 100
	sum := 0.0
	for range rings {
		ms := named(fmt.Sprintf("%08x-%%d", rnd.Uint32()), 10)
		base, next := must(t, hundred, ms[:9]), must(t, hundred, ms)
		for _, m := range Diff(base, next, 1) {
			sum += m.Range.Size()
		}
	}
	if mean := sum / rings; mean < 0.098 || mean > 0.102 {
		t.Errorf("%.4f of the circle moves on average, want 0.1", mean)
	}
}
