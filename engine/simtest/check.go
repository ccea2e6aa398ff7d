package simtest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// checks holds the run to its invariants, event by event.
type checks struct {
	s      *Sim
	keys   map[core.Key]*history
	order  []*history // of keys, in the order in which they were first used
	gens   []int      // by the number of a key: how many histories of it were filled
	stamps map[stampOf]stored
}

type stampOf struct {
	key   core.Key
	stamp core.Stamp
}

// stored is the state that a stamp means.
type stored struct {
	digest uint64
	gone   bool // a delete
	state  []byte
}

func (c *checks) init(s *Sim) {
	*c = checks{s: s, keys: map[core.Key]*history{}, gens: make([]int, s.o.Load.Keys), stamps: map[stampOf]stored{}}
}

// kindOf gives the actor type of the n-th key.
func (o Options) kindOf(n int) string {
	if !o.Load.Others {
		return "list"
	}
	t := [...]string{"list", "act", "cnt", "reg", "list", "box", "all", "loc"}[n%8]
	if t == "box" && o.Load.Deletes == 0 || (t == "all" || t == "loc") && !o.Load.Extra {
		return "list"
	}
	return t
}

// mostGens is how many keys take each other's place at most because callers want fresh ones.
const mostGens = 30

// pick gives the history of the n-th key, or of the one that takes its place when that has grown too long to be checked, or
// now and then.
func (c *checks) pick(n int) *history {
	if c.gens[n] < mostGens && c.s.chance(c.s.o.Load.Fresh) {
		c.gens[n]++
	}
	for {
		k := core.Key{Type: c.s.o.kindOf(n), Name: fmt.Sprintf("k%d.%d", n, c.gens[n])}
		h := c.keys[k]
		if h == nil {
			h = newHistory(k)
			c.keys[k] = h
			c.order = append(c.order, h)
		}
		if !h.full() {
			return h
		}
		c.gens[n]++
	}
}

// all gives the histories of all keys.
func (c *checks) all() []*history { return c.order }

// made notes what a new call has to see.
func (c *checks) made(o *op) {
	h := c.keys[o.key]
	o.least, o.floor = len(h.longest), h.newest
	if o.writes() {
		h.open++
		h.made[o.id] = true
	}
}

// answered takes the answer to a call.
func (c *checks) answered(o *op, r core.Result) {
	if c.s.o.Trouble.Loss {
		return
	}
	h := c.keys[o.key]
	if err := h.answered(o, r, c.s.Events); err != nil {
		c.s.fail("%v", err)
		return
	}
	if r.Code != core.CodeOK || o.local {
		return
	}
	purged := r.Stamp.IsZero() && !h.purged.Less(o.floor)
	if !purged && (r.Stamp.Less(o.floor) || o.writes() && o.tries == 1 && !o.floor.Less(r.Stamp)) {
		c.s.fail("#%d of %s was answered with stamp %s, but %s had been answered when it began", o.id, o.key, r.Stamp, o.floor)
	}
	c.witnessed(h, o, r)
	if h.newest.Less(r.Stamp) {
		h.newest = r.Stamp
		c.held(h)
		if o.key.Type == "all" && o.writes() {
			c.everywhere(h, r)
		}
	}
}

// witnessed holds an answer to its stamp: that was stored, and means the state that was seen. A list may have grown in the same
// commit; of two stamps the lower one means the beginning of the other's list. What values of other types mean porcupine checks.
func (c *checks) witnessed(h *history, o *op, r core.Result) {
	if r.Stamp.IsZero() {
		return
	}
	is, ok := c.stamps[stampOf{o.key, r.Stamp}]
	switch before := c.stamps[stampOf{o.key, h.newest}]; {
	case !ok:
		c.s.fail("#%d of %s was answered with stamp %s, which nobody has stored", o.id, o.key, r.Stamp)
	case h.grows && !bytes.HasPrefix(is.state, r.Body):
		c.s.fail("#%d of %s was answered with %s and stamp %s, which means %s", o.id, o.key, ids(string(r.Body)), r.Stamp, ids(string(is.state)))
	case h.grows && h.newest.Less(r.Stamp) && !bytes.HasPrefix(is.state, before.state), h.grows && r.Stamp.Less(h.newest) && !bytes.HasPrefix(before.state, is.state):
		c.s.fail("#%d of %s was answered with stamp %s, which means %s, and %s means %s", o.id, o.key, r.Stamp, ids(string(is.state)), h.newest, ids(string(before.state)))
	}
}

