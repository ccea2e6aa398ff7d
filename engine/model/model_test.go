package model

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	must = flag.Bool("must", false, "it is an error if spin or gcc is missing")
	soak = flag.Bool("soak", false, "search the spaces that are too big for every commit, with hashes in the place of states")
	only = flag.String("space", "", "search these alone, separated by commas, and keep their files in the directory that -keep names")
	keep = flag.String("keep", "", "where the files of a search stay, the trail of a failure among them")
)

const (
	// maxParallel and memory (MB, of one search) keep all searches together below 4 GB.
	maxParallel = 4
	memory      = 950
	soakMemory  = 8000
	// depth bounds the stack of a search: to reach it is a failure.
	depth = 20000
	// searchTime bounds one search: to reach it is a failure, but in a soak, which says how far it came.
	searchTime     = 3 * time.Minute
	soakSearchTime = 20 * time.Minute
)

// outcome is what came of a search.
type outcome struct {
	errors   int // violations; the search ends at the first
	states   int
	what     string // the assertion that does not hold
	complete bool
	took     time.Duration
	err      error // it could not be carried out
}

var (
	errorsLine = regexp.MustCompile(`(?m)errors: (\d+)$`)
	statesLine = regexp.MustCompile(`(?m)^\s*(\S+) states, stored`)
	violated   = regexp.MustCompile(`(?m)^pan:\d+: assertion violated (.*) \(at depth`)
)

// parse reads what pan says at its end.
func parse(out string) (o outcome) {
	e, s := errorsLine.FindStringSubmatch(out), statesLine.FindStringSubmatch(out)
	if e == nil || s == nil {
		o.err = fmt.Errorf("no result:\n%s", out)
		return o
	}
	o.errors, _ = strconv.Atoi(e[1])
	states, _ := strconv.ParseFloat(s[1], 64)
	o.states = int(states)
	if m := violated.FindStringSubmatch(out); m != nil {
		o.what = m[1]
	}
	cut := strings.Contains(out, "max search depth too small") || strings.Contains(out, "out of memory") || strings.Contains(out, "reached -DMEMLIM")
	o.complete = !cut && (o.errors > 0 || !strings.Contains(out, "Search not completed"))
	return o
}

// check says what is wrong with an outcome.
func (s space) check(o outcome) error {
	switch {
	case o.err != nil:
		return o.err
	case s.fails && o.what == "":
		return fmt.Errorf("nothing is found to be wrong with it: %s", s.about)
	case !s.fails && o.errors > 0:
		return fmt.Errorf("%d errors: %s", o.errors, o.what)
	case !s.fails && !o.complete && !s.soak:
		return fmt.Errorf("the search was cut off after %d states", o.states)
	}
	return nil
}

// search has spin make the search of a space, and carries it out.
func (s space) search(dir string) (o outcome) {
	source, err := filepath.Abs("key.pml")
	if err != nil {
		return outcome{err: err}
	}
	command := func(limit time.Duration, name string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		c := exec.CommandContext(ctx, name, args...)
		c.Dir = dir
		c.Cancel = func() error { return c.Process.Signal(os.Interrupt) } // pan says how far it came
		c.WaitDelay = 10 * time.Second
		var out bytes.Buffer
		c.Stdout, c.Stderr = &out, &out
		err := c.Run()
		return out.String(), err
	}
	if out, err := command(time.Minute, "spin", append(strings.Fields(s.defs), "-a", source)...); err != nil {
		return outcome{err: fmt.Errorf("spin: %w\n%s", err, out)}
	}
	limit, mem, more := searchTime, memory, []string{}
	if s.soak {
		limit, mem, more = soakSearchTime, soakMemory, []string{"-DHC4"}
	}
	flags := append(more, "-O1", "-w", "-DSAFETY", "-DNOFAIR", fmt.Sprint("-DMEMLIM=", mem), "-o", "pan", "pan.c")
	if out, err := command(time.Minute, "gcc", flags...); err != nil {
		return outcome{err: fmt.Errorf("gcc: %w\n%s", err, out)}
	}
	begin := time.Now()
	out, _ := command(limit, "./pan", fmt.Sprint("-m", depth), "-w22") // what it found is in what it says
	o = parse(out)
	o.took = time.Since(begin)
	return o
}

