package simtest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"chainmail/engine/core"
)

// Options are the sizes and rates of one run. Draw takes them from the seed; a test may set its own. A rate given as a
// duration is the mean time between two such events, 0 for never.
type Options struct {
	Seed    uint64
	Roll    uint64        // further runs with the same options
	Length  time.Duration // of the first phase
	Cluster Cluster
	Load    Load
	Net     Net
	Log     Log
	Disk    Disk
	Trouble Trouble
}

// Cluster is what the members are.
type Cluster struct {
	Members  int // that exist at most
	Start    int // in the first ring
	Replicas int
	Counters int // replica count of counters, 0: as the others
	Acts     int // replica count of what has a body of its own, 0: as the others
	VNodes   int
	Zones    int // 0: none
	Weights  bool
	Durable  bool  // copies survive crashes
	Rate     int64 // transfer limit in bytes per second, 0: none
	Streams  int
	Limits   core.Limits
	Sizes    core.Sizes

	PurgeAfter time.Duration // how long deletes are remembered, 0: as production does
	SweepEvery time.Duration // 0: as production does
}

// Load is what callers do.
type Load struct {
	Keys    int
	Clients int           // at most 8: histories of more cannot be checked
	Gap     time.Duration // between two calls of a client, on average
	Handler time.Duration // a handler takes, at most
	Limit   time.Duration // a call's deadline
	Deletes float64       // share of the calls of what can be deleted
	Others  bool          // not lists alone
	Repeats float64       // share of the calls that are made again under their request id while the outcome is unknown
	Window  int           // requests that a key remembers
	Body    int           // bytes of what a call carries, at most
	Looks   float64       // share of the calls that are reads at a member that is told of no placement, if there is one
	Extra   bool          // there are types whose writes need all replicas, and types with local reads
	Fresh   float64       // share of the calls that turn to a key that was never used
}

// Net is what happens to messages.
type Net struct {
	Delay, Jitter time.Duration
	Loss, Dup     float64
	Echo          float64 // share of redirects that arrive twice
	Stragglers    float64 // share that takes up to 3 s
	Cuts          time.Duration
	Isolations    time.Duration // all links of a member, one way or both
	Clogs         time.Duration // a link stops, and later gives out all at once
	Wire          bool          // messages go through their encoding
	Flips         float64       // share of the copies sent in bulk of which a byte is not what it was at their sender
}

// Log is what happens between members and the log.
type Log struct {
	Lag     time.Duration // until a member learns a placement, at most
	Skip    float64       // share of placements that a member does not see by itself
	Lost    float64       // share of proposals
	Late    float64       // share of proposals that take up to 5 s
	Dup     float64       // share of proposals that are applied twice
	Outages time.Duration // the log has no leader for a while
	Behind  time.Duration // a member hears nothing of the log for a while, and little of its peers
	Leave   float64       // share of versions at whose birth that happens to a member of the ring
	Blind   float64       // share of versions whose news, and any other, do not reach a member of the ring for a while
	Left    float64       // share of the members that leave the ring and do not learn of it for a while, nor that its switch begins
	Spread  bool          // one member, another one every few versions, tells the others what the log tells it
}

// Disk is what a durable store does.
type Disk struct {
	Fsync  time.Duration // at most
	Stalls time.Duration // a sync takes up to 2 s
	Flips  float64       // share of the crashes after which a byte of a page is another one
	Older  float64       // share of the crashes after which the disk is as it was before an earlier start
	Torn   float64       // share of the syncs in which the member crashes
	Pieces bool          // a sync that was under way leaves its first changes of copies; else all or nothing, as a store's Apply
}

// Trouble is what befalls members and the cluster.
type Trouble struct {
	Crashes    time.Duration
	Wipes      float64 // share of the crashes after which a durable disk is gone
	Twins      float64 // share of the crashes that take another member along
	Sharp      float64 // share of answers to peers after which the member crashes
	Ambush     float64 // share of answers to owners after which these reach nobody else, and one of the two crashes or is taken for dead
	Pauses     time.Duration
	WrongMarks time.Duration // a healthy member is marked down
	Changes    time.Duration // a change is submitted
	Aborts     float64       // share of the running changes that are aborted or retargeted
	Drains     float64       // share of the members that are told to drain before they are to leave
	Holds      bool          // changes are paused and resumed
	Dead       bool          // in the second phase a member is away for good, if each key has a quorum without it
	Loss       bool          // more memory is lost than is tolerated
}

