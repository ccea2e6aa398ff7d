package actor

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"chainmail/engine/core"
)

// Two versions of a program: the newer one has more everywhere, and lacks what the old one has in Gone.

type oldAddress struct {
	Street string
	Geo    struct{ Lat int }
	ByName map[string]struct{ N int }
	Opt    *struct{ A int }
	Zero   int                     `codec:",omitempty" json:",omitempty"`
	ByYear map[int]struct{ N int } `codec:",omitempty" json:",omitempty"`
	Stops  []struct{ A int }       `codec:",omitempty" json:",omitempty"`
}

type newAddress struct {
	Street string
	Zip    string
	Geo    struct{ Lat, Long int }
	ByName map[string]struct{ N, M int }
	Opt    *struct{ A, B int }
	Zero   int
	Tags   []string
	ByYear map[int]struct{ N, M int } `codec:",omitempty" json:",omitempty"`
	Stops  []struct{ A, B int }       `codec:",omitempty" json:",omitempty"`
}

type oldState struct {
	Gone  int
	Name  string
	At    oldAddress
	Homes Map[string, oldAddress]
	Log   List[oldAddress]
}

type newState struct {
	Name  string
	Phone string
	At    newAddress
	Homes Map[string, newAddress]
	Log   List[newAddress]
	More  Map[string, int]
	Data  Blob
}

func full(street string) newAddress {
	a := newAddress{Street: street, Zip: "12345", ByName: map[string]struct{ N, M int }{"a": {1, 2}, "b": {3, 4}}, Opt: &struct{ A, B int }{5, 6}, Tags: []string{"x"}}
	a.Geo.Lat, a.Geo.Long = 7, 8
	return a
}

