package wire

import (
	"fmt"
	"maps"
	"slices"

	"chainmail/engine/core"
	"chainmail/ring"
)

// Lane groups messages that must not wait for those of another group.
type Lane uint8

const (
	Messages    Lane = iota // callers' messages and their answers
	Replication             // promises, commits, confirmations, placements by value
	Bulk                    // copies in transfer
)

// LaneOf says which lane a kind belongs to.
func LaneOf(k core.Kind) Lane {
	switch k {
	case core.KindAsk, core.KindAnswer, core.KindRelease, core.KindReleased:
		return Messages
	case core.KindPull, core.KindPulled, core.KindFetch, core.KindFetched, core.KindOffer, core.KindOffered:
		return Bulk
	}
	return Replication
}

// Append encodes a message behind dst. now is the sender's present instant, for deadlines.
func Append(dst []byte, m *core.Message, now core.Time) []byte {
	c := newCoder(dst, false, now)
	defer c.free()
	k := uint8(m.Body.Kind())
	c.u8(&k)
	c.head(m)
	c.body(m.Body)
	return c.b
}

// Parse decodes a message. What it gives shares no memory with src. now is the receiver's present instant.
func Parse(src []byte, now core.Time) (core.Message, error) {
	c := newCoder(src, true, now)
	defer c.free()
	var m core.Message
	var k uint8
	if c.u8(&k); LaneOf(core.Kind(k)) == Bulk {
		c.cut = true
	} else {
		c.b = append([]byte(nil), src...)
	}
	c.head(&m)
	if c.err == nil {
		if m.Body = newBody(core.Kind(k)); m.Body == nil {
			return m, fmt.Errorf("parse message of kind %d: %w", k, ErrUnknownKind)
		}
		c.body(m.Body)
	}
	if c.err == nil && c.left() > 0 {
		c.fail(ErrCorrupt)
	}
	if c.err != nil {
		return core.Message{}, fmt.Errorf("parse message of kind %d, %d bytes: %w", k, len(src), c.err)
	}
	return m, nil
}

func (c *coder) head(m *core.Message) {
	c.word(&m.From)
	c.word(&m.To)
	c.u64(&m.FromInc)
	c.u64(&m.Version)
	sent := uint64(m.Sent)
	if c.u64(&sent); c.dec {
		m.Sent = core.Time(sent)
	}
}

var bodies = [...]func() core.Body{
	core.KindAsk:       func() core.Body { return new(core.Ask) },
	core.KindAnswer:    func() core.Body { return new(core.Answer) },
	core.KindPrepare:   func() core.Body { return new(core.Prepare) },
	core.KindPromise:   func() core.Body { return new(core.Promise) },
	core.KindAccept:    func() core.Body { return new(core.Accept) },
	core.KindAccepted:  func() core.Body { return new(core.Accepted) },
	core.KindConfirm:   func() core.Body { return new(core.Confirm) },
	core.KindConfirmed: func() core.Body { return new(core.Confirmed) },
	core.KindPull:      func() core.Body { return new(core.Pull) },
	core.KindPulled:    func() core.Body { return new(core.Pulled) },
	core.KindFetch:     func() core.Body { return new(core.Fetch) },
	core.KindFetched:   func() core.Body { return new(core.Fetched) },
	core.KindOffer:     func() core.Body { return new(core.Offer) },
	core.KindOffered:   func() core.Body { return new(core.Offered) },
	core.KindRelease:   func() core.Body { return new(core.Release) },
	core.KindReleased:  func() core.Body { return new(core.Released) },
	core.KindPurge:     func() core.Body { return new(core.Purge) },
	core.KindWantView:  func() core.Body { return new(core.WantNewView) },
	core.KindNewView:   func() core.Body { return &core.NewView{View: new(core.View)} },
}

func newBody(k core.Kind) core.Body {
	if int(k) >= len(bodies) || bodies[k] == nil {
		return nil
	}
	return bodies[k]()
}

func (c *coder) body(b core.Body) {
	switch b := b.(type) {
	case *core.Ask:
		c.u64(&b.ID)
		c.key(&b.Key)
		c.word(&b.Method)
		c.bytes(&b.Data)
		c.str(&b.RequestID, maxName)
		c.span(&b.Tried)
		c.path(&b.Path)
		c.flag(&b.ReadLocal)
		c.deadline(&b.Deadline)
	case *core.Answer:
		c.u64(&b.ID)
		c.result(&b.Result)
	case *core.Prepare:
		c.u64(&b.Op)
		c.key(&b.Key)
		c.epoch(&b.Epoch)
		c.stamp(&b.Have)
	case *core.Promise:
		c.u64(&b.Op)
		c.key(&b.Key)
		c.code(&b.Code)
		c.epoch(&b.Promised)
		c.stamp(&b.Stamp)
		c.pages(&b.Pages, b.Stamp, nil)
	case *core.Accept:
		c.u64(&b.Op)
		c.key(&b.Key)
		c.stamp(&b.Stamp)
		c.stamp(&b.Prev)
		c.flag(&b.Full)
		c.pages(&b.Pages, b.Stamp, nil)
		c.names(&b.Removed)
	case *core.Accepted:
		c.verdict(&b.Op, &b.Key, &b.Code, &b.Promised)
	case *core.Confirm:
		c.u64(&b.Op)
		c.key(&b.Key)
		c.epoch(&b.Epoch)
	case *core.Confirmed:
		c.verdict(&b.Op, &b.Key, &b.Code, &b.Promised)
	case *core.Release:
		c.u64(&b.Op)
		c.key(&b.Key)
	case *core.Released:
		c.u64(&b.Op)
		c.key(&b.Key)
	case *core.Purge:
		c.key(&b.Key)
		c.stamp(&b.Stamp)
	case *core.WantNewView:
		c.u64(&b.Revision)
	case *core.NewView:
		c.view(b.View)
	default:
		c.bulk(b)
	}
}

