package simtest

import "strings"

// finding is something that the simulator has found and that is not mended yet. It counts as a violation where
// Options.Strict names it, so that other findings are not hidden behind it; whoever mends it deletes it here.
type finding string

const (
	// oldAnswers: a process takes answers that were meant for the one before it: the numbers of calls, and those of
	// operations of a new incarnation, begin anew with each.
	oldAnswers finding = "old-answers"
	// oldRedirects: a redirect that arrives twice sends a call out again that the owner has already.
	oldRedirects finding = "old-redirects"
	// noRepair: a replica that was down when a commit was made, or missed it, is given the state only while the
	// activation lives. After an idle end it stays behind until the key is used again; if it is the owner then, a key that
	// is marked active is not started.
	noRepair finding = "no-repair"
	// lostDiscard: a member that starts again within a step forgets what it had gained before, and does not write that
	// to its store: what it forgot comes back with the next start.
	lostDiscard finding = "lost-discard"
	// sweepHolds: what the sweep queues for marked keys is not held to Limits.Held.
	sweepHolds finding = "sweep-holds"
	// oldRegister: a registration of an older process that comes late takes the place of the one that runs and bans it.
	oldRegister finding = "old-register"
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
