package chainmail

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTransits(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct{ took, want []time.Duration }{
		"at once":                          {[]time.Duration{0, 0}, []time.Duration{0, 0}},
		"the second was held up":           {[]time.Duration{0, 9 * s}, []time.Duration{0, 9 * s}},
		"the clocks differ by a second":    {[]time.Duration{s, s, 4 * s}, []time.Duration{s, 0, 3 * s}},
		"the receiver's clock is behind":   {[]time.Duration{-9 * s, -9 * s, -4 * s}, []time.Duration{0, 0, 5 * s}},
		"all of a burst were held up":      {[]time.Duration{11 * s, 10 * s}, []time.Duration{11 * s, 8 * s}},
		"the clocks differ by ten seconds": {[]time.Duration{10 * s, 10 * s}, []time.Duration{10 * s, 8 * s}},
	} {
		var x transits
		for i, took := range c.took {
			if got := x.of("m", took); got != c.want[i] {
				t.Errorf("%s: message %d was %v on its way, want %v", name, i, got, c.want[i])
			}
		}
	}
}

// A clock that was set back makes messages look late for some minutes, not for ever.
func TestTransitsForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x transits
		x.of("m", -3*time.Second)
		if d := x.of("m", 0); d != 3*time.Second {
			t.Errorf("%v after the fastest of -3s", d)
		}
		for range 3 {
			time.Sleep(transitEvery + 1)
			x.of("m", 0)
		}
		if d := x.of("m", 0); d != 0 {
			t.Errorf("%v three minutes later", d)
		}
	})
}
