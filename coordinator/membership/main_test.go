package membership_test

import (
	"flag"
	"os"
	"testing"
)

// TestMain gives the random tests the same draws each time; -rapid.seed=0 draws anew.
func TestMain(m *testing.M) {
	seeded := false
	flag.Parse()
	flag.Visit(func(f *flag.Flag) { seeded = seeded || f.Name == "rapid.seed" })
	if !seeded {
		flag.Set("rapid.seed", "1")
	}
	os.Exit(m.Run())
}
