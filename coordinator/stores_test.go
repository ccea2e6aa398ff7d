package coordinator

import (
	"bytes"
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

// What describes entries, pages, terms and votes cannot be flipped unseen. Numbers inside of a command have no checksum: that
// a member goes by another one is found when placements are compared.
func TestFlippedLog(t *testing.T) {
	raw, want := wholeLog(t)
	page := os.Getpagesize()
	r := rand.New(rand.NewPCG(1, 3))
	refused := 0
	const flips = 300
	for range flips {
		at := r.IntN(2)*page + r.IntN(128) // the meta pages; elsewhere a flip is not always seen: bbolt has no checksums there
		b := slices.Clone(raw)
		b[at] ^= 1 << r.IntN(8)
		if tryLog(t, fmt.Sprintf("byte %d is %x, was %x", at, b[at], raw[at]), b, want) {
			refused++
		}
	}
	if refused < flips/20 {
		t.Errorf("%d of %d flips were refused", refused, flips)
	}
	at := bytes.LastIndex(raw, []byte(`"Format"`)) // an entry that is none any more
	for _, i := range indexesOf(raw, []byte(`"Format"`)) {
		raw[i] = 'x'
	}
	if at < 0 || !tryLog(t, "entries that cannot be read", raw, want) {
		t.Error("entries that cannot be read are not refused")
	}
}

func indexesOf(b, what []byte) (out []int) {
	for at := 0; ; at++ {
		i := bytes.Index(b[at:], what)
		if i < 0 {
			return out
		}
		at += i
		out = append(out, at)
	}
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
