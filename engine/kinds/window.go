package kinds

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"chainmail/engine/core"
)

// Window remembers the last requests that have changed a key, by their ids, with their answers: one page each, so that it
// moves with the key and a repeated request is answered without being run again. It is what one activation knows of the
// pages; make it again when the state was loaded again.
type Window struct {
	size    int
	keep    time.Duration
	next    uint64
	ids     []string  // the oldest first
	bytes   int       // of their pages
	dropped time.Time // when the newest of those that had to go was run, zero if none was
}

const (
	requestPrefix = "@req/"
	// MaxRequestID bounds a request id, in bytes: it is part of a page's name.
	MaxRequestID = 128
	// MaxKept bounds an answer that is kept; of a longer one is kept that it was given.
	MaxKept = 64 << 10
	// windowSlack is how far the clocks of two owners may differ, and a message be on its way.
	windowSlack = 2 * time.Second
	// keepFor is how long a request is remembered although as many as the window has came after it, and keepTimes bounds
	// how many times as many: without that a repeat that comes at once could not be told from one that was forgotten, on
	// every key that is asked more often than the window is long in windowSlack. Callers repeat for 5 s unless they say more.
	keepFor   = windowSlack + 5*time.Second
	keepTimes = 256
	// keepBytes bounds all answers together of a window that is longer than its size.
	keepBytes = 256 << 10
)

// A request's page: its number (8 bytes), when it was run (Unix time in ms, 8), flags (1), the sum of its method if they
// say that it is there (4), and the answer. Pages from before there were sums have none.
const (
	requestHead = 17
	flagTooLong = 1 // the answer was not kept
	flagMethod  = 2
	methodBytes = 4
)

// Found is what a window has of a request.
type Found uint8

const (
	Missing Found = iota
	Kept          // it was run: here is its answer
	TooLong       // it was run, and its answer was too long to be kept
	Another       // a message for another method was run under its id
)

type noted struct {
	id  string
	seq uint64
	at  time.Time
}

func parseNoted(id string, data []byte) (noted, bool) {
	if len(data) < requestHead {
		return noted{}, false
	}
	return noted{id, binary.BigEndian.Uint64(data), time.UnixMilli(int64(binary.BigEndian.Uint64(data[8:])))}, true
}

// NewWindow makes the window of a state with its stamp, which keeps size requests at least.
func NewWindow(now time.Time, state map[string]core.Page, stamp core.Stamp, size int) *Window {
	w := &Window{size: size, keep: keepFor}
	var all []noted
	for name, p := range state {
		if id, ok := strings.CutPrefix(name, requestPrefix); ok {
			if n, ok := parseNoted(id, p.Data); ok {
				all = append(all, n)
			}
		}
	}
	slices.SortFunc(all, func(a, b noted) int { return cmp.Or(cmp.Compare(a.seq, b.seq), strings.Compare(a.id, b.id)) })
	for _, n := range all {
		w.ids = append(w.ids, n.id)
		w.bytes += len(state[requestPrefix+n.id].Data)
		w.next = n.seq + 1
	}
	switch {
	case len(all) == 0 && !stamp.IsZero(): // the key was used: it was deleted once, and its window with it, for all that is known
		w.next, w.dropped = 1, now
	case w.next > uint64(len(all)): // some were dropped, before the oldest was run
		w.dropped = all[0].at
	}
	return w
}

// Find gives the answer of a request that has been run, whatever its method: whole is false if it was too long to be kept.
func (w *Window) Find(state map[string]core.Page, id string) (body []byte, whole, found bool) {
	body, f := w.FindOf(state, id, "")
	return body, f == Kept, f != Missing
}

// FindOf is Find for a method; "" for any.
func (w *Window) FindOf(state map[string]core.Page, id, method string) (body []byte, found Found) {
	p, ok := state[requestPrefix+id]
	if !ok || len(p.Data) < requestHead {
		return nil, Missing
	}
	flags, body := p.Data[requestHead-1], p.Data[requestHead:]
	if flags&flagMethod != 0 {
		if len(body) < methodBytes {
			return nil, Missing
		}
		if method != "" && binary.BigEndian.Uint32(body) != sumOf(method) {
			return nil, Another
		}
		body = body[methodBytes:]
	}
	if flags&flagTooLong != 0 {
		return nil, TooLong
	}
	return body, Kept
}

// sumOf tells methods apart: it finds mistakes, so that 32 bits are enough.
func sumOf(method string) uint32 {
	h := fnv.New32a()
	h.Write([]byte(method))
	return h.Sum32()
}

// Covers says whether a request that was first made some time ago, and is not found, was surely never run: all that was
// dropped since is older.
func (w *Window) Covers(now time.Time, ago time.Duration) bool {
	return ago <= core.RepeatMost && (w.dropped.IsZero() || w.dropped.Before(now.Add(-ago-windowSlack)))
}

// Add gives the changes that note a request with its answer, and drop the oldest.
func (w *Window) Add(now time.Time, state map[string]core.Page, id string, body []byte) []core.Change {
	return w.AddOf(now, state, id, "", body)
}

// AddOf is Add for a method, which is noted too unless it is "".
func (w *Window) AddOf(now time.Time, state map[string]core.Page, id, method string, body []byte) []core.Change {
	data := make([]byte, requestHead, requestHead+methodBytes+min(len(body), MaxKept))
	binary.BigEndian.PutUint64(data, w.next)
	binary.BigEndian.PutUint64(data[8:], uint64(now.UnixMilli()))
	if method != "" {
		data[requestHead-1] = flagMethod
		data = binary.BigEndian.AppendUint32(data, sumOf(method))
	}
	if len(body) > MaxKept {
		data[requestHead-1] |= flagTooLong
	} else {
		data = append(data, body...)
	}
	w.next++
	w.ids = append(w.ids, id)
	w.bytes += len(data)
	out := []core.Change{{Name: requestPrefix + id, Data: data}}
	for len(w.ids) > w.size {
		name := requestPrefix + w.ids[0]
		n, ok := parseNoted(w.ids[0], state[name].Data)
		if ok && now.Sub(n.at) < w.keep && len(w.ids) <= keepTimes*w.size && w.bytes <= keepBytes {
			break
		}
		w.bytes -= len(state[name].Data)
		if ok && n.at.After(w.dropped) {
			w.dropped = n.at
		}
		out = append(out, core.Change{Name: name, Delete: true})
		w.ids = w.ids[1:]
	}
	return out
}
