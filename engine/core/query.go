package core

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"chainmail/ring"
)

// Stats counts what a Core holds.
type Stats struct {
	Version, Revision uint64
	Registered        bool
	Complete          bool // holds every key of its ranges in Base
	Copies            int  // keys of which something is stored
	Activations       int
	Calls             int // of callers here, not answered yet
	Held              int // messages that wait for their key
	HeldBytes         int
	Orphans           int  // copies that this member need not hold, at the last complete sweep
	Swept             bool // a sweep has been completed since the last placement change
	HandingOver       int
	Wanted            int    // copies known to be missing here
	Taken             uint64 // states that were taken from other members' copies
}

// Stats gives the present counts.
func (c *Core) Stats() Stats {
	s := Stats{
		Copies: c.slots.copies, Activations: len(c.acts), Calls: len(c.calls), Held: c.held, HeldBytes: c.heldB,
		Orphans: c.sweep.left, HandingOver: len(c.sweep.open) + len(c.sweep.offers), Wanted: len(c.fill.step.wants) + len(c.fill.refill.wants),
	}
	s.Taken = c.fill.taken
	if c.view != nil {
		s.Version, s.Revision = c.view.v.Version, c.view.v.Revision
		s.Registered = c.registered()
		s.Complete = s.Registered && c.complete()
		s.Swept = c.sweep.again != 0
	}
	return s
}

// View is the placement that the Core goes by; nil before the first.
func (c *Core) View() *View {
	if c.view == nil {
		return nil
	}
	return c.view.v
}

// Explanation says where a key is, and what it waits for.
type Explanation struct {
	Key         Key
	Version     uint64
	Stage       Stage
	Owner       string   // "" if no member of Base is up and complete
	Destination string   // owner on Next
	Base, Next  []string // replica sets
	Fence       uint64   // the last version at which these changed
	Copy        CopyMeta // of this member
	Pages       int
	Filled      bool   // this member counts for the key
	Activation  string // "" none, else its state: releasing, preparing, active
	Epoch       Epoch  // of the activation, zero until it prepares
	Waiting     int    // messages in its mailbox
	Why         string // what it waits for, "" for nothing
}

// Explain says what this member knows of a key.
func (c *Core) Explain(k Key) Explanation {
	e := Explanation{Key: k}
	if c.view == nil {
		e.Why = "no placement is known yet"
		return e
	}
	s := c.slot(k)
	defer c.slots.release(s)
	p := c.place(s)
	e.Version, e.Stage, e.Owner, e.Base, e.Next, e.Fence = c.view.v.Version, c.view.v.Stage, p.owner, p.s, p.coming, p.fence
	e.Destination = c.view.owner(p.coming)
	e.Copy, e.Pages, e.Filled = CopyMeta{c.effective(s), s.stamp}, s.pages.len(), c.registered() && c.filledKey(s)
	switch {
	case p.owner == "":
		e.Why = "no member of " + strings.Join(p.s, ", ") + " is up and complete"
	case s.act != nil:
		e.Activation, e.Epoch, e.Waiting = s.act.state.String(), s.act.epoch, len(s.act.mailbox)
		if s.act.state != active || s.act.round != nil {
			e.Why = s.act.why(c)
		}
	case !e.Filled && slices.Contains(union(p.s, p.sn), c.cfg.Self):
		f := &c.fill.step
		if slices.Contains(p.s, c.cfg.Self) {
			f = &c.fill.refill
		}
		e.Why = "not filled here; waits for " + f.missing()
	}
	return e
}

// CopyInfo is one copy in a listing.
type CopyInfo struct {
	Key   Key
	Meta  CopyMeta
	Pages []Page
	Owned bool // this member owns the key
}

// Copies lists copies of a type whose names begin with prefix and come after after, by name; deleted keys and bare
// promises are left out. With owned only the keys that this member owns.
func (c *Core) Copies(typ, prefix, after string, limit int, owned bool) []CopyInfo {
	if c.view == nil {
		return nil
	}
	var found []*slot
	c.slots.ascend(0, 0, func(s *slot) bool {
		if s.id.Type == typ && s.pages.len() > 0 && s.id.Name > after && strings.HasPrefix(s.id.Name, prefix) &&
			(!owned || c.place(s).owner == c.cfg.Self) {
			found = append(found, s)
		}
		return true
	})
	slices.SortFunc(found, func(a, b *slot) int { return strings.Compare(a.id.Name, b.id.Name) })
	found = found[:min(len(found), limit)]
	out := make([]CopyInfo, len(found))
	for i, s := range found {
		out[i] = CopyInfo{s.id, CopyMeta{s.promised, s.stamp}, s.pages.all(), c.place(s).owner == c.cfg.Self}
	}
	return out
}

// Snapshot gives all copies in the order of tokens, deleted ones and bare promises too.
func (c *Core) Snapshot() []Record {
	out := make([]Record, 0, c.slots.copies)
	c.slots.ascend(0, 0, func(s *slot) bool {
		out = append(out, Record{s.id, CopyMeta{s.promised, s.stamp}, s.pages.all()})
		return true
	})
	return out
}

