package simtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"chainmail/engine/core"
)

// Options are the rates and sizes of one run. Draw takes them from the seed; a test may set its own.
type Options struct {
	Seed     uint64
	Members  int // that exist at most
	Start    int // in the first ring
	Replicas int
	VNodes   int
	Keys     int
	Clients  int
	Durable  bool          // copies survive crashes
	Length   time.Duration // of the first phase
	CallGap  time.Duration // between two calls of a client, on average

	Delay, Jitter time.Duration // of a message
	Loss, Dup     float64
	Cuts          time.Duration // a link is cut once in such a time; 0: never
	Crashes       time.Duration // likewise a member crashes
	Pauses        time.Duration
	Changes       time.Duration // a change is submitted
	Aborts        float64       // share of the running changes that are aborted or retargeted
	LogLag        time.Duration // until a member learns a placement, at most
	LogSkip       float64       // share of placements that a member does not see by itself
	WrongMarks    time.Duration // a healthy member is marked down
	Fsync         time.Duration
	HandlerDelay  time.Duration
	LostProposals float64
	Deletes       bool
}

// Draw takes a run's options from its seed.
func Draw(seed uint64) Options {
	r := rand.New(rand.NewPCG(seed, 0x5eed))
	dur := func(lo, hi time.Duration) time.Duration { return lo + time.Duration(r.Int64N(int64(hi-lo)+1)) }
	some := func(p float64, d time.Duration) time.Duration {
		if r.Float64() < p {
			return d
		}
		return 0
	}
	rate := func(p, most float64) float64 {
		if r.Float64() < p {
			return r.Float64() * most
		}
		return 0
	}
	o := Options{
		Seed: seed, Members: 1 + r.IntN(7), Replicas: 1 + r.IntN(4), VNodes: 1 + r.IntN(12), Keys: 1 + r.IntN(20), Clients: 1 + r.IntN(6),
		Durable: r.IntN(2) == 0, Length: dur(4*time.Second, 20*time.Second), CallGap: dur(5*time.Millisecond, 120*time.Millisecond),
		Delay: dur(50*time.Microsecond, 5*time.Millisecond),
		Loss:  rate(0.5, 0.08), Dup: rate(0.5, 0.08),
	}
	if r.IntN(3) > 0 {
		o.Replicas = 3
	}
	o.Start = 1 + r.IntN(o.Members)
	o.Jitter = dur(0, 4*o.Delay)
	o.Cuts = some(0.6, dur(100*time.Millisecond, 4*time.Second))
	o.Crashes = some(0.5, dur(2*time.Second, 8*time.Second))
	o.Pauses = some(0.3, dur(2*time.Second, 8*time.Second))
	o.Changes = some(0.85, dur(500*time.Millisecond, 5*time.Second))
	o.Aborts = rate(0.4, 0.6)
	o.LogLag = dur(time.Millisecond, 300*time.Millisecond)
	o.LogSkip = rate(0.4, 0.5)
	o.WrongMarks = some(0.3, dur(time.Second, 6*time.Second))
	o.Fsync = dur(100*time.Microsecond, 5*time.Millisecond)
	o.HandlerDelay = some(0.5, dur(10*time.Microsecond, 5*time.Millisecond))
	o.LostProposals = rate(0.5, 0.3)
	o.Deletes = r.IntN(3) == 0
	return o
}

func (o Options) String() string {
	type plain Options
	return fmt.Sprintf("%+v", plain(o))
}

// at gives virtual time in milliseconds for traces.
func at(t core.Time) string { return fmt.Sprintf("%9.3f", float64(t)/1e6) }
