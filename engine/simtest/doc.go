// Package simtest runs whole clusters in one goroutine on virtual time: the cores of engine/core and the placement of
// coordinator/membership, exactly as in production, against an adversarial log, network and disk. One seed gives one run:
// the same trace, event by event.
//
// A run has two phases. In the first one messages are lost, doubled, delayed, clogged and cut off, members crash with and
// without their memory, pause, have slow disks, learn placements late or skip them, proposals are lost, late or doubled,
// and changes are submitted, paused, aborted and retargeted. In the second one everything heals, and everything must be
// served: every call answered, the change finished, all copies of a key equal on its replica set and nowhere else.
//
// Checked throughout (check.go):
//   - no two states have one stamp;
//   - promises and stamps of a copy never go back within an incarnation, but by a drop or discard where that is legal;
//   - what was answered stays held: fewer than R(S) counting members of a key's set lack the newest answered stamp;
//   - stamps of answers follow real time;
//   - placements form one sequence, and bounds on what is held are kept;
//   - each call is answered exactly once and in time, and what one member sends to a key is run in the order in which it came.
//
// Checked of each key's history (history.go): it is linearizable. Lists that only grow decide this without a search; they are
// given to porcupine as well while they are short, the other actors always.
//
// Loss runs (Options.Trouble.Loss) destroy more than the protocol tolerates: there only uniqueness, answering and the
// end of the second phase are checked.
//
// Nothing here is safe for concurrent use; several Sims may run side by side. It is not a test of Raft, of sockets or of
// stores, which have tests of their own.
package simtest
