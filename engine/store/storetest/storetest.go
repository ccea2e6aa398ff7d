// Package storetest is the contract of a store as a test: every kind of store runs it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"chainmail/engine/core"
	"chainmail/engine/store"
	"chainmail/ring"
)

// Open opens one place, again and again: what was stored there is there.
type Open func(o store.Owner) (store.Store, store.Start, error)

// Owner is the member that the tests open stores for.
var Owner = store.Owner{ClusterName: "test", Member: "a"}

// Run runs the contract. fresh gives a new place.
func Run(t *testing.T, fresh func(t *testing.T) Open) {
	for _, c := range []struct {
		name string
		f    func(*testing.T, Open)
	}{
		{"identity", identity}, {"cluster", cluster}, {"view", viewIsKept}, {"changes", changes}, {"older", older}, {"sizes", sizes}, {"closed", closed},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, fresh(t)) })
	}
	t.Run("crash", func(t *testing.T) { crashes(t, fresh) })
}

func must(t *testing.T, open Open) (store.Store, store.Start) {
	t.Helper()
	s, start, err := open(Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, start
}

// Again closes a store and opens its place anew.
func again(t *testing.T, open Open, s store.Store) (store.Store, store.Start) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return must(t, open)
}

func apply(t *testing.T, s store.Store, puts ...core.Put) {
	t.Helper()
	if err := s.Apply(context.Background(), puts, nil); err != nil {
		t.Fatal(err)
	}
}

// Epoch gives an epoch of member a.
func Epoch(v, n uint64) core.Epoch { return core.Epoch{Version: v, Number: n, Member: "a"} }

// Page gives a page with its checksum.
func Page(name, data string, s core.Stamp) core.Page {
	return core.Page{Name: name, Stamp: s, Sum: core.PageSum(name, []byte(data)), Data: []byte(data)}
}

// Model is what a store must hold: a map, written in the dumbest way.
type Model map[core.Key]core.Record

// Apply changes the model.
func (m Model) Apply(p core.Put) {
	if p.Drop {
		delete(m, p.Key)
		return
	}
	var keep []core.Page
	for _, old := range m[p.Key].Pages {
		replaced := p.Full || slices.Contains(p.Removed, old.Name) || slices.ContainsFunc(p.Pages, func(x core.Page) bool { return x.Name == old.Name })
		if !replaced {
			keep = append(keep, old)
		}
	}
	keep = append(keep, p.Pages...)
	slices.SortFunc(keep, func(a, b core.Page) int { return strings.Compare(a.Name, b.Name) })
	m[p.Key] = core.Record{Key: p.Key, Meta: p.Meta, Pages: keep}
}

// Diff says what differs, "" if nothing does.
func (m Model) Diff(saved *core.Saved) string {
	got := Model{}
	for _, r := range saved.Records {
		got[r.Key] = r
	}
	if len(got) != len(m) || len(got) != len(saved.Records) {
		return fmt.Sprintf("%d copies of %d keys, want %d", len(saved.Records), len(got), len(m))
	}
	same := func(a, b core.Page) bool {
		return a.Name == b.Name && a.Stamp == b.Stamp && a.Sum == b.Sum && bytes.Equal(a.Data, b.Data)
	}
	for k, want := range m {
		if g := got[k]; g.Meta != want.Meta || !slices.EqualFunc(g.Pages, want.Pages, same) {
			return fmt.Sprintf("%s is\n%+v, want\n%+v", k, g, want)
		}
	}
	return ""
}

func (m Model) clone() Model {
	out := Model{}
	for k, r := range m {
		out[k] = r
	}
	return out
}

func identity(t *testing.T, open Open) {
	s, first := must(t, open)
	if first.Incarnation == 0 || first.Boot != 1 || first.Saved == nil || len(first.Saved.Records) != 0 || first.Saved.View != nil {
		t.Fatalf("a new store gives %+v", first)
	}
	if _, _, err := open(Owner); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a second opener gets %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, o := range []store.Owner{{ClusterName: "test", Member: "b"}, {ClusterName: "other", Member: "a"}} {
		if _, _, err := open(o); !errors.Is(err, store.ErrIdentity) || !strings.Contains(err.Error(), o.Member) {
			t.Errorf("%s gets %v", o, err)
		}
	}
	if len(first.Starts) != 1 || first.Starts[0] == 0 {
		t.Errorf("the first start has the numbers %x", first.Starts)
	}
	known := first.Starts
	for boot := first.Boot + 1; boot < 4; boot++ {
		s, start := must(t, open)
		if start.Incarnation != first.Incarnation || start.Boot != boot {
			t.Errorf("opened again: incarnation %x (was %x), boot %d, want %d", start.Incarnation, first.Incarnation, start.Boot, boot)
		}
		if n := len(known); len(start.Starts) != n+1 || !slices.Equal(start.Starts[:n], known) || slices.Contains(known, start.Starts[n]) {
			t.Errorf("opened again: starts %x after %x", start.Starts, known)
		}
		known = start.Starts
		if boot == 3 { // those before the one that the log has shown are of no interest any more
			if err := s.Apply(context.Background(), nil, &core.View{Members: []core.MemberInfo{{ID: Owner.Member, Incarnation: start.Incarnation, Start: known[1]}}}); err != nil {
				t.Fatal(err)
			}
			known = known[1:]
		}
		s.Close()
	}
	s, last := must(t, open)
	if n := len(known); len(last.Starts) != n+1 || !slices.Equal(last.Starts[:n], known) {
		t.Errorf("starts %x, where the view lists the first of %x", last.Starts, known)
	}
	s.Close()
}