func missing() string {
	for _, name := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (apt-get install spin gcc libc6-dev)"
		}
	}
	return ""
}

// TestModel searches the spaces, several at a time, and prints what came of each.
func TestModel(t *testing.T) {
	if why := missing(); why != "" && *must {
		t.Fatal(why)
	} else if why != "" {
		t.Skip(why)
	}
	if testing.Short() && !*must {
		t.Skip("takes minutes; make model runs it")
	}
	var todo []space
	for _, s := range spaces {
		if *only != "" && strings.Contains(","+*only+",", ","+s.name+",") || *only == "" && s.soak == *soak {
			todo = append(todo, s)
		}
	}
	done := make([]chan outcome, len(todo))
	next := make(chan int, len(todo))
	for i := range todo {
		done[i] = make(chan outcome, 1)
		next <- i
	}
	close(next)
	var wg sync.WaitGroup
	for range min(runtime.NumCPU(), maxParallel) {
		wg.Go(func() {
			for i := range next {
				dir := t.TempDir()
				if *keep != "" {
					dir = filepath.Join(*keep, todo[i].name)
					if err := os.MkdirAll(dir, 0o700); err != nil {
						done[i] <- outcome{err: err}
						continue
					}
				}
				done[i] <- todo[i].search(dir)
			}
		})
	}
	report(t, todo, done)
	wg.Wait()
}

// report prints the table, in the order of the spaces.
func report(t *testing.T, todo []space, done []chan outcome) {
	hold, holding, fail, failing := 0, 0, 0, 0
	fmt.Printf("%-26s %-7s %10s %8s  %s\n", "space", "result", "states", "seconds", "")
	for i, s := range todo {
		o := <-done[i]
		err := s.check(o)
		result := "holds"
		switch {
		case o.err != nil:
			result = "error"
		case o.what != "" || o.errors > 0:
			result = "fails"
		case !o.complete:
			result = "cut off"
		}
		fmt.Printf("%-26s %-7s %10d %8.1f  %s\n", s.name, result, o.states, o.took.Seconds(), s.about)
		if s.fails {
			fail++
		} else {
			hold++
		}
		switch {
		case err != nil:
			t.Errorf("%s: %v", s.name, err)
		case s.fails:
			failing++
		case o.complete:
			holding++
		}
	}
	if holding == hold {
		fmt.Printf("model: %d spaces hold, %d of %d variants fail\n", holding, failing, fail)
	} else {
		fmt.Printf("model: %d of %d spaces hold, %d of %d variants fail\n", holding, hold, failing, fail)
	}
}

// TestParse reads what pan has said.
func TestParse(t *testing.T) {
	const end = "\nState-vector 84 byte, depth reached 93, errors: %d\n   845552 states, stored\n"
	good, bad := fmt.Sprintf(end, 0), fmt.Sprintf(end, 1)
	holds, variant := space{name: "x"}, space{name: "y", fails: true}
	for _, c := range []struct {
		s    space
		out  string
		fine bool
	}{
		{holds, good, true},
		{holds, bad, false},
		{holds, "error: max search depth too small" + good, false},
		{holds, "pan: reached -DMEMLIM bound" + good, false},
		{holds, "Interrupted\nWarning: Search not completed" + good, false},
		{holds, "Segmentation fault", false},
		{variant, good, false},
		{variant, "pan:1: invalid end state (at depth 3)" + bad, false},
		{variant, "\npan:1: assertion violated ((x&need[a])==need[a]) (at depth 30)\nWarning: Search not completed" + bad, true},
	} {
		if err := c.s.check(parse(c.out)); (err == nil) != c.fine {
			t.Errorf("%s, %q: %v", c.s.name, c.out, err)
		}
	}
}
