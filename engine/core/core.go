package core

import (
	"cmp"
	"hash/crc32"
	"slices"
	"time"
)

// Config is what a Core is made with.
type Config struct {
	Self        string
	Incarnation uint64
	// Boot grows with each start of one incarnation and is durable before the Core is made: epochs of two runs never meet.
	Boot uint64
	// Start is a number that no other start has drawn, also none that was given the same state of a store.
	Start uint64
	// Durable says that there is a store, so that the copies of this incarnation survive a restart. Without one there are no
	// Persist effects.
	Durable bool
	Types   map[string]TypeConfig
	Limits  Limits
	Sizes   Sizes
	// PurgeAfter is how long a delete is remembered at least, which is to be longer than copies wait for being offered again (half a
	// second); 0: longer than RepeatMost, so that a request from before it that is repeated finds that the key was used.
	PurgeAfter time.Duration
	// SweepEvery is the pause between two walks of the sweep while the placement stays as it is; 0: 5 s.
	SweepEvery time.Duration
}

// TypeConfig is what the engine knows of an actor type.
type TypeConfig struct {
	Idle    time.Duration // an activation without messages for so long ends; 0: never
	Active  bool          // the type has a body: commits of an activation set ActivePage
	Local   bool          // Settled is told
	All     bool          // a commit needs every replica, not a majority
	Mailbox int           // messages that wait for one key; 0: Limits.Mailbox

	// Pipeline bounds the messages of a key that have run and are not committed; 0: what two commits carry.
	Pipeline int
}

// Limits bound what a Core holds. Zero fields take the defaults.
type Limits struct {
	Held      int // messages that wait, all keys together; default 65536
	HeldBytes int // default 64 MiB
	Mailbox   int // messages that wait for one key; default 1024
	State     int // bytes of one key's pages, with their names and pageRoom for each; default 4 MiB
	Name      int // bytes of a key's name; default 1 KiB
}

// DefaultState and DefaultName are the defaults of Limits.State and Limits.Name.
const (
	DefaultState = 4 << 20
	DefaultName  = 1 << 10
)

func (l Limits) withDefaults() Limits {
	setDefault(&l.Held, 65536)
	setDefault(&l.HeldBytes, 64<<20)
	setDefault(&l.Mailbox, 1024)
	setDefault(&l.State, DefaultState)
	setDefault(&l.Name, DefaultName)
	return l
}

func setDefault(p *int, d int) {
	if *p == 0 {
		*p = d
	}
}

// Sizes bound single messages, and what is looked at for one. Zero fields take the defaults: others are for tests, in which
// what is cut is to be cut often.
type Sizes struct {
	PullBytes, PullEntries, PullScan int
	FetchKeys, SmallDelta            int
	OfferEntries, OfferBytes         int
	BatchMessages, BatchBytes        int
}

func (z Sizes) withDefaults() Sizes {
	setDefault(&z.PullBytes, pullBytes)
	setDefault(&z.PullEntries, pullEntries)
	setDefault(&z.PullScan, pullScan)
	setDefault(&z.FetchKeys, fetchKeys)
	setDefault(&z.SmallDelta, smallDelta)
	setDefault(&z.OfferEntries, offerEntries)
	setDefault(&z.OfferBytes, offerBytes)
	setDefault(&z.BatchMessages, batchMessages)
	setDefault(&z.BatchBytes, batchBytes)
	return z
}

const (
	// opShift leaves 2^40 operations to one run of a member.
	opShift = 40
	// maxParked bounds the messages of newer placements that wait until this member has caught up. See park for what does
	// not fit.
	maxParked = 8192
)

// Core is the protocol of one member. It is stepped by one goroutine at a time.
type Core struct {
	cfg    Config
	run    uint64 // which run of the member this is: no other has this number
	now    Time
	out    []Effect
	given  int    // how many effects at the beginning of out are of earlier steps
	ops    uint64 // last operation number, also for activations and requests
	number uint64 // last epoch number

	view  *viewRings
	gen   uint64       // grows with each view by which keys may be placed elsewhere
	hist  []*viewRings // adopted views, oldest first, the present one last
	arcs  []arc        // of generation gen, by the first bits of a token in them
	floor Epoch        // every key's promise is at least this

	slots table
	acts  map[uint64]*activation // by id
	byOp  map[uint64]*activation // by the operation that its replicas answer
	calls map[uint64]*call       // of callers at this member
	asks  map[uint64]*call       // those that another member has now, by the number of that attempt
	held  int
	heldB int

	parked  []Message
	wantAt  Time   // when a newer view was last asked for
	wantV   uint64 // the version that was known to exist then
	pushed  map[string]pushMark
	timers  wheel
	fill    fillState
	gave    int // entries of the last answer to a Pull: the next one has about as many
	sweep   sweepState
	drained bool
	corrupt *Corrupt // not nil: this Core has ended
}

type pushMark struct {
	revision uint64
	at       Time
}

