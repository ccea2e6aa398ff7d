package kinds

import (
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
	w := NewWindow(state, 3)
	for i := range 10 {
		now := start.Add(time.Duration(i) * time.Minute)
		if i >= 3 && w.Covers(now, time.Duration(i)*time.Minute) != (i == 3) {
			t.Errorf("before request %d, one that is as old as the first: covered %t", i, w.Covers(now, time.Duration(i)*time.Minute))
		}
		if !w.Covers(now, 0) {
			t.Errorf("request %d is not covered", i)
		}
		for _, ch := range w.Add(now, state, fmt.Sprint(i), []byte{byte(i)}) {
			if ch.Delete {
				delete(state, ch.Name)
			} else {
				state[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data}
			}
		}
		if i%2 == 1 {
			w = NewWindow(state, 3)
		}
	}
	for i := range 10 {
		body, whole, found := w.Find(state, fmt.Sprint(i))
		if found != (i >= 7) || found && (!whole || body[0] != byte(i)) {
			t.Errorf("request %d: %v %t %t", i, body, whole, found)
		}
	}
	if len(state) != 4 {
		t.Errorf("the state has pages %v", state)
	}
	long := w.Add(start, state, "long", []byte(strings.Repeat("x", maxKept+1)))
	state[long[0].Name] = core.Page{Data: long[0].Data}
	if body, whole, found := w.Find(state, "long"); !found || whole || len(body) != 0 {
		t.Error(len(body), whole, found)
	}
	state[requestPrefix+"torn"] = core.Page{Data: []byte("short")}
	if _, _, found := NewWindow(state, 3).Find(state, "torn"); found {
		t.Error("a page that is too short is found")
	}
}
