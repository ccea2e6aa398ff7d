package simtest

import "strings"

// finding is something that the simulator has found and that is not mended yet. It counts as a violation where
// Options.Strict names it, so that other findings are not hidden behind it; whoever mends it deletes it here.
type finding string

const (
	// twice: a call that is made again with the same request id is run again.
	twice finding = "twice"
)

// counts says whether a finding is a violation in this run.
func (s *Sim) counts(f finding) bool {
	if s.o.Strict == "" {
		return false
	}
	for name := range strings.SplitSeq(s.o.Strict, ",") {
		if name == "all" || name == string(f) {
			return true
		}
	}
	return false
}