// dice draws options.
type dice struct{ *rand.Rand }

func (r dice) dur(lo, hi time.Duration) time.Duration {
	return lo + time.Duration(r.Int64N(int64(hi-lo)+1))
}

// some gives a duration with probability p, else 0.
func (r dice) some(p float64, lo, hi time.Duration) time.Duration {
	if d := r.dur(lo, hi); r.Float64() < p {
		return d
	}
	return 0
}

// rate gives a share up to most with probability p, else 0.
func (r dice) rate(p, most float64) float64 {
	if x := r.Float64() * most; r.Float64() < p {
		return x
	}
	return 0
}

// Draw takes a run's options from its seed.
func Draw(seed uint64) Options {
	r := dice{rand.New(rand.NewPCG(seed, 0x5eed))}
	o := Options{Seed: seed, Length: r.dur(4*time.Second, 24*time.Second), Cluster: r.cluster()}
	o.Load = Load{
		Keys: 1 + r.IntN(50), Clients: 1 + r.IntN(8), Gap: r.dur(5*time.Millisecond, 120*time.Millisecond),
		Handler: r.some(0.5, 10*time.Microsecond, 20*time.Millisecond), Limit: r.dur(200*time.Millisecond, 3*time.Second),
		Deletes: r.rate(0.5, 0.25), Others: r.IntN(3) > 0,
	}
	if r.IntN(3) == 0 {
		o.Load.Keys = 1 + r.IntN(4)
	}
	delay := r.dur(50*time.Microsecond, 5*time.Millisecond)
	o.Net = Net{
		Delay: delay, Jitter: r.dur(0, 4*delay), Loss: r.rate(0.5, 0.08), Dup: r.rate(0.5, 0.08), Stragglers: r.rate(0.5, 0.01),
		Cuts: r.some(0.5, 100*time.Millisecond, 4*time.Second), Isolations: r.some(0.3, time.Second, 8*time.Second),
		Clogs: r.some(0.3, 300*time.Millisecond, 4*time.Second), Wire: r.IntN(8) == 0,
	}
	if r.IntN(5) == 0 {
		o.Net.Loss, o.Net.Dup = r.rate(0.7, 0.3), r.rate(0.7, 0.3)
	}
	o.Log = Log{
		Lag: r.dur(time.Millisecond, 300*time.Millisecond), Skip: r.rate(0.4, 0.5), Lost: r.rate(0.5, 0.3), Late: r.rate(0.4, 0.2),
		Dup: r.rate(0.3, 0.2), Outages: r.some(0.3, time.Second, 8*time.Second),
		Behind: r.some(0.4, 500*time.Millisecond, 4*time.Second), Leave: r.rate(0.5, 0.4),
	}
	if r.IntN(10) == 0 {
		o.Log.Lag = r.dur(time.Second, 5*time.Second)
	}
	o.Disk = Disk{Fsync: r.dur(100*time.Microsecond, 5*time.Millisecond), Stalls: r.some(0.2, 500*time.Millisecond, 5*time.Second)}
	o.Trouble = Trouble{
		Crashes: r.some(0.6, time.Second, 8*time.Second), Wipes: r.rate(0.5, 0.5), Pauses: r.some(0.3, 2*time.Second, 8*time.Second),
		WrongMarks: r.some(0.3, time.Second, 6*time.Second), Changes: r.some(0.85, 500*time.Millisecond, 5*time.Second),
		Aborts: r.rate(0.4, 0.6), Holds: r.IntN(5) == 0, Loss: r.IntN(25) == 0,
		Twins: r.rate(0.4, 0.6), Sharp: r.rate(0.3, 0.004),
	}
	if r.IntN(3) == 0 {
		o.dense(r)
	}
	o.Load.Repeats, o.Load.Window = r.rate(0.6, 1), 1+r.IntN(6)
	// What is added later is drawn last: what was drawn before stays as it was.
	o.Log.Blind = r.rate(0.6, 0.8)
	o.Load.Fresh = r.rate(0.5, 0.1)
	if r.IntN(2) == 0 {
		o.Cluster.Acts = 3 + r.IntN(3)
	}
	o.Net.Echo, o.Trouble.Ambush = r.rate(0.4, 1), r.rate(0.4, 0.01)
	if o.Load.Repeats == 0 { // no request comes again after a delete was forgotten
		o.Cluster.PurgeAfter = r.some(0.7, purgeLeast, 2*time.Second)
	}
	o.Cluster.SweepEvery = r.some(0.5, 50*time.Millisecond, 2*time.Second)
	if r.IntN(4) == 0 { // each leave makes a set smaller, and those of other types gain by it
		o.Cluster.Acts = min(o.Cluster.Members, 5)
	}
	o.Disk.Torn, o.Disk.Pieces = r.rate(0.4, 0.03), r.IntN(2) == 0
	o.Net.Flips, o.Disk.Flips = r.rate(0.3, 0.1), r.rate(0.4, 0.4)
	o.Load.Extra, o.Trouble.Drains = r.IntN(2) == 0, r.rate(0.5, 1)
	o.bounds(r)
	dead := r.IntN(6) == 0
	o.theme(r)
	if dead && !o.Trouble.Loss { // a write to all, and a delete that is to be forgotten, wait for it for ever
		o.Trouble.Dead, o.Load.Extra, o.Load.Deletes = true, false, 0
	}
	o.Log.Spread = r.IntN(3) == 0
	o.Disk.Older = r.rate(0.4, 0.7)
	return o
}

