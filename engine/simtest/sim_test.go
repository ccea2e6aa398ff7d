package simtest

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	seeds   = flag.Int("seeds", 300, "how many seeds to run")
	start   = flag.Uint64("start", 1, "first seed")
	one     = flag.Uint64("seed", 0, "run this seed alone")
	show    = flag.Bool("show", false, "print the whole trace")
	without = flag.String("without", "", "kinds of trouble to turn off, separated by commas; all for every kind")
	roll    = flag.Uint64("roll", 0, "which of the runs with these options, as Shrink names it")
	keys    = flag.Int("keys", 0, "how many keys, as Shrink names it; 0: as the seed says")
	length  = flag.Duration("length", 0, "of the first phase, as Shrink names it; 0: as the seed says")
	shrink  = flag.Bool("shrink", false, "turn off what a failing seed does not need to fail")
	limit   = flag.Duration("for", 0, "stop after so long; 0: when all seeds have run")
	parts   = flag.Int("parts", 1, "-for and -search are divided by so many")
	most    = flag.Int("failures", 3, "stop after so many failing seeds")
)

// summary is the last line of what a run of the tests prints.
var summary string

// TestMain prints the summary after all else.
func TestMain(m *testing.M) {
	code := m.Run()
	if summary != "" {
		fmt.Println(summary)
	}
	os.Exit(code)
}

// options gives a seed's options with what the flags turn off.
func options(t *testing.T, seed uint64) Options {
	o := Draw(seed)
	o.Roll = *roll
	if *without != "" {
		var err error
		if o, err = o.Without(strings.Split(*without, ",")...); err != nil {
			t.Error(err)
		}
	}
	o.Load.Keys, o.Length = cmp.Or(*keys, o.Load.Keys), cmp.Or(*length, o.Length)
	return o
}

// tally sums up runs.
type tally struct {
	mu            sync.Mutex
	next, end     uint64 // seeds that are still to be run
	ran           int
	events        int
	faults, reach map[string]int // by kind
	virtual       time.Duration
	bad           map[uint64]string // by seed
}

// take gives the next seed. Seeds are given out in order, so that the lowest one that fails is always found.
func (y *tally) take(until time.Time) (uint64, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.next == y.end || len(y.bad) >= *most || !until.IsZero() && time.Now().After(until) {
		return 0, false
	}
	y.next++
	return y.next - 1, true
}

func (y *tally) add(s *Sim, err error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.ran, y.events, y.virtual = y.ran+1, y.events+s.Events, y.virtual+s.Now()
	for k, n := range s.Faults {
		y.faults[k] += n
	}
	for k, n := range s.Reach {
		y.reach[k] += n
	}
	if err != nil {
		y.bad[s.o.Seed] = fmt.Sprintf("%v\n%s", err, failure(s, s.o))
	}
}

// manySeeds is how many seeds have every kind of fault in them: a slice of so many that lacks one has a fault that is not drawn.
const manySeeds = 500

// kinds writes how often each of some kinds came about; none may be missing in many seeds.
func (y *tally) kinds(t *testing.T, what string, names []string, counts map[string]int) (line string, sum int) {
	line = what + ":"
	for _, k := range names {
		n := counts[k]
		line += fmt.Sprintf(" %s=%d", k, n)
		sum += n
		if n == 0 && y.ran >= manySeeds && *without == "" {
			t.Errorf("%s: no %s in %d seeds", what, k, y.ran)
		}
	}
	for k := range counts {
		if !slices.Contains(names, k) {
			t.Errorf("%s: %s is not listed", what, k)
		}
	}
	return line, sum
}

// TestSim runs seeds, several at a time. A failure prints the seed, its options, the end of the trace and how to run it
// again.
func TestSim(t *testing.T) {
	y := &tally{next: *start, end: *start + uint64(*seeds), faults: map[string]int{}, reach: map[string]int{}, bad: map[uint64]string{}}
	if *one != 0 {
		y.next, y.end = *one, *one+1
	}
	begin := time.Now()
	var until time.Time
	if *limit != 0 {
		until = begin.Add(*limit / time.Duration(*parts))
	}
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed, ok := y.take(until); ok; seed, ok = y.take(until) {
				s := New(options(t, seed))
				if *show {
					s.trace.out = os.Stdout
				}
				y.add(s, s.Run())
			}
		})
	}
	wg.Wait()
	for _, seed := range slices.Sorted(maps.Keys(y.bad)) {
		t.Errorf("seed %d: %s", seed, y.bad[seed])
	}
	t.Logf("%.0f events/s", float64(y.events)/time.Since(begin).Seconds())
	faults, sum := y.kinds(t, "faults", faultKinds, y.faults)
	reached, _ := y.kinds(t, "reached", reachKinds, y.reach)
	summary = fmt.Sprintf("%s\n%s\nsim: seeds=%d events=%d virtual_hours=%.2f faults=%d violations=%d", reached, faults, y.ran, y.events, y.virtual.Hours(), sum, len(y.bad))
}

// failure tells all that is needed to look into a failing run.
func failure(s *Sim, o Options) string {
	out := fmt.Sprintf("options %v\n%s\nagain: go test ./engine/simtest -run 'TestSim$' -seed %d -show", o, strings.Join(s.Trace(), "\n"), o.Seed)
	if *without != "" {
		out += " -without " + *without
	}
	if *shrink {
		less, off := Shrink(o)
		again := New(less)
		err := again.Run()
		out += fmt.Sprintf("\nshrunk: options %v\nshrunk: %v\n%s", less, err, strings.Join(again.Trace(), "\n"))
		if *without != "" {
			off = append(off, *without)
		}
		out += fmt.Sprintf("\nagain: go test ./engine/simtest -run 'TestSim$' -seed %d -without '%s' -roll %d -keys %d -length %s -show",
			less.Seed, strings.Join(off, ","), less.Roll, less.Load.Keys, less.Length)
	}
	return out
}

// TestSimDeterministic runs seeds twice: the traces are the same, line by line.
func TestSimDeterministic(t *testing.T) {
	for seed := uint64(1); seed <= 50; seed++ {
		a, b := New(Draw(seed)), New(Draw(seed))
		a.Run()
		b.Run()
		if a.Hash() != b.Hash() || a.Events != b.Events {
			t.Fatalf("seed %d gave two traces", seed)
		}
	}
}
