package simtest

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"chainmail/engine/core"
	"chainmail/engine/wire"
)

// link is a direction between two members.
type link struct{ from, to string }

// network carries messages with delay, loss, doubling, reordering, one-way cuts and clogs.
type network struct {
	s     *Sim
	cut   map[link]core.Time // until
	clog  map[link]core.Time // what would arrive before then arrives then
	extra map[link]time.Duration
}

// stragglerMost is how long a straggler takes at most: beyond several steps of a change.
const stragglerMost = 3 * time.Second

func (n *network) init(s *Sim) {
	*n = network{s: s, cut: map[link]core.Time{}, clog: map[link]core.Time{}, extra: map[link]time.Duration{}}
}

// heal ends all that was done to links.
func (n *network) heal() {
	clear(n.cut)
	clear(n.clog)
}

func (n *network) isCut(l link) bool { return !n.s.calm && n.s.now < n.cut[l] }

// hides says whether a message is a placement that its receiver must not see yet.
func (n *network) hides(m core.Message) bool {
	_, placement := m.Body.(*core.NewView)
	h := n.s.host(m.To)
	return placement && h != nil && n.s.now < h.blind
}

// send delivers a message to the member's present process, if it lives then.
func (n *network) send(m core.Message) {
	s := n.s
	l := link{m.From, m.To}
	times := 1
	if !s.calm {
		if n.isCut(l) || n.hides(m) {
			return
		}
		if s.chance(s.o.Net.Loss) {
			s.fault("loss")
			return
		}
		if s.chance(s.o.Net.Dup) && n.doubles(m.Body) {
			s.fault("double")
			times = 2
		}
		if a, ok := m.Body.(*core.Answer); ok && a.Result.Code == core.CodeRedirect && s.chance(s.o.Net.Echo) {
			s.fault("echo")
			times = 2
		}
	}
	m, bent := n.flip(m)
	deliver := n.carry(m)
	for range times {
		d := n.delay(l)
		if !s.calm && s.chance(n.straggles(m.Body)) {
			s.fault("delay")
			d += s.between(0, stragglerMost)
		}
		if !s.calm {
			d = max(d, timeLeft(s.now, n.clog[l]))
		}
		s.after(d, func() {
			if h := s.host(m.To); h != nil && h.up() && !n.isCut(l) {
				s.trace.add(s.now, "%s<-%s v%d %s", m.To, m.From, m.Version, brief(m.Body))
				if got := deliver(); len(bent) > 0 {
					s.checks.refused(h, got, bent)
				} else {
					h.step(&core.Recv{Msg: got})
				}
			}
		})
	}
}

// flip changes a byte of a page that is sent, as if it had been damaged in its sender's memory, and names its key. What is
// damaged on the way does not match its frame's checksum: that is a loss.
func (n *network) flip(m core.Message) (core.Message, []core.Key) {
	body, key := n.flipped(m.Body)
	if body == nil {
		return m, nil
	}
	m.Body = body
	n.s.fault("flip-page")
	n.s.trace.add(n.s.now, "another byte of %s in what %s sends to %s", key, m.From, m.To)
	return m, []core.Key{key}
}

// commitFlips is how much less often than copies in bulk commits are damaged, of which there are many more.
const commitFlips = 4

// flipped gives a body with another byte in one of its pages, nil if it is to stay as it is.
func (n *network) flipped(body core.Body) (core.Body, core.Key) {
	now := func(ps []core.Page, p float64) bool {
		return !n.s.calm && slices.ContainsFunc(ps, hasData) && n.s.chance(p)
	}
	flips := n.s.o.Net.Flips
	switch b := body.(type) {
	case *core.Accept:
		if now(b.Pages, flips/commitFlips) {
			x := *b
			x.Pages = n.s.flipped(b.Pages)
			return &x, b.Key
		}
	case *core.Promise:
		if now(b.Pages, flips) {
			x := *b
			x.Pages = n.s.flipped(b.Pages)
			return &x, b.Key
		}
	}
	entries := slices.Clone(entriesOf(body))
	if len(entries) == 0 {
		return nil, core.Key{}
	}
	i := n.s.rand.IntN(len(entries))
	e := &entries[i]
	again := func(o core.Entry) bool { return o.Key == e.Key } // an offer may have a copy twice: the other one is sound
	if slices.ContainsFunc(entries[i+1:], again) || slices.ContainsFunc(entries[:i], again) || !now(e.Pages, flips) {
		return nil, core.Key{}
	}
	e.Pages = n.s.flipped(e.Pages)
	switch b := body.(type) {
	case *core.Pulled:
		x := *b
		x.Entries = entries
		return &x, e.Key
	case *core.Fetched:
		x := *b
		x.Entries = entries
		return &x, e.Key
	case *core.Offer:
		x := *b
		x.Entries = entries
		return &x, e.Key
	}
	return nil, core.Key{}
}

func entriesOf(b core.Body) []core.Entry {
	switch b := b.(type) {
	case *core.Pulled:
		return b.Entries
	case *core.Fetched:
		return b.Entries
	case *core.Offer:
		return b.Entries
	}
	return nil
}

// bulkStraggles is how much more often bulk transfers straggle: they go a way of their own, behind others.
const bulkStraggles = 10

