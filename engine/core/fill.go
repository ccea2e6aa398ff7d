package core

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"chainmail/ring"
)

// markType is the actor type of this package's own records in a store.
const markType = "@core"

var (
	filledMark = Key{markType, "filled"} // Promised.Version: the step (Began) that was filled
	floorMark  = Key{markType, "floor"}  // Promised: the floor
)

const (
	pullTimeout  = 1000 * ms // a source that has not answered is asked again
	pullAgain    = 30 * ms   // pause before a source that was not ready is asked again
	passAgain    = 250 * ms  // pause before another pass of the copy stage, when the last one brought little
	reportAgain  = 1000 * ms
	oneAgain     = 20 * ms
	fetchKeys    = 256  // keys of one Fetch
	smallDelta   = 2048 // a pass that brought no more ends the bulk copy
	maxPasses    = 6    // ... and so does this many
	rateBurst    = 1 << 20
	defaultPulls = 4
)

// fillState is a member's receiving side: the session of the active step, and that of a refill after lost memory.
type fillState struct {
	step, refill session
	mark         uint64                   // Began of the step that was filled in a run before
	reported     [ReportRefilled + 1]Time // by what
	credit       int64                    // bytes that may be pulled now, when a rate is set
	credited     Time
	taken        uint64 // states installed from pulls
}

// session gathers what sources say. A key is filled when R(S) members of its own S have answered for it completely.
type session struct {
	on      bool
	id      uint64 // Began of the step, or the incarnation that refills
	serial  uint64 // no other session has it, of no run
	mode    PullMode
	started uint64 // version
	needs   []need
	sources map[string]*source
	wants   []*slot
	done    bool
	any     bool // something is filled
	anew    bool // nobody had anything of some range: its keys start anew
	keys    int  // states taken in
	bytes   int  // of their pages
	copied  bool
}

// need is one distinct replica set of the ranges that have to be filled.
type need struct{ from []string }

// source is the walk over one source's copies.
type source struct {
	id     string
	from   ring.Token // all below has been answered, when not done
	done   bool
	gave   bool   // in the copy stage: all that it is the one to bring
	passes int    // completed after that
	news   int    // entries of this pass that were new here
	seq    uint64 // of the Pull under way, 0 if none
	fetch  uint64 // of the Fetch under way, 0 if none
	keys   []Key  // that it asks for
	sent   Time
	fetchT Time
	next   Time // not asked before
	since  uint64
	now    uint64
	run    uint64
	empty  bool   // it said that it is refilling too and has filled nothing
	why    string // it gives nothing now

	lastError string // the last why, also when that is over
	failedAt  Time
}

// fail notes why a source gives nothing now.
func (s *source) fail(why string, now Time) {
	s.why, s.lastError, s.failedAt = why, why, now
}

// want is a newer state of a key that sources have. The newest that was named is fetched; an older one is what counts when who
// named that is gone: its source goes on counting, and it has said no more.
type want struct {
	named []naming
	tries int
	lists []uint64 // serials of the sessions that are not done before it is here
}

// naming is the newest state that a source has named.
type naming struct {
	from  string
	stamp Stamp
}

func (w *want) name(from string, stamp Stamp) {
	i := slices.IndexFunc(w.named, func(n naming) bool { return n.from == from })
	if i < 0 {
		w.named = append(w.named, naming{from, stamp})
	} else if w.named[i].stamp.Less(stamp) {
		w.named[i].stamp = stamp
	}
}

// newest gives those that named the newest state, from the one on whose turn it is.
func (w *want) newest() iter.Seq[string] {
	return func(yield func(string) bool) {
		var top Stamp
		for _, n := range w.named {
			if top.Less(n.stamp) {
				top = n.stamp
			}
		}
		for i := range w.named {
			if n := w.named[(w.tries+i)%len(w.named)]; n.stamp == top && !yield(n.from) {
				return
			}
		}
	}
}

func first(ids iter.Seq[string]) string {
	for id := range ids {
		return id
	}
	return ""
}

// wants says whether a newer state than what is here was named.
func (s *slot) wants() bool {
	return s.want != nil && slices.ContainsFunc(s.want.named, func(n naming) bool { return s.stamp.Less(n.stamp) })
}

// loadMark takes a record of this package's own from the store.
func (c *Core) loadMark(r Record) {
	switch r.Key {
	case filledMark:
		c.fill.mark = r.Meta.Promised.Version
	case floorMark:
		c.floor = r.Meta.Promised
	}
}

