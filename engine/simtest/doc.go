// Package simtest runs whole clusters in one goroutine on virtual time: the cores of engine/core and the placement of
// coordinator/membership, exactly as in production, against an adversarial log, network and disk. One seed gives one run:
// the same trace, event by event.
//
// A run has two phases. In the first one messages are lost, doubled, delayed and cut off, members crash with and without
// their memory, pause, learn placements late or skip them, and changes are submitted, aborted and retargeted. In the
// second one everything heals, and everything must be served: every call answered, the change finished, all copies of
// a key equal on its replica set and nowhere else.
//
// Checked throughout: no two states have one stamp, promises and stamps of a copy never go back within an incarnation
// but by a legal drop, each call is answered exactly once and in time. Checked of each key's history: it is
// linearizable. The keys are append-only lists, whose observations decide this without a search (check.go).
package simtest
