package actor

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"chainmail/engine/core"
)

// inner has everything that may be changed in place.
type inner struct {
	Names []string
	ByID  map[string]int
	Next  *inner
}

// raw gives its own bytes away, and keeps those that it is given: it is up to the package that nobody notices.
type raw []byte

func (r raw) MarshalBinary() ([]byte, error)     { return r, nil }
func (r *raw) UnmarshalBinary(data []byte) error { *r = data; return nil }

type sample struct {
	N     int
	S     string
	F     float64
	Pair  [2]int16
	B     []byte
	R     raw
	In    inner
	P     *inner
	Many  []inner
	M, M2 Map[string, inner]
	Num   Map[int32, string] `page:"numbers"`
	L, L2 List[inner]
	Blob  Blob
	Here  int            `page:"-"`
	here  map[string]int //lint:ignore U1000 not exported: no page
}

// model is a sample in plain Go.
type model struct {
	N      int
	S      string
	F      float64
	Pair   [2]int16
	B, R   []byte
	In     inner
	P      *inner
	Many   []inner
	M, M2  map[string]inner
	Num    map[int32]string
	L, L2  []inner
	lo     [2]uint64
	Blob   []byte
	commit int
}

func (in inner) clone() inner {
	out := inner{slices.Clone(in.Names), maps.Clone(in.ByID), nil}
	if in.Next != nil {
		next := in.Next.clone()
		out.Next = &next
	}
	return out
}

func cloneAll(in []inner) []inner {
	if in == nil {
		return nil
	}
	out := []inner{}
	for _, x := range in {
		out = append(out, x.clone())
	}
	return out
}

func (m *model) clone() *model {
	out := *m
	out.B, out.R, out.Blob, out.Num = bytes.Clone(m.B), bytes.Clone(m.R), bytes.Clone(m.Blob), maps.Clone(m.Num)
	out.In, out.Many, out.L, out.L2 = m.In.clone(), cloneAll(m.Many), cloneAll(m.L), cloneAll(m.L2)
	if m.P != nil {
		p := m.P.clone()
		out.P = &p
	}
	out.M, out.M2 = map[string]inner{}, map[string]inner{}
	for k, v := range m.M {
		out.M[k] = v.clone()
	}
	for k, v := range m.M2 {
		out.M2[k] = v.clone()
	}
	return &out
}

// checkState compares a state with its model.
func checkState(t *rapid.T, what string, s *sample, m *model) {
	t.Helper()
	for _, x := range []struct {
		name      string
		got, want any
	}{
		{"N", s.N, m.N}, {"S", s.S, m.S}, {"F", s.F, m.F}, {"Pair", s.Pair, m.Pair}, {"B", string(s.B), string(m.B)}, {"R", string(s.R), string(m.R)},
		{"In", s.In, m.In}, {"P", s.P, m.P}, {"Many", s.Many, m.Many}, {"Blob", string(s.Blob.Bytes()), string(m.Blob)},
		{"M", maps.Collect(s.M.All()), m.M}, {"M2", maps.Collect(s.M2.All()), m.M2}, {"Num", maps.Collect(s.Num.All()), m.Num},
		{"L", listed(&s.L, m.lo[0]), m.L}, {"L2", listed(&s.L2, m.lo[1]), m.L2},
		{"Len", [...]int{s.M.Len(), s.M2.Len(), s.Num.Len(), s.L.Len(), s.L2.Len()}, [...]int{len(m.M), len(m.M2), len(m.Num), len(m.L), len(m.L2)}},
	} {
		if !sameText(x.got, x.want) {
			t.Fatalf("%s: %s is\n%s, want\n%s", what, x.name, text(x.got), text(x.want))
		}
	}
	var last *int32
	for k := range s.Num.All() {
		if last != nil && *last >= k {
			t.Fatalf("%s: %d comes after %d", what, k, *last)
		}
		last = &k
	}
}

func listed(l *List[inner], first uint64) []inner {
	var out []inner
	for i, v := range l.All() {
		if i != first+uint64(len(out)) {
			panic(fmt.Sprintf("element %d has number %d", len(out), i))
		}
		out = append(out, v)
	}
	return out
}