// everywhere checks that all of a key's set have what a write to all was answered with, if the placement is the one by which
// it was. Who has lost its memory has filled since, or does not count.
func (c *checks) everywhere(h *history, r core.Result) {
	l := &c.s.log
	if l.p.Version != r.Version || l.p.Stage != membership.StageStable {
		return
	}
	c.s.reach("write-to-all")
	for _, id := range l.set(h.key) {
		if !l.lacks(id) && c.s.host(id).disk.records[h.key].Meta.Stamp.Less(r.Stamp) {
			c.s.fail("a write to all replicas of %s was answered with %s, and %s holds %s", h.key, r.Stamp, id, c.s.host(id).disk.records[h.key].Meta.Stamp)
		}
	}
}

func higher(a, b core.Stamp) core.Stamp {
	if a.Less(b) {
		return b
	}
	return a
}

func (c *checks) deleted(k core.Key, s core.Stamp) bool { return c.stamps[stampOf{k, s}].gone }

// held checks that what was answered of a key cannot be lost: of the key's set at the newest placement fewer members
// that count lack it than a filling receiver has to ask.
func (c *checks) held(h *history) {
	l := &c.s.log
	if c.s.o.Trouble.Loss || h.newest.IsZero() {
		return
	}
	set := l.set(h.key)
	var lack []string
	for _, id := range set {
		if l.lacks(id) {
			continue // does not count for anything
		}
		r := c.s.host(id).disk.records[h.key]
		if r.Meta.Stamp.Less(h.newest) && !(c.deleted(h.key, h.newest) && h.newest.Epoch.Less(r.Meta.Promised)) {
			lack = append(lack, id)
		}
	}
	if len(lack) >= core.R(len(set)) {
		c.s.fail("%s of %s was answered, and %v of %v count without it at %s", h.newest, h.key, lack, set, l.p.String())
	}
}

// opened takes the epoch of an activation that runs a message: from then on none below it may be promised or committed. By
// now the next one may already be preparing.
func (c *checks) opened(h *host, k core.Key) {
	if hist := c.keys[k]; hist != nil {
		if e := h.core.Explain(k); e.Activation == "active" && hist.epoch.Less(e.Epoch) {
			hist.epoch = e.Epoch
			c.promised(hist)
		}
	}
}

// promised checks that no epoch below one that was at work can come by a quorum: of the key's set at the newest placement
// fewer members that count have promised less than a filling receiver has to ask.
func (c *checks) promised(h *history) {
	l := &c.s.log
	if c.s.o.Trouble.Loss || h.epoch.IsZero() {
		return
	}
	set := l.set(h.key)
	var lack []string
	for _, id := range set {
		if d := c.s.host(id).disk; !l.lacks(id) && d.records[h.key].Meta.Promised.Less(h.epoch) && d.floor().Less(h.epoch) {
			lack = append(lack, id)
		}
	}
	if len(lack) >= core.R(len(set)) {
		c.s.fail("%s of %s was at work, and %v of %v count without having promised it at %s", h.epoch, h.key, lack, set, l.p.String())
	}
}

// mustHold is what a member has to hold of a key before it counts for it, at a version or a later one: what it says by an
// older view counts for nothing.
type mustHold struct {
	stamp   core.Stamp
	version uint64
}

