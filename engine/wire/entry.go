package wire

import (
	"slices"
	"strings"

	"chainmail/engine/core"
)

// Bits of a page's first byte.
const (
	pageStamp uint8 = 1 << iota // its stamp is that of the commit or copy around it
	pageLike                    // name and data begin like those of the page at the same place in the copy before
	pageBits  = 1<<iota - 1
)

const (
	pageLeast = 7 // bytes that a page takes at least
	// likeLeast is from how many bytes on that two pages have in common the second one is written against the first: the two
	// counts take a byte each.
	likeLeast = 3
	// likeMost bounds the names, and the data, that are compared: what pages of one kind have in common is a prefix and a head
	// with a count or a time. It bounds, too, what a message can be written shorter than it is.
	likeMost = 64
)

// pages are written against the stamp around them: most pages of a commit have its stamp. last has the pages of the copy
// before, if there is one.
func (c *coder) pages(ps *[]core.Page, around core.Stamp, last []core.Page) {
	n := c.size(len(*ps), pageLeast)
	if c.dec && n > 0 {
		*ps = c.newPages(n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		var like *core.Page
		if i < len(last) {
			like = &last[i]
		}
		c.page(&(*ps)[i], around, like)
	}
}

func (c *coder) page(p *core.Page, around core.Stamp, like *core.Page) {
	var f uint8
	var s share
	if !c.dec {
		if p.Stamp == around {
			f = pageStamp
		}
		if s = shared(p, like); s.worth() {
			f |= pageLike
		}
	}
	c.u8(&f)
	if f > pageBits || f&pageLike != 0 && like == nil {
		c.fail(ErrCorrupt)
		return
	}
	if f&pageLike != 0 {
		c.likeName(&p.Name, like.Name, &s.name)
	} else {
		c.str(&p.Name, maxName)
	}
	if f&pageStamp == 0 {
		c.stamp(&p.Stamp)
	} else if c.dec {
		p.Stamp = around
	}
	c.u32(&p.Sum)
	if f&pageLike != 0 {
		c.likeData(&p.Data, like.Data, &s.data)
	} else {
		c.bytes(&p.Data)
	}
	if c.dec && c.err == nil {
		if is := shared(p, like); is.worth() != (f&pageLike != 0) || is.worth() && is != s {
			c.fail(ErrCorrupt) // there is one way to write a page
		}
	}
}

// share is how many bytes two pages begin with alike.
type share struct{ name, data int }

func (s share) worth() bool { return s.name+s.data >= likeLeast }

func shared(p, like *core.Page) (s share) {
	if like == nil {
		return s
	}
	if len(p.Name) <= likeMost && len(like.Name) <= likeMost {
		s.name = common(p.Name, like.Name)
	}
	if len(p.Data) <= likeMost && len(like.Data) <= likeMost {
		s.data = common(p.Data, like.Data)
	}
	return s
}

func common[T string | []byte](a, b T) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// likeName writes a name as how many bytes it has from another one, and the rest.
func (c *coder) likeName(v *string, like string, same *int) {
	c.num(same, min(len(like), likeMost))
	n := c.size(len(*v)-*same, 1)
	if !c.dec {
		c.b = append(c.b, (*v)[*same:]...)
		return
	}
	b := c.take(n)
	switch {
	case c.err != nil:
	case *same+n > maxName:
		c.fail(ErrCorrupt)
	case n == 0 && *same == len(like):
		*v = like
	default:
		*v = c.cutText(like[:*same], b)
	}
}

// likeData is likeName for data.
func (c *coder) likeData(v *[]byte, like []byte, same *int) {
	c.num(same, min(len(like), likeMost))
	n := c.size(len(*v)-*same, 1)
	if !c.dec {
		c.b = append(c.b, (*v)[*same:]...)
		return
	}
	if b := c.take(n); c.err == nil && *same+n > 0 {
		*v = c.cutData(like[:*same], b)
	}
}

// pieces are what the entries of a message are cut from, so that not each part of each copy is an allocation. What is kept of
// a piece keeps all of it: pieces are small, and no larger than what is left of the message.
type pieces struct {
	letters strings.Builder
	data    []byte
	cells   []core.Page
}

const (
	textPiece = 4 << 10
	dataPiece = 16 << 10
	dataLarge = dataPiece / 4 // such data have memory of their own
	pagePiece = 64
)

// cutText gives a string of two parts.
func (c *coder) cutText(a string, b []byte) string {
	n := len(a) + len(b)
	if c.letters.Cap()-c.letters.Len() < n {
		c.letters.Reset()
		c.letters.Grow(max(n, min(textPiece, n+c.left())))
	}
	at := c.letters.Len()
	c.letters.WriteString(a)
	c.letters.Write(b)
	return c.letters.String()[at:]
}

// cutData gives data of two parts.
func (c *coder) cutData(a, b []byte) []byte {
	n := len(a) + len(b)
	if n >= dataLarge {
		return append(append([]byte(nil), a...), b...)
	}
	if cap(c.data)-len(c.data) < n {
		c.data = make([]byte, 0, min(dataPiece, n+c.left()))
	}
	at := len(c.data)
	c.data = append(append(c.data, a...), b...)
	return c.data[at:len(c.data):len(c.data)]
}

// newPages gives n pages, of their own where a message has not many.
func (c *coder) newPages(n int) []core.Page {
	if !c.cut || n > pagePiece/4 {
		return make([]core.Page, n)
	}
	if len(c.cells) < n {
		c.cells = make([]core.Page, min(pagePiece, n+c.left()/pageLeast))
	}
	out := c.cells[:n:n]
	c.cells = c.cells[n:]
	return out
}

// Bits of an entry's first byte.
const (
	entryPromised uint8 = 1 << iota // the promise is the stamp's epoch
	entryNoStamp                    // never written: the promise alone follows
	entryPages                      // pages follow
	entrySame                       // version, member and run of the epoch are those of the entry before
	entryBits     = 1<<iota - 1
)

// entryFlags gives the byte for an entry after one with the epoch prev.
func entryFlags(e *core.Entry, prev core.Epoch) uint8 {
	var f uint8
	first := e.Meta.Stamp.Epoch
	if e.Meta.Stamp.IsZero() {
		f, first = entryNoStamp, e.Meta.Promised
	} else if e.Meta.Promised == first {
		f = entryPromised
	}
	if e.Has {
		f |= entryPages
	}
	if first.Version == prev.Version && first.Member == prev.Member && core.RunOf(first.Number) == core.RunOf(prev.Number) {
		f |= entrySame
	}
	return f
}

// entry writes a copy of a key against the one before: most copies of a range were written by few members at one version.
func (c *coder) entry(e *core.Entry, last *before) {
	prev := &last.epoch
	c.key(&e.Key)
	f := entryFlags(e, *prev)
	c.u8(&f)
	first := &e.Meta.Stamp.Epoch
	if f&entryNoStamp != 0 {
		first = &e.Meta.Promised
	}
	if f&entrySame != 0 {
		count := core.CountOf(first.Number)
		c.uv(&count)
		if c.dec {
			*first = core.Epoch{Version: prev.Version, Number: core.EpochNumber(count, core.RunOf(prev.Number)), Member: prev.Member}
		}
	} else {
		c.epoch(first)
	}
	if f&entryNoStamp == 0 {
		c.uv(&e.Meta.Stamp.Seq)
	}
	switch {
	case f&entryNoStamp != 0:
	case f&entryPromised == 0:
		c.epoch(&e.Meta.Promised)
	case c.dec:
		e.Meta.Promised = e.Meta.Stamp.Epoch
	}
	if c.dec {
		e.Has = f&entryPages != 0
		if c.err == nil && (f > entryBits || f != entryFlags(e, *prev)) {
			c.fail(ErrCorrupt) // there is one way to write an entry
		}
	}
	*prev = *first
	if e.Has {
		c.pages(&e.Pages, e.Meta.Stamp, last.pages)
		last.pages = e.Pages
	}
}

// before is what an entry is written against: the one before it, and the last one that had pages.
type before struct {
	epoch core.Epoch
	pages []core.Page
}

// about is how many bytes entries take, or somewhat more. It reads a byte of each string and of the data: most are in no cache,
// and one after the other they would be waited for one by one.
func about(es []core.Entry) (n int, read byte) {
	for i := range es {
		if name := es[i].Key.Name; len(name) > 0 {
			n += len(name)
			read ^= name[0]
		}
		for j := range es[i].Pages {
			p := &es[i].Pages[j]
			if len(p.Name) > 0 {
				read ^= p.Name[0]
			}
			if len(p.Data) > 0 {
				read ^= p.Data[0]
			}
			n += 16 + len(p.Name) + len(p.Data)
		}
	}
	return n + 32*len(es), read
}

func (c *coder) entries(es *[]core.Entry) {
	n := c.size(len(*es), 4)
	if c.dec && n > 0 {
		*es = make([]core.Entry, n)
	}
	if !c.dec {
		var room int
		room, c.read = about(*es)
		c.b = slices.Grow(c.b, room)
	}
	var last before
	for i := 0; i < n && c.err == nil; i++ {
		c.entry(&(*es)[i], &last)
	}
}
