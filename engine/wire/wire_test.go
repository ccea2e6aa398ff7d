package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"chainmail/engine/core"
	"chainmail/ring"
)

var update = flag.Bool("update", false, "write the golden files anew")

// samples has one message of each kind, every field set.
func samples() []core.Message {
	k := core.Key{Type: "kv", Name: "K000000001"}
	e := core.Epoch{Version: 7, Number: 1<<40 + 3, Member: "m1"}
	st := core.Stamp{Epoch: e, Seq: 5}
	old := core.Stamp{Epoch: core.Epoch{Version: 6, Number: 2, Member: "m2"}, Seq: 9}
	pages := []core.Page{{Name: "a", Stamp: st, Sum: core.PageSum("a", []byte("xy")), Data: []byte("xy")}, {Name: "b", Stamp: old, Sum: 1}}
	entries := []core.Entry{{Key: k, Meta: core.CopyMeta{Promised: e, Stamp: st}, Has: true, Pages: pages}, {Key: core.Key{Type: "kv", Name: "z"}, Meta: core.CopyMeta{Promised: e}}}
	// What pages of two copies in a row have in common is named once.
	page := func(name, data string) core.Page {
		return core.Page{Name: name, Stamp: st, Sum: core.PageSum(name, []byte(data)), Data: []byte(data)}
	}
	for _, ps := range [][]core.Page{{page("a", "xyz"), page("@req/1", "\x00\x00\x00\x07p")}, {page("ab", "xyz12"), page("@req/2", "\x00\x00\x00\x07q"), page("c", "more")}, {page("ab", "xyz12"), {Name: "@req/2", Stamp: old}},
		{page("ab", strings.Repeat("x", likeMost+1)), page("@req/3", "r")}, {page("ab", strings.Repeat("x", likeMost+1))}, {page(strings.Repeat("n", likeMost+1), "x")}, {page(strings.Repeat("n", likeMost+1), "x")}} {
		entries = append(entries, core.Entry{Key: k, Meta: core.CopyMeta{Promised: e, Stamp: st}, Has: true, Pages: ps})
	}
	view := &core.View{Revision: 9, Version: 7, Step: 7, Began: 6, Stage: core.Switch, Base: []ring.Member{{ID: "m1", Zone: "z", Weight: 2}}, Next: []ring.Member{{ID: "m1", Zone: "z", Weight: 2}, {ID: "m2", Weight: 1}},
		Target: []ring.Member{{ID: "m2", Weight: 1}}, Members: []core.MemberInfo{{ID: "m1", Incarnation: 77, Address: "h:1", Down: true, Marked: 31}, {ID: "m2", Incarnation: 78, Address: "h:2", Refilling: true}},
		Ring: ring.Params{Hash: 1, VNodes: 256}, Replicas: map[string]int{"": 3, "kv": 2, "pin": core.Pinned}, Lost: 3, Rate: 1 << 20, Streams: 4}
	bodies := []core.Body{
		&core.Ask{ID: 3, Key: k, Method: "put", Data: []byte("v"), RequestID: "r", Path: []core.Key{{Type: "t", Name: "first"}, k}, ReadLocal: true, Deadline: 2_000_000},
		&core.Answer{ID: 3, Result: core.Result{Code: core.CodeApp, AppCode: 4, Text: "no", Body: []byte("b"), Stamp: st, Owner: "m2", Version: 7}},
		&core.Prepare{Op: 1, Key: k, Epoch: e, Have: old},
		&core.Promise{Op: 1, Key: k, Code: core.CodeOK, Promised: e, Stamp: st, Pages: pages},
		&core.Accept{Op: 1, Key: k, Stamp: st, Prev: old, Full: true, Pages: pages, Removed: []string{"c"}},
		&core.Accepted{Op: 1, Key: k, Code: core.CodeNeedFull, Promised: e},
		&core.Confirm{Op: 1, Key: k, Epoch: e},
		&core.Confirmed{Op: 1, Key: k, Code: core.CodeRefused, Promised: e},
		&core.Pull{Session: 6, Mode: core.PullCopy, Seq: 2, From: 5, Since: 4, Run: 3, Bring: true, Sums: []uint64{0, 1 << 63}, One: true, Key: k},
		&core.Pulled{Session: 6, Mode: core.PullSwitch, Seq: 2, Code: core.CodeOK, Empty: true, From: 5, To: 6, Done: true, One: true, Key: k, Now: 8, Run: 3, Entries: entries},
		&core.Fetch{Session: 6, Seq: 2, Keys: []core.Key{k}},
		&core.Fetched{Session: 6, Seq: 2, Entries: entries, Rest: []core.Key{k}},
		&core.Offer{Seq: 4, Entries: entries},
		&core.Offered{Seq: 4, Answers: []core.OfferAnswer{{Key: k, Offer: st, Code: core.CodeOK, Stamp: old}}},
		&core.Release{Op: 1, Key: k},
		&core.Released{Op: 1, Key: k},
		&core.Purge{Key: k, Stamp: st},
		&core.WantNewView{Revision: 8},
		&core.NewView{View: view},
	}
	var out []core.Message
	for _, b := range bodies {
		out = append(out, core.Message{From: "m1", To: "m2", FromInc: 77, Version: 7, Body: b})
	}
	return out
}

func TestEveryKindIsSampled(t *testing.T) {
	have := map[core.Kind]bool{}
	for _, m := range samples() {
		have[m.Body.Kind()] = true
	}
	for k := range bodies {
		if bodies[k] != nil && !have[core.Kind(k)] {
			t.Errorf("no sample of kind %d", k)
		}
	}
}

