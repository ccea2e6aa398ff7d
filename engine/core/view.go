package core

import (
	"maps"
	"slices"
	"strings"

	"chainmail/ring"
)

// viewRings is a view with its rings.
type viewRings struct {
	v          *View
	base, next *ring.Ring
	target     *ring.Ring
	self       MemberInfo
	// jump says that versions between this view and the one before it were not seen here: each key counts as changed.
	jump bool
	// sameRuns says that all members are of the same incarnations as in the view before.
	sameRuns bool
	// alike is the replica count of all types, 0 if they differ or some are pinned.
	alike int
	// lastType has lastN replicas: most questions in a row are about keys of one type.
	lastType string
	lastN    int
}

// placed is where the keys of an arc are at a view. It never changes.
type placed struct {
	s, sn  []string // replica sets whose quorums count: Base's and, in the switch stage, Next's (else the same slice)
	coming []string // Next's set in any stage
	up     []string // members of s that are neither down nor refilling
	owner  string   // the first of them, "" if there is none
	stays  bool     // this member is in a set from here to the end of the chain
	fence  uint64   // the last version at which s, sn or an incarnation in them changed
}

// maxHist is how many adopted views are kept to compute fences and former owners; what is older counts as changed. Half of
// them go at once: each time that views are forgotten the fences of all keys may rise, and what is in flight is sent again.
const maxHist = 24

func newViewRings(v *View, old *viewRings, self string) (*viewRings, error) {
	vr := &viewRings{v: v}
	reuse := func(ms []ring.Member) (*ring.Ring, error) {
		if old != nil && v.Ring == old.v.Ring {
			for _, o := range []*viewRings{old} {
				switch {
				case slices.Equal(ms, o.v.Base):
					return o.base, nil
				case slices.Equal(ms, o.v.Next):
					return o.next, nil
				case slices.Equal(ms, o.v.Target):
					return o.target, nil
				}
			}
		}
		return ring.New(v.Ring, ms)
	}
	var err error
	if vr.base, err = reuse(v.Base); err != nil {
		return nil, err
	}
	vr.next = vr.base
	if !slices.Equal(v.Base, v.Next) {
		if vr.next, err = reuse(v.Next); err != nil {
			return nil, err
		}
	}
	switch {
	case slices.Equal(v.Target, v.Next):
		vr.target = vr.next
	default:
		if vr.target, err = reuse(v.Target); err != nil {
			return nil, err
		}
	}
	vr.self, _ = v.Member(self)
	if ns := v.counts(); len(ns) == 1 && !v.pins() {
		vr.alike = ns[0]
	}
	return vr, nil
}

// replicas gives the replica count of an actor type.
func (v *View) replicas(typ string) int {
	if n, ok := v.Replicas[typ]; ok && (n > 0 || n == Pinned) {
		return n
	}
	return max(1, v.Replicas[""])
}

// replicas gives the replica count of an actor type.
func (vr *viewRings) replicas(typ string) int {
	if vr.alike > 0 {
		return vr.alike
	}
	if vr.lastN == 0 || vr.lastType != typ {
		vr.lastType, vr.lastN = typ, vr.v.replicas(typ)
	}
	return vr.lastN
}

// counts lists the replica counts in use, ascending.
func (v *View) counts() []int {
	out := []int{v.replicas("")}
	for _, n := range v.Replicas {
		if n > 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// pins says whether some type is pinned.
func (v *View) pins() bool {
	for _, n := range v.Replicas {
		if n == Pinned {
			return true
		}
	}
	return false
}

// sets gives the replica sets of a token whose quorums count.
func (vr *viewRings) sets(t ring.Token, n int) (s, sn []string) {
	s = vr.base.Replicas(t, n)
	if vr.v.Stage == Switch {
		return s, vr.next.Replicas(t, n)
	}
	return s, s
}

// owner is the first member of s that is neither down nor refilling.
func (vr *viewRings) owner(s []string) string {
	for _, id := range s {
		if m, ok := vr.v.Member(id); ok && !m.Down && !m.Refilling {
			return id
		}
	}
	return ""
}

// up gives the members of s that are neither down nor refilling.
func (vr *viewRings) up(s []string) []string {
	out := make([]string, 0, len(s))
	for _, id := range s {
		if m, ok := vr.v.Member(id); ok && !m.Down && !m.Refilling {
			out = append(out, id)
		}
	}
	return out
}

// sameSets says whether a key has the same sets with the same incarnations at a view and the one before it.
func sameSets(a, b *viewRings, t ring.Token, n int) bool {
	as, asn := a.sets(t, n)
	bs, bsn := b.sets(t, n)
	if !equalSets(as, bs) || !equalSets(asn, bsn) {
		return false
	}
	if a.sameRuns {
		return true
	}
	for _, set := range [2][]string{as, asn} {
		for _, id := range set {
			x, _ := a.v.Member(id)
			y, _ := b.v.Member(id)
			if x.Incarnation != y.Incarnation {
				return false
			}
		}
	}
	return true
}

// equalSets compares two sets, which are often the same slice of a ring's table.
func equalSets(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0]) || slices.Equal(a, b)
}

