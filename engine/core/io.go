package core

import "time"

// Input is one event that a Core is stepped with.
type Input interface{ input() }

// ViewChanged tells a newer placement of the local log. Older and equal revisions are ignored.
type ViewChanged struct {
	View *View
	Lead bool // this member leads the log: the others hear of an entry after it, by this member's telling them sooner
}

// Recv is a message from another member, or from this one to itself after what precedes it in the effects was made durable.
type Recv struct{ Msg Message }

// Call is a request of a caller at this member. It is answered by exactly one Reply effect with its ID, at Deadline at
// the latest.
type Call struct {
	ID        uint64 // unique among the calls of this Core
	Key       Key
	Method    string
	Body      []byte
	RequestID string        // "" for none
	Tried     time.Duration // how long ago the request was first made under RequestID; 0: now
	Path      []Key         // the keys whose handlers wait for the answer, the first caller's first
	ReadLocal bool          // a read may be answered from the owner's state without asking its replicas
	Deadline  Time
}

// Executed gives the outcome of an Execute effect: exactly one for each.
type Executed struct {
	Activation uint64
	Seq        uint64 // of the Execute
	Body       []byte
	AppCode    uint16 // not 0: the handler failed with Text
	Text       string
	Changes    []Change // none: a read
	Stop       bool     // the activation ends in order once this is committed
	Reason     string   // why, with Stop; constant; "": it is idle
}

// Change is what a handler did to one page. The Change with Name "" and Delete deletes the key.
type Change struct {
	Name   string
	Data   []byte
	Delete bool
}

// Tick lets time pass. It must come at least every 20 ms of the caller's clock; more is harmless.
type Tick struct{}

// PeerLost is a hint that messages to a member may have been lost.
type PeerLost struct{ Member string }

// Drain asks that no new activation starts here and that calls are redirected as soon as the placement allows it.
type Drain struct{}

func (*ViewChanged) input() {}
func (*Recv) input()        {}
func (*Call) input()        {}
func (*Executed) input()    {}
func (*Tick) input()        {}
func (*PeerLost) input()    {}
func (*Drain) input()       {}

// Effect is something that the caller must carry out. The order of effects is part of the contract: what a Persist
// holds is durable before any later Send, Reply or Report is carried out.
type Effect interface{ effect() }

// Persist makes records durable. With a memory store it is a no-op.
type Persist struct {
	View *View // not nil: save it as the newest view
	Puts []Put
}

// Put replaces a copy's meta and the named pages. With Drop the whole copy goes.
type Put struct {
	Key     Key
	Meta    CopyMeta
	Full    bool     // Pages are all there are; others are removed
	Pages   []Page   // written
	Removed []string // pages that go (without Full)
	Drop    bool
}

// Send delivers a message to its To, which may be this member itself (then it comes back as a Recv).
// Delivery is best effort, in order for each kind of lane.
type Send struct{ Msg Message }

// Reply answers a Call.
type Reply struct {
	ID     uint64
	Result Result
}

// Execute runs a handler on a key's state. One Execute of an activation is under way at a time. State must not be changed.
type Execute struct {
	Activation uint64 // unique in this run of the member
	Seq        uint64
	Key        Key
	Method     string
	Body       []byte
	RequestID  string
	Tried      time.Duration   // as in Call
	Path       []Key           // as in Call
	State      map[string]Page // by name; the Core does not change the map while the Execute is under way
	Stamp      Stamp           // that the state has, or will have when it is committed; zero if the key is as if never used
	Now        Time            // when the Execute was given out
	Deadline   Time
	First      bool // load the state: the activation's first, or the last one's changes were refused
}

// Settled says that all that an activation has executed is committed: what its state shows now may be read without asking
// replicas, until the next Execute. It comes for types with TypeConfig.Local, before the replies to what was committed.
type Settled struct{ Activation uint64 }

// RepeatMost is for how long a request may be repeated under its id: when it was first made longer ago, nobody knows any
// more whether a key that looks unused is.
const RepeatMost = 12 * time.Second

// Ended says that an activation is over: its context is cancelled and what was cached for it is dropped.
type Ended struct {
	Activation uint64
	Key        Key
	Reason     string // constant: "moved", "fenced", "idle", "closing", "lost", or that of Executed
}

// Report asks that the log is told. It is repeated until a view shows it.
type Report struct {
	What Reported
	Step uint64
}

// Reported is what a Report says.
type Reported uint8

const (
	ReportCopied Reported = iota + 1
	ReportFilled
	ReportRefilled
)

// WantView asks for the newest placement of the local log, because a message showed that a newer one exists.
type WantView struct{ Version uint64 }

// Note is for logs and traces: it changes nothing.
type Note struct {
	What string // constant lower-case phrase
	Key  Key
	Peer string
	Text string
}

// Corrupt says that a page in this member's memory does not match its checksum: the member is to stop. It is the last effect of
// a Core, and the only one of its step; others have the key, and what they were sent with such a page they have refused.
type Corrupt struct {
	Key   Key
	Stamp Stamp // of the copy
	What  string
}

func (*Corrupt) effect()  {}
func (*Persist) effect()  {}
func (*Send) effect()     {}
func (*Reply) effect()    {}
func (*Execute) effect()  {}
func (*Settled) effect()  {}
func (*Ended) effect()    {}
func (*Report) effect()   {}
func (*WantView) effect() {}
func (*Note) effect()     {}
