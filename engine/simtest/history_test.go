package simtest

import (
	"strings"
	"testing"

	"chainmail/engine/core"
)

// see gives a history an answer to a call and returns what is wrong with it at once.
func see(h *history, id uint32, method, state string, code core.Code, least, begin, end int) error {
	o := &op{id: id, key: h.key, method: method, tries: 1, begin: begin, least: least}
	if o.writes() {
		h.open++
		h.made[id] = true
	}
	return h.answered(o, core.Result{Code: code, Body: []byte(state)}, end)
}

func list(ids ...uint32) (s string) {
	for _, id := range ids {
		s = apply(app, id, s)
	}
	return s
}

// TestListsThatGrow shows that each kind of violation of a growing list is told, and that a good history is not.
func TestListsThatGrow(t *testing.T) {
	for _, c := range []struct {
		name string
		want string // in the error; "" for none
		run  func(h *history) error
	}{
		{"good", "", func(h *history) error {
			see(h, 1, app, list(1), core.CodeOK, 0, 1, 2)
			see(h, 2, app, "", core.CodeUnknownOutcome, 4, 3, 4)
			return see(h, 3, get, list(1, 2), core.CodeOK, 4, 5, 6)
		}},
		{"fork", "FORK", func(h *history) error {
			see(h, 1, app, list(1), core.CodeOK, 0, 1, 2)
			return see(h, 2, app, list(2), core.CodeOK, 0, 1, 3)
		}},
		{"stale read", "STALE", func(h *history) error {
			see(h, 1, app, list(1), core.CodeOK, 0, 1, 2)
			return see(h, 2, get, "", core.CodeOK, 4, 3, 4)
		}},
		{"foreign answer", "was answered with", func(h *history) error { return see(h, 1, app, list(7), core.CodeOK, 0, 1, 2) }},
		{"twice", "took effect twice", func(h *history) error {
			see(h, 1, app, "", core.CodeUnknownOutcome, 0, 1, 2)
			return see(h, 2, get, list(1, 1), core.CodeOK, 0, 1, 2)
		}},
		{"not made", "nobody has made", func(h *history) error { return see(h, 2, get, list(1), core.CodeOK, 0, 1, 2) }},
		{"refused", "though it was refused", func(h *history) error {
			see(h, 1, app, "", core.CodeUnavailable, 0, 1, 2)
			return see(h, 2, get, list(1), core.CodeOK, 0, 3, 4)
		}},
	} {
		h := newHistory(core.Key{Type: "list", Name: "k"})
		err := c.run(h)
		if err == nil {
			err = h.final()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// TestOtherHistories does the same for what porcupine decides.
func TestOtherHistories(t *testing.T) {
	h := newHistory(core.Key{Type: "box", Name: "k"})
	see(h, 1, app, list(1), core.CodeOK, 0, 1, 2)
	see(h, 2, app, "", core.CodeUnknownOutcome, 0, 3, 4)
	see(h, 3, del, "", core.CodeOK, 0, 5, 6)
	see(h, 4, get, list(2), core.CodeOK, 0, 7, 8) // the unknown append came after the delete
	if err := h.final(); err != nil {
		t.Fatalf("a good history: %v", err)
	}
	see(h, 5, get, list(1), core.CodeOK, 0, 9, 10)
	if err := h.final(); err == nil {
		t.Fatal("what was deleted came back, and nobody noticed")
	}
}

// TestHistoriesEnd shows that callers turn to another key before a search becomes too long.
func TestHistoriesEnd(t *testing.T) {
	h := newHistory(core.Key{Type: "cnt", Name: "k"})
	for i := range maxUnknown {
		if h.full() {
			t.Fatalf("full after %d calls", i)
		}
		see(h, uint32(i), add, "", core.CodeUnknownOutcome, 0, i, i)
	}
	if !h.full() {
		t.Fatal("not full")
	}
}

// TestShortListsAreSearched: while a list is short porcupine decides about it, too. Here a read sees an append before that was
// made.
func TestShortListsAreSearched(t *testing.T) {
	for unknown, want := range map[int]string{0: "not linearizable", maxUnknown: ""} {
		h := newHistory(core.Key{Type: "list", Name: "k"})
		for i := range unknown {
			see(h, uint32(10+i), app, "", core.CodeUnknownOutcome, 0, i, i)
		}
		if err := see(h, 1, get, list(2), core.CodeOK, 0, 101, 102); err == nil || !strings.Contains(err.Error(), "nobody has made") {
			t.Errorf("an append that was not made is seen: %v", err)
		}
		see(h, 2, app, list(2), core.CodeOK, 0, 103, 104)
		if err := h.search(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("with %d of unknown outcome: got %v, want %q", unknown, err, want)
		}
	}
}