// answeredStamps gives the newest answered stamp of each key: a member that begins anew counts for a key only once it holds
// that, or something newer, for it fills from enough others.
func (c *checks) answeredStamps() map[core.Key]mustHold {
	out := map[core.Key]mustHold{}
	for _, h := range c.order {
		if !h.newest.IsZero() {
			out[h.key] = mustHold{stamp: h.newest}
		}
	}
	return out
}

// gaining notes what the receivers of a step have to hold before they count, as the switch stage begins.
func (c *checks) gaining() {
	l := &c.s.log
	for _, h := range c.order {
		set := l.set(h.key)
		for _, id := range l.setOn(l.next, h.key) {
			if !slices.Contains(set, id) && !h.newest.IsZero() {
				c.s.host(id).must[h.key] = mustHold{h.newest, l.p.Version}
			}
		}
	}
}

// sent checks that a promise, or a confirmation, that counts comes only from a member that has filled the key. It may have waited
// for the disk since it was made: what counts is the placement of then.
func (c *checks) sent(h *host, m core.Message) {
	c.bounded(h, m)
	switch b := m.Body.(type) {
	case *core.Promise:
		if b.Code == core.CodeOK {
			c.counts(h, m, b.Key, "promises", b.Stamp)
		}
	case *core.Confirmed:
		if b.Code == core.CodeOK {
			c.counts(h, m, b.Key, "confirms", h.disk.records[b.Key].Meta.Stamp)
		}
	}
}

func (c *checks) counts(h *host, m core.Message, k core.Key, does string, with core.Stamp) {
	must, ok := h.must[k]
	if !ok || m.Version < must.version || c.s.o.Trouble.Loss {
		return
	}
	delete(h.must, k)
	if with.Less(must.stamp) && c.keys[k].purged.Less(must.stamp) {
		c.s.fail("%s %s for %s with %s, though it lost or never had %s", h.id, does, k, with, must.stamp)
	}
}

// refused gives a member a message with a damaged page and checks that it takes nothing of that key, and that its sender
// does not count for it.
func (c *checks) refused(h *host, m core.Message, bent []core.Key) {
	done := func() (out [2]bool) {
		step, refill := h.core.Progress()
		for i, p := range [...]core.FillProgress{step, refill} {
			for _, s := range p.Sources {
				out[i] = out[i] || s.Member == m.From && s.Done
			}
		}
		return out
	}
	copies := func() (out []core.Stamp) {
		for _, k := range bent {
			out = append(out, h.core.Explain(k).Copy.Stamp)
		}
		return out
	}
	had, counted := copies(), done()
	run := h.run
	h.step(&core.Recv{Msg: m})
	if h.run != run {
		return
	}
	if has := copies(); !slices.Equal(has, had) {
		c.s.fail("%s took a damaged page of %v from %s: it held %v and holds %v", h.id, bent, m.From, had, has)
	}
	if _, pulled := m.Body.(*core.Pulled); !pulled {
		return
	}
	for i, is := range done() {
		if is && !counted[i] {
			c.s.fail("%s counts %s, which sent a damaged page of %v", h.id, m.From, bent)
		}
	}
}