// complete says whether this member holds every key of its ranges in Base.
func (c *Core) complete() bool {
	return !c.view.self.Refilling || c.fill.refill.on && c.fill.refill.done
}

// filledKey says whether this member counts for a key: it is in S and complete, or has filled the key in this session.
func (c *Core) filledKey(s *slot) bool {
	p := c.place(s)
	switch {
	case slices.Contains(p.s, c.cfg.Self):
		return !c.view.self.Refilling || c.covered(&c.fill.refill, s)
	case slices.Contains(p.sn, c.cfg.Self):
		return c.fill.step.mode == PullSwitch && c.covered(&c.fill.step, s)
	}
	return false
}

func (c *Core) covered(f *session, s *slot) bool {
	if !f.on || f.done {
		return f.on
	}
	if s.wants() {
		return false
	}
	return c.answers(f, s) >= c.enough(f, c.place(s).s)
}

// answers counts the members of S that have answered for a key.
func (c *Core) answers(f *session, s *slot) int {
	n := c.own(f, c.place(s).s)
	for _, id := range c.place(s).s {
		src := f.sources[id]
		if src != nil && (src.done || s.key < src.from) || s.oneOf == f.serial && slices.Contains(s.one, id) {
			n++
		}
	}
	return n
}

// own is 1 if this member counts among those of a set that have answered: in switch, for what it keeps, unless it has to
// refill that first. Without it a set could not become smaller by a member that is gone for good: of three, R(S) is two,
// and one other is left.
func (c *Core) own(f *session, set []string) int {
	if f.mode == PullSwitch && slices.Contains(set, c.cfg.Self) && c.complete() {
		return 1
	}
	return 0
}

// enough is how many of a set must have answered: R of the set, or what a person left of it by declaring losses. Nobody else
// is done without, whoever is missing.
func (c *Core) enough(f *session, set []string) int {
	r := R(len(set))
	if c.view.v.Lost == 0 {
		return r
	}
	gone, left := false, c.own(f, set)
	for _, id := range set {
		m, _ := c.view.v.Member(id)
		gone = gone || m.GivenUp
		if id != c.cfg.Self && !m.GivenUp {
			left++
		}
	}
	if !gone {
		return r
	}
	return min(r, left)
}

// reviewFill brings the sessions in line with a new placement.
func (c *Core) reviewFill(old *viewRings) {
	v := c.view.v
	f := &c.fill
	if v.Stage == Stable || !c.view.next.Has(c.cfg.Self) || !c.registered() {
		f.step = session{}
	} else {
		c.reviewStep()
	}
	switch {
	case !c.view.self.Refilling || !c.registered() || !c.view.base.Has(c.cfg.Self):
		f.refill = session{}
	case !f.refill.on || f.refill.id != c.cfg.Incarnation:
		f.refill = session{on: true, serial: c.nextOp(), id: c.cfg.Incarnation, mode: PullRefill, started: v.Version, sources: map[string]*source{}}
		fallthrough
	default:
		if !f.refill.done && old != nil && old.base != c.view.base {
			// What a source has answered is what it had to hold then: keys that it has gained since were not among it.
			f.refill = session{on: true, serial: c.nextOp(), id: f.refill.id, mode: PullRefill, started: f.refill.started, any: f.refill.any, sources: map[string]*source{}}
		}
		f.refill.needs = c.refillNeeds()
		f.refill.addSources(c.cfg.Self)
	}
	if old == nil || old.v.Version != v.Version {
		clear(f.reported[:])
	}
	c.tickFill()
}

func (c *Core) reviewStep() {
	v := c.view.v
	f := &c.fill.step
	needs := c.stepNeeds()
	mode := PullCopy
	if v.Stage == Switch {
		mode = PullSwitch
	}
	if !f.on || f.id != v.Began {
		*f = session{on: true, serial: c.nextOp(), id: v.Began, mode: mode, started: v.Version, sources: map[string]*source{}}
		if mode == PullSwitch && c.fill.mark == v.Began {
			f.done, f.any = true, true
		} else if len(needs) > 0 {
			c.discardGained()
		}
	}
	if f.mode != mode {
		f.mode, f.done, f.started = mode, false, v.Version
		for _, src := range f.sources {
			src.restart()
		}
	}
	f.needs = needs
	f.addSources(c.cfg.Self)
}

