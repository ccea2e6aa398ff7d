package core

import (
	"slices"

	"chainmail/ring"
)

// maxSums bounds the sums of one Pull.
const maxSums = 256

// A sum stands for what a member holds of a bucket, of the keys that a receiver needs of a source. Where a source finds the
// receiver's sum to be its own, each entry that it would send is there already, whatever either goes by: it sends none, and
// that is as complete an answer. Copies that differ have other epochs or sequence numbers; two sets of them have one sum by
// chance once in 2^64 times.

// sums lists what this member holds of the buckets that a pull of a source begins with, nil for a pull of what has changed.
func (c *Core) sums(f *session, src *source) []uint64 {
	if f.mode == PullRefill || src.since > 0 && len(c.view.v.Next) >= len(c.view.v.Base) {
		return nil
	}
	var out []uint64
	for b, seen := bucketOf(src.from), 0; b < 1<<bucketBits && len(out) < maxSums && seen < c.cfg.Sizes.PullScan; b++ {
		out = append(out, c.sum(b, src.from, src.id, c.cfg.Self, f.mode))
		seen += len(c.slots.buckets[b])
	}
	return out
}

// equalBuckets says of which of the buckets that a pull begins with this source holds what the receiver does: of as many as
// it can look at for one answer.
func (c *Core) equalBuckets(to string, b *Pull) []bool {
	var out []bool
	for at, seen := bucketOf(b.From), 0; at < 1<<bucketBits && len(out) < len(b.Sums) && seen < c.cfg.Sizes.PullScan; at++ {
		out = append(out, c.sum(at, b.From, c.cfg.Self, to, b.Mode) == b.Sums[len(out)])
		seen += len(c.slots.buckets[at])
	}
	return out
}

// sum adds up the copies of a bucket from a token on that one member has to get from another in a mode.
func (c *Core) sum(bucket int, from ring.Token, source, to string, mode PullMode) uint64 {
	var n uint64
	var last *placed
	needed := false
	for _, x := range c.slots.bucket(bucket) {
		if p := c.placeOf(x); p != last {
			last, needed = p, needs(p, source, to, mode)
		}
		switch {
		case !needed || x.key < from:
		case c.floor.IsZero():
			n += x.sum
		default:
			n += sumCopy(x.slot, c.effective(x.slot))
		}
	}
	return n
}

func sumCopy(s *slot, promised Epoch) uint64 {
	h := sumEpoch(mix(uint64(s.key)+1), promised)
	if !s.stamp.IsZero() {
		h = mix(sumEpoch(h, s.stamp.Epoch) ^ s.stamp.Seq)
	}
	return h
}

func sumEpoch(h uint64, e Epoch) uint64 {
	h = mix(mix(h^e.Version) + e.Number)
	for i := range len(e.Member) {
		h = (h ^ uint64(e.Member[i])) * 0x100000001b3 // FNV-1a
	}
	return h
}

// needs says whether a member has to get the keys of an arc from a source in a mode.
func needs(p *placed, source, to string, mode PullMode) bool {
	if !slices.Contains(p.s, source) {
		return false
	}
	switch mode {
	case PullRefill:
		return slices.Contains(p.s, to)
	case PullCopy:
		return !slices.Contains(p.s, to) && slices.Contains(p.coming, to)
	}
	return slices.Contains(p.coming, to) && (!slices.Contains(p.s, to) || len(p.coming) < len(p.s))
}
