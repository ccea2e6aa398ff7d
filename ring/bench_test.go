package ring

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

var hundred = Params{Hash: HashV1, VNodes: 256}

// fleet gives members m000, m001, ... of weight 1, spread over zones in turn; zones 0 means none are given.
func fleet(n, zones int) []Member {
	out := make([]Member, n)
	for i := range out {
		out[i] = Member{ID: fmt.Sprintf("m%03d", i), Weight: 1}
		if zones > 0 {
			out[i].Zone = fmt.Sprintf("z%d", i%zones)
		}
	}
	return out
}

func must(t testing.TB, p Params, ms []Member) *Ring {
	t.Helper()
	r, err := New(p, ms)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func BenchmarkReplicas(b *testing.B) {
	for _, zones := range []int{0, 2, 3} {
		for _, n := range []int{1, 3, 5, 7} {
			b.Run(fmt.Sprintf("zones=%d/n=%d", zones, n), func(b *testing.B) {
				r := must(b, hundred, fleet(100, zones))
				rnd := rand.New(rand.NewPCG(1, 2))
				ts := make([]Token, 1<<16)
				for i := range ts {
					ts[i] = Token(rnd.Uint64())
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					r.Replicas(ts[i&(1<<16-1)], n)
					i++
				}
			})
		}
	}
}

func BenchmarkKeyToken(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		KeyToken(HashV1, "counter", "a-key-of-usual-length")
	}
}

func BenchmarkNew(b *testing.B) {
	for _, zones := range []int{0, 2, 3} {
		b.Run(fmt.Sprintf("zones=%d", zones), func(b *testing.B) {
			ms := fleet(100, zones)
			for b.Loop() {
				must(b, hundred, ms)
			}
		})
	}
}

func BenchmarkDiff(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			ms := fleet(100, 3)
			base, next := must(b, hundred, ms[:99]), must(b, hundred, ms)
			for b.Loop() {
				Diff(base, next, n)
			}
		})
	}
}

// BenchmarkChainDiff is all that a change of one member computes. Who knows the base ring makes only the next one; who
// does not makes both.
func BenchmarkChainDiff(b *testing.B) {
	for _, zones := range []int{0, 2, 3} {
		ms := fleet(100, zones)
		known := must(b, hundred, ms[:99])
		b.Run(fmt.Sprintf("zones=%d/base=known", zones), func(b *testing.B) {
			for b.Loop() {
				s := oneStep(b, ms)
				Diff(known, must(b, hundred, s.Next), 3)
			}
		})
		b.Run(fmt.Sprintf("zones=%d/base=new", zones), func(b *testing.B) {
			for b.Loop() {
				s := oneStep(b, ms)
				Diff(must(b, hundred, s.Base), must(b, hundred, s.Next), 3)
			}
		})
	}
}

// oneStep is the chain in which the last member joins.
func oneStep(b *testing.B, ms []Member) Step {
	steps, err := Chain(ms[:len(ms)-1], ms, nil)
	if err != nil || len(steps) != 1 {
		b.Fatal(steps, err)
	}
	return steps[0]
}
