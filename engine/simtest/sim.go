package simtest

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"chainmail/engine/core"
)

// Sim is one run.
type Sim struct {
	o      Options
	rand   *rand.Rand
	now    core.Time
	events eventHeap
	seq    uint64
	trace  trace
	bad    error // the first violation

	hosts   []*host
	net     network
	log     oracle
	clients []*client
	checks  checks
	calls   map[callID]*op
	made    uint32 // calls

	calm   bool      // the second phase
	healed core.Time // when it began
	dead   *host     // for good, nil if none is
	toRead int       // keys that are still to be read for the last time

	Events int            // that were run
	Faults map[string]int // that were injected, by kind
	Reach  map[string]int // how often runs came to what is rare, by kind
}

type event struct {
	at  core.Time
	seq uint64
	do  func()
}

// eventHeap orders events by (time, sequence).
type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push and Pop are for container/heap.
func (h *eventHeap) Push(x any) { *h = append(*h, x.(event)) }

// Pop is described at Push.
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*h = old[:len(old)-1]
	return e
}

func (s *Sim) after(d time.Duration, do func()) {
	s.seq++
	heap.Push(&s.events, event{s.now.Add(max(d, 0)), s.seq, do})
}

// between draws a duration.
func (s *Sim) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(s.rand.Int64N(int64(hi-lo)))
}

// exp draws an exponentially distributed duration around mean.
func (s *Sim) exp(mean time.Duration) time.Duration {
	return time.Duration(s.rand.ExpFloat64() * float64(mean))
}

func (s *Sim) chance(p float64) bool { return p > 0 && s.rand.Float64() < p }

// fail records the first violation.
func (s *Sim) fail(format string, args ...any) {
	if s.bad == nil {
		s.bad = fmt.Errorf(format, args...)
		s.trace.add(s.now, "VIOLATION %v", s.bad)
	}
}

// New prepares a run.
func New(o Options) *Sim {
	s := &Sim{o: o, rand: rand.New(rand.NewPCG(o.Seed, 1+o.Roll)), trace: newTrace(), calls: map[callID]*op{}, Faults: map[string]int{}, Reach: map[string]int{}}
	s.net.init(s)
	s.log.init(s)
	s.checks.init(s)
	for i := range o.Cluster.Members {
		s.hosts = append(s.hosts, newHost(s, i))
	}
	for range o.Load.Clients {
		s.clients = append(s.clients, &client{s: s})
	}
	return s
}

const (
	// tickEvery is how often a core is ticked.
	tickEvery = 10 * time.Millisecond
	// healLimit is how long after the last fault everything must be served.
	healLimit = 60 * time.Second
	// lookEvery is how often the second phase looks whether everything is.
	lookEvery = 100 * time.Millisecond
	// lastLimit is the deadline of the last read of each key, lastGap the time between two: long enough for one at a time,
	// so that no bound is met.
	lastLimit = 1500 * time.Millisecond
	lastGap   = 200 * time.Millisecond
)

// Run carries out both phases and gives the first violation. A panic of the cores is one.
func (s *Sim) Run() (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.fail("panic: %v\n%s", p, debug.Stack())
			err = s.bad
		}
	}()
	for _, h := range s.hosts {
		h.start()
	}
	s.log.form()
	for _, c := range s.clients {
		c.next()
	}
	s.faults()
	s.until(core.Time(0).Add(s.o.Length), func() bool { return false })
	s.heal()
	if s.bad == nil && !s.until(s.now.Add(healLimit), func() bool { return s.unquiet() == "" }) {
		s.fail("not quiet %v after everything healed: %s", healLimit, s.unquiet())
	}
	s.lastReads()
	if s.bad == nil && !s.until(s.now.Add(time.Duration(s.toRead)*lastGap+2*lastLimit), func() bool { return s.toRead+len(s.calls) == 0 }) {
		s.fail("%d last reads were not answered", len(s.calls))
	}
	s.checks.final()
	return s.bad
}

// until runs events up to an instant, or until ok says so.
func (s *Sim) until(end core.Time, ok func() bool) bool {
	look := s.now
	for s.bad == nil && len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		s.Events++
		e.do()
		if s.now >= look {
			look = s.now.Add(lookEvery)
			if ok() {
				return true
			}
		}
	}
	return false
}

// Hash is the trace's fingerprint, Now the virtual time that has passed.
func (s *Sim) Hash() uint64 { return s.trace.hash.Sum64() }

// Now is described at Hash.
func (s *Sim) Now() time.Duration { return time.Duration(s.now) }

// Trace gives the last lines of the trace.
func (s *Sim) Trace() []string { return s.trace.last() }