// text writes a value with what its pointers point to; a nil slice and an empty one are alike, as in some codecs.
func text(v any) string {
	switch v := v.(type) {
	case inner:
		next := ""
		if v.Next != nil {
			next = text(*v.Next)
		}
		return fmt.Sprintf("{%q %v %s}", v.Names, v.ByID, next)
	case *inner:
		if v == nil {
			return "nil"
		}
		return "&" + text(*v)
	case []inner:
		out := "["
		for _, x := range v {
			out += text(x)
		}
		return out + "]"
	case map[string]inner:
		out := "map["
		for _, k := range slices.Sorted(maps.Keys(v)) {
			out += fmt.Sprintf("%q:", k) + text(v[k])
		}
		return out + "]"
	}
	return fmt.Sprintf("%v", v)
}

func sameText(a, b any) bool { return reflect.DeepEqual(a, b) || text(a) == text(b) }

// machine runs a state and its model side by side.
type machine struct {
	d         *def
	st        *state
	now       *model
	committed *model // as of the last take
	pages     map[string]core.Page
	ahead     []core.Change // taken, and not in pages yet: a commit is in flight
}

func (x *machine) s() *sample { return x.st.ptr.Interface().(*sample) }

func (x *machine) load(t *rapid.T, pages map[string]core.Page) *state {
	st, err := x.d.load(pages)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func applied(pages map[string]core.Page, changes []core.Change) map[string]core.Page {
	out := maps.Clone(pages)
	for _, c := range changes {
		if c.Delete {
			delete(out, c.Name)
		} else {
			out[c.Name] = core.Page{Name: c.Name, Data: bytes.Clone(c.Data)} // what is sent is what it was then
		}
	}
	return out
}

// commit takes the changes: with what was there they are all of the state.
func (x *machine) commit(t *rapid.T) {
	changes, err := x.st.take()
	if err != nil {
		t.Fatal(err)
	}
	// An empty raw comes back as nil: what is written for it may change without need.
	if x.now.commit == 0 && slices.ContainsFunc(changes, func(c core.Change) bool { return c.Name != "R" }) {
		t.Fatalf("nothing was done, and %d pages changed: %v", len(changes), changes)
	}
	x.now.commit = 0
	x.ahead = append(x.ahead, changes...)
	checkState(t, "loaded from its pages", x.load(t, applied(x.pages, x.ahead)).ptr.Interface().(*sample), x.now)
	x.committed = x.now.clone()
}

// settle puts what was committed into the pages, as the engine does before the next message.
func (x *machine) settle() {
	x.pages = applied(x.pages, x.ahead)
	x.ahead = nil
	x.st.on(x.pages)
}

var someInner = rapid.Custom(func(t *rapid.T) inner {
	in := inner{Names: rapid.SliceOfN(rapid.StringN(0, 3, 6), 0, 3).Draw(t, "names")}
	if rapid.Bool().Draw(t, "has a map") {
		in.ByID = rapid.MapOfN(rapid.StringMatching(`[a-c]`), rapid.IntRange(-2, 2), 0, 2).Draw(t, "by id")
	}
	if rapid.IntRange(0, 2).Draw(t, "has a next") == 0 {
		in.Next = &inner{Names: []string{"next"}}
	}
	return in
})

// inPlace changes what a value points to.
func inPlace(in *inner, what int) {
	switch {
	case what == 0 && len(in.Names) > 0:
		in.Names[0] += "!"
	case what == 1 && in.ByID != nil:
		in.ByID["a"]++
	case what == 2 && in.Next != nil:
		in.Next.Names[0] += "?"
	}
}

// fields changes a plain field, or something behind it.
func (x *machine) fields(t *rapid.T) {
	s, m := x.s(), x.now
	m.commit++
	switch rapid.IntRange(0, 13).Draw(t, "field") {
	case 0:
		s.N = rapid.IntRange(-1, 2).Draw(t, "n")
		m.N = s.N
	case 1:
		s.S = rapid.StringN(0, 3, 6).Draw(t, "s")
		m.S = s.S
	case 2:
		s.F = rapid.SampledFrom([]float64{0, 1, 2.5}).Draw(t, "f")
		m.F = s.F
	case 3:
		s.Pair[1] = rapid.Int16Range(0, 2).Draw(t, "pair")
		m.Pair = s.Pair
	case 4:
		s.B = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "b")
		m.B = bytes.Clone(s.B)
	case 5:
		if len(s.B) > 0 {
			s.B[0]++
			m.B[0]++
		}
	case 6:
		s.R = rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "r")
		m.R = bytes.Clone(s.R)
	case 7:
		if len(s.R) > 0 {
			s.R[0]++
			m.R[0]++
		}
	case 8:
		in := someInner.Draw(t, "in")
		s.In, m.In = in, in.clone()
	case 9:
		what := rapid.IntRange(0, 2).Draw(t, "what")
		inPlace(&s.In, what)
		inPlace(&m.In, what)
	case 10:
		s.P, m.P = nil, nil
		if rapid.Bool().Draw(t, "p") {
			in := someInner.Draw(t, "in")
			m2 := in.clone()
			s.P, m.P = &in, &m2
		}
	case 11:
		if what := rapid.IntRange(0, 2).Draw(t, "what"); s.P != nil {
			inPlace(s.P, what)
			inPlace(m.P, what)
		}
	case 12:
		in := someInner.Draw(t, "in")
		s.Many, m.Many = append(s.Many, in), append(m.Many, in.clone())
	case 13:
		if what := rapid.IntRange(0, 2).Draw(t, "what"); len(s.Many) > 0 {
			inPlace(&s.Many[0], what)
			inPlace(&m.Many[0], what)
		}
	}
	s.Here++
}