// program runs a version of a program on the pages: f changes the state, which is committed.
func program[S any](t *testing.T, c Codec, pages map[string]core.Page, f func(*S)) map[string]core.Page {
	t.Helper()
	typ := NewType("typ", Options[S]{Codec: c})
	if err := Check(typ); err != nil {
		t.Fatal(err)
	}
	st, err := typ.d.load(pages)
	if err != nil {
		t.Fatal(err)
	}
	f(st.ptr.Interface().(*S))
	changes, err := st.take()
	if err != nil {
		t.Fatal(err)
	}
	out := maps.Clone(pages)
	for _, ch := range changes {
		if ch.Delete {
			delete(out, ch.Name)
		} else {
			out[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
		}
	}
	st.on(out)
	if again, err := st.take(); err != nil || len(again) > 0 {
		t.Errorf("nothing was done, and %v changed: %v", again, err)
	}
	return out
}

// What a newer program has written stays when an older one writes the same pages, and the other way round.
func TestOlderProgramKeepsWhatItDoesNotKnow(t *testing.T) {
	for name, c := range map[string]Codec{"msgpack": MsgPack, "json": JSON, "binary": Binary, "protobuf": Protobuf} {
		t.Run(name, func(t *testing.T) {
			pages := program(t, c, map[string]core.Page{}, func(s *oldState) { s.Gone = 42 })
			pages = program(t, c, pages, func(s *newState) {
				if s.Name != "" || s.Phone != "" || s.At.Zip != "" || s.More.Len() != 0 || s.Data.Size() != 0 {
					t.Errorf("new fields are not zero: %+v", s)
				}
				s.Name, s.Phone, s.At = "n", "p", full("old street")
				s.Homes.Set("h", full("home"))
				s.Homes.Set("other", full("other"))
				s.Log.Append(full("log"))
				s.More.Set("x", 1)
				s.Data.Set([]byte("blob"))
			})
			pages = program(t, c, pages, func(s *oldState) {
				if s.Gone != 42 {
					t.Errorf("a page of a field that the newer program lacks: %d", s.Gone)
				}
				s.Name = "changed"
				s.At.Street, s.At.Geo.Lat, s.At.Opt.A = "new street", -7, -5
				delete(s.At.ByName, "b")
				s.At.ByName["a"] = struct{ N int }{-1}
				h, _ := s.Homes.Get("h")
				h.Street = "new home"
				s.Homes.Set("h", h)
				l, _ := s.Log.At(0)
				l.Street = "new log"
				s.Log.Set(0, l)
				s.Homes.Delete("other")
				s.Homes.Set("fresh", oldAddress{Street: "fresh"})
			})
			program(t, c, pages, func(s *newState) {
				want := full("new street")
				want.Geo.Lat, want.Opt.A = -7, -5
				want.ByName = map[string]struct{ N, M int }{"a": {-1, 2}}
				home, log := full("new home"), full("new log")
				h, _ := s.Homes.Get("h")
				l, _ := s.Log.At(0)
				x, _ := s.More.Get("x")
				fresh, _ := s.Homes.Get("fresh")
				for i, p := range [][2]newAddress{{s.At, want}, {h, home}, {l, log}, {fresh, {Street: "fresh"}}} {
					if got, want := show(p[0]), show(p[1]); got != want {
						t.Errorf("%d: %s\nwant %s", i, got, want)
					}
				}
				if s.Name != "changed" || s.Phone != "p" || x != 1 || string(s.Data.Bytes()) != "blob" || s.Homes.Has("other") {
					t.Errorf("%+v %d %q", s, x, s.Data.Bytes())
				}
			})
			// What the old program sees as zero keeps its page for the rest of it.
			pages = program(t, c, pages, func(s *oldState) { s.At = oldAddress{} })
			program(t, c, pages, func(s *newState) {
				if s.At.Zip != "12345" || s.At.Street != "" || len(s.At.ByName) > 0 {
					t.Errorf("after it was zeroed: %s", show(s.At))
				}
				s.At = newAddress{}
			})
			pages = program(t, c, pages, func(s *newState) { s.At = newAddress{} })
			pages = program(t, c, pages, func(s *oldState) { s.At.Street = "s" })
			pages = program(t, c, pages, func(s *oldState) { s.At = oldAddress{} })
			if _, ok := pages["At"]; ok {
				t.Errorf("a field that is zero for all has a page: %q", pages["At"].Data)
			}
		})
	}
}

func show(a newAddress) string {
	opt := ""
	if a.Opt != nil {
		opt = fmt.Sprint(*a.Opt)
	}
	return fmt.Sprintf("%s %s %v %v %s %d %v", a.Street, a.Zip, a.Geo, a.ByName, opt, a.Zero, a.Tags)
}

// The entries of a map of structs have nothing of each other: neither what they lack, nor the memory of what they have.
func TestMapsOfStructs(t *testing.T) {
	type entry struct {
		ID   int `codec:",omitempty"`
		Tags []string
		By   map[string]int
		In   struct{ List []int }
		Sub  map[int]struct{ L []string }
	}
	type key struct {
		A int `codec:",omitempty"`
		B int `codec:",omitempty"`
	}
	type all struct {
		Named map[string]entry
		Keyed map[key]entry
		Deep  map[int]map[string]entry
	}
	of := func(n int) (e entry) {
		if n%2 == 0 { // an odd one has less
			e.ID, e.By = n, map[string]int{fmt.Sprint(n): n}
		}
		for i := range 4 - n {
			e.Tags = append(e.Tags, fmt.Sprint(n, i))
			e.In.List = append(e.In.List, 10*n+i)
		}
		e.Sub = map[int]struct{ L []string }{n: {e.Tags}, n + 1: {e.Tags[1:]}}
		return e
	}
	v := all{Named: map[string]entry{}, Keyed: map[key]entry{}, Deep: map[int]map[string]entry{0: {}, 1: {}}}
	for n := range 4 {
		v.Named[fmt.Sprint(n)] = of(n)
		v.Keyed[key{n % 2, n / 2}] = of(n)
		v.Deep[n%2][fmt.Sprint(n)] = of(n)
	}
	for name, c := range map[string]Codec{"msgpack": MsgPack, "binary": Binary, "protobuf": Protobuf} {
		b, err := c.Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		var got all
		if err := c.Unmarshal(b, &got); err != nil || fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("%s: %v\n%v is read as\n%v", name, err, v, got)
		}
		again, err := c.Marshal(&got)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s: %q is written again as %q, %v", name, b, again, err)
		}
	}
}