// restart begins another walk: for what changed since the last complete one.
func (s *source) restart() {
	*s = source{id: s.id, gave: s.gave, passes: s.passes, since: s.since, run: s.run, sent: s.sent}
}

// discardGained forgets what is left here of keys that this member is going to hold: it was not kept up to date.
func (c *Core) discardGained() {
	var gone []*slot
	c.slots.ascend(0, 0, func(s *slot) bool {
		p := c.place(s)
		if !s.stamp.IsZero() && !slices.Contains(p.s, c.cfg.Self) && slices.Contains(p.coming, c.cfg.Self) {
			gone = append(gone, s)
		}
		return true
	})
	for _, s := range gone {
		c.discard(s)
	}
}

func addNeed(ns []need, set []string) []need {
	for _, n := range ns {
		if slices.Equal(n.from, set) {
			return ns
		}
	}
	return append(ns, need{set})
}

// stepNeeds lists the previous sets of the ranges that this member fills in the active step: those it gains, and those
// it keeps while their set shrinks.
func (c *Core) stepNeeds() []need {
	var out []need
	for _, n := range c.view.v.counts() {
		for _, m := range ring.Diff(c.view.base, c.view.next, n) {
			gains := m.Gains == c.cfg.Self
			shrinks := c.view.v.Stage == Switch && len(m.To) < len(m.From) && slices.Contains(m.To, c.cfg.Self)
			if gains || shrinks {
				out = addNeed(out, m.From)
			}
		}
	}
	return out
}

func (c *Core) refillNeeds() []need {
	var out []need
	for _, n := range c.view.v.counts() {
		for arc := range c.view.base.Arcs() {
			if set := c.view.base.Replicas(arc.Hi, n); slices.Contains(set, c.cfg.Self) {
				out = addNeed(out, set)
			}
		}
	}
	return out
}

func (f *session) addSources(self string) {
	for _, n := range f.needs {
		for _, id := range n.from {
			if id != self && f.sources[id] == nil {
				f.sources[id] = &source{id: id}
			}
		}
	}
}

// tickFill asks sources that are due, repeats reports, and looks whether a session is complete.
func (c *Core) tickFill() {
	if c.view == nil {
		return
	}
	for _, f := range []*session{&c.fill.step, &c.fill.refill} {
		if !f.on {
			continue
		}
		if !f.done || !c.vouched(f) {
			c.askSources(f)
			c.fetchWants(f)
		}
		c.checkSession(f)
	}
}

func (c *Core) askSources(f *session) {
	limit := c.view.v.Streams
	if limit <= 0 {
		limit = defaultPulls
	}
	ids := sortedKeys(f.sources)
	busy := 0
	for _, id := range ids {
		src := f.sources[id]
		if src.seq != 0 && c.now-src.sent > pullTimeout {
			src.seq = 0
			src.fail("no answer", c.now)
		}
		if src.seq != 0 {
			busy++
		}
	}
	// Those that have been read less often come first: one that gives much would take all streams. Of these it is the turn of
	// the one that was asked longest ago: those that have nothing to give now would keep the others from being asked.
	slices.SortStableFunc(ids, func(a, b string) int {
		x, y := f.sources[a], f.sources[b]
		return cmp.Or(cmp.Compare(x.passes, y.passes), cmp.Compare(x.sent, y.sent))
	})
	for _, id := range ids {
		src := f.sources[id]
		if busy >= limit || !c.credit() {
			return
		}
		if src.seq == 0 && !src.done && c.now >= src.next && !(f.mode == PullCopy && src.gave && src.passes == 0 && f.bringing()) {
			c.askSource(f, src)
			if src.seq != 0 {
				busy++
			}
		}
	}
}

// bringing says whether sources still give what is theirs to bring: the first complete answers, which follow, are short when
// all of that is here.
func (f *session) bringing() bool {
	for _, src := range f.sources {
		if !src.gave && src.why == "" {
			return true
		}
	}
	return false
}

func (c *Core) askSource(f *session, src *source) {
	if m, ok := c.view.v.Member(src.id); !ok || m.Down {
		src.next = c.now + pullAgain
		src.fail("down", c.now)
		return
	}
	src.seq, src.sent = c.nextOp(), c.now
	pull := &Pull{Session: f.id, Mode: f.mode, Seq: src.seq, From: src.from, Since: src.since, Run: src.run}
	if pull.Bring = f.mode == PullCopy && !src.gave; !pull.Bring {
		pull.Sums = c.sums(f, src)
	}
	c.send(src.id, pull)
}

