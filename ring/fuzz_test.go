package ring

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// decoder takes parameters and member lists out of arbitrary bytes; beyond the end it reads zeros.
type decoder struct{ b []byte }

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		return 0
	}
	x := d.b[0]
	d.b = d.b[1:]
	return x
}

func (d *decoder) text(n int) string {
	n = min(n, len(d.b))
	s := string(d.b[:n])
	d.b = d.b[n:]
	return s
}

// decode reads a byte of parameters, then for each member a byte that says where it is (two bits), whether it is down,
// its zone (two bits) and the length of its id (three bits), its weight, and its id. Wrong values are among them.
func decode(b []byte) (Params, change) {
	d := &decoder{b}
	x := d.byte()
	p, c := Params{HashV1, int(x & 7)}, change{down: map[string]bool{}}
	if x >= 0xf0 {
		p.Hash = x & 3
	}
	for len(d.b) > 0 && len(c.from)+len(c.to) < 24 {
		x, w := d.byte(), d.byte()
		m := Member{Zone: []string{"", "x", "y", "z"}[x>>3&3], Weight: int(w&7) - 1, ID: d.text(int(x >> 5))}
		if w >= 0xf8 {
			m.Weight, m.ID = MaxWeight+1, m.ID+strings.Repeat("l", maxID)
		}
		if x&3 != 1 {
			c.from = append(c.from, m)
		}
		if x&3 != 2 {
			c.to = append(c.to, m)
		}
		if x&3 == 3 && w&0x80 != 0 {
			c.to[len(c.to)-1].Weight++
		}
		c.down[m.ID] = x&4 != 0
	}
	return p, c
}

// badIn gives the members that New must refuse, with what the error may call them.
func badIn(ms []Member) (names []string) {
	seen := map[string]bool{}
	for _, m := range ms {
		if m.ID == "" || len(m.ID) > 64 || m.Weight < 1 || m.Weight > 64 || seen[m.ID] {
			names = append(names, "member "+m.ID, fmt.Sprintf("member id %q", m.ID))
		}
		seen[m.ID] = true
	}
	return names
}

func namesOne(err error, names []string) bool {
	for _, n := range names {
		if strings.Contains(err.Error(), n) {
			return true
		}
	}
	return false
}

func FuzzNew(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, c := decode(b)
		names := badIn(c.from)
		if p.Hash != HashV1 || p.VNodes == 0 {
			names = []string{fmt.Sprintf("algorithm %d", p.Hash), fmt.Sprintf("%d virtual nodes", p.VNodes)}
		}
		r, err := New(p, c.from)
		if (err != nil) != (len(names) > 0) || err != nil && !namesOne(err, names) {
			t.Fatalf("%+v %+v: %v", p, c.from, err)
		}
		if err != nil {
			return
		}
		o := oracleOf(p.VNodes, c.from, oracleVnode)
		agree(t, r, o, bounds(o))
		if len(c.from) > 0 {
			coverOnce(t, rand.New(rand.NewPCG(1, 0)), r)
		}
	})
}

// FuzzChain checks chain and diff of whatever two lists the bytes give.
func FuzzChain(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, c := decode(b)
		steps, err := Chain(c.from, c.to, func(id string) bool { return c.down[id] })
		if names := refusedBy(c); (err != nil) != (len(names) > 0) || err != nil && !namesOne(err, names) {
			t.Fatalf("%+v: %v, want one that names %q", c, err, names)
		}
		if err != nil {
			return
		}
		leads(t, c, steps)
		ordered(t, c, steps)
		if p.Hash != HashV1 || p.VNodes == 0 || len(badIn(c.from))+len(badIn(c.to)) > 0 {
			return
		}
		for _, s := range steps {
			base, next := must(t, p, s.Base), must(t, p, s.Next)
			a, b := oracleOf(p.VNodes, s.Base, oracleVnode), oracleOf(p.VNodes, s.Next, oracleVnode)
			at := bounds(a, b)
			oneReplica(t, s, base, next, at)
			n := 1 + int(at[0]%MaxReplicas)
			compareMoves(t, Diff(base, next, n), a, b, n, at)
			tidy(t, Diff(base, next, n))
		}
	})
}

// refusedBy gives what the error of a chain may name: nothing if there must be none.
func refusedBy(c change) (names []string) {
	was := map[string]Member{}
	for _, m := range c.from {
		if _, ok := was[m.ID]; ok {
			names = append(names, "member "+m.ID)
		}
		was[m.ID] = m
	}
	seen := map[string]bool{}
	for _, m := range c.to {
		if old, ok := was[m.ID]; seen[m.ID] || ok && old != m {
			names = append(names, "member "+m.ID)
		}
		seen[m.ID] = true
	}
	if len(c.to) == 0 {
		names = append(names, "target set is empty")
	}
	return names
}

// seeds has a few lists that decode to something of interest.
func seeds() [][]byte {
	in := func(where, zone, weight byte, id string) string {
		return string([]byte{where | zone<<3 | byte(len(id))<<5, weight + 1}) + id
	}
	var out [][]byte
	for _, s := range []string{
		"",
		"\x00" + in(0, 0, 1, "a"),
		"\xf2" + in(0, 0, 1, "a"),
		"\x03" + in(0, 0, 1, "a") + in(0, 0, 1, "b") + in(1, 0, 1, "c"),
		"\x03" + in(0, 1, 1, "a") + in(0, 2, 2, "b") + in(2, 3, 1, "c") + in(6, 1, 1, "d") + in(1, 1, 3, "e"),
		"\x05" + in(0, 1, 1, "a") + in(0, 1, 1, "b") + in(2, 2, 1, "c") + in(1, 3, 1, "d"),
		"\x02" + in(0, 0, 1, "a") + in(0, 0, 1, "a"),
		"\x02" + in(0, 0, 0, "a") + in(0, 0, 1, ""),
		"\x02" + in(2, 0, 1, "a") + in(1, 1, 1, "a"),
	} {
		out = append(out, []byte(s))
	}
	return out
}

func FuzzRange(f *testing.F) {
	f.Add(uint64(0), uint64(0), uint64(0))
	f.Add(uint64(10), uint64(20), uint64(10))
	f.Add(uint64(20), uint64(10), ^uint64(0))
	f.Add(^uint64(0), uint64(0), uint64(0))
	f.Fuzz(func(t *testing.T, lo, hi, x uint64) {
		checkRange(t, Token(lo), Token(hi), Token(x))
	})
}

func FuzzKeyToken(f *testing.F) {
	f.Add("", "")
	f.Add("counter", "a")
	f.Add(strings.Repeat("x", 128), strings.Repeat("y", 16384))
	f.Fuzz(func(t *testing.T, typ, key string) {
		if got, want := KeyToken(HashV1, typ, key), oracleKey(typ, key); got != want {
			t.Fatalf("%q %q: %x, want %x", typ, key, got, want)
		}
	})
}
