package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/bbolt"

	"chainmail/engine/core"
	"chainmail/internal/boltfile"
)

var owner = Owner{ClusterName: "test", Member: "a"}

func open(t *testing.T, path string) (*Bolt, Start) {
	t.Helper()
	b, start, err := OpenBolt(path, owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, start
}

// fill writes copies until the file has trees of several levels, pages that overflow and free pages.
func fill(t *testing.T, b *Bolt, keys int) {
	t.Helper()
	for round := range uint64(2) {
		var puts []core.Put
		for i := range keys {
			s := core.Stamp{Epoch: core.Epoch{Version: round + 1, Number: 1, Member: "a"}, Seq: 1}
			data := []byte(strings.Repeat(fmt.Sprint("value ", i, "."), 1+i%5*100))
			puts = append(puts, core.Put{Key: core.Key{Type: "kv", Name: fmt.Sprintf("%0*d", 1+i%40, i)}, Meta: core.CopyMeta{Promised: s.Epoch, Stamp: s},
				Pages: []core.Page{{Name: "v", Stamp: s, Sum: core.PageSum("v", data), Data: data}}})
		}
		if err := b.Apply(context.Background(), puts, &core.View{Revision: round}); err != nil {
			t.Fatal(err)
		}
	}
}

// whole gives the bytes of a closed file with copies in it, and what it holds.
func whole(t *testing.T, keys int) ([]byte, *core.Saved) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "copies.db")
	b, _ := open(t, path)
	fill(t, b, keys)
	b.Close()
	b, start := open(t, path)
	b.Close()
	if len(start.Saved.Records) != keys {
		t.Fatalf("%d copies", len(start.Saved.Records))
	}
	return read(t, path), start.Saved
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func write(t *testing.T, path string, raw []byte) {
	t.Helper()
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tryDamaged opens a file that may be damaged: it must be refused, and left as it is, or hold everything.
func tryDamaged(t *testing.T, path, what string, raw []byte, want *core.Saved) (refused bool) {
	t.Helper()
	write(t, path, raw)
	b, start, err := OpenBolt(path, owner)
	if err == nil {
		b.Close()
		if !reflect.DeepEqual(start.Saved, want) {
			t.Fatalf("%s: opened with %d copies of %d, or others", what, len(start.Saved.Records), len(want.Records))
		}
		return false
	}
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrForeign) && !errors.Is(err, ErrIdentity) {
		t.Errorf("%s: %v", what, err)
	}
	if text := err.Error(); !strings.Contains(text, path) || !strings.Contains(text, "member a") || !strings.Contains(text, "; ") {
		t.Errorf("%s: the error does not say which file, whose, or what to do: %v", what, err)
	}
	if !bytes.Equal(read(t, path), raw) {
		t.Fatalf("%s: the file was changed", what)
	}
	return true
}

// A file that was cut short at any length is refused, or nothing of it was in what was cut off.
func TestCutShort(t *testing.T) {
	raw, want := whole(t, 120)
	path := filepath.Join(t.TempDir(), "copies.db")
	page := os.Getpagesize()
	var lengths []int
	for at := 0; at <= len(raw); at += page {
		lengths = append(lengths, at-page/2, at-1, at, at+1, at+16, at+80)
	}
	for n := 0; n < 2*page; n += 37 {
		lengths = append(lengths, n)
	}
	refused := 0
	for _, n := range lengths {
		if n >= 0 && n < len(raw) && tryDamaged(t, path, fmt.Sprintf("cut to %d of %d", n, len(raw)), raw[:n], want) {
			refused++
		}
	}
	if refused < len(lengths)/4 {
		t.Errorf("%d of %d lengths were refused", refused, len(lengths))
	}
	for _, extra := range []int{1, page, 10 * page} {
		if tryDamaged(t, path, "longer", append(slices.Clone(raw), make([]byte, extra)...), want) {
			t.Errorf("%d bytes too many are refused", extra)
		}
	}
}

// Whatever byte is changed is found, or nothing was in it.
func TestFlippedBytes(t *testing.T) {
	raw, want := whole(t, 40)
	path := filepath.Join(t.TempDir(), "copies.db")
	page := os.Getpagesize()
	r := rand.New(rand.NewPCG(1, 1))
	flips := 4000
	if testing.Short() {
		flips = 200
	}
	refused := 0
	for i := range flips {
		at := r.IntN(len(raw))
		if i%2 == 0 { // where pages describe themselves
			at = r.IntN(len(raw)/page)*page + r.IntN(160)
		}
		b := slices.Clone(raw)
		b[at] ^= 1 << r.IntN(8)
		if tryDamaged(t, path, fmt.Sprintf("byte %d is %x, was %x", at, b[at], raw[at]), b, want) {
			refused++
		}
	}
	if refused < flips/10 {
		t.Errorf("%d of %d flips were refused", refused, flips)
	}
}

