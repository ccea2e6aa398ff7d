package simtest

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"chainmail/engine/core"
)

// history is what callers have seen of one key.
type history struct {
	key   core.Key
	grows bool // a list that is never deleted

	newest  core.Stamp // of all that was answered: what must never be lost
	purged  core.Stamp // of the newest delete that was forgotten: what is older may be too
	epoch   core.Epoch // the highest whose activation has run a message: none below it may be at work again
	count   int        // of answers
	unknown int        // writes with an unknown outcome
	open    int        // writes that are not answered

	longest string          // observed and answered, of a list that grows
	made    map[uint32]bool // appends
	acked   map[uint32]bool // appends
	refused map[uint32]bool // appends that were answered as certainly not run
	ops     []porcupine.Operation
}

// A history for porcupine stays small: its search is exponential in the writes of unknown outcome, which may have
// happened at any later time.
const (
	maxOps     = 400
	maxUnknown = 6
	searchTime = time.Minute // beyond it the run has failed: nothing is known of the history
)

const undecided = "not decided within the time for a search"

func newHistory(k core.Key) *history {
	return &history{key: k, grows: grows(k.Type), made: map[uint32]bool{}, acked: map[uint32]bool{}, refused: map[uint32]bool{}}
}

// grows says whether actors of a type are lists that only grow.
func grows(typ string) bool { return typ == "list" || typ == "act" || typ == "all" || typ == "loc" }

// full says that callers must turn to another key.
func (h *history) full() bool {
	return !h.grows && (len(h.ops) >= maxOps || h.unknown+h.open >= maxUnknown)
}

// short says that a search decides about a history soon.
func (h *history) short() bool { return h.count < maxOps && h.unknown < maxUnknown }

// certainlyNot says that a call was answered as not run.
func certainlyNot(c core.Code) bool {
	switch c {
	case core.CodeUnavailable, core.CodeOverloaded, core.CodeRejected, core.CodeRedirect, core.CodeClosing, core.CodeApp:
		return true
	}
	return false
}

// answered takes an answer into the history and says what is wrong with it.
func (h *history) answered(o *op, r core.Result, event int) error {
	h.count++
	if o.writes() {
		h.open--
		if r.Code == core.CodeUnknownOutcome {
			h.unknown++
		}
	}
	h.record(o, r, event)
	if h.grows {
		return h.grown(o, r)
	}
	return nil
}

// call and seen are input and output of an operation for porcupine.
type call struct {
	method string
	id     uint32
}

type seen struct {
	known bool
	state string
}

// record keeps an operation. Of a list that has grown too long for a search nothing is kept any more.
func (h *history) record(o *op, r core.Result, event int) {
	if h.grows && !h.short() {
		h.ops = nil
		return
	}
	x := porcupine.Operation{Input: call{o.method, o.id}, Call: int64(o.begin), Return: int64(event)}
	switch {
	case r.Code == core.CodeOK && !o.local:
		x.Output = seen{true, string(r.Body)}
	case o.writes() && !certainlyNot(r.Code):
		x.Output, x.Return = seen{}, math.MaxInt64
	default:
		return // a read that failed, or what was not run
	}
	h.ops = append(h.ops, x)
}

var model = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, out any) (bool, any) {
		c, o := in.(call), out.(seen)
		next := apply(c.method, c.id, state.(string))
		return !o.known || c.method == del || o.state == next, next
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%v -> %x", in, out) },
}

// grown takes an answer of a list that only grows. Such a history is linearizable exactly if all that was observed are
// prefixes of one another, each observation is at least as long as every one that was complete before its call began,
// an append's own number is the last of what it observed, and no number is there twice, or before its append was made.
func (h *history) grown(o *op, r core.Result) error {
	if r.Code != core.CodeOK {
		if o.writes() && certainlyNot(r.Code) && o.tries == 1 {
			h.refused[o.id] = true
		}
		return nil
	}
	list := string(r.Body)
	short, long := list, h.longest
	if len(short) > len(long) {
		short, long = long, short
	}
	if !strings.HasPrefix(long, short) {
		return fmt.Errorf("FORK of %s: #%d saw %s, before %s was answered", o.key, o.id, ids(list), ids(h.longest))
	}
	if o.local {
		return nil // may be old
	}
	if len(list) < o.least || o.writes() && len(list) <= o.least {
		return fmt.Errorf("STALE: #%d of %s saw %s, but %d entries had been answered when it began", o.id, o.key, ids(list), o.least/4)
	}
	if o.writes() {
		h.acked[o.id] = true
		if binary.BigEndian.Uint32([]byte(list[len(list)-4:])) != o.id {
			return fmt.Errorf("append #%d of %s was answered with %s", o.id, o.key, ids(list))
		}
	}
	if len(list) > len(h.longest) {
		for b := []byte(list[len(h.longest):]); len(b) >= 4; b = b[4:] {
			if id := binary.BigEndian.Uint32(b); !h.made[id] {
				return fmt.Errorf("#%d of %s saw append #%d, which nobody has made", o.id, o.key, id)
			}
		}
		h.longest = list
	}
	return nil
}

// ids writes a list, the end of a long one.
func ids(list string) string {
	var out []uint32
	n := len(list) / 4
	if n > 24 {
		list = list[(n-24)*4:]
	}
	for b := []byte(list); len(b) >= 4; b = b[4:] {
		out = append(out, binary.BigEndian.Uint32(b))
	}
	return fmt.Sprintf("%d entries ending in %v", n, out)
}

// final checks a whole history once nothing runs any more.
func (h *history) final() error {
	if h.grows {
		if err := h.whole(); err != nil {
			return err
		}
	}
	return h.search()
}

// search has porcupine decide about a history, but for a list that has grown too long.
func (h *history) search() error {
	if h.grows && !h.short() {
		return nil
	}
	const text = "history of %s, %d calls, %d of unknown outcome, is %s"
	switch porcupine.CheckOperationsTimeout(model, h.ops, searchTime) {
	case porcupine.Illegal:
		return fmt.Errorf(text, h.key, len(h.ops), h.unknown, "not linearizable")
	case porcupine.Unknown:
		return fmt.Errorf(text, h.key, len(h.ops), h.unknown, undecided)
	}
	return nil
}

// whole checks a list that only grows as a whole: what was answered is there, once, and what was refused is not.
func (h *history) whole() error {
	seen := map[uint32]bool{}
	for b := []byte(h.longest); len(b) >= 4; b = b[4:] {
		id := binary.BigEndian.Uint32(b)
		switch {
		case seen[id]:
			return fmt.Errorf("append #%d of %s took effect twice: %s", id, h.key, ids(h.longest))
		case h.refused[id]:
			return fmt.Errorf("append #%d of %s took effect though it was refused", id, h.key)
		}
		seen[id] = true
	}
	for id := range h.acked {
		if !seen[id] {
			return fmt.Errorf("LOST: append #%d of %s was answered and is gone: %s", id, h.key, ids(h.longest))
		}
	}
	return nil
}
