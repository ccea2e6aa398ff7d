package core

import (
	"time"

	"chainmail/ring"
)

// Message is one protocol message between members.
type Message struct {
	From, To string
	FromInc  uint64 // sender's incarnation
	Version  uint64 // sender's placement version
	Sent     Time   // on the sender's clock, which a restart does not set back; the shell's, 0 here
	Body     Body
	came     Time // not 0: since when it waits for a placement
}

// Body is one of the message kinds below.
type Body interface{ Kind() Kind }

// Kind numbers the bodies on the wire.
type Kind uint8

const (
	KindAsk Kind = iota + 1
	KindAnswer
	KindPrepare
	KindPromise
	KindAccept
	KindAccepted
	KindConfirm
	KindConfirmed
	KindPull
	KindPulled
	KindFetch
	KindFetched
	KindOffer
	KindOffered
	KindRelease
	KindReleased
	KindPurge
	KindWantView
	KindNewView
)

// Ask carries a caller's message to the owner.
type Ask struct {
	ID        uint64 // of the origin
	Key       Key
	Method    string
	Data      []byte
	RequestID string
	Tried     time.Duration
	Path      []Key
	ReadLocal bool
	Deadline  Time // on the wire: what is left of it
}

// freshOnWay and freshWaiting are how long a message that is sent for the first time may be on its way, and wait, without being
// taken for a repeated one. Who has it repeated sooner than that, on a key that forgets it sooner still, is not covered.
const (
	freshOnWay   = 200 * time.Millisecond
	freshWaiting = 500 * time.Millisecond
)

// Delayed tells a message with a request id how much longer than others it was on its way. What was long under way may be late: its caller may
// have had it repeated elsewhere since then, and the request may have been run and forgotten.
func (a *Ask) Delayed(d time.Duration) {
	if a.RequestID != "" && (a.Tried > 0 || d > freshOnWay) {
		a.Tried += d
	}
}

// Answer answers an Ask.
type Answer struct {
	ID     uint64
	Result Result
}

// Prepare asks replicas to promise an epoch. Have is the stamp of the state that the owner holds already: a promise
// brings pages only for a higher one.
type Prepare struct {
	Op    uint64
	Key   Key
	Epoch Epoch
	Have  Stamp
}

// Promise answers a Prepare: CodeOK, CodeRefused (Promised is higher), CodeReceiving, CodeMoved or CodeStale.
type Promise struct {
	Op       uint64
	Key      Key
	Code     Code
	Promised Epoch
	Stamp    Stamp
	Pages    []Page // all of them, if Stamp is above Have
}

// Accept asks replicas to take a commit. A delta (not Full) applies to a copy that holds exactly Prev.
type Accept struct {
	Op      uint64
	Key     Key
	Stamp   Stamp
	Prev    Stamp
	Full    bool
	Pages   []Page // changed ones; all with Full
	Removed []string
}

// Accepted answers an Accept: CodeOK, CodeRefused, CodeNeedFull, CodeReceiving, CodeMoved or CodeStale.
type Accepted struct {
	Op       uint64
	Key      Key
	Code     Code
	Promised Epoch
}

// Confirm asks whether an epoch is still promised.
type Confirm struct {
	Op    uint64
	Key   Key
	Epoch Epoch
}

// Confirmed answers a Confirm: CodeOK, CodeRefused, CodeReceiving, CodeMoved or CodeStale.
type Confirmed struct {
	Op       uint64
	Key      Key
	Code     Code
	Promised Epoch
}

// PullMode says what a Pull is for.
type PullMode uint8

const (
	PullCopy   PullMode = iota + 1 // the copy stage: gained keys, answers prove nothing yet
	PullSwitch                     // the switch stage: gained keys, and all kept ones where the set shrinks
	PullRefill                     // keys of Base that the asking member lost
)