// credit says whether the transfer rate allows another pull now.
func (c *Core) credit() bool {
	rate := c.view.v.Rate
	if rate <= 0 {
		return true
	}
	f := &c.fill
	f.credit = min(f.credit+int64(float64(c.now-f.credited)/1e9*float64(rate)), rateBurst)
	f.credited = c.now
	return f.credit > 0
}

func (c *Core) sessionOf(mode PullMode, id uint64) *session {
	f := &c.fill.step
	if mode == PullRefill {
		f = &c.fill.refill
	}
	if !f.on || f.id != id || f.mode != mode {
		return nil
	}
	return f
}

// pulled takes a source's answer: what it says is taken over only by what is newer here, and it counts from the source
// up to the last token of the answer.
func (c *Core) pulled(m Message, b *Pulled) {
	f := c.sessionOf(b.Mode, b.Session)
	if f == nil {
		return
	}
	if b.One {
		c.pulledOne(f, m.From, b)
		return
	}
	src := f.sources[m.From]
	if src == nil || src.seq != b.Seq || src.from != b.From {
		return
	}
	src.seq = 0
	src.empty = src.empty || b.Code == CodeReceiving && b.Empty
	if b.Code != CodeOK || !c.absorbAll(f, m.From, b.Entries) {
		src.next = c.now + pullAgain
		src.fail(b.Code.String(), c.now)
		c.checkSession(f)
		return
	}
	src.why = ""
	if src.from == 0 {
		if src.run != b.Run {
			src.since = 0 // the source went by that: what this run of it has changed is numbered anew
		}
		src.now, src.run = b.Now, b.Run
	} else if src.run != b.Run { // another run of the source: what it says now does not continue the walk
		src.since = 0
		src.restart()
		return
	}
	switch {
	case !b.Done:
		src.from = b.To + 1
	case f.mode == PullCopy && !src.gave:
		src.gave = true
		src.restart()
	default:
		src.done, src.since = true, src.now
		src.passes++
	}
	c.fetchWants(f)
	c.checkSession(f)
	if f.on && !f.done {
		c.askSources(f)
	}
}

func (c *Core) pulledOne(f *session, from string, b *Pulled) {
	if b.Seq != f.serial { // asked by a run before, or before the sets changed: it says too little
		return
	}
	if b.Code != CodeOK || !c.absorbAll(f, from, b.Entries) {
		return
	}
	s := c.slot(b.Key)
	if s.oneOf != f.serial {
		s.oneOf, s.one = f.serial, nil
	}
	if !slices.Contains(s.one, from) {
		s.one = append(s.one, from)
	}
}

// absorbAll takes entries over. A page that does not match its checksum spoils the answer: it does not count.
func (c *Core) absorbAll(f *session, from string, entries []Entry) bool {
	for _, e := range entries {
		if !soundPages(e.Pages) {
			c.note("corrupt page in a pull", e.Key, from, e.Meta.Stamp.String())
			return false
		}
	}
	for _, e := range entries {
		c.absorb(f, from, e)
	}
	return true
}

func (c *Core) absorb(f *session, from string, e Entry) {
	if e.Key == (Key{}) {
		c.raiseFloor(e.Meta.Promised)
		return
	}
	f.any = f.any || !e.Meta.Stamp.IsZero() // who has promises alone has nothing that could be lost
	c.fill.credit -= int64(entryOverhead + pageBytes(e.Pages))
	s := c.slot(e.Key)
	newer := s.stamp.Less(e.Meta.Stamp)
	if !newer || !e.Has {
		c.promise(s, e.Meta.Promised)
	}
	if !newer {
		return
	}
	if src := f.sources[from]; src != nil {
		src.news++
	}
	if e.Has {
		c.fill.taken++
		f.keys++
		f.bytes += pageBytes(e.Pages)
		c.install(s, e.Meta.Promised, e.Meta.Stamp, e.Pages)
		return
	}
	if s.want == nil {
		s.want = &want{}
	}
	if !slices.Contains(s.want.lists, f.serial) {
		s.want.lists = append(s.want.lists, f.serial)
		f.wants = append(f.wants, s)
	}
	s.want.name(from, e.Meta.Stamp)
}

// raiseFloor makes every key's promise here at least e.
func (c *Core) raiseFloor(e Epoch) {
	if !c.floor.Less(e) {
		return
	}
	c.floor = e
	c.put(Put{Key: floorMark, Meta: CopyMeta{Promised: e}})
}

