package ring

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
)

// agree compares a ring with the second implementation at some tokens, for every replica count and beyond.
func agree(t *testing.T, r *Ring, o oracle, at []Token) {
	t.Helper()
	for _, x := range at {
		walk := o.walk(x)
		if got, want := r.Owner(x), o.owner(x); got != want {
			t.Fatalf("%+v: owner of %x is %q, want %q", r.Members(), x, got, want)
		}
		if got, want := r.Arc(x), o.arc(x); got != want {
			t.Fatalf("%+v: arc of %x is %v, want %v", r.Members(), x, got, want)
		}
		for n := -1; n <= MaxReplicas+2; n++ {
			if got, want := r.Replicas(x, n), o.pick(walk, n); !slices.Equal(got, want) {
				t.Fatalf("%+v: %d replicas of %x are %q, want %q", r.Members(), n, x, got, want)
			}
		}
	}
}

func TestReplicasAgreeWithOracle(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		p, ms := someParams(rnd), someMembers(rnd, 12)
		o := oracleOf(p.VNodes, ms, oracleVnode)
		agree(t, must(t, p, ms), o, probes(rnd, bounds(o)))
	})
}

// Rings of the size in use have another index and other tables than the small ones.
func TestReplicasAgreeWithOracleAtFullSize(t *testing.T) {
	rnd := rand.New(rand.NewPCG(*seed, 0))
	for _, zones := range []int{0, 2, 3, 7} {
		ms := fleet(40, zones)
		o := oracleOf(256, ms, oracleVnode)
		agree(t, must(t, Params{HashV1, 256}, ms), o, probes(rnd, nil))
	}
}

func TestEmptyRing(t *testing.T) {
	r := must(t, Params{HashV1, 256}, nil)
	agree(t, r, oracle{}, []Token{0, 1, math.MaxUint64})
	for a := range r.Arcs() {
		t.Errorf("arc %v", a)
	}
	if r.Len() != 0 || len(r.Owned()) != 0 || len(r.Members()) != 0 || r.Has("") {
		t.Errorf("%+v", r)
	}
}

// Arcs cover the circle, do not overlap, and each has one replica set throughout.
func TestArcs(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		ms := append(someMembers(rnd, 8), Member{ID: "one", Weight: 1})
		r := must(t, someParams(rnd), ms)
		coverOnce(t, rnd, r)
	})
}

func coverOnce(t *testing.T, rnd *rand.Rand, r *Ring) {
	t.Helper()
	arcs := slices.Collect(r.Arcs())
	length, at := uint64(0), []Token{}
	for i, a := range arcs {
		if before := arcs[(i+len(arcs)-1)%len(arcs)]; before.Hi != a.Lo {
			t.Fatalf("%v does not go on from %v", a, before)
		}
		if i > 0 && a.Hi <= arcs[i-1].Hi {
			t.Fatalf("%v comes after %v", a, arcs[i-1])
		}
		length += uint64(a.Hi - a.Lo)
		at = append(at, a.Lo, a.Hi)
	}
	if length != 0 { // the whole circle has 2^64 points
		t.Fatalf("the arcs have %d points, modulo 2^64", length)
	}
	for _, x := range probes(rnd, at) {
		in := 0
		for _, a := range arcs {
			if !a.Contains(x) {
				continue
			}
			in++
			for n := 1; n <= MaxReplicas; n++ {
				if got, want := r.Replicas(x, n), r.Replicas(a.Hi, n); !slices.Equal(got, want) {
					t.Fatalf("%x in %v has replicas %v, its end has %v", x, a, got, want)
				}
			}
			if r.Arc(x) != a {
				t.Fatalf("arc of %x is %v, want %v", x, r.Arc(x), a)
			}
		}
		if in != 1 {
			t.Fatalf("%x is in %d arcs of %v", x, in, arcs)
		}
	}
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		p, ms := someParams(rnd), someMembers(rnd, 10)
		a := must(t, p, ms)
		given := slices.Clone(ms)
		if shuffle(rnd, ms); a.Digest() != must(t, p, ms).Digest() {
			t.Fatalf("%+v and %+v have different digests", given, ms)
		}
		if !slices.IsSortedFunc(a.Members(), func(a, b Member) int { return compareStrings(a.ID, b.ID) }) {
			t.Fatalf("members are not sorted: %+v", a.Members())
		}
		for _, m := range given {
			if !a.Has(m.ID) || a.Has(m.ID+"x") != has(given, m.ID+"x") {
				t.Fatalf("%q: Has is wrong in %+v", m.ID, given)
			}
		}
		if a.Len() != len(given) || a.Params() != p {
			t.Fatalf("%d members, %+v; want %d, %+v", a.Len(), a.Params(), len(given), p)
		}
	})
}