func TestRoundTripAndGolden(t *testing.T) {
	var lines []string
	for _, m := range samples() {
		m.Sent = 1_000_000
		b := Append(nil, &m, 1_000_000)
		lines = append(lines, fmt.Sprintf("%T %s", m.Body, hex.EncodeToString(b)))
		got, err := Parse(b, 1_000_000)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Errorf("%T: got %+v, %v", m.Body, got.Body, err)
		}
		if again := Append(nil, &got, 1_000_000); !bytes.Equal(again, b) {
			t.Errorf("%T: encoded twice differs", m.Body)
		}
	}
	golden := filepath.Join("testdata", "messages.golden")
	text := strings.Join(lines, "\n") + "\n"
	if *update {
		os.MkdirAll("testdata", 0o755)
		if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != text {
		t.Errorf("the bytes on the wire changed (%v):\n%s", err, text)
	}
}

func TestTruncationAndTrailing(t *testing.T) {
	for _, m := range samples() {
		b := Append(nil, &m, 0)
		for n := range b {
			if _, err := Parse(b[:n], 0); !errors.Is(err, ErrShort) && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%T cut to %d of %d bytes: %v", m.Body, n, len(b), err)
			}
		}
		if _, err := Parse(append(b, 0), 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%T with a byte behind it: %v", m.Body, err)
		}
	}
	if _, err := Parse(append([]byte{200}, Append(nil, &samples()[0], 0)[1:]...), 0); !errors.Is(err, ErrUnknownKind) {
		t.Errorf("unknown kind: %v", err)
	}
}

func TestDeadlineIsRelative(t *testing.T) {
	m := core.Message{From: "a", To: "b", Body: &core.Ask{Key: core.Key{Type: "t", Name: "n"}, Deadline: 5_000_000_000}}
	got, err := Parse(Append(nil, &m, 4_000_000_000), 70_000_000_000)
	if err != nil || got.Body.(*core.Ask).Deadline != 71_000_000_000 {
		t.Fatalf("%+v, %v", got.Body, err)
	}
}

// TestIndexEntriesAreSmall keeps the index of a transfer small beside the pages.
func TestIndexEntriesAreSmall(t *testing.T) {
	b := &core.Pulled{}
	for i := range 1000 {
		e := core.Epoch{Version: 12, Number: 1<<40 + uint64(i), Member: "member-1"}
		b.Entries = append(b.Entries, core.Entry{Key: core.Key{Type: "counter", Name: fmt.Sprintf("k%09d", i)}, Meta: core.CopyMeta{Promised: e, Stamp: core.Stamp{Epoch: e, Seq: uint64(i)}}})
	}
	m := core.Message{From: "member-1", To: "member-2", Body: b}
	if n := len(Append(nil, &m, 0)); n > 1000*26 {
		t.Errorf("1000 entries take %d bytes", n)
	}
}

// TestWhatIsAlikeIsNamedOnce keeps the pages of requests, which all keys have, small beside what was asked for.
func TestWhatIsAlikeIsNamedOnce(t *testing.T) {
	size := func(times int) int {
		b := &core.Fetched{}
		for i := range times {
			p := core.Page{Name: fmt.Sprintf("@req/%016d", i), Data: append([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x98\x12\x34"), byte(i>>16), byte(i>>8), byte(i))}
			b.Entries = append(b.Entries, core.Entry{Key: core.Key{Type: "t", Name: "k"}, Meta: core.CopyMeta{Stamp: core.Stamp{Seq: 1}}, Has: true, Pages: []core.Page{p}})
		}
		m := core.Message{From: "a", To: "b", Body: b}
		return len(Append(nil, &m, 0))
	}
	if one := (size(1100) - size(100)) / 1000; one > 26 {
		t.Errorf("a copy with a request's page takes %d bytes", one)
	}
}

// TestPiecesAreApart has no part of a copy reach into another one: each can be appended to.
func TestPiecesAreApart(t *testing.T) {
	b := &core.Fetched{}
	for i := range 300 {
		data := bytes.Repeat([]byte{byte(i)}, i*37%(dataLarge+100))
		ps := []core.Page{{Name: fmt.Sprint("p", i), Data: data}, {Name: "q", Data: []byte{byte(i), 1}}}
		b.Entries = append(b.Entries, core.Entry{Key: core.Key{Type: "t", Name: fmt.Sprint("key", i)}, Meta: core.CopyMeta{Stamp: core.Stamp{Seq: 1}}, Has: true, Pages: ps})
	}
	src := Append(nil, &core.Message{From: "a", To: "b", Body: b}, 0)
	m, err := Parse(src, 0)
	if err != nil {
		t.Fatal(err)
	}
	clear(src)
	for i, e := range m.Body.(*core.Fetched).Entries {
		_ = append(e.Pages, core.Page{Name: "spoilt"})
		for _, p := range e.Pages {
			_ = append(p.Data, 0xff)
		}
		want := b.Entries[i]
		if e.Key != want.Key || len(e.Pages) != 2 || e.Pages[0].Name != want.Pages[0].Name || !bytes.Equal(e.Pages[0].Data, want.Pages[0].Data) || e.Pages[1].Name != "q" || !bytes.Equal(e.Pages[1].Data, want.Pages[1].Data) {
			t.Fatalf("copy %d: got %+v", i, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, m := range samples() {
		f.Add(Append(nil, &m, 0))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b, 0)
		if err != nil {
			return
		}
		if again := Append(nil, &m, 0); len(again) > len(b) {
			t.Errorf("%x was read and is written as %x", b, again)
		}
	})
}

func BenchmarkAccept(b *testing.B) {
	m := samples()[4]
	var buf []byte
	for b.Loop() {
		buf = Append(buf[:0], &m, 0)
		if _, err := Parse(buf, 0); err != nil {
			b.Fatal(err)
		}
	}
}
