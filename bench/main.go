// Command bench prints what the whole does beside what the machine, or a peer, does in the same run:
//
//	handoff    a member joins three others; beside a copy of as many keys from a map over TCP into a map
//	counters   replicated adds of three member processes; beside Apply of hashicorp/raft with stores in memory
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
)

var profile = flag.String("profile", "", "write CPU profiles of the handoffs, without what leads to them, to this name, the size of values and the run")

var runs = flag.Int("runs", 3, "repetitions; medians are printed")

func main() {
	flag.Parse()
	want := flag.Args()
	for _, b := range []struct {
		name string
		run  func() error
	}{{"handoff", handoff}, {"counters", counters}} {
		if len(want) > 0 && !slices.Contains(want, b.name) {
			continue
		}
		if err := b.run(); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", b.name, err)
			os.Exit(1)
		}
	}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