func compareStrings(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// A ring keeps no hold on what it was made from, and a caller that appends to a replica set harms nobody.
func TestRingIsSeparateFromItsInput(t *testing.T) {
	ms := members("c@x b@y a@z")
	r := must(t, Params{HashV1, 16}, ms)
	before := r.Digest()
	if !slices.Equal(ms, members("c@x b@y a@z")) {
		t.Errorf("the input was changed: %+v", ms)
	}
	ms[0] = Member{ID: "z", Weight: 9}
	for i := range Token(64) {
		_ = append(r.Replicas(i<<58, 2), "stranger")
	}
	agree(t, r, oracleOf(16, members("a@z b@y c@x"), oracleVnode), probes(rand.New(rand.NewPCG(1, 0)), nil))
	if r.Digest() != before {
		t.Error("the digest changed")
	}
}

// Everything that places keys is in the digest.
func TestDigestTellsRingsApart(t *testing.T) {
	seen := map[uint64]string{}
	for _, spec := range []string{"", "a", "b", "a b", "ab", "a@b", "a@x b", "a b@x", "a@x b@x", "a*2 b", "a b*2", "a@x*2 b", "a@xb", "a@x*2 b@x"} {
		for _, v := range []int{1, 2, 256} {
			d := must(t, Params{HashV1, v}, members(spec)).Digest()
			if was, ok := seen[d]; ok && spec != "" {
				t.Errorf("%q has the digest of %q", spec, was)
			}
			seen[d] = spec
		}
	}
}

func TestRingIsSafeForConcurrentUse(t *testing.T) {
	ms := fleet(12, 3)
	r, o := must(t, Params{HashV1, 16}, ms), oracleOf(16, ms, oracleVnode)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 0))
			for range 50 {
				x, n := Token(rnd.Uint64()), 1+rnd.IntN(MaxReplicas)
				if got, want := r.Replicas(x, n), o.replicas(x, n); !slices.Equal(got, want) {
					t.Errorf("%d replicas of %x are %v, want %v", n, x, got, want)
				}
				Diff(r, r, n)
				r.Digest()
			}
		})
	}
	wg.Wait()
}

// A lookup scans the tokens that share its top bits: there must be few of them.
func TestLookupsScanFewTokens(t *testing.T) {
	for _, count := range []int{1, 10, 100} {
		r := must(t, hundred, fleet(count, 0))
		for b := range len(r.first) - 1 {
			if n := r.first[b+1] - r.first[b]; n > 12 {
				t.Errorf("%d members: %d tokens begin with %x", count, n, b)
			}
		}
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	r := must(t, hundred, fleet(100, 3))
	rnd := rand.New(rand.NewPCG(1, 0))
	for n := 1; n <= tabled; n++ {
		if got := testing.AllocsPerRun(1000, func() { r.Replicas(Token(rnd.Uint64()), n) }); got != 0 {
			t.Errorf("Replicas of %d: %v allocations", n, got)
		}
	}
	var last Token
	var sink Token
	for name, f := range map[string]func(){
		"Owner":    func() { r.Owner(Token(rnd.Uint64())) },
		"Arc":      func() { r.Arc(Token(rnd.Uint64())) },
		"KeyToken": func() { last = KeyToken(HashV1, "counter", "a-key-of-usual-length") },
		"Has":      func() { r.Has("m050") },
	} {
		_ = sink
		if got := testing.AllocsPerRun(1000, f); got != 0 {
			t.Errorf("%s: %v allocations; last token %x", name, got, last)
		}
	}
}