func (x *machine) maps(t *rapid.T) {
	s, m := x.s(), x.now
	m.commit++
	k := rapid.StringMatching(`[a-d]{0,2}`).Draw(t, "key")
	id := rapid.Int32Range(-3, 3).Draw(t, "id")
	switch rapid.IntRange(0, 8).Draw(t, "what") {
	case 0, 1, 2:
		in := someInner.Draw(t, "value")
		s.M.Set(k, in)
		m.M[k] = in.clone()
		inPlace(&in, 0) // what was set is the map's own
	case 3:
		_, had := m.M[k]
		if s.M.Delete(k) != had || s.M.Has(k) {
			t.Fatalf("%q was there: %t", k, had)
		}
		delete(m.M, k)
	case 4:
		s.M.Clear()
		clear(m.M)
	case 5:
		v := rapid.StringN(0, 3, 6).Draw(t, "value")
		s.Num.Set(id, v)
		m.Num[id] = v
	case 6:
		s.Num.Delete(id)
		delete(m.Num, id)
	case 7: // a value that was got is a copy
		v, ok := s.M.Get(k)
		if want, has := m.M[k]; ok != has || text(v) != text(want) {
			t.Fatalf("%q is %s, want %s", k, text(v), text(want))
		}
		inPlace(&v, 0)
	case 8: // a loop that takes out what it sees
		for k := range s.Num.From(id) {
			s.Num.Delete(k)
			delete(m.Num, k)
		}
	}
}

func (x *machine) lists(t *rapid.T) {
	s, m := x.s(), x.now
	m.commit++
	at := rapid.IntRange(0, 4).Draw(t, "at")
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0, 1:
		in := rapid.SliceOfN(someInner, 0, 3).Draw(t, "values")
		s.L.Append(in...)
		m.L = append(m.L, cloneAll(in)...)
	case 2:
		in := someInner.Draw(t, "value")
		if ok := s.L.Set(m.lo[0]+uint64(at), in); ok != (at < len(m.L)) {
			t.Fatalf("element %d of %d was set: %t", at, len(m.L), ok)
		} else if ok {
			m.L[at] = in.clone()
		}
	case 3:
		v, ok := s.L.PopFront()
		if ok != (len(m.L) > 0) || ok && text(v) != text(m.L[0]) {
			t.Fatalf("popped %s, %t of %s", text(v), ok, text(m.L))
		} else if ok {
			m.L, m.lo[0] = m.L[1:], m.lo[0]+1
		}
	case 4:
		v, ok := s.L.PopBack()
		if ok != (len(m.L) > 0) || ok && text(v) != text(m.L[len(m.L)-1]) {
			t.Fatalf("popped %s, %t of %s", text(v), ok, text(m.L))
		} else if ok {
			m.L = m.L[:len(m.L)-1]
		}
	case 5:
		n := min(at, len(m.L))
		s.L.Trim(m.lo[0] + uint64(at))
		m.L, m.lo[0] = m.L[n:], m.lo[0]+uint64(n)
	}
}