// fetchWants fetches the states that the walk has shown to be missing once enough sources have passed the key: until
// then the source that brings the pages may still do so.
func (c *Core) fetchWants(f *session) {
	if c.lostSource() {
		c.dropLost(f)
	}
	keep := f.wants[:0]
	ask := map[string][]Key{}
	for _, s := range f.wants {
		if !s.wants() {
			s.want = nil
			c.slots.release(s)
			continue
		}
		keep = append(keep, s)
		if c.answers(f, s) < c.enough(f, c.place(s).s) || c.comes(f, s) {
			continue
		}
		from := first(s.want.newest())
		if src := f.sources[from]; src != nil && (src.fetch == 0 || c.now-src.fetchT > pullTimeout) && c.now >= src.next && len(ask[from]) < c.cfg.Sizes.FetchKeys {
			s.want.tries++
			ask[from] = append(ask[from], s.id)
		}
	}
	clear(f.wants[len(keep):])
	f.wants = keep
	for _, id := range sortedKeys(ask) {
		src := f.sources[id]
		src.fetch, src.fetchT, src.keys = c.nextOp(), c.now, ask[id]
		c.send(id, &Fetch{Session: f.id, Seq: src.fetch, Keys: ask[id]})
	}
}

// bringWait is how long a source that is asked is waited for before the pages that it would bring are fetched elsewhere.
const bringWait = 300 * ms

// comes says whether the source that brings a key's pages is on its way to the key.
func (c *Core) comes(f *session, s *slot) bool {
	src := f.sources[c.bringer(s, c.cfg.Self, f.mode)]
	return src != nil && !src.done && src.passes == 0 && src.from <= s.key && src.why == "" && (src.seq == 0 || c.now-src.sent < bringWait)
}

func (c *Core) fetched(m Message, b *Fetched) {
	for _, f := range []*session{&c.fill.step, &c.fill.refill} {
		src := f.sources[m.From]
		if !f.on || src == nil || src.fetch != b.Seq || f.id != b.Session {
			continue
		}
		keys := src.keys
		src.fetch, src.keys = 0, nil
		if !c.absorbAll(f, m.From, b.Entries) {
			src.next = c.now + pullAgain
		} else {
			c.vanished(m.From, keys, b.Rest)
		}
		c.fetchWants(f)
		c.checkSession(f)
		return
	}
}

// vanished looks for copies that a source named and does not have any more, as after it lost its memory. Its answers from
// before are void then: it is asked again from the beginning, and counts when it has answered.
func (c *Core) vanished(from string, keys, rest []Key) {
	gone := false
	for _, k := range keys {
		s := c.slots.find(k)
		if s == nil || !s.wants() || slices.Contains(rest, k) {
			continue
		}
		gone = true
		s.want.named = slices.DeleteFunc(s.want.named, func(n naming) bool { return n.from == from })
		s.one = slices.DeleteFunc(s.one, func(id string) bool { return id == from })
		if !s.wants() {
			s.want = nil
		}
	}
	for _, f := range []*session{&c.fill.step, &c.fill.refill} {
		if src := f.sources[from]; gone && src != nil {
			*src = source{id: from, next: c.now + pullAgain}
		}
	}
}

// lostSource says whether some member that may have named copies is not there: wants are many, and looked through only then.
func (c *Core) lostSource() bool {
	for _, m := range c.view.v.Members {
		if m.Down {
			return true
		}
	}
	for _, f := range []*session{&c.fill.step, &c.fill.refill} {
		for id := range f.sources {
			if _, ok := c.view.v.Member(id); !ok {
				return true
			}
		}
	}
	return false
}

// dropLost gives up what members named that are down now and cannot be asked for it: if it was committed, enough others have it.
func (c *Core) dropLost(f *session) {
	lost := map[string][]Key{}
	for _, s := range f.wants {
		if s.want == nil {
			continue
		}
		for id := range s.want.newest() {
			if m, ok := c.view.v.Member(id); !ok || m.Down {
				lost[id] = append(lost[id], s.id)
			}
		}
	}
	for _, id := range sortedKeys(lost) {
		c.vanished(id, lost[id], nil)
	}
}