// put checks one change of a copy on a member's disk, and by which placement it was made.
func (c *checks) put(h *host, p *core.Put, by *core.View, before, after core.Record) {
	if p.Key.Type == "@core" {
		return
	}
	if p.Drop {
		c.s.trace.add(c.s.now, "%s drops %s %s", h.id, p.Key, before.Meta.Stamp)
		c.dropped(h, by, before)
		if k := c.keys[p.Key]; k != nil {
			c.promised(k)
		}
	}
	lower := after.Meta.Stamp.Less(before.Meta.Stamp)
	switch {
	case !p.Drop && after.Meta.Promised.Less(before.Meta.Promised):
		c.s.fail("%s took its promise for %s back from %s to %s", h.id, p.Key, before.Meta.Promised, after.Meta.Promised)
	case lower && !after.Meta.Stamp.IsZero():
		c.s.fail("%s put %s of %s in the place of %s", h.id, after.Meta.Stamp, p.Key, before.Meta.Stamp)
	case after.Meta.Promised.Less(after.Meta.Stamp.Epoch):
		c.s.fail("%s holds %s with stamp %s above its promise %s", h.id, p.Key, after.Meta.Stamp, after.Meta.Promised)
	}
	if k := c.keys[p.Key]; lower && k != nil {
		if s := before.Meta.Stamp; len(before.Pages) == 0 && !p.Drop && slices.Contains(c.s.log.set(p.Key), h.id) {
			k.newest, k.purged = higher(k.newest, s), higher(k.purged, s) // it was committed, whoever knows
		}
		c.held(k)
	}
	if most := c.s.o.Cluster.Limits.State; most > 0 && weigh(after.Pages) > most+len(core.ActivePage) {
		c.s.fail("%s stores %d bytes of %s; at most %d are allowed", h.id, weigh(after.Pages), p.Key, most)
	}
	for _, pg := range p.Pages {
		if core.PageSum(pg.Name, pg.Data) != pg.Sum {
			c.s.fail("%s stores page %q of %s with a wrong checksum", h.id, pg.Name, p.Key)
		}
	}
	changed := before.Meta.Stamp != after.Meta.Stamp || p.Full || len(p.Pages)+len(p.Removed) > 0
	if changed && !after.Meta.Stamp.IsZero() {
		c.stamped(h, after)
	}
}

// dropped checks that a copy goes only when those of the key's set that are up have it, by the placement that the member
// goes by: whoever lost its memory since, or dropped its own by a newer one, is excused.
func (c *checks) dropped(h *host, by *core.View, r core.Record) {
	k := c.keys[r.Key]
	if r.Meta.Stamp.IsZero() || k == nil || c.s.o.Trouble.Loss || !h.up() || by == nil {
		return
	}
	e := h.core.Explain(r.Key)
	h.gave[r.Key] = e.Version
	for _, id := range e.Base {
		m, ok := by.Member(id)
		o := c.s.host(id)
		if !ok || m.Down || m.Incarnation != o.inc || c.s.log.lacks(id) || o.gave[r.Key] > e.Version || !k.purged.Less(r.Meta.Stamp) {
			continue
		}
		if o.up() && o.core.View().Version > e.Version && !slices.Contains(o.core.Explain(r.Key).Base, id) {
			continue // it has gone on, is of the set no more, and may have discarded what it is about to gain again
		}
		if has := o.disk.records[r.Key].Meta; has.Stamp.Less(r.Meta.Stamp) {
			c.s.fail("%s drops %s of %s, and %s of %v holds %s", h.id, r.Meta.Stamp, r.Key, id, e.Base, has.Stamp)
		}
	}
}

// stamped checks that one stamp means one state wherever it is stored.
func (c *checks) stamped(h *host, r core.Record) {
	is := stored{digest(r.Pages), len(r.Pages) == 0, stateOf(r.Pages)}
	k := stampOf{r.Key, r.Meta.Stamp}
	if was, ok := c.stamps[k]; ok && (was.digest != is.digest || was.gone != is.gone) {
		c.s.fail("two states of %s have stamp %s: %x, and at %s %x", r.Key, r.Meta.Stamp, was.digest, h.id, is.digest)
	}
	c.stamps[k] = is
}

// stateOf gives the state in pages.
func stateOf(ps []core.Page) []byte {
	for _, p := range ps {
		if p.Name == statePage {
			return p.Data
		}
	}
	return nil
}

