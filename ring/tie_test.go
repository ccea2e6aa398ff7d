package ring

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// SHA-256 never gives equal tokens, nor 0, nor the last one. Forged tokens do.

// forged makes a ring whose tokens are placed by another function.
func forged(vnodes int, ms []Member, token func(id string, i int) Token) *Ring {
	r := &Ring{params: Params{HashV1, vnodes}, members: sorted(ms)}
	var tokens []Token
	var owner []uint32
	for i, m := range r.members {
		for k := range vnodes * m.Weight {
			tokens, owner = append(tokens, token(m.ID, k)), append(owner, uint32(i))
		}
	}
	r.numberZones()
	r.arrange(tokens, owner)
	r.tabulate()
	return r
}

// crowded places virtual nodes on few points of the circle, or all of them close together.
func crowded(rnd *rand.Rand) func(id string, i int) Token {
	points := []Token{0, 1, 2, math.MaxUint64, math.MaxUint64 - 1, 1 << 63, 1<<63 - 1, Token(rnd.Uint64())}
	rnd.Shuffle(len(points), func(i, j int) { points[i], points[j] = points[j], points[i] })
	points = points[:1+rnd.IntN(len(points))]
	salt, near := rnd.Uint64(), rnd.IntN(3) == 0
	return func(id string, i int) Token {
		h := uint64(oracleVnode(id, i)) ^ salt
		if near {
			return points[0] + Token(h%50)
		}
		return points[h%uint64(len(points))]
	}
}

func TestTiesAndEndsAgreeWithOracle(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		token, ms := crowded(rnd), append(someMembers(rnd, 8), Member{ID: "one", Weight: 1})
		o := oracleOf(3, ms, token)
		r := forged(3, ms, token)
		agree(t, r, o, probes(rnd, bounds(o)))
		coverOnce(t, rnd, r)
	})
}

func TestTiesInSteps(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		token, c := crowded(rnd), someChange(rnd)
		for _, s := range c.steps(t) {
			base, next := forged(3, s.Base, token), forged(3, s.Next, token)
			a, b := oracleOf(3, s.Base, token), oracleOf(3, s.Next, token)
			at := probes(rnd, bounds(a, b))
			oneReplica(t, s, base, next, at)
			n := 1 + rnd.IntN(MaxReplicas)
			moves := Diff(base, next, n)
			compareMoves(t, moves, a, b, n, at)
			tidy(t, moves)
		}
	})
}

// Ties go to the smaller id.
func TestTieGoesToSmallerID(t *testing.T) {
	same := func(string, int) Token { return 7 }
	r := forged(2, members("c a*3 b"), same)
	if got := r.Replicas(0, 3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%v", got)
	}
	if got := r.Arc(9); got != (Range{7, 7}) {
		t.Errorf("%v", got)
	}
}
