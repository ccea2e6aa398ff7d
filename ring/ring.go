package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"sort"
)

// Member is a member as rings see it.
type Member struct {
	ID     string `json:"id"`
	Zone   string `json:"zone,omitempty"`
	Weight int    `json:"weight"` // at least 1; virtual nodes are Params.VNodes times this
}

// Params fixes how a ring is made. All members of a cluster have the same.
type Params struct {
	Hash   uint8 `json:"hash"`
	VNodes int   `json:"vnodes"` // of a member of weight 1
}

const (
	// MaxWeight and MaxVNodes bound a table: one member never has more than 2^18 tokens.
	MaxWeight = 64
	MaxVNodes = 4096
	// MaxReplicas is the largest replica count.
	MaxReplicas = 7
	maxID       = 64
)

// Ring is an immutable table from tokens to members.
type Ring struct {
	params  Params
	members []Member // sorted by id
	zones   []uint32 // zone number of each member
	nzones  int
	tokens  []Token  // ascending
	owner   []uint32 // index in members, for each token
	sets    [tabled + 1]table
	first   []int32 // for each value of a token's top bits: the first index that may hold it
	shift   uint
}

// New builds a ring. The order of members does not matter. It is an error if an id is empty, too long or given twice,
// or if a weight or a parameter is out of bounds. No members give an empty ring.
func New(p Params, members []Member) (*Ring, error) {
	if p.Hash != HashV1 {
		return nil, fmt.Errorf("ring: unknown hash algorithm %d; this version knows %d", p.Hash, HashV1)
	}
	if p.VNodes < 1 || p.VNodes > MaxVNodes {
		return nil, fmt.Errorf("ring: %d virtual nodes; 1 to %d are allowed", p.VNodes, MaxVNodes)
	}
	r := &Ring{params: p, members: slices.Clone(members)}
	slices.SortFunc(r.members, func(a, b Member) int { return cmp.Compare(a.ID, b.ID) })
	for i, m := range r.members {
		switch {
		case m.ID == "" || len(m.ID) > maxID:
			return nil, fmt.Errorf("ring: member id %q has %d bytes; 1 to %d are allowed", m.ID, len(m.ID), maxID)
		case m.Weight < 1 || m.Weight > MaxWeight:
			return nil, fmt.Errorf("ring: member %s has weight %d; 1 to %d are allowed", m.ID, m.Weight, MaxWeight)
		case i > 0 && r.members[i-1].ID == m.ID:
			return nil, fmt.Errorf("ring: member %s is given twice", m.ID)
		}
	}
	r.numberZones()
	r.arrange(r.vnodes())
	r.tabulate()
	return r, nil
}

func (r *Ring) numberZones() {
	r.zones = make([]uint32, len(r.members))
	num := map[string]uint32{}
	for i, m := range r.members {
		z, ok := num[m.Zone]
		if !ok {
			z = uint32(len(num))
			num[m.Zone] = z
		}
		r.zones[i] = z
	}
	r.nzones = len(num)
}

// vnodes gives the tokens of all members, member after member, and whose they are.
func (r *Ring) vnodes() (tokens []Token, owner []uint32) {
	n := 0
	for _, m := range r.members {
		n += r.params.VNodes * m.Weight
	}
	tokens, owner = make([]Token, 0, n), make([]uint32, 0, n)
	for i, m := range r.members {
		for k := range r.params.VNodes * m.Weight {
			tokens = append(tokens, vnodeToken(m.ID, k))
			owner = append(owner, uint32(i))
		}
	}
	return tokens, owner
}

// arrange fills the table and its index: about one token falls on each value of the top bits, so a lookup is one access
// to the index and a short scan. Tokens are sorted in the same way: each goes to the place of its top bits, and what is
// then out of order is so by a few places. Members come sorted by id and both passes keep equal tokens as they come:
// ties go to the smaller id.
func (r *Ring) arrange(tokens []Token, owner []uint32) {
	bits := uint(1)
	for 1<<bits < len(tokens) && bits < 20 {
		bits++
	}
	r.shift = 64 - bits
	r.first = make([]int32, 1<<bits+1)
	for _, t := range tokens {
		r.first[t>>r.shift+1]++
	}
	for b := range 1 << bits {
		r.first[b+1] += r.first[b]
	}
	free := slices.Clone(r.first)
	r.tokens, r.owner = make([]Token, len(tokens)), make([]uint32, len(tokens))
	for i, t := range tokens {
		at := &free[t>>r.shift]
		r.tokens[*at], r.owner[*at] = t, owner[i]
		*at++
	}
	for i := range r.tokens {
		t, m := r.tokens[i], r.owner[i]
		k := i
		for ; k > 0 && r.tokens[k-1] > t; k-- {
			r.tokens[k], r.owner[k] = r.tokens[k-1], r.owner[k-1]
		}
		r.tokens[k], r.owner[k] = t, m
	}
}

