package ring

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	stdfnv "hash/fnv"
	"math"
	"slices"
	"sort"
)

// The second implementation: no index, no table, no shared code. It is slow, and simple enough to be checked by eye
// against the sentences in doc.go and at Ring.Replicas.

type pair struct {
	token Token
	id    string
}

type oracle struct {
	pairs []pair
	zone  map[string]string
}

// oracleOf makes the second implementation's ring; token places virtual node i of a member.
func oracleOf(vnodes int, ms []Member, token func(id string, i int) Token) oracle {
	o := oracle{zone: map[string]string{}}
	for _, m := range ms {
		o.zone[m.ID] = m.Zone
		for i := 0; i < vnodes*m.Weight; i++ {
			o.pairs = append(o.pairs, pair{token(m.ID, i), m.ID})
		}
	}
	sort.Slice(o.pairs, func(i, j int) bool {
		a, b := o.pairs[i], o.pairs[j]
		return a.token < b.token || a.token == b.token && a.id < b.id
	})
	return o
}

// walk lists all members in the order in which going clockwise from t first meets them.
func (o oracle) walk(t Token) []string {
	var out []string
	meet := func(id string) {
		if !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, p := range o.pairs {
		if p.token >= t {
			meet(p.id)
		}
	}
	for _, p := range o.pairs {
		if p.token < t {
			meet(p.id)
		}
	}
	return out
}

func (o oracle) replicas(t Token, n int) []string { return o.pick(o.walk(t), n) }

// pick takes n replicas out of a walk.
func (o oracle) pick(walk []string, n int) []string {
	if n > 7 {
		n = 7
	}
	var zones, firsts, others []string
	for _, id := range walk {
		if slices.Contains(zones, o.zone[id]) {
			others = append(others, id)
		} else {
			zones = append(zones, o.zone[id])
			firsts = append(firsts, id)
		}
	}
	best := append(firsts, others...) // the most wanted first
	var out []string
	for _, id := range walk {
		if i := slices.Index(best, id); i < n {
			out = append(out, id)
		}
	}
	return out
}

func (o oracle) owner(t Token) string {
	if walk := o.walk(t); len(walk) > 0 {
		return walk[0]
	}
	return ""
}

// arc finds the nearest tokens on both sides of t. Going counter-clockwise it stops at the first token that is not hi.
func (o oracle) arc(t Token) Range {
	if len(o.pairs) == 0 {
		return Range{}
	}
	hi := o.pairs[0].token
	ahead, behind := uint64(math.MaxUint64), uint64(math.MaxUint64)
	for _, p := range o.pairs {
		if d := uint64(p.token - t); d <= ahead { // distances wrap as the circle does
			ahead, hi = d, p.token
		}
	}
	lo := hi
	for _, p := range o.pairs {
		if d := uint64(hi - p.token); d > 0 && d <= behind {
			behind, lo = d, p.token
		}
	}
	return Range{lo, hi}
}

// bounds lists the tokens of some rings, each once, ascending.
func bounds(os ...oracle) []Token {
	var out []Token
	for _, o := range os {
		for _, p := range o.pairs {
			out = append(out, p.token)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func lengthThen(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// oracleKey is the token of a key by the standard library's FNV-1a and the finalizer as Appleby wrote it.
func oracleKey(typ, key string) Token {
	h := stdfnv.New64a()
	h.Write(lengthThen(lengthThen(nil, typ), key))
	k := h.Sum64()
	k ^= k >> 33
	k *= 0xff51afd7ed558ccd
	k ^= k >> 33
	k *= 0xc4ceb9fe1a85ec53
	k ^= k >> 33
	return Token(k)
}

func oracleVnode(id string, i int) Token {
	var b bytes.Buffer
	b.Write(lengthThen([]byte("chainmail/1"), id))
	binary.Write(&b, binary.BigEndian, uint32(i))
	sum := sha256.Sum256(b.Bytes())
	var t uint64
	for _, x := range sum[:8] {
		t = t<<8 | uint64(x)
	}
	return Token(t)
}
