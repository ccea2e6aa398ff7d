package chainmail

import (
	"testing"
	"time"

	"chainmail/engine/core"
)

// Only what a message has waited makes it late, whatever the clocks show.
func TestLateness(t *testing.T) {
	const s = core.Time(time.Second)
	var l lateness
	for _, x := range []struct {
		member    string
		inc       uint64
		sent, now core.Time
		late      time.Duration
	}{
		{"a", 1, 1000 * s, 5 * s, 0}, // the first says nothing
		{"a", 1, 1001 * s, 6 * s, 0},
		{"a", 1, 1002 * s, 7*s + s/20, 0}, // noise
		{"a", 1, 1003 * s, 11 * s, 3 * time.Second},
		{"a", 1, 1007 * s, 12 * s, 0},
		{"b", 1, 3 * s, 13 * s, 0},
		{"a", 2, 0, 14 * s, 0}, // it has started again
		{"a", 2, 5 * s, 15 * s, 0},
		{"a", 2, 7 * s, 19 * s, 2 * time.Second},
		{"a", 2, 10007 * s, 10017*s + s/2, 0}, // the clocks have drifted
	} {
		if got := l.of(x.member, x.inc, x.sent, x.now); got < x.late-10*time.Millisecond || got > x.late+10*time.Millisecond {
			t.Errorf("%+v: late by %s", x, got)
		}
	}
	// A clock that was set back makes all messages look late, for some seconds.
	l.of("c", 1, 0, 0)
	for at := range core.Time(60) {
		late := l.of("c", 1, at*s, (at+9)*s)
		if at == 0 && late < 8*time.Second || at > 22 && late > 0 {
			t.Errorf("%d s after a clock was set back: late by %s", at, late)
		}
	}
	a := core.Ask{RequestID: "r", Deadline: 10 * s, Tried: time.Second}
	if aged(&a, 3*time.Second); a.Deadline != 7*s || a.Tried != 4*time.Second {
		t.Errorf("%+v", a)
	}
}