// bounds draws what calls carry, and the bounds that are met by it.
func (o *Options) bounds(r dice) {
	if r.IntN(3) == 0 {
		o.Load.Body = r.IntN(2000)
	}
	if r.IntN(4) == 0 {
		o.Cluster.Limits.HeldBytes = 1 + r.IntN(4*(o.Load.Body+8))
	}
	if r.IntN(8) == 0 {
		o.Cluster.Limits.State = 200 + r.IntN(8*(o.Load.Body+50))
	}
	if r.IntN(3) == 0 {
		o.Cluster.Sizes = core.Sizes{
			PullBytes: 1 + r.IntN(1+r.IntN(4000)), PullEntries: 1 + r.IntN(20), PullScan: 1 + r.IntN(40), FetchKeys: 1 + r.IntN(64), SmallDelta: 1 + r.IntN(8),
			OfferEntries: 1 + r.IntN(6), OfferBytes: 1 + r.IntN(4000), BatchMessages: 1 + r.IntN(6), BatchBytes: 1 + r.IntN(2000),
		}
	}
}

// purgeLeast is longer than the pause between two offers of a copy: a member that still offers one from before a delete is to
// find that.
const purgeLeast = 800 * time.Millisecond

// theme makes one thing likely that seldom comes about by chance.
func (o *Options) theme(r dice) {
	switch r.IntN(14) {
	case 0: // deletes are forgotten while a member is away that has not seen them
		o.Load.Repeats, o.Load.Deletes, o.Load.Others, o.Load.Keys = 0, 0.25, true, 2+r.IntN(8)
		o.Cluster.Durable, o.Cluster.Members, o.Cluster.Start, o.Cluster.Replicas = true, 4, 4, 3
		o.Cluster.PurgeAfter, o.Cluster.SweepEvery = r.dur(purgeLeast, 1200*time.Millisecond), r.dur(20*time.Millisecond, 200*time.Millisecond)
		o.Trouble.Crashes, o.Trouble.Wipes, o.Trouble.Loss = r.dur(300*time.Millisecond, time.Second), 0, false
		o.Trouble.Changes = r.some(0.3, 2*time.Second, 5*time.Second)
	case 1: // who has left goes on by what it knows, and one replica is enough for that
		o.Cluster.Members, o.Cluster.Start, o.Cluster.Replicas = 2+r.IntN(3), 2, 1+r.IntN(2)
		o.Cluster.Counters, o.Cluster.Acts, o.Load.Keys, o.Load.Fresh = 0, 0, 2+r.IntN(4), 0
		o.Load.Clients, o.Load.Gap = 8, r.dur(5*time.Millisecond, 20*time.Millisecond)
		o.Log.Blind, o.Log.Lag, o.Log.Outages = 1, r.dur(time.Millisecond, 50*time.Millisecond), 0
		o.Trouble.Changes, o.Trouble.Crashes = r.dur(500*time.Millisecond, 2*time.Second), 0
	case 2: // some sets become smaller while others change
		o.Cluster.Members = 3 + r.IntN(3)
		o.Cluster.Start, o.Cluster.Acts, o.Cluster.Replicas, o.Cluster.VNodes = o.Cluster.Members, o.Cluster.Members, 2+r.IntN(2), 1+r.IntN(4)
		o.Load.Others, o.Load.Keys, o.Net.Cuts = true, 4+r.IntN(12), r.dur(50*time.Millisecond, 300*time.Millisecond)
		o.Trouble.Changes = r.dur(300*time.Millisecond, time.Second)
	case 3: // many replicas, of which some forget while others are out of reach
		o.Cluster.Members, o.Cluster.Start, o.Cluster.Replicas = 6, 6, 4+r.IntN(2)
		o.Cluster.Durable, o.Trouble.Wipes, o.Trouble.Ambush, o.Trouble.Loss = true, 0.5, 0.02, false
		o.Trouble.Changes, o.Trouble.Crashes, o.Log.Lag, o.Load.Limit = 0, 0, r.dur(time.Millisecond, 20*time.Millisecond), 3*time.Second
	case 4: // few replicas know of a key's first use, and they are lost
		o.Cluster.Members, o.Cluster.Start, o.Cluster.Replicas, o.Cluster.Counters, o.Cluster.Acts = 4, 4, 3, 0, 0
		o.Load.Others, o.Load.Keys, o.Load.Fresh, o.Trouble.Ambush, o.Trouble.Loss = true, 4+r.IntN(20), 0.3, 0.02, false
		o.Trouble.Changes = r.some(0.3, 2*time.Second, 5*time.Second)
	case 6, 7: // who has owned a key, has left and does not know it is asked for it, while others have taken it over
		o.Cluster.Members = 3 + r.IntN(3)
		o.Cluster.Start, o.Cluster.Replicas = 2+r.IntN(o.Cluster.Members-1), [...]int{1, 2, 2, 2, 2, 4}[r.IntN(6)]
		o.Cluster.Counters, o.Cluster.Acts, o.Cluster.VNodes, o.Cluster.Rate = 0, 0, 1+r.IntN(4), 0
		o.Cluster.Limits, o.Cluster.Sizes = core.Limits{}, core.Sizes{}
		o.Load.Looks, o.Load.Clients, o.Load.Keys, o.Load.Fresh, o.Load.Others = 0.7, 8, 2+r.IntN(5), 0, r.IntN(2) == 0
		o.Load.Gap, o.Load.Limit, o.Load.Body = r.dur(4*time.Millisecond, 15*time.Millisecond), r.dur(200*time.Millisecond, 400*time.Millisecond), 0
		o.Load.Handler, o.Log.Blind, o.Log.Left, o.Log.Leave, o.Log.Behind = 0, 0, 1, 0, 0
		o.Log.Lag, o.Log.Outages, o.Net.Isolations = r.dur(time.Millisecond, 20*time.Millisecond), 0, 0
		o.Net.Delay, o.Net.Jitter = 200*time.Microsecond, time.Millisecond
		o.Trouble.Changes, o.Trouble.Crashes, o.Trouble.Pauses, o.Trouble.Aborts = r.dur(300*time.Millisecond, 2*time.Second), 0, 0, 0
	case 5: // more is lost than is tolerated, and who has begun anew is restarted with what it keeps of that
		o.Cluster.Members, o.Cluster.Replicas, o.Cluster.Durable = 2+r.IntN(3), 2+r.IntN(2), true
		o.Cluster.Start = o.Cluster.Members
		o.Trouble.Loss, o.Trouble.Wipes, o.Trouble.Twins = true, 0.5, 0.6
		o.Trouble.Crashes, o.Trouble.Changes = r.dur(200*time.Millisecond, time.Second), r.some(0.3, 2*time.Second, 5*time.Second)
	}
}