// digest stands for pages: their sums stand for their bytes.
func digest(ps []core.Page) uint64 {
	f := fnv.New64a()
	var b []byte
	for _, p := range ps {
		e := p.Stamp.Epoch
		b = append(append(append(append(b[:0], p.Name...), 0), e.Member...), 0)
		for _, n := range [...]uint64{e.Version, e.Number, p.Stamp.Seq, uint64(p.Sum)} {
			b = binary.BigEndian.AppendUint64(b, n)
		}
		f.Write(b)
	}
	return f.Sum64()
}

// arrival is when a message came to the member that owns its key: the n-th from there.
type arrival struct {
	from    string
	n       int
	version uint64 // the sender's: one beyond the receiver's waits for the placement, and what was sent before it may pass
	twice   bool   // it was made again meanwhile: which of the two is run is not known
}

// fromTo is the order of one member's messages in one activation of a key.
type fromTo struct {
	activation uint64
	from       string
}

// came notes the message of a caller: one from another member, or a call at this one, whose turn is not known.
func (c *checks) came(h *host, in core.Input) {
	switch in := in.(type) {
	case *core.Call:
		if len(in.Body) > 0 {
			h.arrived[binary.BigEndian.Uint32(in.Body)] = arrival{twice: true}
		}
	case *core.Recv:
		b, ok := in.Msg.Body.(*core.Ask)
		if !ok || len(b.Data) == 0 {
			return
		}
		h.came++
		id := binary.BigEndian.Uint32(b.Data)
		was, ok := h.arrived[id]
		h.arrived[id] = arrival{in.Msg.From, h.came, in.Msg.Version, ok && (was.twice || was.from != in.Msg.From || b.RequestID != "")}
	}
}

// runs checks that the messages of one member to a key are run in the order in which they came.
func (c *checks) runs(h *host, e *core.Execute) {
	if len(e.Body) == 0 {
		return
	}
	id := binary.BigEndian.Uint32(e.Body)
	a, ok := h.arrived[id]
	if !ok || a.twice {
		return
	}
	t := fromTo{e.Activation, a.from}
	if last := h.turns[t]; a.n < last.n && a.version <= last.version {
		c.s.fail("%s runs #%d of %s after a message that came later from %s", h.id, id, e.Key, a.from)
	}
	h.turns[t] = a
}

// state remembers what a handler was given; the check says whether somebody has changed it meanwhile.
func (c *checks) state(e *core.Execute) (check func()) {
	sum := func() (n uint64) {
		for _, p := range e.State {
			x := core.PageSum(p.Name, p.Data)
			if x != p.Sum {
				c.s.fail("a handler of %s was given page %q, which does not match its checksum", e.Key, p.Name)
			}
			n += uint64(x)<<8 + p.Stamp.Seq
		}
		return n
	}
	was := sum()
	return func() {
		if sum() != was {
			c.s.fail("the state of %s was changed while a handler ran on it", e.Key)
		}
	}
}

// view checks that a member goes by a placement that the log has had, and by no older one than before.
func (c *checks) view(h *host, v *core.View) {
	all := c.s.log.views
	if v.Revision == 0 || v.Revision > uint64(len(all)) || all[v.Revision-1] != v && !reflect.DeepEqual(all[v.Revision-1], v) {
		c.s.fail("%s goes by %s, which the log never had", h.id, v)
	}
	if old := h.disk.view; old != nil && v.Revision < old.Revision { // a start takes up the one that was saved
		c.s.fail("%s goes by %s after %s", h.id, v, old)
	}
}

// kept checks that the disk of a member has what its memory has, once nothing is under way.
func (c *checks) kept(h *host) {
	if !h.up() || h.syncing || len(h.out) > 0 || c.s.now < h.awake {
		return
	}
	n := 0
	for k := range h.disk.records {
		if k.Type != "@core" {
			n++
		}
	}
	copies := h.core.Snapshot()
	for _, r := range copies {
		if d := h.disk.records[r.Key]; d.Meta != r.Meta || digest(d.Pages) != digest(r.Pages) {
			c.s.fail("%s has %s of %s in memory and %s on its disk", h.id, r.Meta, r.Key, d.Meta)
		}
	}
	if n != len(copies) {
		c.s.fail("%s has %d copies in memory and %d on its disk", h.id, len(copies), n)
	}
}