// quiet says whether nothing that this member acts on differs between two views: another report has come in, or a change
// was submitted that has not begun. Most revisions are such.
func quiet(old, v *View) bool {
	return old.Version == v.Version && old.Rate == v.Rate && old.Streams == v.Streams && slices.Equal(old.Members, v.Members) &&
		maps.Equal(old.Replicas, v.Replicas) && slices.Equal(old.Target, v.Target)
}

// sameRuns says whether all members of both views are of the same incarnations.
func sameRuns(a, b *View) bool {
	return slices.EqualFunc(a.Members, b.Members, func(x, y MemberInfo) bool { return x.ID == y.ID && x.Incarnation == y.Incarnation })
}

// arcBits is how many places there are for remembered arcs: one of many tokens is found in few steps, and a walk over the
// circle looks each arc up once.
const arcBits = 10

// arc is what was found for the tokens first to last: they are placed alike in every view that is kept.
type arc struct {
	first, last ring.Token
	replicas    int
	placed      *placed
}

// sameOwners says whether the owners of all keys are those of the view before.
func (vr *viewRings) sameOwners(old *viewRings) bool {
	if vr.pins() && (vr.next != old.next || vr.target != old.target) { // pinned keys are on their member while it is on any of the rings
		return false
	}
	return !vr.jump && vr.sameRuns && vr.base == old.base && maps.Equal(vr.v.Replicas, old.v.Replicas) && slices.Equal(vr.v.Members, old.v.Members)
}

func (vr *viewRings) pins() bool {
	for _, n := range vr.v.Replicas {
		if n == Pinned {
			return true
		}
	}
	return false
}

// sameQuorums says whether the sets that count and the fences of all keys are so too.
func (vr *viewRings) sameQuorums(old *viewRings) bool {
	return vr.sameOwners(old) && vr.v.Stage != Switch && old.v.Stage != Switch
}

// sameSweep says whether a sweep would find nothing to do that it would not have found at the view before: what this member
// need not hold, and what it owns, are the same. A join changes neither before its end.
func (vr *viewRings) sameSweep(old *viewRings) bool {
	return vr.sameOwners(old) && (vr.next == old.next && vr.target == old.target || old.next == old.base && old.target == old.base)
}

// place says where a slot's key is now.
func (c *Core) place(s *slot) *placed {
	if s.placedAt != c.gen {
		s.placedAt = c.gen
		if n := c.view.replicas(s.id.Type); n == Pinned {
			s.placed = c.placePinned(s.id)
		} else {
			s.placed = c.placeToken(s.key, n)
		}
	}
	return s.placed
}

// placeOf is place, mostly without a look at the slot.
func (c *Core) placeOf(x keyed) *placed {
	if n := c.view.alike; n > 0 {
		return c.placeToken(x.key, n)
	}
	return c.place(x.slot)
}

// Pinned in View.Replicas says that the keys of a type have one copy, on the member that they name: "key@member". Rings
// have no part in it.
const Pinned = -1

// PinnedTo gives the member that a pinned key names, "" if it names none.
func PinnedTo(k Key) string { return k.Name[strings.LastIndexByte(k.Name, '@')+1:] }

// placePinned says where a pinned key is: on its member, as long as that is on a ring from here to the end of the chain.
func (c *Core) placePinned(k Key) *placed {
	id := PinnedTo(k)
	v := c.view
	p := &placed{fence: c.hist[0].v.Version}
	if v.base.Has(id) || v.next.Has(id) || v.target.Has(id) {
		p.s = []string{id}
	}
	p.sn, p.coming = p.s, p.s
	p.stays = len(p.s) > 0 && id == c.cfg.Self
	if p.up = v.up(p.s); len(p.up) > 0 {
		p.owner = id
	}
	for i := len(c.hist) - 1; i > 0; i-- {
		x, _ := c.hist[i].v.Member(id)
		if y, _ := c.hist[i-1].v.Member(id); x.Incarnation != y.Incarnation || c.hist[i].jump {
			p.fence = c.hist[i].v.Version
			break
		}
	}
	return p
}

func (c *Core) placeToken(t ring.Token, n int) *placed {
	a := &c.arcs[t>>(64-arcBits)]
	if a.placed == nil || a.replicas != n || t < a.first || t > a.last {
		p := &placed{coming: c.view.next.Replicas(t, n), fence: c.fence(t, n)}
		p.s, p.sn = c.view.sets(t, n)
		p.up = c.view.up(p.s)
		if len(p.up) > 0 {
			p.owner = p.up[0]
		}
		p.stays = c.inRings(p, t, n)
		*a = arc{0, lastToken, n, p}
		for _, h := range c.hist {
			a.narrow(h.base, t)
			a.narrow(h.next, t)
		}
		a.narrow(c.view.target, t)
	}
	return a.placed
}