// New makes a Core. It does nothing for others until a view lists its start.
func New(cfg Config, now Time, saved *Saved) *Core {
	cfg.Limits, cfg.Sizes = cfg.Limits.withDefaults(), cfg.Sizes.withDefaults()
	cfg.PurgeAfter, cfg.SweepEvery = cmp.Or(cfg.PurgeAfter, purgeAfter), cmp.Or(cfg.SweepEvery, sweepEvery)
	c := &Core{
		cfg: cfg, now: now, run: runOf(cfg),
		acts: map[uint64]*activation{}, byOp: map[uint64]*activation{}, calls: map[uint64]*call{}, asks: map[uint64]*call{},
		pushed: map[string]pushMark{}, arcs: make([]arc, 1<<arcBits),
	}
	c.ops = firstOp(c.run)
	c.slots.init()
	c.timers.init(now)
	c.sweep.init()
	if saved == nil {
		return c
	}
	for _, r := range saved.Records {
		if r.Key.Type == markType {
			c.loadMark(r)
			continue
		}
		s := c.slot(r.Key)
		s.promised, s.stamp, s.pages = r.Meta.Promised, r.Meta.Stamp, listOf(r.Pages)
		c.touch(s)
		c.sweep.resumed = true
	}
	if saved.View != nil {
		c.adopt(saved.View)
		c.keepPersists()
	}
	return c
}

// keepPersists leaves of the effects that a saved view has what changes the store: it is carried out with the first
// step. Nothing is said to others before the log has shown that it lists this run.
func (c *Core) keepPersists() {
	c.out = slices.DeleteFunc(c.out, func(e Effect) bool { _, ok := e.(*Persist); return !ok })
}

// runOf numbers a run of a member.
func runOf(c Config) uint64 { return mix(mix(c.Incarnation)^mix(c.Start)) | 1 }

// firstOp gives where a run begins to number what it asks of others: runs of one member do not take each other's answers
// for their own. The numbers of a run are 2^opShift and more apart from those of others but for one in 2^24.
func firstOp(run uint64) uint64 { return run >> opShift << opShift }

// Step takes one input at an instant and appends the effects to out.
func (c *Core) Step(now Time, in Input, out []Effect) []Effect {
	if c.corrupt != nil {
		return out
	}
	c.now = max(c.now, now)
	c.given = len(out)
	c.out = append(out, c.out...)
	switch in := in.(type) {
	case *Recv:
		c.receive(in.Msg)
	case *Call:
		c.call(in)
	case *Executed:
		c.executed(in)
	case *ViewChanged:
		c.learn(in)
	case *PeerLost:
		c.peerLost(in.Member)
	case *Drain:
		c.drained = true
	}
	c.timers.run(c.now, c.fire)
	if _, ok := in.(*Tick); ok {
		c.tickFill()
		c.tickSweep()
	}
	if c.corrupt != nil {
		c.out = append(c.out[:c.given], c.corrupt)
	}
	out, c.out = c.out, nil
	return out
}

func (c *Core) emit(e Effect) { c.out = append(c.out, e) }

func (c *Core) note(what string, k Key, peer, text string) {
	c.emit(&Note{What: what, Key: k, Peer: peer, Text: text})
}

// nextNumber gives the next number for an epoch: above all that this run has used and been shown, and of no other run. The
// run comes last in it: one that has to go beyond what another member used must not meet the numbers of its own next run.
func (c *Core) nextNumber() uint64 {
	c.number = EpochNumber(CountOf(c.number)+1, c.cfg.Boot)
	return c.number
}

func (c *Core) nextOp() uint64 {
	c.ops++
	return c.ops
}

// send gives a message to a member, this one included.
func (c *Core) send(to string, b Body) {
	m := Message{From: c.cfg.Self, To: to, FromInc: c.cfg.Incarnation, Body: b}
	if c.view != nil {
		m.Version = c.view.v.Version
	}
	c.emit(&Send{Msg: m})
}

// registered says whether the placement lists this start of the member: until then it answers no replication message. What is
// here may be an older state of the store that was put back, which lacks what later starts promised and wrote: the log refuses
// that one. What a crash kept from the store others offer once they see that the member has started.
func (c *Core) registered() bool {
	if c.view == nil {
		return false
	}
	m := &c.view.self
	return m.ID != "" && m.Incarnation == c.cfg.Incarnation && m.Start == c.cfg.Start
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PageSum is the checksum that a Page carries from its writer to every reader: CRC-32C over name and data.
func PageSum(name string, data []byte) uint32 {
	sum := ^uint32(0) // as crc32.Update does it, which takes no string
	for i := range len(name) {
		sum = castagnoli[byte(sum)^name[i]] ^ sum>>8
	}
	return crc32.Update(^sum, castagnoli, data)
}

// give gives all pages of a copy for another member, or for an activation that begins: sound ones, or this Core ends.
func (c *Core) give(s *slot) []Page {
	ps := s.pages.all()
	if !soundPages(ps) {
		c.spoiled(s, "copy")
	}
	return ps
}

func (c *Core) spoiled(s *slot, what string) {
	c.corrupt = cmp.Or(c.corrupt, &Corrupt{Key: s.id, Stamp: s.stamp, What: what})
}

// soundPages says whether pages match the checksums that their writers gave them.
func soundPages(ps []Page) bool {
	for _, p := range ps {
		if PageSum(p.Name, p.Data) != p.Sum {
			return false
		}
	}
	return true
}

// W is the number of members of a set of n that a write needs, R the smallest number that meets each such majority.
func W(n int) int { return n/2 + 1 }

// R is described at W.
func R(n int) int { return n - W(n) + 1 }
