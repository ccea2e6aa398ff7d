package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"chainmail/engine/core"
)

// Errors of Parse.
var (
	ErrShort       = errors.New("message is short")
	ErrCorrupt     = errors.New("message is corrupt")
	ErrUnknownKind = errors.New("message of unknown kind")
)

const (
	maxName = 2 << 10 // bytes of a key's or page's name, and of texts that people read
	maxText = 16 << 10
	maxKept = 64                   // bytes of a word that is kept for the next message
	maxSpan = 365 * 24 * time.Hour // longer ones are taken for that long
)

// coder writes or reads one message. Each field function works in both directions, so that a layout is written once. What
// is written is shared with others: nothing may be stored through a field's pointer but while reading.
type coder struct {
	b     []byte // written so far, or all that is read
	pos   int    // reading: the next byte
	dec   bool
	err   error
	now   core.Time
	words []string
	cut   bool // reading: b is not this message's own, what is kept of it is copied into pieces
	pieces
	read byte // nothing of interest: see about
}

var coders = sync.Pool{New: func() any { return new(coder) }}

func newCoder(b []byte, dec bool, now core.Time) *coder {
	c := coders.Get().(*coder)
	*c = coder{b: b, dec: dec, now: now, words: c.words}
	return c
}

// free gives a coder back; what it has read stays the caller's.
func (c *coder) free() {
	clear(c.words)
	*c = coder{words: c.words[:0]}
	coders.Put(c)
}

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = fmt.Errorf("at byte %d: %w", c.pos, err)
	}
}

func (c *coder) left() int { return len(c.b) - c.pos }

// take reads n bytes.
func (c *coder) take(n int) []byte {
	if c.err != nil || n > c.left() {
		c.fail(ErrShort)
		return nil
	}
	c.pos += n
	return c.b[c.pos-n : c.pos : c.pos]
}

