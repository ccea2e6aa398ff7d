package core

import "time"

// Config is what a Core is made with.
type Config struct {
	Self        string
	Incarnation uint64
	// Boot grows with each start of one incarnation and is durable before the Core is made: epochs of two runs never meet.
	Boot uint64
	// Durable says that Persist effects are real, so that the copies of this incarnation survive a restart.
	Durable bool
	Types   map[string]TypeConfig
	Limits  Limits
}

// TypeConfig is what the engine knows of an actor type.
type TypeConfig struct {
	Idle   time.Duration // an activation without messages for so long ends; 0: never
	Active bool          // the type has a body: commits of an activation set ActivePage
}

// Limits bound what a Core holds. Zero fields take the defaults.
type Limits struct {
	Held      int // messages that wait, all keys together; default 65536
	HeldBytes int // default 64 MiB
	Mailbox   int // messages that wait for one key; default 1024
	State     int // bytes of one key's pages; default 4 MiB
	Name      int // bytes of a key's name; default 1 KiB
}