// Pages that were overwritten, lost, or put in each other's place are found.
func TestWrongPages(t *testing.T) {
	raw, want := whole(t, 60)
	path := filepath.Join(t.TempDir(), "copies.db")
	size := os.Getpagesize()
	r := rand.New(rand.NewPCG(2, 1))
	pages := len(raw) / size
	for at := range pages {
		if testing.Short() && at > 1 && at%3 > 0 {
			continue
		}
		for name, with := range map[string][]byte{"zeros": make([]byte, size), "page": raw[r.IntN(pages)*size:][:size], "garbage": garbage(r, size)} {
			b := slices.Clone(raw)
			copy(b[at*size:], with)
			tryDamaged(t, path, fmt.Sprintf("page %d is %s", at, name), b, want)
		}
	}
}

func garbage(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// A commit that did not reach the disk altogether is not there at all: any of its pages may have been written before
// the last one, which makes it count.
func TestTornCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "copies.db")
	b, _ := open(t, path)
	fill(t, b, 30)
	before := read(t, path)
	s := core.Stamp{Epoch: core.Epoch{Version: 9, Number: 1, Member: "a"}, Seq: 1}
	big := bytes.Repeat([]byte("new"), 9000)
	err := b.Apply(context.Background(), []core.Put{{Key: core.Key{Type: "kv", Name: "new"}, Meta: core.CopyMeta{Promised: s.Epoch, Stamp: s},
		Pages: []core.Page{{Name: "v", Stamp: s, Sum: core.PageSum("v", big), Data: big}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
	after := read(t, path)
	size := os.Getpagesize()
	r := rand.New(rand.NewPCG(3, 1))
	crashed := filepath.Join(t.TempDir(), "crashed.db")
	for i := range 40 {
		torn := slices.Clone(before)
		if i%2 == 0 { // the file was made longer before
			torn = append(torn, make([]byte, len(after)-len(before))...)
		}
		for at := 2 * size; at < len(torn); at += size {
			if r.IntN(2) == 0 {
				copy(torn[at:at+size], after[at:])
			}
		}
		write(t, crashed, torn)
		c, start := open(t, crashed)
		if len(start.Saved.Records) != 30 {
			t.Fatalf("%d copies after a torn commit", len(start.Saved.Records))
		}
		c.Close()
	}
	if _, start := open(t, path); len(start.Saved.Records) != 31 {
		t.Errorf("%d copies after the whole commit", len(start.Saved.Records))
	}
}

// A file that loses its end, or goes, while it is open costs its member, not the process, and takes nothing more.
func TestHarmedWhileOpen(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"cut off":           func(path string) error { return os.Truncate(path, 8*int64(os.Getpagesize())) },
		"moved or replaced": func(path string) error { return os.Rename(path, path+".bak") },
		"moved or replaced by": func(path string) error {
			return errors.Join(os.Rename(path, path+".bak"), os.WriteFile(path, make([]byte, 1<<20), 0o600))
		},
	} {
		path := filepath.Join(t.TempDir(), "copies.db")
		b, _ := open(t, path)
		fill(t, b, 120)
		if err := harm(path); err != nil {
			t.Fatal(err)
		}
		err := b.Apply(context.Background(), []core.Put{{Key: core.Key{Type: "kv", Name: "0"}, Drop: true}}, nil)
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), strings.TrimSuffix(name, " by")) {
			t.Errorf("%s: %v", name, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			if _, _, err := OpenBolt(path, owner); !errors.Is(err, ErrDamaged) {
				t.Errorf("opened again: %v", err)
			}
		}
	}
}

func TestOtherFiles(t *testing.T) {
	dir := t.TempDir()
	foreign := filepath.Join(dir, "foreign")
	for _, sync := range []bool{true, false} { // with a list of free pages in the file, and without
		os.Remove(foreign)
		db, err := bbolt.Open(foreign, 0o600, &bbolt.Options{NoFreelistSync: !sync})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucket([]byte("logs"))
			if err != nil {
				return err
			}
			return b.Put([]byte("k"), []byte("v"))
		})
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := OpenBolt(foreign, owner); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), foreign) {
			t.Errorf("a foreign file gives %v", err)
		}
	}
	future := filepath.Join(dir, "future")
	b, _ := open(t, future)
	if err := b.update(func(w *writer) error { return w.put(kindMeta, kFormat, []byte{9}) }); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if _, _, err := OpenBolt(future, owner); !errors.Is(err, ErrFormat) {
		t.Errorf("a format of the future gives %v", err)
	}
	if _, _, err := OpenBolt(dir, owner); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory gives %v", err)
	}
	for name, raw := range map[string][]byte{"empty": {}, "garbage": []byte(strings.Repeat("no bbolt file ", 2000)), "zeros": make([]byte, 1<<16)} {
		path := filepath.Join(dir, name)
		write(t, path, raw)
		if _, _, err := OpenBolt(path, owner); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "move the file away") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What a start that was killed left of a new file does no harm.
	half := filepath.Join(dir, "half")
	write(t, half+".new", []byte("half"))
	if _, start := open(t, half); start.Boot != 1 {
		t.Errorf("%+v", start)
	}
	if info, err := os.Stat(half); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
}