func cluster(t *testing.T, open Open) {
	s, _ := must(t, open)
	for range 2 {
		if err := s.Bind(context.Background(), "one"); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Bind(context.Background(), "two"); !errors.Is(err, store.ErrIdentity) {
		t.Errorf("another cluster gets %v", err)
	}
	s, _ = again(t, open, s)
	if err := s.Bind(context.Background(), "two"); !errors.Is(err, store.ErrIdentity) {
		t.Errorf("another cluster gets %v after a restart", err)
	}
	if err := s.Bind(context.Background(), "one"); err != nil {
		t.Error(err)
	}
}

func viewIsKept(t *testing.T, open Open) {
	s, _ := must(t, open)
	v := &core.View{Revision: 7, Version: 5, Stage: core.Switch, Base: []ring.Member{{ID: "a", Weight: 1}}, Members: []core.MemberInfo{{ID: "a", Incarnation: 1 << 63}}, Replicas: map[string]int{"": 3}}
	if err := s.Apply(context.Background(), nil, v); err != nil {
		t.Fatal(err)
	}
	apply(t, s, core.Put{Key: core.Key{Type: "k"}, Meta: core.CopyMeta{Promised: Epoch(1, 1)}}) // leaves the view alone
	s, start := again(t, open, s)
	if !reflect.DeepEqual(start.Saved.View, v) {
		t.Errorf("%+v", start.Saved.View)
	}
	w := *v
	w.Revision = 8
	if err := s.Apply(context.Background(), nil, &w); err != nil {
		t.Fatal(err)
	}
	if _, start = again(t, open, s); !reflect.DeepEqual(start.Saved.View, &w) || len(start.Saved.Records) != 1 {
		t.Errorf("%+v", start.Saved)
	}
}

// changes: any sequence of changes is there when the store is opened again.
func changes(t *testing.T, open Open) {
	s, _ := must(t, open)
	want := Model{}
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 60 {
		puts := Puts(r, uint64(i+1))
		apply(t, s, puts...)
		for _, p := range puts {
			want.Apply(p)
		}
		if i%7 == 0 {
			var start store.Start
			s, start = again(t, open, s)
			if d := want.Diff(start.Saved); d != "" {
				t.Fatalf("after change %d: %s", i, d)
			}
		}
	}
}

// Puts gives the changes of round i, whose stamps are above those of the rounds before.
func Puts(r *rand.Rand, i uint64) []core.Put {
	var puts []core.Put
	for n := range 1 + r.Uint64N(4) {
		puts = append(puts, randomPut(r, i, n))
	}
	return puts
}

func randomPut(r *rand.Rand, i, n uint64) core.Put {
	// Names that are prefixes of each other, and types that run into names, must not be mixed up.
	k := core.Key{Type: []string{"k", "kv"}[r.IntN(2)], Name: []string{"a", "ab", "abc", "va", "", "\x00", "a\x00b", "\xff"}[r.IntN(8)]}
	s := core.Stamp{Epoch: Epoch(i, i), Seq: n}
	p := core.Put{Key: k, Meta: core.CopyMeta{Promised: Epoch(i, i+n), Stamp: s}, Full: r.IntN(3) == 0, Drop: r.IntN(8) == 0}
	switch {
	case p.Drop:
		p.Meta = core.CopyMeta{}
		return p
	case p.Full && r.IntN(4) == 0:
		p.Meta.Stamp = core.Stamp{} // forgets the state, keeps the promise
		return p
	}
	for _, name := range []string{"", "p", "pq", "@active", "\x00"} {
		switch r.IntN(3) {
		case 0:
			p.Pages = append(p.Pages, Page(name, strings.Repeat(fmt.Sprint("data", i), r.IntN(3)), s))
		case 1:
			if !p.Full {
				p.Removed = append(p.Removed, name)
			}
		}
	}
	return p
}

// older: what would lower a promise or a stamp is refused, with all that came with it.
func older(t *testing.T, open Open) {
	k := core.Key{Type: "kv", Name: "k"}
	at := func(v, n, seq uint64) core.CopyMeta {
		return core.CopyMeta{Promised: Epoch(v, n+1), Stamp: core.Stamp{Epoch: Epoch(v, n), Seq: seq}}
	}
	held := core.Put{Key: k, Meta: at(5, 5, 5), Pages: []core.Page{Page("p", "x", at(5, 5, 5).Stamp)}}
	s, _ := must(t, open)
	apply(t, s, held)
	want := Model{}
	want.Apply(held)
	promiseOnly := core.CopyMeta{Promised: Epoch(5, 6)}
	for name, p := range map[string]core.Put{
		"lower version":               {Key: k, Meta: at(4, 9, 9)},
		"lower sequence":              {Key: k, Meta: at(5, 5, 4), Full: true},
		"lower promise":               {Key: k, Meta: core.CopyMeta{Promised: Epoch(5, 5), Stamp: at(5, 5, 5).Stamp}},
		"lower member":                {Key: k, Meta: core.CopyMeta{Promised: core.Epoch{Version: 5, Number: 6, Member: "A"}, Stamp: at(5, 5, 5).Stamp}},
		"no stamp, not full":          {Key: k, Meta: promiseOnly},
		"no stamp, full, with a page": {Key: k, Meta: promiseOnly, Full: true, Pages: []core.Page{Page("p", "y", core.Stamp{})}},
	} {
		other := core.Put{Key: core.Key{Type: "kv", Name: "other"}, Meta: at(1, 1, 1)}
		for _, puts := range [][]core.Put{{p}, {other, p}, {held, p, other}} {
			if err := s.Apply(context.Background(), puts, nil); !errors.Is(err, store.ErrOlder) || !strings.Contains(err.Error(), k.String()) {
				t.Errorf("%s: %v", name, err)
			}
			var start store.Start
			s, start = again(t, open, s)
			if d := want.Diff(start.Saved); d != "" {
				t.Fatalf("%s: %s", name, d)
			}
		}
	}
	// The same again, a promise alone, all forgotten, and anything after a drop are no such thing.
	for i, puts := range [][]core.Put{
		{held}, {held, held},
		{{Key: k, Meta: core.CopyMeta{Promised: Epoch(6, 1), Stamp: at(5, 5, 5).Stamp}}},
		{{Key: k, Meta: core.CopyMeta{Promised: Epoch(6, 1)}, Full: true}},
		{{Key: k, Drop: true}}, {held},
		{{Key: k, Drop: true}, {Key: k, Meta: at(1, 1, 1)}},
		{{Key: k, Meta: at(2, 1, 1)}, {Key: k, Drop: true}},
	} {
		apply(t, s, puts...)
		for _, p := range puts {
			want.Apply(p)
		}
		var start store.Start
		s, start = again(t, open, s)
		if d := want.Diff(start.Saved); d != "" {
			t.Fatalf("case %d: %s", i, d)
		}
	}
}

// sizes: a batch of many keys, a page of 1 MiB, names and data of any bytes.
func sizes(t *testing.T, open Open) {
	s, _ := must(t, open)
	want := Model{}
	for round := range uint64(3) {
		st := core.Stamp{Epoch: Epoch(round+1, 1), Seq: 1}
		var puts []core.Put
		for i := range 1500 {
			puts = append(puts, core.Put{Key: core.Key{Type: "kv", Name: fmt.Sprint("key", i)}, Meta: core.CopyMeta{Promised: st.Epoch, Stamp: st}, Full: i%2 == 0,
				Pages: []core.Page{Page("v", fmt.Sprint(round, i), st), Page(fmt.Sprint(round), "", st)}})
		}
		large := strings.Repeat("\x00\xff'\\", 1<<18)
		puts = append(puts, core.Put{Key: core.Key{Type: strings.Repeat("t", 512), Name: strings.Repeat("\x01", 512)}, Meta: core.CopyMeta{Promised: st.Epoch, Stamp: st},
			Pages: []core.Page{Page("large", large, st), Page(strings.Repeat("n", 200), large[:70000], st)}})
		apply(t, s, puts...)
		for _, p := range puts {
			want.Apply(p)
		}
	}
	_, start := again(t, open, s)
	if d := want.Diff(start.Saved); d != "" {
		t.Fatal(d)
	}
}

func closed(t *testing.T, open Open) {
	s, _ := must(t, open)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(context.Background(), []core.Put{{Key: core.Key{Type: "kv", Name: "a"}}}, nil); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store answers %v", err)
	}
	if err := s.Bind(context.Background(), "x"); !errors.Is(err, store.ErrClosed) {
		t.Errorf("a closed store answers %v", err)
	}
}