// checkSession looks whether all that a session needs has been answered, and reports it until the placement shows it.
func (c *Core) checkSession(f *session) {
	switch {
	case !f.on || !f.done && len(f.wants) > 0: // what is named later is extra
		return
	case f.mode == PullCopy:
		c.checkCopied(f)
		return
	case !f.done:
		for _, n := range f.needs {
			if !c.satisfied(f, n.from) {
				return
			}
		}
		f.done, f.any = true, true
		if f.mode == PullSwitch {
			c.fill.mark = f.id
			c.put(Put{Key: filledMark, Meta: CopyMeta{Promised: Epoch{Version: f.id}}})
		}
		c.fill.reported[ReportFilled], c.fill.reported[ReportRefilled] = 0, 0
	}
	switch {
	case f.mode == PullRefill:
		if c.vouched(f) {
			c.report(ReportRefilled)
		}
	case c.complete():
		c.report(ReportFilled)
	}
}

// satisfied says whether enough of a set has answered completely.
func (c *Core) satisfied(f *session, set []string) bool {
	n := c.own(f, set)
	for _, id := range set {
		if src := f.sources[id]; src != nil && src.done {
			n++
		}
	}
	if n >= c.enough(f, set) {
		return true
	}
	if f.mode != PullRefill || !c.allLost(f, set) {
		return false
	}
	c.raiseFloor(Epoch{Version: c.view.v.Version})
	f.anew = true
	return true
}

// vouched says whether the others can do without this member's being marked as refilling. When all have lost their memory
// each finds that out by all being marked: one that lost its mark at once would leave the others waiting for each other. With R of
// a set complete the rest fills from those.
func (c *Core) vouched(f *session) bool {
	if !f.anew {
		return true
	}
	for _, n := range f.needs {
		k := 0
		for _, id := range n.from {
			m, ok := c.view.v.Member(id)
			if src := f.sources[id]; id == c.cfg.Self || ok && !m.Refilling || src != nil && src.done {
				k++
			}
		}
		if k < R(len(n.from)) {
			return false
		}
	}
	return true
}

// allLost says whether every member of a set lost its memory and every other one has said what it holds: all it filled
// since, or that this is nothing. Then nothing older is left anywhere, and the keys start anew.
func (c *Core) allLost(f *session, set []string) bool {
	for _, id := range set {
		if m, ok := c.view.v.Member(id); !ok || !m.Refilling {
			return false
		}
		if src := f.sources[id]; id != c.cfg.Self && (src == nil || !src.done && !src.empty) {
			return false
		}
	}
	return true
}

// checkCopied ends the bulk copy when little was new in the last pass of enough sources, and starts further passes.
func (c *Core) checkCopied(f *session) {
	gains := len(f.needs) > 0
	ready := gains
	for _, n := range f.needs {
		k := 0
		for _, id := range n.from {
			if src := f.sources[id]; src != nil && src.passes > 0 {
				k++
			}
		}
		ready = ready && k >= c.enough(f, n.from)
	}
	for _, id := range sortedKeys(f.sources) {
		src := f.sources[id]
		if src.done {
			little := src.news <= c.cfg.Sizes.SmallDelta || src.passes >= maxPasses
			ready = ready && little
			src.restart()
			if little {
				src.next = c.now + passAgain
			}
		}
	}
	if f.copied = f.copied || ready; f.copied {
		c.report(ReportCopied)
	}
}

func (c *Core) report(what Reported) {
	last := &c.fill.reported[what]
	if *last != 0 && c.now-*last < reportAgain {
		return
	}
	*last = max(c.now, 1)
	c.emit(&Report{What: what, Step: c.view.v.Step})
}

// fillOne asks for one key that somebody waits for, out of turn.
func (c *Core) fillOne(s *slot) {
	f := &c.fill.refill
	p := c.place(s)
	if !slices.Contains(p.s, c.cfg.Self) {
		f = &c.fill.step
	}
	if !f.on || f.mode == PullCopy {
		return
	}
	for _, id := range p.s {
		if id == c.cfg.Self || s.oneOf == f.serial && slices.Contains(s.one, id) {
			continue
		}
		c.send(id, &Pull{Session: f.id, Mode: f.mode, Seq: f.serial, One: true, Key: s.id})
	}
}

// missing names the sources that a session waits for, with the reason.
func (f *session) missing() string {
	var out []string
	for _, id := range sortedKeys(f.sources) {
		if src := f.sources[id]; !src.done {
			out = append(out, id+" ("+cmpOr(src.why, "reading")+")")
		}
	}
	return strings.Join(out, ", ")
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
