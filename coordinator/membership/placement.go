package membership

import "chainmail/ring"

// Stage is where the active step stands.
type Stage uint8

const (
	// StageStable means Base == Next: no step is active.
	StageStable Stage = iota
	// StageCopy means receivers pull in bulk while the quorums are those of Base alone.
	StageCopy
	// StageSwitch means joint quorums of Base and Next; only the delta moves.
	StageSwitch
)

// State is a member's part in the cluster.
type State uint8

const (
	// Standby members are admitted to the log and own nothing.
	Standby State = iota
	// Active members are in the target set.
	Active
	// Leaving members are in the previous set and not in the target.
	Leaving
)

// Member is one process admitted by the log.
type Member struct {
	ID          string `json:"id"`
	Incarnation uint64 `json:"incarnation"`        // 0: not registered yet, or given up while it was down
	Start       uint64 `json:"start,omitempty"`    // the number that this start of the incarnation has drawn; 0 if the log was not told
	GivenUp     bool   `json:"given_up,omitempty"` // by a person: what it had is lost, and it has not filled again
	Address     string `json:"address"`            // host:port of the cluster transport
	HTTP        string `json:"http"`               // host:port of the HTTP API, "" if none
	Zone        string `json:"zone,omitempty"`
	Weight      int    `json:"weight"`
	State       State  `json:"state"`
	Down        bool   `json:"down,omitempty"`
	// Refilling members lost their copies: they count for nothing for a key until it is filled.
	Refilling bool `json:"refilling,omitempty"`
	// Marked is the revision at which Incarnation, Start, Down or Refilling changed last: who skips revisions sees by it that
	// they did.
	Marked uint64 `json:"marked,omitempty"`
	// Removed members were taken off the ring by a change and have not come back since, with another incarnation or by
	// another change: they hand over what they hold and go.
	Removed bool `json:"removed,omitempty"`
	// NonVoter asks that the member never gets a Raft vote.
	NonVoter bool `json:"non_voter,omitempty"`
}

// Ban names an incarnation whose messages never count again.
type Ban struct {
	Member      string `json:"member"`
	Incarnation uint64 `json:"incarnation"`
}

// Placement is the state of the replicated log: what every member derives its behaviour from.
// It is a value; Apply returns a new one and never changes slices or maps of the old one.
type Placement struct {
	ClusterID string `json:"cluster_id"` // 128 random bits in hex, set by the first entry
	// Revision grows by one with every entry that changed anything. It orders placements of one version.
	Revision uint64 `json:"revision"`
	// Version grows whenever quorums can change: a step's stage, Base, Next, an incarnation or a refilling mark of a
	// member of Base or Next, declare-lost.
	Version uint64 `json:"version"`

	// Previous and Target are the ends of the running change; equal when none runs. Base and Next are the active
	// step's; equal when stable. All four are sorted by id.
	Previous []ring.Member `json:"previous"`
	Target   []ring.Member `json:"target"`
	Base     []ring.Member `json:"base"`
	Next     []ring.Member `json:"next"`
	Stage    Stage         `json:"stage"`
	// Step is the version at which the active step's present stage began: copied and filled reports are for it.
	Step uint64 `json:"step"`
	// Began is the version at which the active step began: what is pulled for it belongs to this number.
	Began uint64 `json:"began"`

	Members []Member `json:"members"` // sorted by id
	Banned  []Ban    `json:"banned,omitempty"`

	Ring     ring.Params    `json:"ring"`
	Replicas map[string]int `json:"replicas"` // actor type -> replica count in use; "" is the default

	Running *Change  `json:"running,omitempty"`
	History []Change `json:"history,omitempty"` // ended changes, newest last, at most MaxHistory
	// Reports of the active step and of refilling members, in the order of arrival.
	Reports []Report `json:"reports,omitempty"`
	Limits  Limits   `json:"limits"`
	Lost    []Loss   `json:"lost,omitempty"` // what was declared lost, newest last
	Pins    []Pin    `json:"pins,omitempty"`
}

// Pin counts the pinned keys of one type that a member holds, as it last told.
type Pin struct {
	Member string `json:"member"`
	Type   string `json:"type"`
	Keys   int    `json:"keys"`
}

// Limits bound transfers, for each member. Zero Rate means unlimited.
type Limits struct {
	Rate          int64 `json:"rate"` // bytes per second, in and out
	MaxConcurrent int   `json:"max_concurrent"`
}

// Loss records that a person gave up copies by name.
type Loss struct {
	Version uint64 `json:"version"`
	Bans    []Ban  `json:"bans"`
	By      string `json:"by,omitempty"`
	Why     string `json:"why,omitempty"`
}

// What a report says.
type What uint8

const (
	// Copied: the bulk copy of the member's gained ranges is done up to a small delta.
	Copied What = iota + 1
	// Filled: the member has filled every changed range of the step that it will hold.
	Filled
	// Refilled: the member holds every range of Base again.
	Refilled
)

// Report is one member's word about the active step (Copied, Filled) or about its refilling.
// It counts only with the listed incarnation and, but for Refilled, the present Step.
type Report struct {
	Member      string `json:"member"`
	Incarnation uint64 `json:"incarnation"`
	Step        uint64 `json:"step"`
	What        What   `json:"what"`
}

// Outcome is the state of a change.
type Outcome uint8

const (
	Running Outcome = iota
	Done
	Aborted
	Retargeted // ended by a change that took its place
)

// Change is one submitted change and, when it has ended, what became of it.
type Change struct {
	ID       string   `json:"id"` // "c-" + decimal revision of its entry
	Key      string   `json:"idempotency_key,omitempty"`
	Add      []string `json:"add,omitempty"`
	Remove   []string `json:"remove,omitempty"`
	By       string   `json:"by,omitempty"`
	Why      string   `json:"why,omitempty"`
	Outcome  Outcome  `json:"outcome"`
	Paused   bool     `json:"paused,omitempty"`
	Started  uint64   `json:"started_version"`
	Ended    uint64   `json:"ended_version,omitempty"`
	Steps    int      `json:"steps"`      // steps in the chain
	StepDone int      `json:"steps_done"` // steps that have ended
	// Unix milliseconds by the proposer's clock, carried in the entries for people; nothing is decided by them.
	StartedAt int64 `json:"started_at"`
	EndedAt   int64 `json:"ended_at,omitempty"`
}

// MaxHistory bounds the ended changes that a placement keeps; their idempotency keys go with them.
const MaxHistory = 64
