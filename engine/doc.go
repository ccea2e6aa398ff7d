// Package engine runs the protocol core of one member: it gives it inputs and time, and carries out its effects in
// order, what must be durable first.
//
// One goroutine at a time steps the core: who holds Engine.turn. Mostly that is the loop, which takes all inputs that have
// gathered. A caller or a connection's reader whose input is the only one that waits, while the core is idle, steps it itself:
// two switches less for a message that is alone. It waits for nobody: not for another one's step, and not for the store. What
// many send at once is left to the loop, so that what it causes goes out together.
//
// With a store that is durable a second goroutine, the committer, makes effects durable and carries out what follows them; all
// that gathers while it writes goes into its next write. Handlers of actors run where the Runner runs them.
//
// Callers may use an Engine from any goroutine. A store that fails stops the engine (Failed): what it promised to others
// must not be more than what it holds.
package engine
