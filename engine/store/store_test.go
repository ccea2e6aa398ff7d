package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"chainmail/engine/core"
	"chainmail/ring"
)

func open(t *testing.T, path string) *Bolt {
	t.Helper()
	b, err := Open(path, "a")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func epoch(v, n uint64) core.Epoch { return core.Epoch{Version: v, Number: n, Member: "a"} }

func page(name, data string, s core.Stamp) core.Page {
	return core.Page{Name: name, Stamp: s, Sum: core.PageSum(name, []byte(data)), Data: []byte(data)}
}

// model is what a store must hold: a map, written in the dumbest way.
type model map[core.Key]core.Record

func (m model) apply(p core.Put) {
	if p.Drop {
		delete(m, p.Key)
		return
	}
	r := m[p.Key]
	var keep []core.Page
	if !p.Full {
		for _, old := range r.Pages {
			replaced := slices.Contains(p.Removed, old.Name) || slices.ContainsFunc(p.Pages, func(x core.Page) bool { return x.Name == old.Name })
			if !replaced {
				keep = append(keep, old)
			}
		}
	}
	keep = append(keep, p.Pages...)
	slices.SortFunc(keep, func(a, b core.Page) int { return strings.Compare(a.Name, b.Name) })
	m[p.Key] = core.Record{Key: p.Key, Meta: p.Meta, Pages: keep}
}

func (m model) check(t *testing.T, what string, b *Bolt) {
	t.Helper()
	saved, err := b.Load()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	got := model{}
	for _, r := range saved.Records {
		got[r.Key] = r
	}
	if len(got) != len(m) || len(b.Corrupt) != 0 {
		t.Fatalf("%s: %d copies, %d corrupt, want %d", what, len(got), len(b.Corrupt), len(m))
	}
	for k, want := range m {
		if g := got[k]; g.Meta != want.Meta || !slices.EqualFunc(g.Pages, want.Pages, func(a, b core.Page) bool { return reflect.DeepEqual(a, b) }) {
			t.Fatalf("%s: %s is\n%+v, want\n%+v", what, k, g, want)
		}
	}
}

// Any sequence of changes is there after a restart, and after a crash between any two of them: the file is copied as it
// is on disk after each Apply and opened again.
func TestContract(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		path := filepath.Join(dir, "copies.db")
		b := open(t, path)
		want := model{}
		for i := range 40 {
			var puts []core.Put
			for range 1 + r.IntN(4) {
				p := randomPut(r, uint64(i))
				if p.Drop && r.IntN(2) == 0 {
					continue
				}
				puts = append(puts, p)
			}
			if err := b.Apply(puts, nil); err != nil {
				t.Fatal(err)
			}
			for _, p := range puts {
				want.apply(p)
			}
			if i%8 == 0 {
				crashed := filepath.Join(dir, fmt.Sprint("crash", i))
				copyFile(t, path, crashed)
				c := open(t, crashed)
				want.check(t, fmt.Sprintf("seed %d, crash after %d", seed, i), c)
				c.Close()
			}
		}
		b.Close()
		want.check(t, fmt.Sprintf("seed %d, restart", seed), open(t, path))
	}
}

func randomPut(r *rand.Rand, i uint64) core.Put {
	// Names that are prefixes of each other, and types that run into names, must not be mixed up.
	k := core.Key{Type: []string{"k", "kv"}[r.IntN(2)], Name: []string{"a", "ab", "abc", "va", "\x00", "a\x00b"}[r.IntN(6)]}
	s := core.Stamp{Epoch: epoch(i, i), Seq: uint64(r.IntN(5))}
	p := core.Put{Key: k, Meta: core.CopyMeta{Promised: epoch(i, i+1), Stamp: s}, Full: r.IntN(3) == 0, Drop: r.IntN(8) == 0}
	if p.Drop {
		return p
	}
	for _, name := range []string{"", "p", "pq", "@active"} {
		switch r.IntN(3) {
		case 0:
			p.Pages = append(p.Pages, page(name, fmt.Sprint("data", i), s))
		case 1:
			if !p.Full {
				p.Removed = append(p.Removed, name)
			}
		}
	}
	return p
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "copies.db")
	b := open(t, path)
	inc, boot := b.Incarnation(), b.Boot()
	if inc == 0 || boot != 1 {
		t.Fatalf("incarnation %x, boot %d", inc, boot)
	}
	if _, err := Open(path, "a"); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), path) {
		t.Errorf("a second opener gets %v", err)
	}
	b.Close()
	if _, err := Open(path, "b"); !errors.Is(err, ErrIdentity) {
		t.Errorf("another member gets %v", err)
	}
	b = open(t, path)
	if b.Incarnation() != inc || b.Boot() != 2 {
		t.Errorf("after a restart: incarnation %x (was %x), boot %d", b.Incarnation(), inc, b.Boot())
	}
	if other := open(t, filepath.Join(t.TempDir(), "copies.db")); other.Incarnation() == inc {
		t.Error("two files have one incarnation")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
}

func TestViewIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copies.db")
	b := open(t, path)
	if s, err := b.Load(); err != nil || s.View != nil {
		t.Fatalf("%+v %v", s, err)
	}
	v := &core.View{Revision: 7, Version: 5, Stage: core.Switch, Base: []ring.Member{{ID: "a", Weight: 1}}, Members: []core.MemberInfo{{ID: "a", Incarnation: 1 << 63}}, Replicas: map[string]int{"": 3}}
	if err := b.Apply(nil, v); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if s, err := open(t, path).Load(); err != nil || !reflect.DeepEqual(s.View, v) {
		t.Errorf("%+v %v", s.View, err)
	}
}

// A page whose bytes were changed on the disk is found; the copy is not given back.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copies.db")
	b := open(t, path)
	s := core.Stamp{Epoch: epoch(1, 1), Seq: 1}
	for _, name := range []string{"good", "bad"} {
		if err := b.Apply([]core.Put{{Key: core.Key{Type: "kv", Name: name}, Meta: core.CopyMeta{Promised: s.Epoch, Stamp: s}, Full: true, Pages: []core.Page{page("v", "value of "+name, s)}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := []byte(strings.ReplaceAll(string(raw), "value of bad", "value of bat"))
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
	b = open(t, path)
	saved, err := b.Load()
	if err != nil || len(saved.Records) != 1 || saved.Records[0].Key.Name != "good" || len(b.Corrupt) != 1 || b.Corrupt[0].Name != "bad" {
		t.Errorf("%+v, corrupt %v, %v", saved, b.Corrupt, err)
	}
}

func TestWrongFiles(t *testing.T) {
	dir := t.TempDir()
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte(strings.Repeat("no bolt file ", 2000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(garbage, "a"); !errors.Is(err, ErrDamaged) {
		t.Errorf("garbage gives %v", err)
	}
	path := filepath.Join(dir, "copies.db")
	b := open(t, path)
	if err := b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(bMeta).Put(kFormat, []byte{9}) }); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, err := Open(path, "a"); !errors.Is(err, ErrFormat) {
		t.Errorf("a format of the future gives %v", err)
	}
	if err := b.Apply([]core.Put{{Key: core.Key{Type: "kv", Name: "a"}}}, nil); err == nil {
		t.Error("a closed store takes changes")
	}
}

// What is cut off at any byte, or has bytes too many, is an error and no panic.
func TestTruncatedRecords(t *testing.T) {
	k := appendKey(nil, core.Key{Type: "kv", Name: "name"})
	s := core.Stamp{Epoch: epoch(3, 1<<40), Seq: 300}
	v := appendStamp(appendEpoch(nil, epoch(4, 1<<41)), s)
	if r, err := readCopy(k, v); err != nil || r.Key.Name != "name" || r.Meta.Stamp != s {
		t.Fatalf("%+v %v", r, err)
	}
	for i := range k {
		if _, err := readCopy(k[:i], v); !errors.Is(err, ErrDamaged) {
			t.Errorf("key of %d bytes: %v", i, err)
		}
	}
	for i := range v {
		if _, err := readCopy(k, v[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("copy of %d bytes: %v", i, err)
		}
	}
	if _, err := readCopy(k, append(v, 0)); !errors.Is(err, ErrDamaged) {
		t.Errorf("a copy with a byte too many: %v", err)
	}
	p := append(appendStamp(nil, s), 1, 2, 3, 4)
	for i := range p {
		if _, err := readPage([]byte("v"), p[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("page of %d bytes: %v", i, err)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(appendKey(nil, core.Key{Type: "kv", Name: "a"}), appendStamp(appendEpoch(nil, epoch(1, 2)), core.Stamp{Epoch: epoch(1, 2), Seq: 3}))
	f.Fuzz(func(t *testing.T, k, v []byte) {
		readPage(k, v)
		r, err := readCopy(k, v)
		if err != nil {
			return
		}
		k2, v2 := appendKey(nil, r.Key), appendStamp(appendEpoch(nil, r.Meta.Promised), r.Meta.Stamp)
		again, err := readCopy(k2, v2)
		if err != nil || again.Key != r.Key || again.Meta != r.Meta {
			t.Errorf("%+v is read again as %+v, %v", r, again, err)
		}
	})
}
