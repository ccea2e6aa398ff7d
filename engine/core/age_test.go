package core

import (
	"testing"
	"time"
)

// TestAgeOfRequests: what is made for the first time has no age unless it was long under way or waited for long; a repeated
// request has that of all its attempts.
func TestAgeOfRequests(t *testing.T) {
	const never = Time(1 << 62)
	for _, c := range []struct {
		tried, transit, waited time.Duration
		opened                 Time // after it came
		want                   time.Duration
	}{
		{0, 0, 0, never, 0},
		{0, freshOnWay, freshWaiting, never, 0},
		{0, freshOnWay + 1, 0, never, freshOnWay + 1},
		{0, 0, freshWaiting + 1, never, freshWaiting + 1},
		{0, 0, time.Minute, -5, 0},                 // behind others, in an activation that goes on
		{0, 0, time.Minute, Time(freshWaiting), 0}, // likewise, most of the time
		{0, 0, time.Minute, Time(freshWaiting) + 1, time.Minute},
		{time.Second, 1, 2, -5, time.Second + 3},
		{0, 11 * time.Second, time.Second, -5, 12 * time.Second},
	} {
		a := Ask{RequestID: "r", Tried: c.tried}
		a.Delayed(c.transit)
		h := held{reqID: a.RequestID, tried: a.Tried, came: 5}
		if got := h.age(5+c.opened, 5+Time(c.waited)); got != c.want {
			t.Errorf("%+v: age %v", c, got)
		}
	}
	a := Ask{}
	h := held{}
	if a.Delayed(time.Hour); a.Tried != 0 || h.age(Time(time.Hour), Time(time.Hour)) != 0 {
		t.Error("a message without an id has an age")
	}
}