// TypeCount counts the keys of one type of which a member holds a state, and the bytes of their pages.
type TypeCount struct {
	Keys  int   `json:"keys"`
	Bytes int64 `json:"bytes"`
}

// Count adds the copies from a token on to into, by type: at least most of them, if there are so many, and all of the last
// token. next is where to go on if there are more. Deleted keys and bare promises are left out.
func (c *Core) Count(from ring.Token, most int, into map[string]TypeCount) (next ring.Token, more bool) {
	seen, last := 0, from
	c.slots.ascend(from, 0, func(s *slot) bool {
		if seen >= most && s.key != last {
			next, more = s.key, true
			return false
		}
		seen, last = seen+1, s.key
		if s.pages.len() == 0 {
			return true
		}
		x := into[s.id.Type]
		x.Keys++
		for p := range s.pages.each() {
			x.Bytes += int64(len(p.Data))
		}
		into[s.id.Type] = x
		return true
	})
	return next, more
}

// ActivationInfo is one activation in a listing.
type ActivationInfo struct {
	ID      uint64
	Key     Key
	State   string
	Epoch   Epoch
	Waiting int
}

// Activations lists what runs here, in the order of their start.
func (c *Core) Activations() []ActivationInfo {
	out := make([]ActivationInfo, 0, len(c.acts))
	for _, id := range sortedKeys(c.acts) {
		a := c.acts[id]
		out = append(out, ActivationInfo{id, a.slot.id, a.state.String(), a.epoch, len(a.mailbox)})
	}
	return out
}

// PinnedKeys counts the pinned keys that are here, by type.
func (c *Core) PinnedKeys() map[string]int {
	out := map[string]int{}
	if c.view == nil {
		return out
	}
	for typ, n := range c.view.v.Replicas {
		if n == Pinned {
			out[typ] = 0
		}
	}
	if len(out) == 0 {
		return out
	}
	c.slots.ascend(0, 0, func(s *slot) bool {
		if n, ok := out[s.id.Type]; ok && s.pages.len() > 0 && c.place(s).stays {
			out[s.id.Type] = n + 1
		}
		return true
	})
	return out
}

// Left names some of what a member that leaves still has: activations with what they do, then copies that it has to hand
// over, with who has not taken them.
func (c *Core) Left(most int) []string {
	var out []string
	for _, id := range sortedKeys(c.acts) {
		a := c.acts[id]
		what := a.state.String()
		switch {
		case a.executing != nil:
			what = "runs " + a.executing.method
		case a.round != nil:
			what = "commits"
		}
		if len(out) < most {
			out = append(out, fmt.Sprintf("%s (%s)", a.slot.id, what))
		}
	}
	c.slots.ascend(0, 0, func(s *slot) bool {
		if s.act == nil && !c.place(s).stays {
			out = append(out, fmt.Sprintf("%s (token %016x, not taken by all of %v)", s.id, uint64(s.key), c.place(s).s))
		}
		return len(out) < most
	})
	return out
}

// SourceProgress is one source of a fill.
type SourceProgress struct {
	Member string
	Share  float64 // of the circle that it has answered for
	Done   bool
	Why    string // why it gives nothing now

	LastError string        // what it last failed with, also when it has answered since; "" if it never has
	ErrorAge  time.Duration // how long ago that was
}

// FillProgress is what a member is filling.
type FillProgress struct {
	Active  bool
	Mode    PullMode
	Started uint64 // version
	Done    bool
	Wanted  int // states known to be missing
	Keys    int // states taken in so far
	Bytes   int // of their pages
	Sources []SourceProgress
}

// Share is how much of what the sources have to say has been heard, 0 to 1.
func (p FillProgress) Share() float64 {
	if len(p.Sources) == 0 || p.Done {
		return 1
	}
	sum := 0.0
	for _, s := range p.Sources {
		sum += s.Share
	}
	return sum / float64(len(p.Sources))
}

// Progress gives the fill of the active step and the refill.
func (c *Core) Progress() (step, refill FillProgress) {
	one := func(f *session) FillProgress {
		p := FillProgress{Active: f.on, Mode: f.mode, Started: f.started, Done: f.done, Wanted: len(f.wants), Keys: f.keys, Bytes: f.bytes}
		for _, id := range sortedKeys(f.sources) {
			src := f.sources[id]
			share := float64(src.from) / float64(lastToken)
			done := src.done || src.passes > 0
			if done || src.gave { // what follows is a comparison
				share = 1
			}
			s := SourceProgress{Member: id, Share: share, Done: done, Why: src.why, LastError: src.lastError}
			if s.LastError != "" {
				s.ErrorAge = time.Duration(c.now - src.failedAt)
			}
			p.Sources = append(p.Sources, s)
		}
		return p
	}
	return one(&c.fill.step), one(&c.fill.refill)
}
