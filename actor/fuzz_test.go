package actor

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"reflect"
	"testing"
	"time"

	"chainmail/engine/core"
)

// nobody is asked by nobody.
type nobody struct{}

func (nobody) AskActor(context.Context, Call) ([]byte, error) { return nil, errors.New("nobody") }
func (nobody) TellActor(context.Context, Call) error          { return nil }

// alone runs an activation without an engine: what a message changes is committed at once.
type alone struct {
	i     *instance
	pages map[string]core.Page
	seq   uint64
}

func newAlone(t testing.TB, types ...Registered) *alone {
	h, err := NewHost(HostConfig{Member: "m", Types: types, Asker: nobody{}})
	if err != nil {
		t.Fatal(err)
	}
	a := &alone{pages: map[string]core.Page{}}
	a.i = h.instance(types[0].definition(), &core.Execute{Activation: 1, Key: core.Key{Type: NameOf(types[0]), Name: "k"}})
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func (a *alone) ask(method string, body []byte) *core.Executed {
	a.seq++
	x := a.i.run(&core.Execute{Activation: 1, Seq: a.seq, Key: a.i.key, Method: method, Body: body, State: a.pages, Stamp: core.Stamp{Seq: a.seq},
		Deadline: core.Time(time.Minute), First: a.seq == 1})
	for _, ch := range x.Changes {
		switch {
		case ch.Delete && ch.Name == "":
			clear(a.pages)
		case ch.Delete:
			delete(a.pages, ch.Name)
		default:
			a.pages[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
		}
	}
	return x
}

// FuzzOwnMessages: whatever another member sends under the names of the package's own messages, it is answered, harms
// nothing that is there, and leaves no stream behind that was not asked for.
func FuzzOwnMessages(f *testing.F) {
	typ := NewType("fuzzed", Options[sample]{})
	var n *Method[int, int]
	n = Handle(typ, "n", func(ctx context.Context, s *sample, by int) (int, error) {
		s.N += by
		return s.N, Remind(ctx, "r", time.Now().Add(time.Hour), 0, n, 1)
	})
	Stream(typ, "count", func(_ context.Context, s *sample, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range min(max(n, 0), 1000) {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	Collect(typ, "sum", func(_ context.Context, s *sample, in iter.Seq2[int, error]) (sum int, err error) {
		for v, err := range in {
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	})
	methods := []string{doMethod, doneMethod, remindMethod, nextMethod, pushMethod, core.TouchMethod, core.IdleMethod, "count", "sum", "n", ""}
	one, _ := MsgPack.Marshal(1)
	for i := range methods {
		f.Add(uint8(i), []byte{}, []byte{})
		f.Add(uint8(i), pack(&chunk{ID: "x", Seq: 1, Name: "sum", Items: [][]byte{one, one}}), pack(&chunk{ID: "x", Seq: 2, End: true}))
		f.Add(uint8(i), pack(&chunk{ID: "x", Name: "count", End: true, Err: "e", Code: CodeGone}), []byte("r"))
		f.Add(uint8(i), []byte("r"), []byte{0, 0, 0, 0, 0, 0, 0, 1})
	}
	f.Fuzz(func(t *testing.T, which uint8, first, second []byte) {
		a := newAlone(t, typ)
		a.ask("n", one)
		was := string(a.pages["N"].Data)
		method := methods[int(which)%len(methods)]
		for _, body := range [][]byte{first, second, second} {
			if x := a.ask(method, body); x == nil || x.Activation != 1 || x.Seq != a.seq || x.AppCode != 0 && x.Text == "" {
				t.Fatalf("%s is answered by %+v", method, x)
			}
		}
		if method != "n" && string(a.pages["N"].Data) != was {
			t.Errorf("%s has changed the state from %x to %x", method, was, a.pages["N"].Data)
		}
		if len(a.i.streams) > 3 {
			t.Errorf("%d streams are left", len(a.i.streams))
		}
	})
}

// FuzzReminderPage: a page of a reminder that cannot be read keeps nobody from the actor.
func FuzzReminderPage(f *testing.F) {
	typ := NewType("fuzzed", Options[sample]{})
	Handle(typ, "n", func(ctx context.Context, s *sample, n int) (int, error) { s.N += n; return s.N, nil })
	one, _ := MsgPack.Marshal(1)
	good, _ := MsgPack.Marshal(&reminder{At: 1, Every: time.Hour, Method: "n", Body: one})
	other, _ := MsgPack.Marshal(&reminder{At: 1, Method: "nope"})
	f.Add(good)
	f.Add(other)
	f.Add([]byte{})
	f.Add([]byte{0xc1})
	f.Fuzz(func(t *testing.T, page []byte) {
		a := newAlone(t, typ)
		a.pages[remindPrefix+"r"] = core.Page{Data: page}
		if x := a.ask("n", one); x.AppCode != 0 {
			t.Errorf("a message beside it: %s", x.Text)
		}
		a.ask(remindMethod, []byte("r"))
		if x := a.ask("n", one); x.AppCode != 0 {
			t.Errorf("a message after it: %s", x.Text)
		}
	})
}

// FuzzCodecs: bytes are refused or read as a value that is written and read again as the same; what an older program would
// write over them can be read too.
func FuzzCodecs(f *testing.F) {
	v := oldAddress{Street: "s", ByName: map[string]struct{ N int }{"a": {1}}}
	for _, c := range []Codec{MsgPack, JSON, Binary, Protobuf} {
		for _, v := range []any{&v, &[]oldAddress{v}, &map[string]any{"x": 1}, new(*inner)} {
			b, err := c.Marshal(v)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
		b, _ := c.Marshal(&newAddress{Street: "s", Zip: "z", Opt: &struct{ A, B int }{1, 2},
			ByYear: map[int]struct{ N, M int }{-1: {1, 2}, 300: {3, 4}}, Stops: []struct{ A, B int }{{1, 2}, {1, 2}, {3, 4}}})
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for name, c := range map[string]Codec{"msgpack": MsgPack, "json": JSON, "binary": owned(Binary), "protobuf": Protobuf} {
			before := bytes.Clone(data)
			var v oldAddress
			if err := c.Unmarshal(data, &v); err == nil {
				b, err := c.Marshal(&v)
				if err != nil {
					t.Fatalf("%s: %+v was read and cannot be written: %v", name, v, err)
				}
				var again oldAddress
				if err := c.Unmarshal(b, &again); err != nil {
					t.Fatalf("%s: %x was written and cannot be read: %v", name, b, err)
				}
				if b2, _ := c.Marshal(&again); !bytes.Equal(b, b2) {
					t.Errorf("%s: %x is written again as %x", name, b, b2)
				}
				kept := formOf(c, reflect.TypeFor[oldAddress]()).keep(reflect.TypeFor[oldAddress](), data, b)
				if err := c.Unmarshal(kept, &again); err != nil {
					t.Errorf("%s: with what is unknown it is %q, which cannot be read: %v", name, kept, err)
				}
				if b2, _ := c.Marshal(&again); !bytes.Equal(b, b2) {
					t.Errorf("%s: %q kept with %q is read as %q", name, b, data, b2)
				}
			}
			var any1 map[string]any
			c.Unmarshal(data, &any1)
			var raws []raw
			c.Unmarshal(data, &raws)
			if !bytes.Equal(before, data) {
				t.Fatalf("%s has changed what it read", name)
			}
		}
		unpack(data)
	})
}

// FuzzShow: pages that are no state are told, not shown.
func FuzzShow(f *testing.F) {
	typ := NewType("fuzzed", Options[sample]{})
	f.Add("N", []byte{1})
	f.Add("In", []byte{0x81})
	f.Add("L/", []byte{})
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		ShowState(typ, map[string][]byte{name: data})
		if st, err := typ.d.load(map[string]core.Page{name: {Name: name, Data: data}}); err == nil {
			func() {
				defer func() {
					if p := recover(); p != nil {
						if _, ok := p.(*Error); !ok {
							panic(p)
						}
					}
				}()
				s := st.ptr.Interface().(*sample)
				s.L.Len()
				s.Blob.Size()
				for range s.Num.All() {
				}
				for range s.M.All() {
				}
			}()
			st.undo()
		}
	})
}
