package core

import (
	"fmt"
	"time"

	"chainmail/ring"
)

// Time is a monotonic instant in nanoseconds from an origin that the caller chooses.
type Time int64

const ms = Time(time.Millisecond)

// Add gives the instant d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Key is the address of an actor.
type Key struct{ Type, Name string }

func (k Key) String() string { return k.Type + "/" + k.Name }

// Epoch numbers an activation of one key: the placement version of its Prepare, a number that its owner never uses
// again, and the owner. Epochs are ordered by these fields from left to right; the zero Epoch is below all others.
type Epoch struct {
	Version, Number uint64
	Member          string
}

// An epoch's number is a count and, in its last bits, which run of the member it is of.
const bootBits = 20

// EpochNumber makes the number of a count and a run; CountOf and RunOf take it apart.
func EpochNumber(count, run uint64) uint64 { return count<<bootBits | run&(1<<bootBits-1) }

// CountOf is described at EpochNumber.
func CountOf(number uint64) uint64 { return number >> bootBits }

// RunOf is described at EpochNumber.
func RunOf(number uint64) uint64 { return number & (1<<bootBits - 1) }

// Less orders epochs.
func (e Epoch) Less(o Epoch) bool {
	if e.Version != o.Version {
		return e.Version < o.Version
	}
	if e.Number != o.Number {
		return e.Number < o.Number
	}
	return e.Member < o.Member
}

// IsZero says whether no activation is meant.
func (e Epoch) IsZero() bool { return e == Epoch{} }

func (e Epoch) String() string { return fmt.Sprintf("%d.%d@%s", e.Version, e.Number, e.Member) }

// Stamp orders the committed writes of one key: epoch first, then the sequence number in it. Zero means never written.
type Stamp struct {
	Epoch Epoch
	Seq   uint64
}

// Less orders stamps.
func (s Stamp) Less(o Stamp) bool {
	if s.Epoch != o.Epoch {
		return s.Epoch.Less(o.Epoch)
	}
	return s.Seq < o.Seq
}

// IsZero says whether the key was never written.
func (s Stamp) IsZero() bool { return s.Seq == 0 && s.Epoch.IsZero() }

func (s Stamp) String() string { return fmt.Sprintf("%s#%d", s.Epoch, s.Seq) }

// Page is a named part of a key's state: the unit of replication deltas. Data is never changed once it is in a Page.
type Page struct {
	Name  string
	Stamp Stamp  // of the commit that last changed it
	Sum   uint32 // CRC-32C over name and data
	Data  []byte
}

// ActivePage marks a key whose activation has work of its own: a sweep starts it again wherever it is owned.
const ActivePage = "@active"

// Stage is the stage of the active step, as in the placement.
type Stage uint8

const (
	Stable Stage = iota
	Copy
	Switch
)

func (s Stage) String() string { return [...]string{"stable", "copy", "switch"}[s%3] }

// MemberInfo is what the engine needs to know of a member.
type MemberInfo struct {
	ID          string
	Incarnation uint64
	Start       uint64 // the number that this start of the incarnation has drawn, 0 if the log was not told
	Address     string
	Down        bool
	Refilling   bool
	GivenUp     bool   // a person has declared that what it had is lost, and it has not filled again
	Marked      uint64 // revision at which Incarnation, Start, Down or Refilling changed last
}

// View is the engine's part of a placement. A View is immutable once it was handed to a Core.
type View struct {
	Revision uint64 // orders views; two views of one revision are equal
	Version  uint64 // quorums are the same within one version
	Step     uint64 // version at which the active step's present stage began
	Began    uint64 // version at which the active step began
	Stage    Stage
	Base     []ring.Member // sorted by id
	Next     []ring.Member // equal to Base when stable
	Target   []ring.Member
	Members  []MemberInfo // sorted by id
	Ring     ring.Params
	Replicas map[string]int // actor type -> n; "" is the default
	Lost     uint64         // version of the newest declare-lost, 0 if none
	Rate     int64          // bytes per second of transfers into one member, 0 for no limit
	Streams  int            // pulls that one member has under way at once
}

// Member finds a member by id.
func (v *View) Member(id string) (MemberInfo, bool) {
	lo, hi := 0, len(v.Members)
	for lo < hi {
		m := (lo + hi) / 2
		if v.Members[m].ID < id {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(v.Members) && v.Members[lo].ID == id {
		return v.Members[lo], true
	}
	return MemberInfo{}, false
}

// where names the version, the step that is active, if any, and its stage.
func (v *View) where() string {
	step := ""
	if steps, err := ring.Chain(v.Base, v.Next, nil); err == nil && len(steps) > 0 {
		step = fmt.Sprintf(", step %s", steps[0])
	}
	return fmt.Sprintf("version %d%s, stage %s", v.Version, step, v.Stage)
}

// CopyMeta is a copy without its pages.
type CopyMeta struct {
	Promised Epoch
	Stamp    Stamp
}

// Record is one copy as a store keeps it.
type Record struct {
	Key   Key
	Meta  CopyMeta
	Pages []Page // sorted by name; none with a stamp: deleted (a tombstone)
}

// Saved is what a store gives back at a start. Without a durable store it is nil.
type Saved struct {
	View    *View // the newest one saved, nil if none
	Records []Record
}

// Code says what became of a call or of a replica's request.
type Code uint8

const (
	CodeOK             Code = iota
	CodeUnavailable         // not run: no quorum or not ready in time; Text says who is missing
	CodeUnknownOutcome      // may have happened or not
	CodeOverloaded          // not run: a bound was reached
	CodeRejected            // the call is wrong; Text says how to mend it
	CodeRedirect            // not run here: Owner is
	CodeApp                 // the handler itself answered with an error (AppCode, Text)
	CodeStale               // replica: the sender's version is behind the key's fence
	CodeRefused             // replica: a higher epoch is promised
	CodeNeedFull            // replica: the previous stamp is not here
	CodeReceiving           // replica: the key is not filled here
	CodeMoved               // replica: holds no part of the key at this version
	CodeClosing             // not run: the member is stopping
)

func (c Code) String() string {
	return [...]string{"ok", "unavailable", "unknown-outcome", "overloaded", "rejected", "redirect", "app", "stale",
		"refused", "need-full", "receiving", "moved", "closing"}[c]
}

// Result answers a call.
type Result struct {
	Code    Code
	AppCode uint16
	Text    string
	Body    []byte
	Stamp   Stamp  // of the state that the answer shows
	Owner   string // with CodeRedirect
	Version uint64 // of the placement that decided it
}

// String names the view's version, step and sets.
func (v *View) String() string {
	ids := func(ms []ring.Member) string {
		out := "{"
		for i, m := range ms {
			if i > 0 {
				out += ","
			}
			out += m.ID
		}
		return out + "}"
	}
	s := fmt.Sprintf("v%d.%d %s %s", v.Version, v.Revision, v.Stage, ids(v.Base))
	if v.Stage != Stable {
		s += "->" + ids(v.Next)
	}
	return s
}