func (c *Core) inRings(p *placed, t ring.Token, n int) bool {
	return slices.Contains(p.s, c.cfg.Self) || slices.Contains(p.coming, c.cfg.Self) ||
		c.view.target != c.view.next && slices.Contains(c.view.target.Replicas(t, n), c.cfg.Self)
}

// narrow leaves of the arc what is in t's arc of a ring.
func (a *arc) narrow(r *ring.Ring, t ring.Token) {
	x := r.Arc(t)
	if x.Lo < t {
		a.first = max(a.first, x.Lo+1)
	}
	if x.Hi >= t {
		a.last = min(a.last, x.Hi)
	}
}

func (c *Core) fence(t ring.Token, n int) uint64 {
	i := len(c.hist) - 1
	for ; i > 0; i-- {
		if c.hist[i].v.Version == c.hist[i-1].v.Version {
			continue
		}
		if c.hist[i].jump || !sameSets(c.hist[i], c.hist[i-1], t, n) {
			break
		}
	}
	return c.hist[i].v.Version
}

// formerOwner is the last other owner of a key before this member became it, "" if none is known.
func (c *Core) formerOwner(s *slot) string {
	n := c.view.v.replicas(s.id.Type)
	if n == Pinned {
		return ""
	}
	for i := len(c.hist) - 2; i >= 0; i-- {
		h := c.hist[i]
		if o := h.owner(h.base.Replicas(s.key, n)); o != c.cfg.Self {
			return o
		}
	}
	return ""
}

// learn takes a placement of the local log. Who leads the log tells the others: the log itself tells them with its next
// message, which without other entries is some tenths of a second later.
func (c *Core) learn(in *ViewChanged) {
	old := c.gen
	c.adopt(in.View)
	if !in.Lead || c.gen == old {
		return
	}
	for _, m := range c.view.v.Members {
		if m.Incarnation != 0 && !m.Down {
			c.pushView(m.ID)
		}
	}
}

// adopt takes a newer view and brings everything here in line with it.
func (c *Core) adopt(v *View) {
	if c.view != nil && v.Revision <= c.view.v.Revision {
		return
	}
	if c.view != nil && v.Version < c.view.v.Version {
		c.note("placement version went back", Key{}, "", v.String()+" after "+c.view.v.String())
		return
	}
	old := c.view
	vr, err := newViewRings(v, old, c.cfg.Self)
	if err != nil {
		c.note("placement has no ring", Key{}, "", err.Error())
		return
	}
	if old != nil && quiet(old.v, v) {
		old.v = v // the rings, and all that was derived from them, are the same
		return
	}
	vr.jump = old != nil && v.Version > old.v.Version+1
	vr.sameRuns = old != nil && sameRuns(old.v, v)
	if old != nil {
		c.returned(old.v, v)
	}
	c.view = vr
	c.gen++
	c.hist = append(c.hist, vr)
	trimmed := len(c.hist) > maxHist
	if trimmed {
		c.hist = slices.Delete(c.hist, 0, len(c.hist)-maxHist/2)
	}
	clear(c.arcs)
	if c.cfg.Durable {
		c.emit(&Persist{View: v})
	}
	if f := (Epoch{Version: v.Lost}); c.floor.Less(f) {
		c.floor = f
	}
	c.reviewFill(old)
	switch {
	case trimmed || old == nil || !vr.sameOwners(old):
		c.reviewActivations(c.acts)
	case !vr.sameQuorums(old):
		c.reviewActivations(c.byOp) // those with something under way
	}
	c.reviewCalls()
	if old == nil || !vr.sameSweep(old) {
		c.sweep.restart()
	}
	c.unpark()
}

func (c *Core) unpark() {
	parked := c.parked
	c.parked = nil
	for _, m := range parked {
		c.receive(m)
	}
}

// viewAskEvery keeps members that are behind from asking for each message that shows it.
const viewAskEvery = 10 * ms

// wantNewer asks for the placement that a peer was seen to have. A version beyond the one that was asked for last is asked
// for at once: what waits for it here may be all that comes until its sender has lost patience.
func (c *Core) wantNewer(peer string, version uint64) {
	if c.wantAt != 0 && c.now-c.wantAt < viewAskEvery && version <= c.wantV {
		return
	}
	c.wantAt, c.wantV = c.now, version
	var rev uint64
	if c.view != nil {
		rev = c.view.v.Revision
	}
	c.emit(&WantView{Version: version})
	c.send(peer, &WantNewView{Revision: rev})
}

// pushView gives a peer that is behind the newest placement by value.
func (c *Core) pushView(peer string) {
	p := c.pushed[peer]
	if peer == c.cfg.Self || p.revision == c.view.v.Revision && c.now-p.at < viewAskEvery {
		return
	}
	c.pushed[peer] = pushMark{c.view.v.Revision, c.now}
	c.send(peer, &NewView{View: c.view.v})
}