func (x *machine) blobs(t *rapid.T) {
	s, m := x.s(), x.now
	m.commit++
	off := rapid.SampledFrom([]int{0, 1, 4095, 4096, 5000, 9000}).Draw(t, "offset")
	switch rapid.IntRange(0, 2).Draw(t, "what") {
	case 0:
		data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.SampledFrom([]int{0, 1, 100, 4096, 5000}).Draw(t, "n"))
		s.Blob.WriteAt(data, int64(off))
		if len(data) > 0 {
			m.Blob = append(m.Blob, make([]byte, max(0, off+len(data)-len(m.Blob)))...)
			copy(m.Blob[off:], data)
		}
		clear(data)
	case 1:
		s.Blob.Truncate(int64(off))
		m.Blob = append(m.Blob[:min(off, len(m.Blob))], make([]byte, max(0, off-len(m.Blob)))...)
	case 2:
		s.Blob.Set([]byte("anew"))
		m.Blob = []byte("anew")
	}
}

// moved puts containers into other fields, or fresh ones into theirs.
func (x *machine) moved(t *rapid.T) {
	s, m := x.s(), x.now
	m.commit++
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		s.L, s.L2 = s.L2, s.L
		m.L, m.L2, m.lo[0], m.lo[1] = m.L2, m.L, m.lo[1], m.lo[0]
	case 1:
		s.M, s.M2 = s.M2, s.M
		m.M, m.M2 = m.M2, m.M
	case 2:
		s.L2 = s.L
		m.L2, m.lo[1] = cloneAll(m.L), m.lo[0]
	case 3:
		in := someInner.Draw(t, "value")
		s.M = Map[string, inner]{}
		s.M.Set("fresh", in)
		m.M = map[string]inner{"fresh": in.clone()}
	case 4:
		in := someInner.Draw(t, "value")
		s.L = List[inner]{}
		s.L.Append(in)
		m.L, m.lo[0] = []inner{in.clone()}, 0
	case 5:
		s.M2 = s.M
		m.M2 = m.clone().M
	}
	x.commit(t) // until then a container and its copy are one
}

// Whatever is done to a state, in whatever order: what is committed is enough to build it anew, what failed leaves no
// trace, and nothing depends on what memory is shared with whom.
func TestStateIsItsPages(t *testing.T) {
	for name, c := range map[string]Codec{"msgpack": MsgPack, "json": JSON, "binary": Binary, "protobuf": Protobuf} {
		t.Run(name, func(t *testing.T) {
			typ := NewType("sample", Options[sample]{Codec: c})
			if err := Check(typ); err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) {
				empty := &model{M: map[string]inner{}, M2: map[string]inner{}, Num: map[int32]string{}}
				x := &machine{d: typ.d, now: empty, committed: empty.clone(), pages: map[string]core.Page{"unknown": {Name: "unknown", Data: []byte("x")}}}
				x.st = x.load(t, x.pages)
				t.Repeat(map[string]func(*rapid.T){
					"fields": x.fields, "maps": x.maps, "lists": x.lists, "blobs": x.blobs, "moved": x.moved,
					"commit": x.commit,
					"settle": func(t *rapid.T) { x.commit(t); x.settle() },
					"fail": func(t *rapid.T) {
						if err := x.st.undo(); err != nil {
							t.Fatal(err)
						}
						x.now = x.committed.clone()
					},
					"move": func(t *rapid.T) { x.commit(t); x.settle(); x.st = x.load(t, x.pages) },
					"":     func(t *rapid.T) { checkState(t, "state", x.s(), x.now) },
				})
				if string(x.pages["unknown"].Data) != "x" {
					t.Fatal("a page that the type does not know is gone")
				}
			})
		})
	}
}
