package simtest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var (
	seeds = flag.Int("seeds", 150, "how many seeds to run")
	start = flag.Uint64("start", 1, "first seed")
	one   = flag.Uint64("seed", 0, "run this seed alone")
	show  = flag.Bool("trace", false, "print the whole trace")
)

// TestSim runs seeds. A failure prints the seed, its options, the end of the trace and how to run it again.
func TestSim(t *testing.T) {
	first, n := *start, *seeds
	if *one != 0 {
		first, n = *one, 1
	}
	var events, faults, bad int
	var virtual time.Duration
	begin := time.Now()
	for seed := first; seed < first+uint64(n); seed++ {
		if testing.Verbose() {
			fmt.Println("seed", seed)
		}
		s := New(Draw(seed))
		if *show {
			s.trace.out = os.Stdout
		}
		err := s.Run()
		events, faults, virtual = events+s.Events, faults+s.Faults, virtual+s.Now()
		if err != nil {
			bad++
			t.Errorf("seed %d: %v\noptions %v\n%s\nagain: go test ./engine/simtest -run TestSim -seed %d -trace", seed, err, s.o, strings.Join(s.Trace(), "\n"), seed)
			if bad >= 3 {
				break
			}
		}
	}
	fmt.Printf("sim: seeds=%d events=%d virtual_hours=%.2f faults=%d violations=%d (%.0f events/s)\n", n, events, virtual.Hours(), faults, bad, float64(events)/time.Since(begin).Seconds())
}

// TestSimDeterministic runs seeds twice: the traces are the same, line by line.
func TestSimDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		a, b := New(Draw(seed)), New(Draw(seed))
		a.Run()
		b.Run()
		if a.Hash() != b.Hash() {
			t.Fatalf("seed %d gave two traces", seed)
		}
	}
}
