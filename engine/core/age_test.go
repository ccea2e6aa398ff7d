package core

import (
	"testing"
	"time"
)

// TestAgeOfRequests: what is made for the first time has no age unless it was long under way or waited for long; a repeated
// request has that of all its attempts.
func TestAgeOfRequests(t *testing.T) {
	for _, c := range []struct{ tried, transit, waited, want time.Duration }{
		{0, 0, 0, 0}, {0, freshOnWay, freshWaiting, 0}, {0, freshOnWay + 1, 0, freshOnWay + 1}, {0, 0, freshWaiting + 1, freshWaiting + 1},
		{time.Second, 1, 2, time.Second + 3}, {0, 11 * time.Second, time.Second, 12 * time.Second},
	} {
		a := Ask{RequestID: "r", Tried: c.tried}
		a.Delayed(c.transit)
		if got := age(a.RequestID, a.Tried, 5, 5+Time(c.waited)); got != c.want {
			t.Errorf("first tried %v before, %v under way, waited %v: %v, want %v", c.tried, c.transit, c.waited, got, c.want)
		}
	}
	a := Ask{}
	if a.Delayed(time.Hour); a.Tried != 0 || age("", 0, 0, Time(time.Hour)) != 0 {
		t.Error("a message without an id has an age")
	}
}