func (c *coder) u8(v *uint8) {
	if !c.dec {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *coder) u16(v *uint16) {
	if !c.dec {
		c.b = binary.BigEndian.AppendUint16(c.b, *v)
	} else if b := c.take(2); b != nil {
		*v = binary.BigEndian.Uint16(b)
	}
}

func (c *coder) u32(v *uint32) {
	if !c.dec {
		c.b = binary.BigEndian.AppendUint32(c.b, *v)
	} else if b := c.take(4); b != nil {
		*v = binary.BigEndian.Uint32(b)
	}
}

func (c *coder) u64(v *uint64) {
	if !c.dec {
		c.b = binary.BigEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.BigEndian.Uint64(b)
	}
}

func (c *coder) uv(v *uint64) {
	if !c.dec {
		c.b = binary.AppendUvarint(c.b, *v)
		return
	}
	if c.err != nil {
		return
	}
	x, n := binary.Uvarint(c.b[c.pos:])
	switch {
	case n == 0:
		c.fail(ErrShort)
	case n < 0 || n > 1 && c.b[c.pos+n-1] == 0: // too long, or longer than it need be
		c.fail(ErrCorrupt)
	default:
		c.pos += n
		*v = x
	}
}

func (c *coder) flag(v *bool) {
	var x uint8
	if *v {
		x = 1
	}
	c.u8(&x)
	if x > 1 {
		c.fail(ErrCorrupt)
	}
	if c.dec {
		*v = x == 1
	}
}

// num is a small non-negative number.
func (c *coder) num(v *int, most int) {
	x := uint64(*v)
	c.uv(&x)
	if x > uint64(most) {
		c.fail(ErrCorrupt)
		x = 0
	}
	if c.dec {
		*v = int(x)
	}
}

// size is the length of a list whose elements take at least least bytes each: no memory is taken for more than can be there.
func (c *coder) size(have, least int) int {
	x := uint64(have)
	c.uv(&x)
	if c.dec && (c.err != nil || x > uint64(c.left()/least)) {
		c.fail(ErrShort)
		return 0
	}
	return int(x)
}

func (c *coder) bytes(v *[]byte) {
	n := c.size(len(*v), 1)
	if !c.dec {
		c.b = append(c.b, *v...)
		return
	}
	if n == 0 {
		*v = nil
		return
	}
	*v = c.take(n)
	if c.cut && c.err == nil {
		*v = c.cutData(nil, *v)
	}
}

// span is a duration, not below 0, on the wire in whole milliseconds.
func (c *coder) span(v *time.Duration) {
	x := uint64(max(*v, 0).Milliseconds())
	c.uv(&x)
	if c.dec {
		*v = time.Duration(min(x, uint64(maxSpan.Milliseconds()))) * time.Millisecond
	}
}

// path is the list of the keys that wait for an answer.
func (c *coder) path(v *[]core.Key) {
	n := c.size(len(*v), 2)
	if !c.dec {
		for i := range *v {
			c.key(&(*v)[i])
		}
		return
	}
	for range n {
		var k core.Key
		c.key(&k)
		*v = append(*v, k)
	}
}

func (c *coder) str(v *string, most int) {
	n := c.size(len(*v), 1)
	if n > most {
		c.fail(ErrCorrupt)
		return
	}
	if !c.dec {
		c.b = append(c.b, *v...)
	} else if b := c.take(n); b != nil {
		*v = c.string(b)
	}
}

func (c *coder) string(b []byte) string {
	if c.cut {
		return c.cutText("", b)
	}
	return string(b)
}

// text is a string for people: what is too long is cut when it is written.
func (c *coder) text(v *string) {
	s := *v
	if !c.dec && len(s) > maxText {
		s = s[:maxText]
	}
	c.str(&s, maxText)
	if c.dec {
		*v = s
	}
}

func (c *coder) word(v *string) {
	if !c.dec {
		for i, w := range c.words {
			if w == *v {
				c.b = binary.AppendUvarint(c.b, uint64(i))
				return
			}
		}
		c.b = binary.AppendUvarint(c.b, uint64(len(c.words)))
		c.words = append(c.words, *v)
		c.str(v, maxName)
		return
	}
	var i uint64
	c.uv(&i)
	switch n := uint64(len(c.words)); {
	case c.err != nil:
	case i < n:
		*v = c.words[i]
	case i > n:
		c.fail(ErrCorrupt)
	default:
		if n := c.size(0, 1); n > maxName {
			c.fail(ErrCorrupt)
		} else if b := c.take(n); b != nil {
			*v = name(b)
		}
		c.words = append(c.words, *v)
	}
}

// names keeps the words that were read last, one for each of some hashes: members, types and methods come with every message.
var (
	names    [512]atomic.Pointer[string]
	nameSeed = maphash.MakeSeed()
)

func name(b []byte) string {
	last := &names[maphash.Bytes(nameSeed, b)%uint64(len(names))]
	if s := last.Load(); s != nil && *s == string(b) {
		return *s
	}
	s := string(b)
	if len(s) <= maxKept {
		last.Store(&s)
	}
	return s
}

func (c *coder) key(k *core.Key) {
	c.word(&k.Type)
	c.str(&k.Name, maxName)
}

func (c *coder) epoch(e *core.Epoch) {
	c.uv(&e.Version)
	c.uv(&e.Number)
	c.word(&e.Member)
}

func (c *coder) stamp(s *core.Stamp) {
	c.epoch(&s.Epoch)
	c.uv(&s.Seq)
}

func (c *coder) code(v *core.Code) {
	x := uint8(*v)
	c.u8(&x)
	if x > uint8(core.CodeClosing) {
		c.fail(ErrCorrupt)
	}
	if c.dec {
		*v = core.Code(x)
	}
}

// sums are small only where nothing is held.
func (c *coder) sums(xs *[]uint64) {
	n := c.size(len(*xs), 1)
	if c.dec && n > 0 {
		*xs = make([]uint64, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		c.uv(&(*xs)[i])
	}
}

func (c *coder) keys(ks *[]core.Key) {
	n := c.size(len(*ks), 2)
	if c.dec && n > 0 {
		*ks = make([]core.Key, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		c.key(&(*ks)[i])
	}
}

func (c *coder) names(ss *[]string) {
	n := c.size(len(*ss), 1)
	if c.dec && n > 0 {
		*ss = make([]string, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		c.str(&(*ss)[i], maxName)
	}
}

// deadline travels as what is left of it.
func (c *coder) deadline(t *core.Time) {
	left := uint64(max(*t-c.now, 0)) / 1000
	c.uv(&left)
	if left > 1<<50 {
		c.fail(ErrCorrupt)
		return
	}
	if c.dec {
		*t = c.now + core.Time(left)*1000
	}
}
