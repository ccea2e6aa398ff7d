package chainmailtest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/anishathalye/porcupine"

	"chainmail"
)

// Model says what an actor does with its messages, one after the other: what callers see must be explained by some such
// order. I are the messages, O their answers, S is the state.
type Model[S, I, O any] struct {
	// Step gives the state after a message, and the answer. It must not change the state that it is given. The first state
	// is the zero value.
	Step func(state S, in I) (S, O)
	// Reads says which messages change nothing: one that failed is left out. Optional.
	Reads func(in I) bool
	// Key says which actor a message is for; each has a state of its own. Optional.
	Key func(in I) string
}

// History is what clients have asked and been answered. It may be used from any goroutine.
type History[I, O any] struct {
	t     TB
	model porcupine.Model
	reads func(I) bool
	clock atomic.Int64 // orders calls and answers; wall clocks, and those of bubbles, have equal times
	steps atomic.Int64 // of the search

	mu  sync.Mutex
	ops []porcupine.Operation
}

// maxSteps bounds the search for an order, which is exponential in the messages that overlap or have an unknown outcome.
const maxSteps = 2e6

// output is what is known of an answer.
type output[O any] struct {
	known bool
	value O
	err   error
}

// NewHistory makes an empty history.
func NewHistory[S, I, O any](t TB, m Model[S, I, O]) *History[I, O] {
	h := &History[I, O]{t: t, reads: m.Reads}
	h.model = porcupine.Model{
		Init:  func() any { var s S; return s },
		Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
		Step: func(state, in, out any) (bool, any) {
			if h.steps.Add(1) > maxSteps {
				return false, state // the search ends soon; check says that it was given up
			}
			next, value := m.Step(state.(S), in.(I))
			o := out.(output[O])
			return !o.known || reflect.DeepEqual(value, o.value), next
		},
		DescribeOperation: func(in, out any) string { return describe(in, out.(output[O])) },
		DescribeState:     func(s any) string { return fmt.Sprintf("%+v", s) },
	}
	if m.Key != nil {
		h.model.Partition = func(ops []porcupine.Operation) [][]porcupine.Operation { return partition(ops, m.Key) }
	}
	return h
}

func describe[O any](in any, o output[O]) string {
	if !o.known {
		return fmt.Sprintf("%+v: %v", in, o.err)
	}
	return fmt.Sprintf("%+v: %+v", in, o.value)
}

// partition splits a history by key, in the order of first use.
func partition[I any](ops []porcupine.Operation, key func(I) string) (out [][]porcupine.Operation) {
	at := map[string]int{}
	for _, o := range ops {
		k := key(o.Input.(I))
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], o)
	}
	return out
}

// Do calls f, which sends the message in and gives the answer, and notes what came of it. A message that fails with
// chainmail.ErrUnavailable, ErrOverloaded, ErrRejected or ErrClosed was not run, and a read that fails says nothing. Every
// other error leaves open whether the message has taken effect, or will: give errors that are answers of the actor as
// outputs. client numbers who asks, from 0, for the picture.
func (h *History[I, O]) Do(client int, in I, f func() (O, error)) (O, error) {
	x := porcupine.Operation{ClientId: client, Input: in, Call: h.clock.Add(1)}
	value, err := f()
	x.Return, x.Output = h.clock.Add(1), output[O]{err == nil, value, err}
	if err != nil {
		if notRun(err) || h.reads != nil && h.reads(in) {
			return value, err
		}
		x.Return = math.MaxInt64
	}
	h.mu.Lock()
	h.ops = append(h.ops, x)
	h.mu.Unlock()
	return value, err
}

func notRun(err error) bool {
	for _, e := range []error{chainmail.ErrUnavailable, chainmail.ErrOverloaded, chainmail.ErrRejected, chainmail.ErrClosed} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Len is how many messages are noted.
func (h *History[I, O]) Len() int { h.mu.Lock(); defer h.mu.Unlock(); return len(h.ops) }

// Check fails the test if no order of the messages explains all answers, and names a picture of them: go test -artifacts
// keeps it. It says whether there is an order.
func (h *History[I, O]) Check() bool {
	h.t.Helper()
	h.mu.Lock()
	ops := append([]porcupine.Operation(nil), h.ops...)
	h.mu.Unlock()
	if len(ops) == 0 {
		h.t.Errorf("chainmailtest: the history is empty")
		return false
	}
	h.steps.Store(0)
	if porcupine.CheckOperations(h.model, ops) {
		return true
	}
	if h.steps.Load() > maxSteps {
		h.t.Errorf("chainmailtest: no order of %d messages was found in %d steps; use fewer messages, more keys, or fewer unknown outcomes (%d)", len(ops), int64(maxSteps), unknown(ops))
		return false
	}
	h.steps.Store(0)
	_, info := porcupine.CheckOperationsVerbose(h.model, apart(ops), 0)
	path := filepath.Join(h.t.ArtifactDir(), "history.html")
	if err := draw(h.model, info, path); err != nil {
		path = err.Error()
	}
	h.t.Errorf("chainmailtest: no order of %d messages, %d of unknown outcome, explains what callers were answered.%s\npicture: %s", len(ops), unknown(ops), stuck(h.model, info, ops), path)
	return false
}

func draw(m porcupine.Model, info porcupine.LinearizationInfo, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(porcupine.Visualize(m, info, f), f.Close())
}

func unknown(ops []porcupine.Operation) (n int) {
	for _, o := range ops {
		if o.Return == math.MaxInt64 {
			n++
		}
	}
	return n
}

// apart draws what never ended in rows of its own: its client has gone on.
func apart(ops []porcupine.Operation) []porcupine.Operation {
	most := 0
	for _, o := range ops {
		most = max(most, o.ClientId)
	}
	out := append([]porcupine.Operation(nil), ops...)
	for i := range out {
		if out[i].Return == math.MaxInt64 {
			most++
			out[i].ClientId = most
		}
	}
	return out
}

// maxShown bounds what of a history is told as text.
const maxShown = 8

// stuck tells the end of the longest order that was found, and what cannot come next, for the first key that is wrong.
func stuck(m porcupine.Model, info porcupine.LinearizationInfo, ops []porcupine.Operation) string {
	parts := [][]porcupine.Operation{ops}
	if m.Partition != nil {
		parts = m.Partition(ops)
	}
	for i, found := range info.PartialLinearizationsOperations() {
		var longest []porcupine.Operation
		for _, p := range found {
			if len(p) > len(longest) {
				longest = p
			}
		}
		if len(longest) == len(parts[i]) {
			continue
		}
		used := map[int64]bool{}
		for _, o := range longest {
			used[o.Call] = true
		}
		var b strings.Builder
		fmt.Fprintf(&b, "\nthe longest order found ends with:")
		for _, o := range longest[max(0, len(longest)-maxShown):] {
			fmt.Fprintf(&b, "\n\t%s", m.DescribeOperation(o.Input, o.Output))
		}
		fmt.Fprintf(&b, "\nand does not explain:")
		shown := 0
		for _, o := range parts[i] {
			if !used[o.Call] && shown < maxShown {
				shown++
				fmt.Fprintf(&b, "\n\t%s", m.DescribeOperation(o.Input, o.Output))
			}
		}
		return b.String()
	}
	return ""
}