type oldItem struct{ ID, N int }

type newItem struct {
	ID, N int
	Note  string
}

// Fields that are not known stay in the values of maps, whatever their keys are.
func TestUnknownInMapsOfAnyKeys(t *testing.T) {
	type anyKeys[V any] struct {
		Small  map[uint8]V
		Signed map[int64]V
		Real   map[float64]V
		Flag   map[bool]V
		Pair   map[[2]int]V
		Struct map[struct{ A, B int }]*V
		Deep   map[int]map[string]V
		List   map[int][]V
	}
	maps := func(t *testing.T, c Codec) {
		pages := program(t, c, map[string]core.Page{}, func(s *anyKeys[newItem]) {
			of := func(n int) newItem { return newItem{n, n, fmt.Sprint("note ", n)} }
			s.Small = map[uint8]newItem{1: of(1), 200: of(2), 3: of(3)}
			s.Signed = map[int64]newItem{-1: of(4), 1 << 40: of(5)}
			s.Real = map[float64]newItem{0.5: of(6), -1: of(7)}
			s.Flag = map[bool]newItem{true: of(8), false: of(9)}
			s.Pair = map[[2]int]newItem{{1, 2}: of(10), {2, 1}: of(11)}
			first, second := of(12), of(13)
			s.Struct = map[struct{ A, B int }]*newItem{{1, 2}: &first, {2, 1}: &second}
			s.Deep = map[int]map[string]newItem{1: {"x": of(14), "y": of(15)}}
			s.List = map[int][]newItem{-5: {of(16), of(17)}}
		})
		pages = program(t, c, pages, func(s *anyKeys[oldItem]) {
			change := func(v oldItem) oldItem { return oldItem{v.ID, -v.N} }
			s.Small[200], s.Signed[-1], s.Real[0.5], s.Flag[true], s.Pair[[2]int{2, 1}] = change(s.Small[200]), change(s.Signed[-1]), change(s.Real[0.5]), change(s.Flag[true]), change(s.Pair[[2]int{2, 1}])
			delete(s.Small, 3)
			s.Small[4] = oldItem{3, 3} // as it was elsewhere, it is another
			s.Struct[struct{ A, B int }{1, 2}].N = -12
			s.Deep[1]["y"] = change(s.Deep[1]["y"])
			s.List[-5] = append(s.List[-5], oldItem{18, 18})
		})
		program(t, c, pages, func(s *anyKeys[newItem]) {
			got := fmt.Sprint(s.Small, s.Signed, s.Real, s.Flag, s.Pair, *s.Struct[struct{ A, B int }{1, 2}], *s.Struct[struct{ A, B int }{2, 1}], s.Deep, s.List)
			want := "map[1:{1 1 note 1} 4:{3 3 } 200:{2 -2 note 2}] map[-1:{4 -4 note 4} 1099511627776:{5 5 note 5}] map[-1:{7 7 note 7} 0.5:{6 -6 note 6}] " +
				"map[false:{9 9 note 9} true:{8 -8 note 8}] map[[1 2]:{10 10 note 10} [2 1]:{11 -11 note 11}] {12 -12 note 12} {13 13 note 13} " +
				"map[1:map[x:{14 14 note 14} y:{15 -15 note 15}]] map[-5:[{16 16 note 16} {17 17 note 17} {18 18 }]]"
			if got != want {
				t.Errorf("%s\nwant %s", got, want)
			}
		})
	}
	for name, c := range map[string]Codec{"msgpack": MsgPack, "binary": Binary, "protobuf": Protobuf} {
		t.Run(name, func(t *testing.T) { maps(t, c) })
	}
	t.Run("json", func(t *testing.T) { // its keys are strings, or written as such
		type state[V any] struct{ Signed map[int64]V }
		pages := program(t, JSON, map[string]core.Page{}, func(s *state[newItem]) { s.Signed = map[int64]newItem{-1: {1, 1, "x"}, 10: {2, 2, "y"}} })
		pages = program(t, JSON, pages, func(s *state[oldItem]) { s.Signed[-1] = oldItem{1, -1} })
		program(t, JSON, pages, func(s *state[newItem]) {
			if got, want := fmt.Sprint(s.Signed), "map[-1:{1 -1 x} 10:{2 2 y}]"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	})
	// Where a key is there twice nobody can say which entry is which.
	entry := func(key float64, v any) pair {
		k, _ := MsgPack.Marshal(key)
		b, _ := MsgPack.Marshal(v)
		return pair{string(k), b}
	}
	old := msgpackForm.unite([]pair{entry(math.NaN(), newItem{1, 1, "x"}), entry(1, newItem{2, 2, "y"})})
	b := msgpackForm.unite([]pair{entry(math.NaN(), oldItem{1, 2}), entry(math.NaN(), oldItem{1, 3})})
	typ := reflect.TypeFor[map[float64]oldItem]()
	if kept := formOf(MsgPack, typ).keep(typ, old, b); !bytes.Equal(kept, b) {
		t.Errorf("one NaN became two, and they have %q", kept)
	}
}

// Elements of slices keep what is not known of them where they go, and none takes over another's.
func TestUnknownInSlicesIsNotMixed(t *testing.T) {
	type state[V any] struct {
		In struct {
			Other int
			Items []V
			Ptrs  []*V
			Fixed [3]V
		}
	}
	a, b, c := newItem{1, 1, "a"}, newItem{2, 2, "b"}, newItem{3, 3, "c"}
	a2 := newItem{1, 1, "other"} // looks like a
	bare := func(n int) newItem { return newItem{n, n, ""} }
	type items = []oldItem
	for name, x := range map[string]struct {
		was  []newItem
		do   func(s items) items
		want []newItem
	}{
		"nothing":              {[]newItem{a, b, c}, func(s items) items { return s }, []newItem{a, b, c}},
		"append":               {[]newItem{a, b}, func(s items) items { return append(s, oldItem{3, 3}) }, []newItem{a, b, bare(3)}},
		"before the first":     {[]newItem{a, b}, func(s items) items { return slices.Insert(s, 0, oldItem{3, 3}) }, []newItem{bare(3), a, b}},
		"without the first":    {[]newItem{a, b, c}, func(s items) items { return s[1:] }, []newItem{b, c}},
		"the other way round":  {[]newItem{a, b, c}, func(s items) items { slices.Reverse(s); return s }, []newItem{c, b, a}},
		"one changed":          {[]newItem{a, b, c}, func(s items) items { s[1].N = 9; return s }, []newItem{a, {2, 9, ""}, c}},
		"one replaced":         {[]newItem{a, b, c}, func(s items) items { return append(s[:2], oldItem{4, 4}) }, []newItem{a, b, bare(4)}},
		"a queue":              {[]newItem{a, b}, func(s items) items { return append(s[1:], oldItem{3, 3}) }, []newItem{b, bare(3)}},
		"changed and moved":    {[]newItem{a, b}, func(s items) items { s[0].N = 9; slices.Reverse(s); return s }, []newItem{b, {1, 9, ""}}},
		"two alike, as before": {[]newItem{a, a2, b}, func(s items) items { s[2].N = 9; return s }, []newItem{a, a2, {2, 9, ""}}},
		"one of two alike":     {[]newItem{a, a2, b}, func(s items) items { return s[1:] }, []newItem{bare(1), b}},
		"two alike, moved":     {[]newItem{a, a2, b}, func(s items) items { slices.Reverse(s); return s }, []newItem{b, bare(1), bare(1)}},
		"the same, one goes":   {[]newItem{a, b, a}, func(s items) items { return s[1:] }, []newItem{b, a}},
		"the same, moved":      {[]newItem{a, b, a}, func(s items) items { s[0], s[1] = s[1], s[0]; return s }, []newItem{b, a, a}},
		"a copy":               {[]newItem{a, b}, func(s items) items { return append(s, s[0]) }, []newItem{bare(1), b, bare(1)}},
		"none is left":         {[]newItem{a, b}, func(s items) items { return s[:0] }, []newItem{}},
	} {
		for codec, c := range map[string]Codec{"msgpack": MsgPack, "json": JSON} {
			t.Run(codec+"/"+name, func(t *testing.T) {
				pages := program(t, c, map[string]core.Page{}, func(s *state[newItem]) {
					s.In.Items = x.was
					for _, v := range x.was {
						s.In.Ptrs = append(s.In.Ptrs, &v)
					}
					copy(s.In.Fixed[:], x.was)
				})
				pages = program(t, c, pages, func(s *state[oldItem]) {
					s.In.Other++
					var ptrs items
					for _, v := range s.In.Ptrs {
						ptrs = append(ptrs, *v)
					}
					s.In.Ptrs = nil
					for _, v := range x.do(ptrs) {
						s.In.Ptrs = append(s.In.Ptrs, &v)
					}
					fixed := x.do(slices.Clone(s.In.Fixed[:len(x.was)]))
					clear(s.In.Fixed[:])
					copy(s.In.Fixed[:], fixed)
					s.In.Items = x.do(s.In.Items)
				})
				program(t, c, pages, func(s *state[newItem]) {
					ptrs := []newItem{}
					for _, v := range s.In.Ptrs {
						ptrs = append(ptrs, *v)
					}
					if fmt.Sprint(s.In.Items) != fmt.Sprint(x.want) || fmt.Sprint(ptrs) != fmt.Sprint(x.want) {
						t.Errorf("%v became %v, and by pointers %v, want %v", x.was, s.In.Items, ptrs, x.want)
					}
					if want := fmt.Sprint(append(x.want, make([]newItem, 3)...)[:3]); len(x.want) <= 3 && fmt.Sprint(s.In.Fixed) != want {
						t.Errorf("%v became %v in an array, want %v", x.was, s.In.Fixed, want)
					}
				})
			})
		}
	}
}

// Protobuf messages keep their unknown fields, in fields and in containers.
func TestProtobufKeepsUnknownFields(t *testing.T) {
	type newer struct {
		F *descriptorpb.FieldDescriptorProto
		M Map[string, *descriptorpb.FieldDescriptorProto]
	}
	type older struct { // StringValue has field 1 alone
		F *wrapperspb.StringValue
		M Map[string, *wrapperspb.StringValue]
	}
	whole := &descriptorpb.FieldDescriptorProto{Name: proto.String("name"), Number: proto.Int32(7), JsonName: proto.String("json")}
	pages := program(t, Protobuf, map[string]core.Page{}, func(s *newer) {
		s.F = whole
		s.M.Set("x", whole)
	})
	pages = program(t, Protobuf, pages, func(s *older) {
		s.F.Value += "!"
		v, _ := s.M.Get("x")
		v.Value += "?"
		s.M.Set("x", v)
	})
	program(t, Protobuf, pages, func(s *newer) {
		m, _ := s.M.Get("x")
		for want, got := range map[string]*descriptorpb.FieldDescriptorProto{"name!": s.F, "name?": m} {
			if got.GetName() != want || got.GetNumber() != 7 || got.GetJsonName() != "json" {
				t.Errorf("%v, want %s", got, want)
			}
		}
	})
}

// A change of one entry of many is one small page, and takes no longer than with few.
func TestOneEntryOfMany(t *testing.T) {
	const many = 100_000
	type big struct{ Entries Map[string, inner] }
	typ := NewType("big", Options[big]{})
	pages := map[string]core.Page{}
	key := func(i int) string { return fmt.Sprintf("k%07d", i) }
	st, err := typ.d.load(pages)
	if err != nil {
		t.Fatal(err)
	}
	s := st.ptr.Interface().(*big)
	for i := range many {
		s.Entries.Set(key(i), inner{Names: []string{"v"}})
	}
	commit := func() (bytes int, names []string) {
		changes, err := st.take()
		if err != nil {
			t.Fatal(err)
		}
		for _, ch := range changes {
			bytes += len(ch.Name) + len(ch.Data)
			names = append(names, ch.Name)
			if ch.Delete {
				delete(pages, ch.Name)
			} else {
				pages[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
			}
		}
		st.on(pages)
		return bytes, names
	}
	if commit(); len(pages) != many || s.Entries.Len() != many {
		t.Fatalf("%d pages, %d entries", len(pages), s.Entries.Len())
	}
	for _, change := range []func(){
		func() { s.Entries.Set(key(5000), inner{Names: []string{"w"}}) },
		func() { s.Entries.Delete(key(7000)) },
		func() { s.Entries.Set(key(7000), inner{}) },
		func() { s.Entries.Set("new", inner{}) },
	} {
		change()
		if n, names := commit(); n >= 1<<10 || len(names) != 1 {
			t.Errorf("a change of one entry is %d bytes: %q", n, names)
		}
	}
	if got := s.Entries.Len(); got != many+1 {
		t.Errorf("%d entries", got)
	}
	allocs := testing.AllocsPerRun(100, func() { // that it does not grow with the map is seen by what it allocates
		s.Entries.Set(key(5000), inner{})
		st.take()
	})
	if allocs > 60 {
		t.Errorf("a change of one entry takes %f allocations", allocs)
	}
}

func BenchmarkOneEntryOfMany(b *testing.B) {
	type big struct{ Entries Map[string, inner] }
	for _, many := range []int{10, 100_000} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			typ := NewType("big", Options[big]{})
			pages := map[string]core.Page{}
			st, _ := typ.d.load(pages)
			s := st.ptr.Interface().(*big)
			for i := range many {
				s.Entries.Set(fmt.Sprint(i), inner{})
			}
			s.Entries.Len()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				k := fmt.Sprint(i * 7919 % many)
				if i++; i%2 == 0 {
					s.Entries.Delete(k)
				} else {
					s.Entries.Set(k, inner{})
				}
				changes, _ := st.take()
				for _, ch := range changes {
					pages[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
					if ch.Delete {
						delete(pages, ch.Name)
					}
				}
				st.on(pages)
			}
		})
	}
}

// Names stay a sorted set.
func TestNames(t *testing.T) {
	want := map[string]bool{}
	s := namesOf(nil)
	for i := range 20_000 {
		n := fmt.Sprint(i * 7919 % 3001)
		if i%3 == 0 {
			s.remove(n)
			delete(want, n)
		} else {
			s.add(n)
			want[n] = true
		}
	}
	all := slices.Sorted(maps.Keys(want))
	if !slices.Equal(s.all(), all) || s.n != len(all) {
		t.Fatalf("%d names (%d said), want %d", len(s.all()), s.n, len(all))
	}
	i := 0
	for n, ok := s.from("", false); ok; n, ok = s.from(n, true) {
		if n != all[i] {
			t.Fatalf("%q follows, want %q", n, all[i])
		}
		i++
	}
	if i != len(all) {
		t.Errorf("%d names in a walk", i)
	}
	for _, n := range all {
		s.remove(n)
	}
	if _, ok := s.from("", false); ok || s.n != 0 {
		t.Error("names are left")
	}
}
