package ring

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

func TestRangeContains(t *testing.T) {
	const last = Token(math.MaxUint64)
	for _, c := range []struct {
		r       Range
		in, out []Token
	}{
		{Range{10, 20}, []Token{11, 19, 20}, []Token{10, 21, 0, last}},
		{Range{20, 10}, []Token{21, last, 0, 9, 10}, []Token{11, 19, 20}},
		{Range{10, 11}, []Token{11}, []Token{10, 12, 0, last}},
		{Range{11, 10}, []Token{12, 10, 0, last}, []Token{11}},
		{Range{5, 5}, []Token{4, 5, 6, 0, last}, nil},
		{Range{0, 0}, []Token{0, 1, last}, nil},
		{Range{last, 0}, []Token{0}, []Token{1, last}},
		{Range{0, last}, []Token{1, last}, []Token{0}},
		{Range{last, last}, []Token{0, last}, nil},
	} {
		for _, x := range c.in {
			if !c.r.Contains(x) {
				t.Errorf("%v does not contain %x", c.r, x)
			}
		}
		for _, x := range c.out {
			if c.r.Contains(x) {
				t.Errorf("%v contains %x", c.r, x)
			}
		}
	}
}

func TestRangeSize(t *testing.T) {
	for r, want := range map[Range]float64{
		{0, 1 << 63}:          0.5,
		{1 << 63, 0}:          0.5,
		{1 << 62, 1 << 63}:    0.25,
		{3 << 62, 1 << 62}:    0.5,
		{7, 7}:                1,
		{0, 0}:                1,
		{7, 8}:                math.Ldexp(1, -64),
		{math.MaxUint64, 0}:   math.Ldexp(1, -64),
		{0, math.MaxUint64}:   1, // as near as a float64 comes
		{100, 100 + (1 << 8)}: math.Ldexp(1, -56),
	} {
		if got := r.Size(); got != want {
			t.Errorf("size of %v is %v, want %v", r, got, want)
		}
	}
}

func TestRangeString(t *testing.T) {
	if got := (Range{0x1f, math.MaxUint64}).String(); got != "(000000000000001f,ffffffffffffffff]" {
		t.Error(got)
	}
}

func TestRangeAgreesWithOracle(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		lo, hi := Token(rnd.Uint64()), Token(rnd.Uint64())
		if rnd.IntN(3) == 0 {
			hi = lo + Token(rnd.IntN(5)) - 2
		}
		for _, x := range probes(rnd, []Token{lo, hi}) {
			checkRange(t, lo, hi, x)
		}
	})
}

// checkRange compares a range with one of big numbers: hi and x are unrolled until they lie clockwise of lo.
func checkRange(t *testing.T, lo, hi, x Token) {
	t.Helper()
	circle := new(big.Int).Lsh(big.NewInt(1), 64)
	number := func(t Token) *big.Int { return new(big.Int).SetUint64(uint64(t)) }
	l, h, at := number(lo), number(hi), number(x)
	if h.Cmp(l) <= 0 {
		h.Add(h, circle)
	}
	if at.Cmp(l) <= 0 {
		at.Add(at, circle)
	}
	r := Range{lo, hi}
	if got, want := r.Contains(x), at.Cmp(h) <= 0; got != want {
		t.Fatalf("%v contains %x: %v, want %v", r, x, got, want)
	}
	share, _ := new(big.Rat).SetFrac(h.Sub(h, l), circle).Float64()
	if got := r.Size(); got <= 0 || got > 1 || math.Abs(got-share) > share*1e-15 {
		t.Fatalf("size of %v is %v, want %v", r, got, share)
	}
	if lo != hi && r.Contains(x) == (Range{hi, lo}).Contains(x) {
		t.Fatalf("%x is in both or none of %v and its complement", x, r)
	}
	var back Range
	if _, err := fmt.Sscanf(r.String(), "(%x,%x]", &back.Lo, &back.Hi); err != nil || back != r || len(r.String()) != 35 {
		t.Fatalf("%v reads back as %v, %v", r, back, err)
	}
}
