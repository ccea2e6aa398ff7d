package load

import (
	"slices"
	"sync/atomic"
	"time"
)

// Window is a time in which the longest request of every key is kept.
type Window struct {
	name    string
	longest []atomic.Int64 // nanoseconds, by key
}

func (w *Window) note(k int, d time.Duration) {
	x := &w.longest[k]
	for old := x.Load(); int64(d) > old; old = x.Load() {
		if x.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// Pauses are over all keys that were asked: how long the longest request of a key took.
type Pauses struct {
	P50 float64 `json:"p50"` // milliseconds
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Open begins a window. Requests count to the one that is open when they end.
func (l *Load) Open(name string) *Window {
	w := &Window{name: name, longest: make([]atomic.Int64, len(l.counters)+len(l.rows))}
	l.window.Store(w)
	return w
}

// Shut ends the open window.
func (l *Load) Shut() { l.window.Store(nil) }

// PausesOf gives the pauses of several windows together.
func PausesOf(ws ...*Window) Pauses {
	var all []int64
	for _, w := range ws {
		for i := range w.longest {
			if d := w.longest[i].Load(); d > 0 {
				all = append(all, d)
			}
		}
	}
	if len(all) == 0 {
		return Pauses{}
	}
	slices.Sort(all)
	at := func(q float64) float64 { return float64(all[int(q*float64(len(all)-1))]) / 1e6 }
	return Pauses{at(0.5), at(0.99), at(1)}
}