// stepped checks the bounds after a step.
func (c *checks) stepped(h *host) {
	st := h.core.Stats()
	if st.Held < 0 || st.HeldBytes < 0 {
		c.s.fail("%s counts %d messages of %d bytes that wait", h.id, st.Held, st.HeldBytes)
	}
	most := c.s.o.Cluster.Limits
	if n := cmp.Or(most.Held, 65536); st.Held > n {
		c.s.fail("%s holds %d messages; at most %d are allowed", h.id, st.Held, n)
	}
	if n := cmp.Or(most.HeldBytes, 64<<20); st.HeldBytes > n {
		c.s.fail("%s holds messages of %d bytes; at most %d are allowed", h.id, st.HeldBytes, n)
	}
}

// entryWeight is what an entry weighs besides its pages.
const entryWeight = 64

// bounded checks that a message is not larger than it may be: by what is the last in it, at most.
func (c *checks) bounded(h *host, m core.Message) {
	z := &c.s.o.Cluster.Sizes
	entries, bytes, most := 0, 0, 0
	switch b := m.Body.(type) {
	case *core.Pulled:
		if b.One {
			return
		}
		if !b.Done && b.Code == core.CodeOK {
			c.s.reach("pull-cut")
		}
		entries, bytes, most = cmp.Or(z.PullEntries, 2048)+1, cmp.Or(z.PullBytes, 256<<10), len(b.Entries)
	case *core.Fetched:
		if len(b.Rest) > 0 {
			c.s.reach("fetch-cut")
		}
		entries, bytes, most = cmp.Or(z.FetchKeys, 256), cmp.Or(z.PullBytes, 256<<10), len(b.Entries)
	case *core.Offer:
		entries, bytes, most = cmp.Or(z.OfferEntries, 128), cmp.Or(z.OfferBytes, 256<<10), len(b.Entries)
	default:
		return
	}
	weight := 0
	es := entriesOf(m.Body)
	for _, e := range es[:max(0, len(es)-1)] {
		if e.Key != (core.Key{}) { // a floor
			weight += entryWeight + weigh(e.Pages)
		}
	}
	if most > entries || weight >= bytes && weight > 0 {
		c.s.fail("%s sends %d entries, of %d bytes without the last one: %T of at most %d and %d", h.id, most, weight, m.Body, entries, bytes)
	}
}

func weigh(ps []core.Page) (n int) {
	for _, p := range ps {
		n += len(p.Name) + len(p.Data)
	}
	return n
}

// placed holds the log to its own rules.
func (c *checks) placed(old, p *membership.Placement) {
	diff := 0
	for _, m := range p.Base {
		if !membership.In(p.Next, m.ID) {
			diff++
		}
	}
	for _, m := range p.Next {
		if !membership.In(p.Base, m.ID) {
			diff++
		}
	}
	if diff > 1 || (diff == 0) != (p.Stage == membership.StageStable) || p.Version < old.Version || p.Revision != old.Revision+1 || int(p.Revision) != len(c.s.log.views) {
		c.s.fail("placement %s after %s", p, old)
	}
	if p.Stage == membership.StageSwitch && p.Step != old.Step {
		c.gaining()
	}
	if p.Version != old.Version || !slices.Equal(p.Base, old.Base) {
		for _, h := range c.order {
			c.held(h)
			c.promised(h)
		}
	}
}

// final checks all histories once nothing runs any more.
func (c *checks) final() {
	for _, h := range c.s.hosts {
		c.kept(h)
	}
	if c.s.o.Trouble.Loss {
		return
	}
	for _, h := range c.order {
		if c.s.bad != nil {
			return
		}
		if err := h.final(); err != nil {
			c.s.fail("%v", err)
		}
	}
}
