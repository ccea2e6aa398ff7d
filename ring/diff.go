package ring

import "slices"

// Move is a range whose replica set changes between two rings. Gains and Loses are "" where no member does.
type Move struct {
	Range        Range
	From, To     []string
	Gains, Loses string
}

// Diff gives the ranges whose set of n replicas differs between two rings that are one step apart, ascending, adjacent
// equal ones joined; the first one may pass zero. For rings further apart Gains and Loses name the first of several.
func Diff(base, next *Ring, n int) []Move {
	bounds := merge(base.tokens, next.tokens)
	if len(bounds) == 0 {
		return nil
	}
	b, x := cursor{base, base.table(n), 0}, cursor{next, next.table(n), 0}
	lo := bounds[len(bounds)-1]
	var out []Move
	for _, hi := range bounds {
		if from, to := b.set(hi), x.set(hi); !slices.Equal(from, to) {
			m := Move{Range{lo, hi}, from, to, missing(to, from), missing(from, to)}
			if k := len(out) - 1; k >= 0 && out[k].meets(m) {
				out[k].Range.Hi = hi
			} else {
				out = append(out, m)
			}
		}
		lo = hi
	}
	if k := len(out) - 1; k > 0 && out[k].meets(out[0]) {
		out[0].Range.Lo = out[k].Range.Lo
		out = out[:k]
	}
	return out
}

// meets says whether x goes on where m ends, with the same sets.
func (m Move) meets(x Move) bool {
	return m.Range.Hi == x.Range.Lo && slices.Equal(m.From, x.From) && slices.Equal(m.To, x.To)
}

// merge gives the tokens of two ascending lists, each once.
func merge(a, b []Token) []Token {
	out := make([]Token, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if a[0] < b[0] {
			out, a = append(out, a[0]), a[1:]
		} else {
			out, b = append(out, b[0]), b[1:]
		}
	}
	return slices.Compact(append(append(out, a...), b...))
}

// cursor goes once round a ring's table: that spares a lookup for each token.
type cursor struct {
	r    *Ring
	sets table
	i    int
}

// set gives the replica set of a token not smaller than the one before.
func (c *cursor) set(t Token) []string {
	for c.i < len(c.r.tokens) && c.r.tokens[c.i] < t {
		c.i++
	}
	if c.i == len(c.r.tokens) {
		return c.sets.at(0)
	}
	return c.sets.at(c.i)
}

// missing gives the first of a that is not in b, "" if there is none.
func missing(a, b []string) string {
	for _, id := range a {
		if !slices.Contains(b, id) {
			return id
		}
	}
	return ""
}
