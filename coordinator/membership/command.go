package membership

import "chainmail/ring"

// Command is one log entry. Exactly one of the pointers is set; Format is the encoding's number.
type Command struct {
	Format uint8
	At     int64 // unix milliseconds of the proposer, for people

	Init        *Init
	Register    *Register
	Change      *ChangeCommand
	Report      []Report // batched
	Advance     *Advance
	Abort       *ChangeRef
	Pause       *ChangeRef
	Resume      *ChangeRef
	Mark        *Mark
	Limits      *LimitsCommand
	DeclareLost *DeclareLost
	SetReplicas *SetReplicas
	Forget      *Forget
	Pins        []Pin
}

// Init names the cluster and fixes its ring; only the first one takes effect.
type Init struct {
	ClusterID string
	Ring      ring.Params
	Replicas  int
	Limits    Limits
}

// Register admits a member, or tells its new incarnation, start or address. A new incarnation of a member of Base makes it
// refilling; of a member that is only in Next it starts that member's filling anew; a banned incarnation is refused. A new
// start of the same one marks the member: it may have lost what it had not made durable, and others lack what it wrote last.
type Register struct {
	Member Member // ID, Incarnation, Start, Address, HTTP, Zone, Weight, NonVoter are read
	// Seen is the incarnation of the member that the process saw in the log, 0 for none. If the log lists neither it nor
	// the new one, the process is an older one whose command came late: it must not take the place of the one that runs.
	Seen uint64
	// Starts are numbers that earlier starts of the incarnation have drawn, as far as the process knows. If the log lists one that
	// is not of them, the process was given a state of its store from before that, or its command came late.
	Starts []uint64 `json:",omitempty"`
}

// ChangeCommand submits a change. With Retarget it may take the place of the running one.
type ChangeCommand struct {
	Add, Remove   []string
	ExpectVersion uint64 // 0: any
	Key           string // idempotency key, "" for none
	Retarget      bool
	DropPinned    bool `json:",omitempty"` // remove members that hold pinned keys: those are lost
	By, Why       string
}

// Advance moves the active step on, by compare-and-set on (Version, Stage).
type Advance struct {
	Version uint64
	Stage   Stage
}

// ChangeRef names a change, "" for the running one.
type ChangeRef struct{ ID string }

// Mark sets or clears the down hint of a member, for the incarnation it was observed with.
type Mark struct {
	Member      string
	Incarnation uint64
	Down        bool
}

// LimitsCommand sets the transfer limits.
type LimitsCommand struct{ Limits Limits }

// Pinned as a replica count: the keys of the type have one copy, on the member that they name.
const Pinned = -1

// SetReplicas records the replica count of an actor type, or Pinned. It can be done once; if it is not the cluster's count,
// which the type had until then, while no change runs.
type SetReplicas struct {
	Type string
	N    int
}

// DeclareLost gives up the memory of the named incarnations: others fill from whatever complete sources are left. It must
// name every member of the ring that is down or refilling. Those that are down are banned: they come back empty.
type DeclareLost struct {
	Bans          []Ban
	ExpectVersion uint64
	By, Why       string
}

// Forget drops a standby member from the log and bans its incarnation. If another incarnation is listed by then it has no
// effect: that one has nothing to do with what was decided about this one.
type Forget struct {
	Member      string
	Incarnation uint64 `json:",omitempty"` // 0, from logs of format 1: any
}

// Code says what became of a command.
type Code uint8

const (
	OK         Code = iota
	Unchanged       // had taken effect before, or says nothing new
	ErrStale        // expected version or stage differs
	ErrRunning      // another change runs; ID names it
	ErrUnknownMember
	ErrUnknownChange
	ErrInvalid // Text says what and how to mend it
	ErrBanned
	ErrNotReady  // reports are missing; Text names who
	ErrKeyReused // the idempotency key came with another body before
	ErrPinned    // a member that would go holds pinned keys
	// ErrSuperseded: a start of the incarnation is listed that the one that registers does not know of.
	ErrSuperseded
)

// Result is what Apply says; it is the same on every member. Change is set where one is meant.
type Result struct {
	Code    Code
	Text    string
	ID      string // the change meant
	Version uint64 // of the placement after the command
}
