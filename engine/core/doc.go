// Package core is the protocol of one member as a pure state machine: Step takes an input and an instant and gives the
// effects to carry out, in order. It has no clock, no randomness, no goroutine, no lock and no I/O, so that the
// simulator drives exactly what runs in production.
//
// For each key a Core is a replica (promise, accept, confirm: receive.go), the owner (activation.go, round.go), a
// source and a receiver of copies (source.go, fill.go, sums.go), and the one who hands over and drops what it need not hold
// (sweep.go). view.go derives replica sets, owners and version fences from the placement; route.go takes callers'
// messages to the owner and waits for the answer.
//
// The rules are those of docs/protocol.md. The caller must carry out effects in order and make what a Persist holds
// durable before any later Send, Reply or Report, must give every Execute exactly one Executed, and must Tick at least
// every 20 ms. Bodies of messages and views are never changed after they were handed over.
package core
