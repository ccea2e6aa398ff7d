package actor

import (
	"fmt"
	"maps"
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
	Zero   int `codec:",omitempty" json:",omitempty"`
}

type newAddress struct {
	Street string
	Zip    string
	Geo    struct{ Lat, Long int }
	ByName map[string]struct{ N, M int }
	Opt    *struct{ A, B int }
	Zero   int
	Tags   []string
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
