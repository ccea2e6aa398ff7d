package kinds

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"chainmail/engine/core"
)

// A window finds the requests that it keeps, also when it was made again, and knows for which of the others it cannot say
// that they were never run.
func TestWindow(t *testing.T) {
	state := map[string]core.Page{"v": {Name: "v", Data: []byte("x")}}
	start := time.UnixMilli(1_000_000)
	used := core.Stamp{Seq: 1}
	w := NewWindow(start, nil, core.Stamp{}, 3)
	w.keep = 0
	for i := range 10 {
		now := start.Add(time.Duration(i) * time.Second)
		if ago := time.Duration(i) * time.Second; i >= 3 && w.Covers(now, ago) != (i == 3) {
			t.Errorf("before request %d, one that is as old as the first: covered %t", i, w.Covers(now, ago))
		}
		for _, ch := range w.AddOf(now, state, fmt.Sprint(i), "add", []byte{byte(i)}) {
			if ch.Delete {
				delete(state, ch.Name)
			} else {
				state[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
			}
		}
		if i%2 == 1 {
			w = NewWindow(start, state, used, 3)
			w.keep = 0
		}
	}
	for i := range 10 {
		body, found := w.FindOf(state, fmt.Sprint(i), "add")
		if (found == Kept) != (i >= 7) || found == Kept && (len(body) != 1 || body[0] != byte(i)) {
			t.Errorf("request %d: %v %d", i, body, found)
		}
	}
	if len(state) != 4 {
		t.Errorf("the state has pages %v", state)
	}
	if w = NewWindow(start, nil, core.Stamp{}, 3); w.Covers(start, core.RepeatMost+1) || !w.Covers(start, core.RepeatMost) {
		t.Error("what is too old to be repeated")
	}
	for _, left := range []map[string]core.Page{nil, {"v": {Name: "v"}}} { // deleted, and written since without a request id
		if w := NewWindow(start, left, used, 3); w.Covers(start.Add(time.Second), 2*time.Second) || !w.Covers(start.Add(time.Minute), time.Second) {
			t.Error("a window that was deleted with its key covers what was before, or not what came later")
		}
	}
	if fresh := NewWindow(start, nil, core.Stamp{}, 3); !fresh.Covers(start, 2*time.Second) {
		t.Error("the window of an unused key covers nothing")
	}
	if body, found := w.FindOf(state, "9", "sub"); found != Another || body != nil {
		t.Errorf("the same id for another method gives %v %d", body, found)
	}
	if body, whole, found := w.Find(state, "9"); !found || !whole || len(body) != 1 || body[0] != 9 {
		t.Errorf("whatever the method: %v %t %t", body, whole, found)
	}
	old := make([]byte, requestHead) // from before methods were noted
	state[requestPrefix+"old"] = core.Page{Data: append(old, 7)}
	if body, found := w.FindOf(state, "old", "any"); found != Kept || len(body) != 1 || body[0] != 7 {
		t.Errorf("an old page gives %v %d", body, found)
	}
	old[requestHead-1] = 1
	state[requestPrefix+"old"] = core.Page{Data: old}
	if _, found := w.FindOf(state, "old", "any"); found != TooLong {
		t.Errorf("an old page whose answer was too long gives %d", found)
	}
	delete(state, requestPrefix+"old")
	long := w.AddOf(start, state, "long", "add", []byte(strings.Repeat("x", MaxKept+1)))
	state[long[0].Name] = core.Page{Data: long[0].Data}
	if body, found := w.FindOf(state, "long", "add"); found != TooLong || len(body) != 0 {
		t.Error(len(body), found)
	}
	state[requestPrefix+"torn"] = core.Page{Data: []byte("short")}
	if _, found := NewWindow(start, state, used, 3).FindOf(state, "torn", "add"); found != Missing {
		t.Error("a page that is too short is found")
	}
}

// A key that is asked often remembers what is not older than a moment, so that a repeat that comes at once is covered; not
// without bound, and no longer than it has to.
func TestWindowOfBusyKey(t *testing.T) {
	state := map[string]core.Page{}
	const size, every = 4, 100 * time.Millisecond
	now := time.UnixMilli(1_000_000)
	w := NewWindow(now, nil, core.Stamp{}, size)
	add := func(many int, pause time.Duration) {
		for range many {
			now = now.Add(pause)
			for _, ch := range w.AddOf(now, state, fmt.Sprint(now.UnixNano()), "add", nil) {
				if ch.Delete {
					delete(state, ch.Name)
				} else {
					state[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
				}
			}
		}
	}
	add(300, every)
	if n := int(keepFor / every); len(state) < n || len(state) > n+2 {
		t.Errorf("%d requests are kept of %s, one every %s", len(state), keepFor, every)
	}
	if !w.Covers(now, 500*time.Millisecond) || w.Covers(now, 2*keepFor) {
		t.Error("a repeat after half a second is not covered, or one that was dropped is")
	}
	add(1000, time.Millisecond)
	if len(state) != keepTimes*size {
		t.Errorf("%d requests are kept, at most %d should be", len(state), keepTimes*size)
	}
	add(1, time.Minute)
	if len(state) != size {
		t.Errorf("%d requests are kept after a pause, %d should be", len(state), size)
	}
}

// FuzzWindow: whatever pages are there, a window is made of them, stays within its size, and finds what it notes.
func FuzzWindow(f *testing.F) {
	f.Add("a", make([]byte, 17), "b", []byte("short"), uint8(3))
	f.Add("c", append(make([]byte, 16), 2, 1, 1), "d", append(make([]byte, 16), 3, 1, 1, 1, 1), uint8(3))
	f.Add("", bytes.Repeat([]byte{0xff}, 20), "\x00", bytes.Repeat([]byte{0x80}, 17), uint8(0))
	f.Fuzz(func(t *testing.T, id1 string, page1 []byte, id2 string, page2 []byte, size uint8) {
		state := map[string]core.Page{requestPrefix + id1: {Data: page1}, requestPrefix + id2: {Data: page2}, "v": {Data: []byte("x")}}
		now := time.UnixMilli(1_000_000)
		n := int(size%8) + 1
		w := NewWindow(now, state, core.Stamp{Seq: 1}, n)
		for _, id := range []string{id1, id2, "new"} {
			w.FindOf(state, id, "add")
			w.Covers(now, time.Second)
		}
		for i := range keepTimes*n + 2 {
			id := fmt.Sprint("fresh", i)
			for _, ch := range w.AddOf(now, state, id, "add", []byte{byte(i)}) {
				if ch.Delete {
					delete(state, ch.Name)
				} else {
					state[ch.Name] = core.Page{Data: ch.Data}
				}
			}
			if body, found := w.FindOf(state, id, "add"); found != Kept || len(body) != 1 || body[0] != byte(i) {
				t.Fatalf("what was noted is found as %v %d", body, found)
			}
		}
		if len(state) > keepTimes*n+3 { // those that are no requests stay
			t.Errorf("a window of %d has %d pages", n, len(state)-1)
		}
		again := NewWindow(now, state, core.Stamp{Seq: 2}, n)
		if _, found := again.FindOf(state, fmt.Sprint("fresh", keepTimes*n+1), "add"); found != Kept {
			t.Error("a window that is made again has lost the newest")
		}
	})
}