// dense makes a run in which few keys are used much while one change follows the other and the news of them is slow: what
// needs several things at once comes about in such a run.
func (o *Options) dense(r dice) {
	o.Length = r.dur(3*time.Second, 8*time.Second)
	o.Cluster.Replicas = 1 + r.IntN(5)
	o.Cluster.Members = max(2, o.Cluster.Replicas-1+r.IntN(4))
	o.Cluster.Start = 1 + r.IntN(o.Cluster.Members)
	o.Cluster.VNodes, o.Cluster.Rate = 1+r.IntN(4), 0
	o.Load.Keys, o.Load.Clients, o.Load.Gap = 1+r.IntN(8), 3+r.IntN(6), r.dur(5*time.Millisecond, 30*time.Millisecond)
	o.Load.Limit = r.dur(300*time.Millisecond, time.Second)
	o.Net.Delay = r.dur(time.Millisecond, 15*time.Millisecond)
	o.Net.Jitter = r.dur(0, 2*o.Net.Delay)
	o.Net.Cuts, o.Net.Isolations = r.some(0.5, 50*time.Millisecond, time.Second), r.some(0.5, 300*time.Millisecond, 2*time.Second)
	o.Log.Lag, o.Log.Leave, o.Log.Outages = r.dur(time.Millisecond, 500*time.Millisecond), r.rate(0.7, 0.8), 0
	o.Trouble.Changes = r.dur(100*time.Millisecond, time.Second)
	if o.Trouble.Crashes > 0 {
		o.Trouble.Crashes = r.dur(200*time.Millisecond, 2*time.Second)
	}
}