// index gives the first table entry at or after a token, clockwise.
func (r *Ring) index(t Token) int {
	i := int(r.first[t>>r.shift])
	for i < len(r.tokens) && r.tokens[i] < t {
		i++
	}
	if i == len(r.tokens) {
		return 0
	}
	return i
}

// Replicas gives the replica set of a token: n distinct members, or all if there are fewer, in the order in which
// going clockwise from the token first meets them. The members met first of n distinct zones are taken (all are of one
// zone, "", where none are given); where there are fewer zones than n, the places left go to the members that are met
// first among the others. The slice is shared and must not be changed. n above MaxReplicas counts as MaxReplicas.
//
// One member more takes at most one out and never reorders the others: the order is that of first appearance, which
// another member's tokens do not change. As to the set, let x of zone z join. If z was not represented, x takes one
// place: the last zone's, or the last of the others'. If x is met before z's representative m, it takes m's place, and m
// is now one of the others: it takes the place of the last of them, or goes. If x is met after m, x is one of the others
// and takes the place of the last of them, or does not come in. Removing is the same backwards.
func (r *Ring) Replicas(t Token, n int) []string {
	n = min(n, len(r.members), MaxReplicas)
	if n <= 0 {
		return nil
	}
	i := r.index(t)
	if n <= tabled {
		return r.sets[n].at(i)
	}
	return r.appendSet(make([]string, 0, n), i, n)
}

// Owner gives the first replica of a token, "" on an empty ring.
func (r *Ring) Owner(t Token) string {
	if len(r.tokens) == 0 {
		return ""
	}
	return r.members[r.owner[r.index(t)]].ID
}

// Members gives the members sorted by id. The slice must not be changed.
func (r *Ring) Members() []Member { return r.members }

// Len is the number of members.
func (r *Ring) Len() int { return len(r.members) }

// Params gives what the ring was made with.
func (r *Ring) Params() Params { return r.params }

// Has says whether a member is on the ring.
func (r *Ring) Has(id string) bool {
	i := sort.Search(len(r.members), func(i int) bool { return r.members[i].ID >= id })
	return i < len(r.members) && r.members[i].ID == id
}

// Arc gives the arc of the table that holds a token: all its tokens have the same replica set for every n.
func (r *Ring) Arc(t Token) Range {
	if len(r.tokens) == 0 {
		return Range{}
	}
	i := r.index(t)
	return Range{r.tokens[(i+len(r.tokens)-1)%len(r.tokens)], r.tokens[i]}
}

// Arcs gives every arc of the table once, by ascending Hi; the first one may pass zero. Arcs of equal tokens are left
// out: they are empty.
func (r *Ring) Arcs() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for i, t := range r.tokens {
			lo := r.tokens[(i+len(r.tokens)-1)%len(r.tokens)]
			if i > 0 && lo == t {
				continue
			}
			if !yield(Range{lo, t}) {
				return
			}
		}
	}
}

// Digest is a fingerprint of the parameters, the members and the ordered table.
func (r *Ring) Digest() uint64 {
	h := fnvLen(fnvLen(fnvOffset, int(r.params.Hash)), r.params.VNodes)
	for _, m := range r.members {
		h = fnv(fnvLen(h, len(m.ID)), m.ID)
		h = fnv(fnvLen(h, len(m.Zone)), m.Zone)
		h = fnvLen(h, m.Weight)
	}
	var b [12]byte
	for i, t := range r.tokens {
		binary.BigEndian.PutUint64(b[:], uint64(t))
		binary.BigEndian.PutUint32(b[8:], r.owner[i])
		for _, x := range b {
			h = (h ^ uint64(x)) * fnvPrime
		}
	}
	return h
}

// Owned gives each member's share of the circle as owner, Held as one of n replicas. Owned shares add up to 1.
func (r *Ring) Owned() map[string]float64 { return r.Held(1) }

// Held is described at Owned.
func (r *Ring) Held(n int) map[string]float64 {
	out := map[string]float64{}
	for _, m := range r.members {
		out[m.ID] = 0
	}
	for a := range r.Arcs() {
		for _, id := range r.Replicas(a.Hi, n) {
			out[id] += a.Size()
		}
	}
	return out
}
