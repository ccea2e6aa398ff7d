package core

import (
	"cmp"
	"slices"
	"strings"

	"chainmail/ring"
)

// slot is what this member knows of one key: its copy, and its activation if one runs here. What walks over all keys look at
// comes first, in 64 bytes: most of their time is that of the memory.
type slot struct {
	key      ring.Token // token, first for locality
	placed   *placed    // shared with the other keys of the arc
	placedAt uint64     // generation of views that placed was found for; 0: never
	seq      uint64     // of the last change of the copy, in this run
	sum      uint64     // of the copy, without the floor
	act      *activation
	gone     Time // when it became a tombstone, if it is one
	indexed  bool

	id       Key
	stamp    Stamp
	promised Epoch
	pages    pageList
	offer    *offer
	want     *want // newer state that some source has and that is not here yet

	// one holds the sources that answered for this key alone, within the fill session oneOf.
	one   []string
	oneOf uint64
}

func (s *slot) hasCopy() bool { return !s.promised.IsZero() || !s.stamp.IsZero() }

// deleted says whether the copy is a tombstone.
func (s *slot) deleted() bool { return !s.stamp.IsZero() && s.pages.len() == 0 }

func (s *slot) page(name string) (Page, bool) { return s.pages.find(name) }

// bucketBits splits the circle into buckets that are sorted when they are walked.
const bucketBits = 10

// table holds the slots by key and, those with a copy, in the order of tokens.
type table struct {
	byKey   map[Key]*slot
	buckets [][]keyed
	dirty   []bool
	newest  []uint64 // by bucket, the last seq of a copy in it
	copies  int
	seq     uint64
}

// keyed is a slot with its token: what goes by the token alone need not touch the slot.
type keyed struct {
	key ring.Token
	*slot
}

func (t *table) init() {
	t.byKey = map[Key]*slot{}
	t.buckets = make([][]keyed, 1<<bucketBits)
	t.dirty = make([]bool, 1<<bucketBits)
	t.newest = make([]uint64, 1<<bucketBits)
}

func (t *table) find(k Key) *slot { return t.byKey[k] }

// add makes the slot of a key that has none.
func (t *table) add(k Key) *slot {
	s := &slot{id: k, key: ring.KeyToken(ring.HashV1, k.Type, k.Name)}
	t.byKey[k] = s
	return s
}

func bucketOf(tok ring.Token) int { return int(tok >> (64 - bucketBits)) }

func (t *table) index(s *slot) {
	if s.indexed {
		return
	}
	b := bucketOf(s.key)
	n := len(t.buckets[b])
	t.dirty[b] = t.dirty[b] || n > 0 && t.buckets[b][n-1].key >= s.key
	t.buckets[b] = append(t.buckets[b], keyed{s.key, s})
	s.indexed = true
	t.copies++
}

func (t *table) unindex(s *slot) {
	if !s.indexed {
		return
	}
	b := bucketOf(s.key)
	i := slices.Index(t.buckets[b], keyed{s.key, s})
	t.buckets[b] = slices.Delete(t.buckets[b], i, i+1)
	s.indexed = false
	t.copies--
}

// release forgets a slot that holds nothing.
func (t *table) release(s *slot) {
	if !s.hasCopy() && s.act == nil && s.want == nil && len(s.one) == 0 {
		delete(t.byKey, s.id)
	}
}

func compareSlots(a, b *slot) int {
	if a.key != b.key {
		if a.key < b.key {
			return -1
		}
		return 1
	}
	if c := strings.Compare(a.id.Type, b.id.Type); c != 0 {
		return c
	}
	return strings.Compare(a.id.Name, b.id.Name)
}

func compareKeyed(a, b keyed) int {
	if a.key != b.key {
		return cmp.Compare(a.key, b.key)
	}
	return compareSlots(a.slot, b.slot)
}

// bucket gives the sorted slots of bucket b. The result is valid until the table changes.
func (t *table) bucket(b int) []keyed {
	if t.dirty[b] {
		slices.SortFunc(t.buckets[b], compareKeyed)
		t.dirty[b] = false
	}
	return t.buckets[b]
}

// ascend calls f for the slots with a copy whose token is at least from, in order, until f says no. Buckets in which
// nothing has changed after since are passed over.
func (t *table) ascend(from ring.Token, since uint64, f func(*slot) bool) {
	t.walk(from, since, func(x keyed) bool { return f(x.slot) })
}

// walk is ascend with the tokens.
func (t *table) walk(from ring.Token, since uint64, f func(keyed) bool) {
	for b := bucketOf(from); b < len(t.buckets); b++ {
		if t.newest[b] <= since && since > 0 {
			continue
		}
		for _, x := range t.bucket(b) {
			if x.key >= from && !f(x) {
				return
			}
		}
	}
}

// touch notes that a slot's copy has changed.
func (c *Core) touch(s *slot) {
	c.slots.seq++
	s.seq = c.slots.seq
	c.slots.newest[bucketOf(s.key)] = s.seq
	if s.deleted() {
		s.gone = c.now
	}
	if s.hasCopy() {
		s.sum = sumCopy(s, s.promised)
		c.slots.index(s)
	} else {
		c.slots.unindex(s)
	}
}

func (c *Core) slot(k Key) *slot {
	if s := c.slots.find(k); s != nil {
		return s
	}
	return c.slots.add(k)
}

// put has one record made durable, together with those that directly precede it.
func (c *Core) put(x Put) {
	if !c.cfg.Durable {
		return
	}
	if n := len(c.out); n > c.given {
		if p, ok := c.out[n-1].(*Persist); ok && p.View == nil {
			p.Puts = append(p.Puts, x)
			return
		}
	}
	c.emit(&Persist{Puts: []Put{x}})
}

// promise raises a slot's promise; the caller checks that it may.
func (c *Core) promise(s *slot, e Epoch) {
	if !s.promised.Less(e) {
		return
	}
	s.promised = e
	c.touch(s)
	c.put(Put{Key: s.id, Meta: CopyMeta{s.promised, s.stamp}})
}

// install replaces the whole copy by a newer one.
func (c *Core) install(s *slot, promised Epoch, stamp Stamp, pages []Page) {
	if s.promised.Less(promised) {
		s.promised = promised
	}
	if s.promised.Less(stamp.Epoch) {
		s.promised = stamp.Epoch
	}
	s.stamp, s.pages = stamp, listOf(pages)
	c.touch(s)
	c.put(Put{Key: s.id, Meta: CopyMeta{s.promised, s.stamp}, Full: true, Pages: pages})
}

// discard forgets the state of a copy and keeps its promise.
func (c *Core) discard(s *slot) {
	s.stamp, s.pages = Stamp{}, pageList{}
	c.touch(s)
	c.put(Put{Key: s.id, Meta: CopyMeta{Promised: s.promised}, Full: true, Drop: s.promised.IsZero()})
	c.slots.release(s)
}

// drop forgets a copy altogether.
func (c *Core) drop(s *slot) {
	s.promised, s.stamp, s.pages, s.offer = Epoch{}, Stamp{}, pageList{}, nil
	c.touch(s)
	c.put(Put{Key: s.id, Drop: true})
	c.slots.release(s)
}