func (r dice) cluster() Cluster {
	c := Cluster{Members: 1 + r.IntN(7), Replicas: 1 + r.IntN(5), VNodes: 1 + r.IntN(12), Durable: r.IntN(2) == 0, Weights: r.IntN(6) == 0}
	if r.IntN(2) > 0 {
		c.Replicas = 3
	}
	if r.IntN(3) == 0 {
		c.Counters = 1 + r.IntN(5)
	}
	if r.IntN(4) == 0 {
		c.Zones = 1 + r.IntN(3)
	}
	if r.IntN(4) == 0 {
		c.Rate, c.Streams = 32<<10+r.Int64N(1<<20), r.IntN(4)
	}
	if r.IntN(8) == 0 {
		c.Limits = core.Limits{Held: 1 + r.IntN(16), Mailbox: 1 + r.IntN(4)}
	}
	c.Start = 1 + r.IntN(c.Members)
	return c
}

// troubles are those that can be turned off by name, to find out which ones a violation needs.
var troubles = []struct {
	name string
	off  func(*Options)
}{
	{"crashes", func(o *Options) { o.Trouble.Crashes = 0 }},
	{"wipes", func(o *Options) { o.Trouble.Wipes = 0 }},
	{"twins", func(o *Options) { o.Trouble.Twins = 0 }},
	{"ambush", func(o *Options) { o.Trouble.Ambush = 0 }},
	{"sharp", func(o *Options) { o.Trouble.Sharp = 0 }},
	{"pauses", func(o *Options) { o.Trouble.Pauses = 0 }},
	{"marks", func(o *Options) { o.Trouble.WrongMarks = 0 }},
	{"changes", func(o *Options) { o.Trouble.Changes = 0 }},
	{"aborts", func(o *Options) { o.Trouble.Aborts = 0 }},
	{"holds", func(o *Options) { o.Trouble.Holds = false }},
	{"outages", func(o *Options) { o.Log.Outages = 0 }},
	{"behind", func(o *Options) { o.Log.Behind = 0 }},
	{"leave", func(o *Options) { o.Log.Leave = 0 }},
	{"blind", func(o *Options) { o.Log.Blind, o.Log.Left, o.Load.Looks = 0, 0, 0 }},
	{"spread", func(o *Options) { o.Log.Spread = false }},
	{"lag", func(o *Options) { o.Log.Lag = time.Millisecond }},
	{"skip", func(o *Options) { o.Log.Skip = 0 }},
	{"lost", func(o *Options) { o.Log.Lost = 0 }},
	{"late", func(o *Options) { o.Log.Late = 0 }},
	{"logdup", func(o *Options) { o.Log.Dup = 0 }},
	{"cuts", func(o *Options) { o.Net.Cuts = 0 }},
	{"isolations", func(o *Options) { o.Net.Isolations = 0 }},
	{"clogs", func(o *Options) { o.Net.Clogs = 0 }},
	{"loss", func(o *Options) { o.Net.Loss = 0 }},
	{"flips", func(o *Options) { o.Net.Flips, o.Disk.Flips = 0, 0 }},
	{"older", func(o *Options) { o.Disk.Older = 0 }},
	{"torn", func(o *Options) { o.Disk.Torn, o.Disk.Pieces = 0, false }},
	{"echo", func(o *Options) { o.Net.Echo = 0 }},
	{"dup", func(o *Options) { o.Net.Dup = 0 }},
	{"stragglers", func(o *Options) { o.Net.Stragglers = 0 }},
	{"jitter", func(o *Options) { o.Net.Jitter = 0 }},
	{"wire", func(o *Options) { o.Net.Wire = false }},
	{"stalls", func(o *Options) { o.Disk.Stalls = 0 }},
	{"handler", func(o *Options) { o.Load.Handler = 0 }},
	{"deletes", func(o *Options) { o.Load.Deletes = 0 }},
	{"repeats", func(o *Options) { o.Load.Repeats = 0 }},
	{"purge", func(o *Options) { o.Cluster.PurgeAfter = 0 }},
	{"sweeps", func(o *Options) { o.Cluster.SweepEvery = 0 }},
	{"fresh", func(o *Options) { o.Load.Fresh = 0 }},
	{"acts", func(o *Options) { o.Cluster.Acts = 0 }},
	{"others", func(o *Options) { o.Load.Others = false }},
	{"limits", func(o *Options) { o.Cluster.Limits = core.Limits{} }},
	{"sizes", func(o *Options) { o.Cluster.Sizes = core.Sizes{} }},
	{"bodies", func(o *Options) { o.Load.Body = 0 }},
	{"extra", func(o *Options) { o.Load.Extra = false }},
	{"dead", func(o *Options) { o.Trouble.Dead = false }},
	{"drains", func(o *Options) { o.Trouble.Drains = 0 }},
	{"rate", func(o *Options) { o.Cluster.Rate, o.Cluster.Streams = 0, 0 }},
	{"zones", func(o *Options) { o.Cluster.Zones = 0 }},
	{"weights", func(o *Options) { o.Cluster.Weights = false }},
}

