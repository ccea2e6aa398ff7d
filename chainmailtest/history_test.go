package chainmailtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"chainmail"
	"chainmail/chainmailtest"
)

// witness is a test that is expected to fail.
type witness struct {
	*testing.T
	said string
}

func (w *witness) Errorf(format string, args ...any) { w.said += fmt.Sprintf(format, args...) }

func answer[O any](o O) func() (O, error) { return func() (O, error) { return o, nil } }

// overlap runs f while in is under way.
func overlap[I, O any](h *chainmailtest.History[I, O], in I, out O, f func()) {
	h.Do(9, in, func() (O, error) { f(); return out, nil })
}

func TestModels(t *testing.T) {
	lost := errors.New("connection lost")
	for _, x := range []struct {
		name string
		fine bool
		run  func(t chainmailtest.TB) bool
	}{
		{"a counter", true, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Counter())
			overlap(h, 2, 3, func() { h.Do(0, 1, answer[int64](1)); h.Do(0, 0, answer[int64](3)) })
			return h.Check()
		}},
		{"an add that is lost", false, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Counter())
			h.Do(0, 1, answer[int64](1))
			h.Do(1, 1, answer[int64](1))
			return h.Check()
		}},
		{"an add of unknown outcome may come late, once", true, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Counter())
			h.Do(0, 5, func() (int64, error) { return 0, lost })
			h.Do(0, 0, answer[int64](0))
			h.Do(0, 0, answer[int64](5))
			return h.Check()
		}},
		{"an add of unknown outcome that comes twice", false, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Counter())
			h.Do(0, 5, func() (int64, error) { return 0, lost })
			h.Do(0, 0, answer[int64](10))
			return h.Check()
		}},
		{"an add that was refused and took effect", false, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Counter())
			h.Do(0, 5, func() (int64, error) { return 0, fmt.Errorf("far away: %w", chainmail.ErrUnavailable) })
			h.Do(0, 0, answer[int64](5))
			return h.Check()
		}},
		{"a read that is stale", false, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.Register[string]())
			h.Do(0, chainmailtest.Write("a"), answer("a"))
			h.Do(0, chainmailtest.Write("b"), answer("b"))
			h.Do(1, chainmailtest.Read[string](), answer("a"))
			return h.Check()
		}},
		{"keys on their own", true, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.KeyValue())
			h.Do(0, chainmailtest.Put("x", "1"), answer("1"))
			h.Do(0, chainmailtest.Get("y"), answer(""))
			h.Do(0, chainmailtest.Get("x"), answer("1"))
			h.Do(0, chainmailtest.Get("x"), func() (string, error) { return "", lost })
			if h.Len() != 3 {
				t.Errorf("a read that failed is noted")
			}
			return h.Check()
		}},
		{"a value from another key", false, func(t chainmailtest.TB) bool {
			h := chainmailtest.NewHistory(t, chainmailtest.KeyValue())
			h.Do(0, chainmailtest.Put("x", "1"), answer("1"))
			h.Do(0, chainmailtest.Get("x"), answer("1"))
			h.Do(0, chainmailtest.Get("y"), answer("1"))
			return h.Check()
		}},
		{"nothing", false, func(t chainmailtest.TB) bool {
			return chainmailtest.NewHistory(t, chainmailtest.KeyValue()).Check()
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			w := &witness{T: t}
			if fine := x.run(w); fine != x.fine || fine != (w.said == "") {
				t.Errorf("fine: %t, said %q", fine, w.said)
			}
		})
	}
}

// A failure tells where the order ends, and names a picture.
func TestPicture(t *testing.T) {
	w := &witness{T: t}
	h := chainmailtest.NewHistory(w, chainmailtest.KeyValue())
	for i := range 20 {
		v := fmt.Sprint("v", i)
		h.Do(0, chainmailtest.Put("x", v), answer(v))
		h.Do(1, chainmailtest.Put("y", v), func() (string, error) { return "", context.DeadlineExceeded })
	}
	h.Do(1, chainmailtest.Get("x"), answer("v3"))
	if h.Check() {
		t.Fatal("a stale read is taken for right")
	}
	_, path, ok := strings.Cut(w.said, "picture: ")
	b, err := os.ReadFile(path)
	if !ok || err != nil || !strings.Contains(string(b), "v19") || !strings.Contains(w.said, "does not explain:\n\t{Key:x In:{Writes:false Value:}}: v3") {
		t.Errorf("%v: %s", err, w.said)
	}
}

// A search that would not end is given up.
func TestSearchIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	w := &witness{T: t}
	h := chainmailtest.NewHistory(w, chainmailtest.Register[int]())
	for i := range 40 {
		h.Do(0, chainmailtest.Write(i), func() (int, error) { return 0, context.DeadlineExceeded })
	}
	h.Do(0, chainmailtest.Read[int](), answer(99))
	if h.Check() || !strings.Contains(w.said, "fewer unknown outcomes (40)") {
		t.Error(w.said)
	}
}