// A disk that is full fails the member, in so many words, and loses nothing that was acknowledged.
func TestFullDisk(t *testing.T) {
	if path := os.Getenv("STORE_TEST_FULL"); path != "" {
		fillUp(path)
		return
	}
	path := filepath.Join(t.TempDir(), "copies.db")
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), "STORE_TEST_FULL="+path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var n int
	var text string
	line := string(out[bytes.Index(out, []byte("acknowledged")):])
	if _, err := fmt.Sscanf(line, "acknowledged %d then %s", &n, &text); err != nil || n < 10 {
		t.Fatalf("%v in %s", err, line)
	}
	if !strings.Contains(line, ErrNoSpace.Error()) || !strings.Contains(line, "make room") {
		t.Errorf("the error is %s", line)
	}
	if _, start := open(t, path); len(start.Saved.Records) != n {
		t.Errorf("%d copies, %d were acknowledged", len(start.Saved.Records), n)
	}
}

// fillUp writes in a process whose files may not grow beyond a limit.
func fillUp(path string) {
	signal.Ignore(syscall.SIGXFSZ)
	b, _, err := OpenBolt(path, owner)
	if err == nil {
		b.db.NoGrowSync = true // to make a file longer takes no room on most disks: it is the write that fails
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20})
	}
	n := 0
	for ; err == nil; n++ {
		s := core.Stamp{Epoch: core.Epoch{Version: 1, Number: 1, Member: "a"}, Seq: 1}
		data := bytes.Repeat([]byte("x"), 10_000)
		err = b.Apply(context.Background(), []core.Put{{Key: core.Key{Type: "kv", Name: fmt.Sprint(n)}, Meta: core.CopyMeta{Promised: s.Epoch, Stamp: s},
			Pages: []core.Page{{Name: "v", Stamp: s, Sum: core.PageSum("v", data), Data: data}}}}, nil)
	}
	fmt.Printf("acknowledged %d then %v\n", n-1, err)
}

// Records that were cut off at any byte, or have bytes too many, are errors and no panics.
func TestTruncatedRecords(t *testing.T) {
	e := core.Epoch{Version: 3, Number: 1 << 40, Member: "a"}
	k := appendKey(nil, core.Key{Type: "kv", Name: "name"})
	s := core.Stamp{Epoch: e, Seq: 300}
	v := appendStamp(appendEpoch(nil, core.Epoch{Version: 4, Number: 1 << 41, Member: "a"}), s)
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
	e := core.Epoch{Version: 1, Number: 2, Member: "a"}
	f.Add(appendKey(nil, core.Key{Type: "kv", Name: "a"}), appendStamp(appendEpoch(nil, e), core.Stamp{Epoch: e, Seq: 3}))
	f.Fuzz(func(t *testing.T, k, v []byte) {
		readPage(k, v)
		entryHash(kindPage, k, v)
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

// The inspection of a file never panics, whatever is in it.
func FuzzInspect(f *testing.F) {
	path := filepath.Join(f.TempDir(), "copies.db")
	b, _, err := OpenBolt(path, owner)
	if err != nil {
		f.Fatal(err)
	}
	b.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint(16), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, at uint, with []byte) {
		b := slices.Clone(raw)
		copy(b[at%uint(len(b)):], with)
		boltfile.Inspect(bytes.NewReader(b), int64(len(b)), nil)
	})
}
