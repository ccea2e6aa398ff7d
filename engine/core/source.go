package core

import (
	"slices"

	"chainmail/ring"
)

const (
	// pullBytes and pullEntries bound one answer to a Pull, pullScan the copies that are looked at for it: a pull never
	// keeps a member from its messages for long.
	pullBytes   = 256 << 10
	pullEntries = 2048
	pullScan    = 16384
	passedShare = 8 // so many that are passed over by their tokens count as one that is looked at
	// lastToken is the end of a walk over the circle, which starts at 0.
	lastToken = ^ring.Token(0)
	// entryOverhead is what an entry weighs besides its pages.
	entryOverhead = 64
)

// pull answers a receiver with the copies it has to hold, in the order of tokens. It keeps nothing about the receiver.
func (c *Core) pull(m Message, b *Pull) {
	ans := &Pulled{Session: b.Session, Mode: b.Mode, Seq: b.Seq, From: b.From, To: b.From, One: b.One, Key: b.Key, Run: c.run, Now: c.slots.seq}
	switch ans.Code = c.pullable(m, b); {
	case ans.Code != CodeOK:
		ans.Empty = !c.fill.refill.any
	case b.One:
		c.pullOne(m.From, b, ans)
	default:
		c.pullRange(m.From, b, ans)
	}
	c.send(m.From, ans)
}

// pullable says whether this member is a complete source in the session that the request belongs to.
func (c *Core) pullable(m Message, b *Pull) Code {
	v := c.view.v
	switch b.Mode {
	case PullRefill:
		if to, _ := v.Member(m.From); !to.Refilling || b.Session != m.FromInc {
			c.pushView(m.From)
			return CodeStale
		}
	case PullCopy:
		if v.Stage == Stable || b.Session != v.Began {
			c.pushView(m.From)
			return CodeStale
		}
	case PullSwitch:
		if v.Stage != Switch || b.Session != v.Began {
			c.pushView(m.From)
			return CodeStale
		}
	}
	if !b.One && !c.complete() {
		return CodeReceiving
	}
	return CodeOK
}

// bringer names the source that sends the pages of a key along with its index entry, "" if none does: the others send
// the entry alone. It is the same for the keys of a bucket, so that one answer makes a bucket's sum agree.
func (c *Core) bringer(s *slot, to string, mode PullMode) string {
	return bringerOf(c.place(s), bucketOf(s.key), to, mode)
}

// bringerOf is bringer for the keys of an arc in a bucket.
func bringerOf(p *placed, bucket int, to string, mode PullMode) string {
	if mode == PullSwitch && slices.Contains(p.s, to) {
		return "" // it holds a copy already: mostly the stamps agree
	}
	n := len(p.up)
	if slices.Contains(p.up, to) {
		n--
	}
	if n == 0 {
		return ""
	}
	i := int(mix(uint64(bucket)) % uint64(n))
	for _, id := range p.up {
		if id == to {
			continue
		}
		if i == 0 {
			return id
		}
		i--
	}
	return ""
}

func (c *Core) entry(s *slot, pages bool) Entry {
	e := Entry{Key: s.id, Meta: CopyMeta{c.effective(s), s.stamp}, Has: pages}
	if pages {
		e.Pages = c.give(s)
	}
	return e
}

func pageBytes(ps []Page) int {
	n := 0
	for _, p := range ps {
		n += len(p.Name) + len(p.Data)
	}
	return n
}

func (c *Core) pullOne(to string, b *Pull, ans *Pulled) {
	s := c.slots.find(b.Key)
	if s == nil {
		s = c.slot(b.Key)
		defer c.slots.release(s)
	}
	switch {
	case !slices.Contains(c.place(s).s, c.cfg.Self):
		ans.Code = CodeMoved
	case !c.filledKey(s):
		ans.Code = CodeReceiving
	case s.hasCopy() || !c.floor.IsZero():
		ans.Entries = []Entry{c.entry(s, true)}
	}
	ans.Done = true
}

func (c *Core) pullRange(to string, b *Pull, ans *Pulled) {
	since := b.Since
	if b.Run != c.run {
		since = 0
	}
	if !c.floor.IsZero() && b.From == 0 { // the floor holds for keys without a copy too
		ans.Entries = append(ans.Entries, Entry{Meta: CopyMeta{Promised: c.floor}})
	}
	unchanged := since // what has not changed since is of no interest, whoever holds it
	if b.Mode != PullCopy && (b.Mode != PullSwitch || len(c.view.v.Next) < len(c.view.v.Base)) {
		unchanged = 0
	}
	first, equal := bucketOf(b.From), c.equalBuckets(to, b)
	bytes, seen := 0, 0
	ans.To, ans.Done = lastToken, true
	var last ring.Token
	var at gain
	c.slots.walk(b.From, unchanged, func(x keyed) bool {
		bucket := bucketOf(x.key)
		i := bucket - first
		if i < len(equal) && equal[i] {
			return true
		}
		z := &c.cfg.Sizes
		full := bytes >= z.PullBytes || len(ans.Entries) >= z.PullEntries || seen >= z.PullScan*passedShare
		if x.key != last && (full || len(equal) > 0 && i >= len(equal)) { // beyond the sums: the next pull brings others
			ans.To, ans.Done = x.key-1, false
			return false
		}
		last = x.key
		seen++
		if p := c.placeOf(x); p != at.placed || bucket != at.bucket {
			at = gain{p, bucket, needs(p, c.cfg.Self, to, b.Mode), bringerOf(p, bucket, to, b.Mode) == c.cfg.Self}
		}
		if !at.needed || b.Bring && !at.mine {
			return true
		}
		seen += passedShare
		s := x.slot
		if s.seq <= since && walked(at.placed, to) {
			return true
		}
		e := c.entry(s, at.mine && !s.stamp.IsZero())
		bytes += entryOverhead + pageBytes(e.Pages)
		if ans.Entries == nil {
			ans.Entries = make([]Entry, 0, c.gave+c.gave/8+1)
		}
		ans.Entries = append(ans.Entries, e)
		return true
	})
	c.gave = len(ans.Entries)
}

// gain is what the keys of an arc in a bucket are to a receiver: whether it needs them of this source, and whether this source
// brings their pages.
type gain struct {
	placed       *placed
	bucket       int
	needed, mine bool
}

// walked says whether earlier passes of the same session covered a key: those of the stage copy are for what the
// receiver gains. What it keeps while the set shrinks is first asked for in switch, and then from the beginning.
func walked(p *placed, to string) bool { return !slices.Contains(p.s, to) }

// fetch answers with whole copies, as many as fit.
func (c *Core) fetch(m Message, b *Fetch) {
	ans := &Fetched{Session: b.Session, Seq: b.Seq}
	bytes := 0
	for i, k := range b.Keys {
		if bytes >= c.cfg.Sizes.PullBytes {
			ans.Rest = b.Keys[i:]
			break
		}
		if s := c.slots.find(k); s != nil && c.filledKey(s) {
			e := c.entry(s, true)
			bytes += entryOverhead + pageBytes(e.Pages)
			ans.Entries = append(ans.Entries, e)
		}
	}
	c.send(m.From, ans)
}