// Without gives the options with kinds of trouble turned off. "all" turns off every kind.
func (o Options) Without(names ...string) (Options, error) {
	for _, n := range names {
		found := n == "all"
		for _, k := range troubles {
			if k.name == n || n == "all" {
				k.off(&o)
				found = true
			}
		}
		if !found {
			return o, fmt.Errorf("no kind of trouble is called %q; there are all, %s", n, strings.Join(Kinds(), ", "))
		}
	}
	return o, nil
}

// Kinds names what Without turns off.
func Kinds() []string {
	var out []string
	for _, k := range troubles {
		out = append(out, k.name)
	}
	return out
}

// shrinkRolls is how many runs Shrink tries without a kind of trouble before it keeps that kind: turning one off changes
// everything that is drawn later.
const shrinkRolls = 12

// violationKind leaves of a violation what is the same for other members, keys and numbers.
func violationKind(err error) string {
	var words []string
	for w := range strings.FieldsSeq(err.Error()) {
		if !strings.ContainsAny(w, "0123456789[{") {
			words = append(words, w)
		}
		if len(words) == kindWords {
			break
		}
	}
	return strings.Join(words, " ")
}

const kindWords = 5

// Shrink turns off whatever a failing run does not need to fail with a violation of the same kind, shortens it, and names what
// was turned off.
func Shrink(o Options) (Options, []string) {
	first := New(o).Run()
	if first == nil {
		return o, nil
	}
	failing := func(o Options) (Options, bool) { return failing(o, violationKind(first)) }
	var off []string
	for _, k := range troubles {
		less := o
		k.off(&less)
		if less == o {
			continue
		}
		if found, ok := failing(less); ok {
			o, off = found, append(off, k.name)
		}
	}
	for {
		less := o
		less.Load.Keys, less.Length = max(1, o.Load.Keys/2), max(2*time.Second, o.Length*2/3)
		found, ok := failing(less)
		if !ok || less == o {
			return o, off
		}
		o = found
	}
}

// failing looks for a roll of the options that fails in a way.
func failing(o Options, kind string) (Options, bool) {
	for range shrinkRolls {
		if err := New(o).Run(); err != nil && violationKind(err) == kind {
			return o, true
		}
		o.Roll++
	}
	return o, false
}

func (o Options) String() string {
	type plain Options
	return fmt.Sprintf("%+v", plain(o))
}

// at gives virtual time in milliseconds for traces.
func at(t core.Time) string { return fmt.Sprintf("%9.3f", float64(t)/1e6) }
