package coordinator

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"

	"chainmail/coordinator/membership"
	"chainmail/internal/boltfile"
)

// kept is what a Raft node must not forget.
type kept struct {
	term, vote uint64
	candidate  string
	logs       []raft.Log
}

func readKept(t *testing.T, s *stores) (k kept) {
	t.Helper()
	var err error
	must := func() {
		if err != nil {
			t.Fatal(err)
		}
	}
	k.term, err = s.stable.GetUint64([]byte("CurrentTerm"))
	must()
	k.vote, err = s.stable.GetUint64([]byte("LastVoteTerm"))
	must()
	c, err := s.stable.Get([]byte("LastVoteCand"))
	must()
	k.candidate = string(c)
	first, err := s.log.FirstIndex()
	must()
	last, err := s.log.LastIndex()
	must()
	for i := first; i <= last; i++ {
		var l raft.Log
		err = s.log.GetLog(i, &l)
		must()
		k.logs = append(k.logs, l)
	}
	return k
}

// wholeLog gives the bytes of a closed log, and what it holds.
func wholeLog(t *testing.T) ([]byte, kept) {
	t.Helper()
	dir := t.TempDir()
	s, err := openStores(dir, "a", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 200; i++ {
		b, err := membership.Encode(membership.Command{Limits: &membership.LimitsCommand{Limits: membership.Limits{Rate: int64(i)}}})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(s.stable.SetUint64([]byte("CurrentTerm"), 1+i/10), s.stable.SetUint64([]byte("LastVoteTerm"), 1+i/10), s.stable.Set([]byte("LastVoteCand"), []byte("b:1")),
			s.log.StoreLog(&raft.Log{Index: i, Term: 1 + i/10, Type: raft.LogCommand, Data: b}))
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.log.DeleteRange(1, 20); err != nil { // pages that are free
		t.Fatal(err)
	}
	k := readKept(t, s)
	if err := s.close.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, raftFile))
	if err != nil {
		t.Fatal(err)
	}
	return raw, k
}

// tryLog opens a log that may be damaged: it is refused and left as it is, or it holds what it held.
func tryLog(t *testing.T, what string, raw []byte, want kept) (refused bool) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, raftFile)
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := openStores(dir, "a", hclog.NewNullLogger())
	if err == nil {
		defer s.close.Close()
		if have := readKept(t, s); !reflect.DeepEqual(have, want) {
			t.Errorf("%s: opened with term %d, vote %d and %d entries, or others; it held %d, %d and %d", what, have.term, have.vote, len(have.logs), want.term, want.vote, len(want.logs))
		}
		return false
	}
	for _, word := range []string{"store is damaged", path, "member a", "empty one"} {
		if !strings.Contains(err.Error(), word) && !errors.Is(err, membership.ErrVersion) {
			t.Errorf("%s: the error does not say %q: %v", what, word, err)
		}
	}
	if have, _ := os.ReadFile(path); !bytes.Equal(have, raw) && errors.Is(err, ErrDamaged) && !strings.Contains(err.Error(), "entry") {
		t.Errorf("%s: the file was changed", what)
	}
	return true
}

// A log that was cut short, overwritten or emptied is refused: it may have forgotten a vote or an entry.
func TestDamagedLog(t *testing.T) {
	raw, want := wholeLog(t)
	if tryLog(t, "whole", raw, want) {
		t.Error("a whole log is refused")
	}
	page := os.Getpagesize()
	r := rand.New(rand.NewPCG(1, 2))
	garbage := slices.Clone(raw)
	for i := range page {
		garbage[i] = byte(r.Uint32())
	}
	second := slices.Clone(raw)
	clear(second[page : 2*page])
	for what, b := range map[string][]byte{
		"half": raw[:len(raw)/2], "first page": raw[:page], "empty": {}, "head is zeros": append(make([]byte, page), raw[page:]...), "head is garbage": garbage,
		"second meta page is zeros": second, "zeros": make([]byte, len(raw)),
	} {
		if !tryLog(t, what, b, want) {
			t.Errorf("%s: it is not refused", what)
		}
	}
	for at := 0; at < len(raw); at += page { // whatever is cut off
		tryLog(t, fmt.Sprintf("cut to %d of %d", at, len(raw)), raw[:at], want)
	}
}

