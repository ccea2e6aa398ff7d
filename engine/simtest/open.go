package simtest

// finding is something that the simulator has found and that is not mended yet. It counts as a violation in strict runs
// alone, so that other findings are not hidden behind it; whoever mends it deletes it here.
type finding string

const (
	// oldAnswers: a process takes answers that were meant for the one before it: the numbers of calls, and those of
	// operations of a new incarnation, begin anew with each.
	oldAnswers finding = "answers to an older process are taken"
	// noRepair: a replica that was down when a commit was made, or missed it, is given the state only while the
	// activation lives. After an idle end it stays behind until the key is used again.
	noRepair finding = "copies stay behind after an idle end"
	// lostDiscard: a member that starts again within a step forgets what it had gained before, and does not write that
	// to its store: what it forgot comes back with the next start.
	lostDiscard finding = "a start forgets copies in memory and not in the store"
	// sweepHolds: what the sweep queues for marked keys is not held to Limits.Held.
	sweepHolds finding = "the sweep goes over the bound on held messages"
)

// counts says whether a finding is a violation in this run.
func (s *Sim) counts(finding) bool { return s.o.Strict }
