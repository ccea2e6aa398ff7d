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
	// tabled is up to which replica count the sets are computed once: lookups then allocate nothing.
	tabled = 3
	maxID  = 64
)

// Ring is an immutable table from tokens to members.
type Ring struct {
	params  Params
	members []Member // sorted by id
	tokens  []Token  // ascending
	owner   []uint32 // index in members, for each token
	sets    [tabled + 1][][]string
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
	r.fill()
	r.indexTokens()
	for n := 1; n <= tabled; n++ {
		r.sets[n] = r.table(n)
	}
	return r, nil
}

func (r *Ring) fill() {
	type vnode struct {
		t Token
		m uint32
	}
	var vs []vnode
	for i, m := range r.members {
		for k := range r.params.VNodes * m.Weight {
			vs = append(vs, vnode{vnodeToken(m.ID, k), uint32(i)})
		}
	}
	slices.SortFunc(vs, func(a, b vnode) int { // members are sorted by id: equal tokens are ordered by it
		return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.m, b.m))
	})
	r.tokens = make([]Token, len(vs))
	r.owner = make([]uint32, len(vs))
	for i, v := range vs {
		r.tokens[i], r.owner[i] = v.t, v.m
	}
}

// indexTokens makes a lookup one table access and a short scan: about one token falls on each value of the top bits.
func (r *Ring) indexTokens() {
	bits := uint(1)
	for 1<<bits < len(r.tokens) && bits < 20 {
		bits++
	}
	r.shift = 64 - bits
	r.first = make([]int32, 1<<bits)
	i := 0
	for b := range r.first {
		for i < len(r.tokens) && int(r.tokens[i]>>r.shift) < b {
			i++
		}
		r.first[b] = int32(i)
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

// table computes the replica sets of all table entries; equal sets share memory.
func (r *Ring) table(n int) [][]string {
	n = min(n, len(r.members))
	out := make([][]string, len(r.tokens))
	seen := map[string][]string{}
	var key []byte
	w := newWalk(r)
	for i := range r.tokens {
		picked := w.from(i, n)
		key = key[:0]
		for _, m := range picked {
			key = binary.BigEndian.AppendUint32(key, m)
		}
		set, ok := seen[string(key)]
		if !ok {
			set = make([]string, len(picked))
			for k, m := range picked {
				set[k] = r.members[m].ID
			}
			seen[string(key)] = set
		}
		out[i] = set
	}
	return out
}

// walk finds replica sets; it keeps its buffers from one to the next.
type walk struct {
	r      *Ring
	zones  []int // zone number of each member
	nzones int
	met    []int // stamp of the walk that met a member
	zmet   []int
	stamp  int
	out    []uint32
}

func newWalk(r *Ring) *walk {
	w := &walk{r: r, zones: make([]int, len(r.members)), met: make([]int, len(r.members)), zmet: make([]int, len(r.members))}
	num := map[string]int{}
	for i, m := range r.members {
		z, ok := num[m.Zone]
		if !ok {
			z = len(num)
			num[m.Zone] = z
		}
		w.zones[i] = z
	}
	w.nzones = len(num)
	return w
}

// from gives the replica set of table entry i, as indexes of members. The result is valid until the next call.
func (w *walk) from(i, n int) []uint32 {
	w.stamp++
	reps, want := 0, min(n, w.nzones)
	extra := n - want // places left for members of zones that are represented
	w.out = w.out[:0]
	for k := 0; k < len(w.r.tokens) && len(w.out) < n; k++ {
		m := w.r.owner[(i+k)%len(w.r.tokens)]
		if w.met[m] == w.stamp {
			continue
		}
		w.met[m] = w.stamp
		z := w.zones[m]
		switch {
		case w.zmet[z] != w.stamp && reps < want:
			w.zmet[z] = w.stamp
			reps++
			w.out = append(w.out, m)
		case w.zmet[z] == w.stamp && extra > 0:
			extra--
			w.out = append(w.out, m)
		}
	}
	return w.out
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
	if n <= tabled {
		return r.sets[n][r.index(t)]
	}
	picked := newWalk(r).from(r.index(t), n)
	out := make([]string, len(picked))
	for i, m := range picked {
		out[i] = r.members[m].ID
	}
	return out
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
