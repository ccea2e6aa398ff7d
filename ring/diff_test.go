package ring

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestDiffAgreesWithOracle(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		c, p := someChange(rnd), someParams(rnd)
		for _, s := range c.steps(t) {
			a, b := oracleOf(p.VNodes, s.Base, oracleVnode), oracleOf(p.VNodes, s.Next, oracleVnode)
			n := rnd.IntN(MaxReplicas + 3)
			moves := Diff(must(t, p, s.Base), must(t, p, s.Next), n)
			compareMoves(t, moves, a, b, n, probes(rnd, bounds(a, b)))
			tidy(t, moves)
			for _, m := range moves {
				if s.Kind == Join && m.Gains != s.Member.ID || s.Kind == Leave && m.Loses != s.Member.ID {
					t.Fatalf("%v moves %+v", s, m)
				}
			}
		}
	})
}

// Rings further apart are compared by operators' dry runs.
func TestDiffOfDistantRings(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		c, p, n := someChange(rnd), someParams(rnd), 1+rnd.IntN(4)
		a, b := oracleOf(p.VNodes, c.from, oracleVnode), oracleOf(p.VNodes, c.to, oracleVnode)
		moves := Diff(must(t, p, c.from), must(t, p, c.to), n)
		compareMoves(t, moves, a, b, n, probes(rnd, bounds(a, b)))
		tidy(t, moves)
	})
}

// compareMoves looks at single tokens: each is in exactly one move if its set changes, else in none.
func compareMoves(t *testing.T, moves []Move, a, b oracle, n int, at []Token) {
	t.Helper()
	for _, x := range at {
		from, to := a.replicas(x, n), b.replicas(x, n)
		var in []Move
		for _, m := range moves {
			if m.Range.Contains(x) {
				in = append(in, m)
			}
		}
		if slices.Equal(from, to) {
			if len(in) > 0 {
				t.Fatalf("%x keeps its set of %d, %v, and is in %+v", x, n, from, in)
			}
			continue
		}
		if len(in) != 1 {
			t.Fatalf("%x goes from %v to %v and is in %+v", x, from, to, in)
		}
		m := in[0]
		if !slices.Equal(m.From, from) || !slices.Equal(m.To, to) || m.Gains != firstNew(to, from) || m.Loses != firstNew(from, to) {
			t.Fatalf("%x goes from %v to %v; the move is %+v", x, from, to, m)
		}
	}
}

func firstNew(a, b []string) string {
	known := map[string]bool{"": true}
	for _, id := range b {
		known[id] = true
	}
	for _, id := range a {
		if !known[id] {
			return id
		}
	}
	return ""
}

// tidy checks that moves ascend, do not overlap, and that no two neighbours on the circle could be one.
func tidy(t *testing.T, moves []Move) {
	t.Helper()
	for i, m := range moves {
		if i > 0 {
			if last := moves[i-1]; m.Range.Hi <= last.Range.Hi || m.Range.Lo < last.Range.Hi {
				t.Fatalf("%v comes after %v", m.Range, last.Range)
			}
		}
		next := moves[(i+1)%len(moves)]
		if len(moves) > 1 && m.Range.Hi == next.Range.Lo && slices.Equal(m.From, next.From) && slices.Equal(m.To, next.To) {
			t.Fatalf("%+v and %+v are not joined", m, next)
		}
	}
}

func TestDiffOfEqualAndEmptyRings(t *testing.T) {
	p := Params{HashV1, 8}
	empty, one, three := must(t, p, nil), must(t, p, members("a")), must(t, p, members("a b c"))
	for _, r := range []*Ring{empty, one, three} {
		if moves := Diff(r, r, 3); len(moves) > 0 {
			t.Errorf("a ring differs from itself: %+v", moves)
		}
		if moves := Diff(empty, r, 0); len(moves) > 0 {
			t.Errorf("sets of none differ: %+v", moves)
		}
	}
	for _, d := range []struct {
		a, b         *Ring
		gains, loses string
	}{{empty, one, "a", ""}, {one, empty, "", "a"}} {
		moves := Diff(d.a, d.b, 3)
		if len(moves) != 1 || moves[0].Range.Size() != 1 || moves[0].Gains != d.gains || moves[0].Loses != d.loses {
			t.Errorf("%+v", moves)
		}
	}
}

// A member that changes its zone moves ranges though no token moves.
func TestDiffSeesZones(t *testing.T) {
	p := Params{HashV1, 8}
	a, b := members("a@x b@x c@y"), members("a@x b@y c@y")
	moves := Diff(must(t, p, a), must(t, p, b), 2)
	if len(moves) == 0 {
		t.Fatal("no moves")
	}
	compareMoves(t, moves, oracleOf(8, a, oracleVnode), oracleOf(8, b, oracleVnode), 2, bounds(oracleOf(8, a, oracleVnode)))
}
