package simtest

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
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

	hosts []*host
	net   network
	log   oracle
	calm  bool // the second phase

	keys       map[core.Key]*history
	calls      map[callID]*op
	clients    []*client
	stamps     map[stampOf]string // state digest of each stamp that was ever stored
	healed     core.Time          // when the second phase began
	callSeq    uint32
	hostChecks int
	Events     int
	Faults     int
}

type stampOf struct {
	key   core.Key
	stamp core.Stamp
}

type event struct {
	at  core.Time
	seq uint64
	do  func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
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
	s := &Sim{o: o, rand: rand.New(rand.NewPCG(o.Seed, 1)), keys: map[core.Key]*history{}, calls: map[callID]*op{}, stamps: map[stampOf]string{}}
	s.trace.hash = fnv.New64a()
	s.net.init(s)
	s.log.init(s)
	for i := range o.Members {
		s.hosts = append(s.hosts, newHost(s, fmt.Sprintf("m%d", i)))
	}
	for i := range o.Clients {
		s.clients = append(s.clients, &client{s: s, n: i})
	}
	return s
}

const (
	tickEvery = 10 * time.Millisecond
	callLimit = 1500 * time.Millisecond
	healLimit = 60 * time.Second
)

// Run carries out both phases and gives the first violation.
func (s *Sim) Run() error {
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
	end := s.now.Add(healLimit)
	if s.bad == nil && !s.until(end, s.quiet) {
		s.fail("not quiet %v after everything healed: %s", healLimit, s.unquiet())
	}
	if s.bad == nil {
		s.lastReads()
		s.until(end.Add(healLimit), func() bool { return len(s.calls) == 0 })
		s.finalChecks()
	}
	return s.bad
}

// until runs events up to an instant, or until ok says so (looked at every 100 virtual ms).
func (s *Sim) until(end core.Time, ok func() bool) bool {
	look := s.now
	for s.bad == nil && len(s.events) > 0 && s.events[0].at <= end {
		e := heap.Pop(&s.events).(event)
		s.now = e.at
		s.Events++
		e.do()
		if s.now >= look {
			look = s.now.Add(100 * time.Millisecond)
			if ok() {
				return true
			}
		}
	}
	return false
}

// Hash is the trace's fingerprint, Now the virtual time that has passed.
func (s *Sim) Hash() uint64       { return s.trace.hash.Sum64() }
func (s *Sim) Now() time.Duration { return time.Duration(s.now) }

// Trace gives the last lines of the trace.
func (s *Sim) Trace() []string { return s.trace.last() }
