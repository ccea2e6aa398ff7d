package kinds

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"chainmail/engine/core"
)

// Window remembers the last requests that have changed a key, by their ids, with their answers: one page each, so that it
// moves with the key and a repeated request is answered without being run again. It is what one activation knows of the
// pages; New it again when the state was loaded again.
type Window struct {
	size int
	next uint64
	ids  []string // the oldest first
}

const (
	requestPrefix = "@req/"
	// MaxRequestID bounds a request id, in bytes: it is part of a page's name.
	MaxRequestID = 128
	// maxKept bounds an answer that is kept; of a longer one is kept that it was given.
	maxKept = 64 << 10
)

// NewWindow makes the window of a state, which keeps size requests.
func NewWindow(state map[string]core.Page, size int) *Window {
	type entry struct {
		seq uint64
		id  string
	}
	var all []entry
	for name, p := range state {
		if id, ok := strings.CutPrefix(name, requestPrefix); ok && len(p.Data) >= 9 {
			all = append(all, entry{binary.BigEndian.Uint64(p.Data), id})
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Or(cmp.Compare(a.seq, b.seq), strings.Compare(a.id, b.id)) })
	w := &Window{size: size}
	for _, e := range all {
		w.ids = append(w.ids, e.id)
		w.next = e.seq + 1
	}
	return w
}

// Find gives the answer of a request that has been run: whole is false if it was too long to be kept.
func (w *Window) Find(state map[string]core.Page, id string) (body []byte, whole, found bool) {
	p, ok := state[requestPrefix+id]
	if !ok || len(p.Data) < 9 {
		return nil, false, false
	}
	return p.Data[9:], p.Data[8] == 0, true
}

// Add gives the changes that note a request with its answer, and forget the oldest.
func (w *Window) Add(id string, body []byte) []core.Change {
	data := append(binary.BigEndian.AppendUint64(nil, w.next), 0)
	if len(body) > maxKept {
		data[8] = 1
	} else {
		data = append(data, body...)
	}
	w.next++
	w.ids = append(w.ids, id)
	out := []core.Change{{Name: requestPrefix + id, Data: data}}
	for len(w.ids) > w.size {
		out = append(out, core.Change{Name: requestPrefix + w.ids[0], Delete: true})
		w.ids = w.ids[1:]
	}
	return out
}