// A bit that is flipped anywhere in the file is found, or it was in what is not used. What a pointer to a page says is left
// out: instead of the present tree it may show one of before, whole and with its checksums.
func TestFlippedLog(t *testing.T) {
	raw, want := wholeLog(t)
	r := rand.New(rand.NewPCG(1, 3))
	page := os.Getpagesize()
	var parts [3][]int // bytes of meta pages, of the heads and elements of pages, and all others that are not zero
	for at, b := range raw {
		switch p := raw[at/page*page : (at/page+1)*page]; {
		case isPointer(p, at%page):
		case at < 2*page && at%page < 128:
			parts[0] = append(parts[0], at)
		case at%page < 16+16*int(binary.NativeEndian.Uint16(p[10:])):
			parts[1] = append(parts[1], at)
		case b != 0:
			parts[2] = append(parts[2], at)
		}
	}
	for i, part := range parts {
		refused := 0
		const flips = 300
		for range flips {
			at := part[r.IntN(len(part))]
			b := slices.Clone(raw)
			b[at] ^= 1 << r.IntN(8)
			if tryLog(t, fmt.Sprintf("byte %d of page %d is %x, was %x", at%page, at/page, b[at], raw[at]), b, want) {
				refused++
			}
		}
		if refused < flips/20 {
			t.Errorf("part %d: %d of %d flips were refused", i, refused, flips)
		}
	}
}

// isPointer says whether a byte of a page belongs to a page number: in a branch's elements, and in the roots of buckets.
func isPointer(page []byte, at int) bool {
	order := binary.NativeEndian
	for i := range int(order.Uint16(page[10:])) {
		e := 16 + 16*i
		from := e + 8
		if leaf := order.Uint16(page[8:]) == 2; leaf && order.Uint32(page[e:]) == 1 {
			from = e + int(order.Uint32(page[e+4:])) + int(order.Uint32(page[e+8:]))
		} else if leaf {
			continue
		}
		if at >= from && at < from+8 {
			return true
		}
	}
	return false
}

// Entries that are missing, of an older program, or no entries are told.
func TestWrongEntries(t *testing.T) {
	for name, x := range map[string]struct {
		edit func(db *bbolt.DB) error
		want string
	}{
		"one is missing": {func(db *bbolt.DB) error { return edited(db, "logs", 100, func([]byte) []byte { return nil }) }, "entry 101 follows entry 99"},
		"one is another's": {func(db *bbolt.DB) error {
			return edited(db, "logs", 100, func(b []byte) []byte { return bytes.Replace(b, []byte("rate"), []byte("Rate"), 1) })
		}, "entry 100"},
		"one is no entry": {func(db *bbolt.DB) error { return edited(db, "logs", 100, func([]byte) []byte { return []byte("x") }) }, "entry 100"},
		"the term is lower": {func(db *bbolt.DB) error {
			return edited(db, "conf", 0, func([]byte) []byte { return withSum([]byte(currentTerm), make([]byte, 8)) })
		}, "in term 0"},
		"a bucket is gone": {func(db *bbolt.DB) error {
			return db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("conf")) })
		}, `only ["logs"]`},
	} {
		raw, want := wholeLog(t)
		path := filepath.Join(t.TempDir(), raftFile)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, boltfile.Options())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(x.edit(db), db.Close()); err != nil {
			t.Fatal(err)
		}
		if raw, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		if !tryLog(t, name, raw, want) {
			t.Errorf("%s: it is not refused", name)
		}
		if _, err := openStores(filepath.Dir(path), "a", hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: the error does not say %q: %v", name, x.want, err)
		}
	}
}

// edited changes an entry of the log, or the term; nil deletes it.
func edited(db *bbolt.DB, bucket string, index uint64, change func([]byte) []byte) error {
	key := []byte(currentTerm)
	if bucket == bucketLogs {
		key = binary.BigEndian.AppendUint64(nil, index)
	}
	return db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if v := change(b.Get(key)); v != nil {
			return b.Put(key, v)
		}
		return b.Delete(key)
	})
}

// That another process has the log is said where it is so, and not where the file is something else.
func TestOtherLogs(t *testing.T) {
	dir := t.TempDir()
	s, err := openStores(dir, "a", hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	const stop = "another process has it open"
	if _, err := openStores(dir, "a", hclog.NewNullLogger()); err == nil || !strings.Contains(err.Error(), stop) || errors.Is(err, ErrDamaged) {
		t.Errorf("opened twice: %v", err)
	}
	if err := s.close.Close(); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	db, err := bbolt.Open(filepath.Join(foreign, raftFile), 0o600, &bbolt.Options{NoFreelistSync: true})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("other")); return err })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := openStores(foreign, "a", hclog.NewNullLogger()); err == nil || strings.Contains(err.Error(), stop) || !strings.Contains(err.Error(), "not a store of this program") {
		t.Errorf("a foreign file: %v", err)
	}
	half := t.TempDir() // what a start that was killed left of a new file does no harm
	if err := os.WriteFile(filepath.Join(half, raftFile+".new"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := openStores(half, "a", hclog.NewNullLogger()); err != nil {
		t.Error(err)
	} else if err := s.close.Close(); err != nil {
		t.Error(err)
	}
	if _, err := openStores(filepath.Join(dir, raftFile), "a", hclog.NewNullLogger()); err == nil || strings.Contains(err.Error(), stop) {
		t.Errorf("a directory that is a file: %v", err)
	}
}