// Pull asks a source for its copies of the keys that the asking member has to hold, in the order of tokens.
type Pull struct {
	Session uint64 // step (Began) or, for a refill, the asking member's incarnation
	Mode    PullMode
	Seq     uint64     // of this request; the answer repeats it
	From    ring.Token // first token asked for
	Since   uint64     // only what changed after this sequence number of the source in its run Run; 0: all
	Run     uint64
	Bring   bool     // only what the source is the one to bring: the answer proves nothing
	Sums    []uint64 // what is held of the buckets from that of From on: where the source holds the same, it sends nothing
	One     bool     // only the key Key
	Key     Key
}

// Entry is one copy in an index: with Pages if Has.
type Entry struct {
	Key   Key
	Meta  CopyMeta
	Has   bool // Pages are here
	Pages []Page
}

// Pulled answers a Pull: all entries with From <= token <= To (wrapping never), To is the last token if Done.
// CodeReceiving: the source is not complete itself (Empty: it has filled nothing); CodeStale: other versions or step.
type Pulled struct {
	Session uint64
	Mode    PullMode
	Seq     uint64
	Code    Code
	Empty   bool
	From    ring.Token
	To      ring.Token
	Done    bool
	One     bool
	Key     Key
	Now     uint64 // source's sequence number when the pass began
	Run     uint64 // of the source
	Entries []Entry
}

// Fetch asks for whole copies.
type Fetch struct {
	Session uint64
	Seq     uint64
	Keys    []Key
}

// Fetched answers a Fetch. Rest lists the keys that did not fit.
type Fetched struct {
	Session uint64
	Seq     uint64
	Entries []Entry
	Rest    []Key
}

// Offer hands copies over that the sender is going to drop: first without pages, then with pages to who asks.
type Offer struct {
	Seq     uint64
	Entries []Entry
}

// Offered answers an Offer, entry by entry: what the replica holds now. Code OK: Stamp is not older than the offer's;
// NeedFull: send pages; Refused: a higher epoch is promised; Receiving, Moved, Stale as elsewhere.
type Offered struct {
	Seq     uint64
	Answers []OfferAnswer
}

// OfferAnswer is the answer to one offered copy.
type OfferAnswer struct {
	Key   Key
	Offer Stamp // the stamp that was offered
	Code  Code
	Stamp Stamp
}

// Release asks the former owner of a key to finish what it is committing and to end its activation.
type Release struct {
	Op  uint64
	Key Key
}

// Released answers a Release: nothing of the key runs here any more.
type Released struct {
	Op  uint64
	Key Key
}

// Purge tells the members of a stable set, all of which hold the delete with Stamp, that they may forget it. A floor stays.
type Purge struct {
	Key   Key
	Stamp Stamp
}

// WantNewView asks for the receiver's view.
type WantNewView struct{ Revision uint64 }

// NewView carries a view by value.
type NewView struct{ View *View }

func (*Ask) Kind() Kind         { return KindAsk }
func (*Answer) Kind() Kind      { return KindAnswer }
func (*Prepare) Kind() Kind     { return KindPrepare }
func (*Promise) Kind() Kind     { return KindPromise }
func (*Accept) Kind() Kind      { return KindAccept }
func (*Accepted) Kind() Kind    { return KindAccepted }
func (*Confirm) Kind() Kind     { return KindConfirm }
func (*Confirmed) Kind() Kind   { return KindConfirmed }
func (*Pull) Kind() Kind        { return KindPull }
func (*Pulled) Kind() Kind      { return KindPulled }
func (*Fetch) Kind() Kind       { return KindFetch }
func (*Fetched) Kind() Kind     { return KindFetched }
func (*Offer) Kind() Kind       { return KindOffer }
func (*Offered) Kind() Kind     { return KindOffered }
func (*Release) Kind() Kind     { return KindRelease }
func (*Released) Kind() Kind    { return KindReleased }
func (*Purge) Kind() Kind       { return KindPurge }
func (*WantNewView) Kind() Kind { return KindWantView }
func (*NewView) Kind() Kind     { return KindNewView }
