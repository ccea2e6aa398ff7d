// Package engine runs the protocol core of one member: it gives it inputs and time, and carries out its effects in
// order, what must be durable first.
//
// One goroutine owns the core. With a store that is durable a second one, the committer, makes effects durable and
// carries out what follows them; all that gathers while it writes goes into its next write. Handlers of actors run where
// the Runner runs them.
//
// Callers may use an Engine from any goroutine. A store that fails stops the engine (Failed): what it promised to others
// must not be more than what it holds.
package engine