func (c *coder) verdict(op *uint64, k *core.Key, code *core.Code, promised *core.Epoch) {
	c.u64(op)
	c.key(k)
	c.code(code)
	c.epoch(promised)
}

func (c *coder) bulk(b core.Body) {
	switch b := b.(type) {
	case *core.Pull:
		c.u64(&b.Session)
		c.mode(&b.Mode)
		c.u64(&b.Seq)
		c.u64((*uint64)(&b.From))
		c.u64(&b.Since)
		c.u64(&b.Run)
		c.flag(&b.Bring)
		c.sums(&b.Sums)
		c.flag(&b.One)
		if b.One {
			c.key(&b.Key)
		}
	case *core.Pulled:
		c.u64(&b.Session)
		c.mode(&b.Mode)
		c.u64(&b.Seq)
		c.code(&b.Code)
		c.flag(&b.Empty)
		c.u64((*uint64)(&b.From))
		c.u64((*uint64)(&b.To))
		c.flag(&b.Done)
		c.flag(&b.One)
		if b.One {
			c.key(&b.Key)
		}
		c.u64(&b.Now)
		c.u64(&b.Run)
		c.entries(&b.Entries)
	case *core.Fetch:
		c.u64(&b.Session)
		c.u64(&b.Seq)
		c.keys(&b.Keys)
	case *core.Fetched:
		c.u64(&b.Session)
		c.u64(&b.Seq)
		c.entries(&b.Entries)
		c.keys(&b.Rest)
	case *core.Offer:
		c.u64(&b.Seq)
		c.entries(&b.Entries)
	case *core.Offered:
		c.u64(&b.Seq)
		n := c.size(len(b.Answers), 10)
		if c.dec && n > 0 {
			b.Answers = make([]core.OfferAnswer, n)
		}
		for i := 0; i < n && c.err == nil; i++ {
			a := &b.Answers[i]
			c.key(&a.Key)
			c.stamp(&a.Offer)
			c.code(&a.Code)
			c.stamp(&a.Stamp)
		}
	}
}

func (c *coder) mode(m *core.PullMode) {
	x := uint8(*m)
	c.u8(&x)
	if x < uint8(core.PullCopy) || x > uint8(core.PullRefill) {
		c.fail(ErrCorrupt)
	}
	if c.dec {
		*m = core.PullMode(x)
	}
}

func (c *coder) result(r *core.Result) {
	c.code(&r.Code)
	c.u16(&r.AppCode)
	c.text(&r.Text)
	c.bytes(&r.Body)
	c.stamp(&r.Stamp)
	c.word(&r.Owner)
	c.uv(&r.Version)
}

// maxSet bounds the members of a placement, maxCount small numbers in it.
const (
	maxSet   = 4096
	maxCount = 1 << 20
)

func (c *coder) view(v *core.View) {
	c.u64(&v.Revision)
	c.u64(&v.Version)
	c.u64(&v.Step)
	c.u64(&v.Began)
	c.u8((*uint8)(&v.Stage))
	if v.Stage > core.Switch {
		c.fail(ErrCorrupt)
	}
	c.set(&v.Base)
	c.set(&v.Next)
	c.set(&v.Target)
	n := c.size(len(v.Members), 30)
	if c.dec && n > 0 {
		v.Members = make([]core.MemberInfo, min(n, maxSet))
	}
	for i := 0; i < n && i < maxSet && c.err == nil; i++ {
		m := &v.Members[i]
		c.word(&m.ID)
		c.u64(&m.Incarnation)
		c.u64(&m.Start)
		c.str(&m.Address, maxName)
		c.flag(&m.Down)
		c.flag(&m.Refilling)
		c.flag(&m.GivenUp)
		c.u64(&m.Marked)
	}
	c.u8(&v.Ring.Hash)
	c.num(&v.Ring.VNodes, maxCount)
	c.replicas(&v.Replicas)
	c.u64(&v.Lost)
	rate := uint64(v.Rate)
	c.u64(&rate)
	if c.dec {
		v.Rate = int64(rate)
	}
	c.num(&v.Streams, maxCount)
}

func (c *coder) set(ms *[]ring.Member) {
	n := c.size(len(*ms), 3)
	if c.dec && n > 0 {
		*ms = make([]ring.Member, min(n, maxSet))
	}
	for i := 0; i < n && i < maxSet && c.err == nil; i++ {
		m := &(*ms)[i]
		c.word(&m.ID)
		c.word(&m.Zone)
		c.num(&m.Weight, maxCount)
	}
}

// replicas writes the map in the order of its keys.
func (c *coder) replicas(m *map[string]int) {
	n := c.size(len(*m), 2)
	if !c.dec {
		for _, k := range slices.Sorted(maps.Keys(*m)) {
			v := (*m)[k] + 1 // core.Pinned is -1
			c.str(&k, maxName)
			c.num(&v, maxCount)
		}
		return
	}
	*m = make(map[string]int, n)
	last := ""
	for i := 0; i < n && c.err == nil; i++ {
		var k string
		var v int
		c.str(&k, maxName)
		c.num(&v, maxCount)
		if i > 0 && k <= last {
			c.fail(ErrCorrupt)
		}
		last = k
		(*m)[k] = v - 1
	}
}
