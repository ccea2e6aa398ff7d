package store

import "encoding/binary"

// tally is a digest over all entries of a file, whatever their order: how many there are and the sum of their hashes.
// Each commit brings it up to date, so that entries that have vanished, or are older ones, are found.
type tally struct{ n, sum uint64 }

func (t *tally) add(kind byte, k, v []byte)    { t.n++; t.sum += entryHash(kind, k, v) }
func (t *tally) remove(kind byte, k, v []byte) { t.n--; t.sum -= entryHash(kind, k, v) }

func (t tally) append(dst []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, t.n), t.sum)
}

func parseTally(b []byte) (t tally, ok bool) {
	if len(b) != 16 {
		return t, false
	}
	return tally{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])}, true
}

// Kinds of entries.
const (
	kindMeta byte = iota + 1
	kindCopy
	kindPage
)

// entryHash is FNV-1a. Of a page's data it takes the length alone: its sum, which is hashed, is checked against the rest.
func entryHash(kind byte, k, v []byte) uint64 {
	h := uint64(14695981039346656037)
	mix := func(b ...byte) {
		for _, c := range b {
			h = (h ^ uint64(c)) * 1099511628211
		}
	}
	mix(kind)
	var n [8]byte
	mix(binary.BigEndian.AppendUint64(n[:0], uint64(len(k)))...)
	mix(k...)
	mix(binary.BigEndian.AppendUint64(n[:0], uint64(len(v)))...)
	if kind == kindPage {
		v = v[:pageHead(v)]
	}
	mix(v...)
	return h
}

// pageHead is how many bytes of a page's value come before its data.
func pageHead(v []byte) int {
	r := reader{b: v}
	r.stamp()
	return min(len(v), len(v)-len(r.b)+4)
}