func (n *network) straggles(b core.Body) float64 {
	switch b.(type) {
	case *core.Pull, *core.Pulled, *core.Fetch, *core.Fetched, *core.Offer, *core.Offered:
		return bulkStraggles * n.s.o.Net.Stragglers
	}
	return n.s.o.Net.Stragglers
}

// doubles says whether a message may arrive twice. A transport gives a caller's message at most once.
func (n *network) doubles(b core.Body) bool {
	_, ask := b.(*core.Ask)
	return !ask
}

// delay draws what a message takes. Links differ, and so do the two directions of one.
func (n *network) delay(l link) time.Duration {
	more, ok := n.extra[l]
	if !ok {
		more = n.s.between(0, n.s.o.Net.Delay)
		n.extra[l] = more
	}
	return n.s.o.Net.Delay + more + n.s.between(0, n.s.o.Net.Jitter)
}

// carry gives what arrives. With Net.Wire it is what the bytes say, and the message must not have been changed by anybody
// while it was under way.
func (n *network) carry(m core.Message) func() core.Message {
	sent := n.s.now
	if !n.s.o.Net.Wire {
		return func() core.Message { return n.late(m, sent) }
	}
	b := wire.Append(nil, &m, sent)
	return func() core.Message {
		if now := wire.Append(nil, &m, sent); !bytes.Equal(b, now) {
			n.s.fail("message %s of %s to %s was changed after it was sent", brief(m.Body), m.From, m.To)
		}
		got, err := wire.Parse(b, n.s.now)
		if err != nil {
			n.s.fail("message %s of %s to %s cannot be read: %v", brief(m.Body), m.From, m.To, err)
			return m
		}
		return n.late(got, sent)
	}
}

// late tells a caller's message how long it was on its way.
func (n *network) late(m core.Message, sent core.Time) core.Message {
	if a, ok := m.Body.(*core.Ask); ok {
		b := *a
		b.Delayed(time.Duration(n.s.now - sent))
		m.Body = &b
	}
	return m
}

func (s *Sim) host(id string) *host {
	for _, h := range s.hosts {
		if h.id == id {
			return h
		}
	}
	return nil
}

// brief writes a body for a trace, deterministically and short.
func brief(b core.Body) string {
	switch b := b.(type) {
	case *core.Ask:
		return fmt.Sprintf("ask#%d %s %s", b.ID, b.Key, b.Method)
	case *core.Answer:
		return fmt.Sprintf("answer#%d %s %s", b.ID, b.Result.Code, b.Result.Text)
	case *core.Prepare:
		return fmt.Sprintf("prepare %s %s have %s op %x", b.Key, b.Epoch, b.Have, b.Op)
	case *core.Promise:
		return fmt.Sprintf("promise %s %s promised %s stamp %s op %x", b.Key, b.Code, b.Promised, b.Stamp, b.Op)
	case *core.Accept:
		return fmt.Sprintf("accept %s %s prev %s full %v op %x", b.Key, b.Stamp, b.Prev, b.Full, b.Op)
	case *core.Accepted:
		return fmt.Sprintf("accepted %s %s promised %s op %x", b.Key, b.Code, b.Promised, b.Op)
	case *core.Confirm:
		return fmt.Sprintf("confirm %s %s op %x", b.Key, b.Epoch, b.Op)
	case *core.Confirmed:
		return fmt.Sprintf("confirmed %s %s promised %s op %x", b.Key, b.Code, b.Promised, b.Op)
	case *core.Pull:
		return fmt.Sprintf("pull %d mode %d from %x since %d one %v %s", b.Session, b.Mode, uint64(b.From), b.Since, b.One, b.Key)
	case *core.NewView:
		return "newview " + b.View.String()
	case *core.Purge:
		return fmt.Sprintf("purge %s %s", b.Key, b.Stamp)
	}
	return briefBulk(b)
}

func briefBulk(b core.Body) string {
	entries := func(es []core.Entry) (s string) {
		for _, e := range es {
			s += fmt.Sprintf(" [%s %s %s %v]", e.Key, e.Meta.Promised, e.Meta.Stamp, e.Has)
		}
		return s
	}
	switch b := b.(type) {
	case *core.Pulled:
		return fmt.Sprintf("pulled %d mode %d %s empty %v done %v one %v", b.Session, b.Mode, b.Code, b.Empty, b.Done, b.One) + entries(b.Entries)
	case *core.Fetch:
		return fmt.Sprintf("fetch %d %v", b.Session, b.Keys)
	case *core.Fetched:
		return fmt.Sprintf("fetched %d rest %v", b.Session, b.Rest) + entries(b.Entries)
	case *core.Offer:
		return "offer" + entries(b.Entries)
	case *core.Offered:
		s := "offered"
		for _, e := range b.Answers {
			s += fmt.Sprintf(" [%s %s %s]", e.Key, e.Code, e.Stamp)
		}
		return s
	case *core.Release:
		return fmt.Sprintf("release %s op %x", b.Key, b.Op)
	case *core.Released:
		return fmt.Sprintf("released %s op %x", b.Key, b.Op)
	}
	return fmt.Sprintf("kind %d", b.Kind())
}
