package ring

import "fmt"

// Token is a point on the circle of 2^64 points.
type Token uint64

// Range is the half-open arc (Lo, Hi]; it may pass zero. Lo == Hi is the whole circle.
type Range struct{ Lo, Hi Token }

// Contains says whether a token is in the range.
func (r Range) Contains(t Token) bool {
	switch {
	case r.Lo < r.Hi:
		return r.Lo < t && t <= r.Hi
	case r.Lo > r.Hi:
		return t > r.Lo || t <= r.Hi
	}
	return true
}

// Size gives the range's share of the circle, in (0, 1].
func (r Range) Size() float64 {
	if r.Lo == r.Hi {
		return 1
	}
	return float64(uint64(r.Hi-r.Lo)) / (1 << 64)
}

// String writes the range as in logs and the CLI: (lo,hi] in 16 hexadecimal digits each.
func (r Range) String() string { return fmt.Sprintf("(%016x,%016x]", uint64(r.Lo), uint64(r.Hi)) }
