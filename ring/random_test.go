package ring

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var (
	seed   = flag.Uint64("seed", 1, "first seed of the random tests")
	rounds = flag.Int("rounds", 150, "rounds of each random test; each has the next seed")
)

// random runs a test once for each seed and names the seed that failed. Short runs have a third of the rounds.
func random(t *testing.T, f func(t *testing.T, rnd *rand.Rand)) {
	n := *rounds
	if testing.Short() {
		n = (n + 2) / 3
	}
	for i := range n {
		s := *seed + uint64(i)
		func() {
			defer func() {
				if t.Failed() {
					t.Logf("repeat with -seed %d -rounds 1", s)
				}
			}()
			f(t, rand.New(rand.NewPCG(s, 0)))
		}()
		if t.Failed() {
			return
		}
	}
}

// oddIDs are ids that a careless encoding or order would mix up.
var oddIDs = []string{"a", "aa", "a0", "A", "a\x00", "\x00", "käse", "\xff", " ", "m-1", "m-10", "m-2", strings.Repeat("m", maxID), strings.Repeat("m", maxID-1)}

// someMembers gives up to most members with different ids, in no order; zones and weights are as uneven as may be.
func someMembers(rnd *rand.Rand, most int) []Member {
	zones := rnd.IntN(5)
	var out []Member
	for i := range rnd.IntN(most + 1) {
		m := Member{ID: fmt.Sprintf("m%d", i), Weight: 1}
		if rnd.IntN(4) == 0 {
			m.ID = oddIDs[rnd.IntN(len(oddIDs))]
		}
		if rnd.IntN(3) == 0 {
			m.Weight += rnd.IntN(4)
		}
		if zones > 0 {
			m.Zone = fmt.Sprintf("z%d", min(rnd.IntN(zones), rnd.IntN(zones)))
		}
		if rnd.IntN(8) == 0 {
			m.Zone = ""
		}
		if !has(out, m.ID) {
			out = append(out, m)
		}
	}
	shuffle(rnd, out)
	return out
}

func has(ms []Member, id string) bool {
	return slices.ContainsFunc(ms, func(m Member) bool { return m.ID == id })
}

func shuffle(rnd *rand.Rand, ms []Member) {
	rnd.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
}

// someParams keeps rings small: there the rare arrangements are frequent.
func someParams(rnd *rand.Rand) Params {
	return Params{HashV1, 1 + rnd.IntN(6)}
}

// probes lists tokens worth a look: every boundary with its neighbours, both ends of the numbers, and random ones.
func probes(rnd *rand.Rand, at []Token) []Token {
	out := []Token{0, 1, math.MaxUint64, math.MaxUint64 - 1}
	for _, t := range at {
		out = append(out, t-1, t, t+1)
	}
	for range 20 {
		out = append(out, Token(rnd.Uint64()))
	}
	return out
}

// change is a random change: two member sets of which a part is the same, and who is down.
type change struct {
	from, to []Member
	down     map[string]bool
}

func someChange(rnd *rand.Rand) change {
	c := change{down: map[string]bool{}}
	for _, m := range someMembers(rnd, 10) {
		where := rnd.IntN(3)
		if where != 0 {
			c.from = append(c.from, m)
		}
		if where != 1 {
			c.to = append(c.to, m)
		}
		c.down[m.ID] = rnd.IntN(3) == 0
	}
	if len(c.to) == 0 {
		c.to = []Member{{ID: "last", Weight: 1}}
	}
	shuffle(rnd, c.from)
	shuffle(rnd, c.to)
	return c
}

func (c change) steps(t *testing.T) []Step {
	t.Helper()
	steps, err := Chain(c.from, c.to, func(id string) bool { return c.down[id] })
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return steps
}
