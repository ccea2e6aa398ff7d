package actor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
)

// Blob is a sequence of bytes in pages of 4 KiB: a write replicates the blocks that it touches. As a field of an actor's
// state it is kept; elsewhere it is bytes in memory. It is an io.ReaderAt and an io.WriterAt. What was never written is zero
// and takes no room, but counts: a Blob's size is at most what a state may take (chainmail.Limits.State), 1 GiB elsewhere.
type Blob struct {
	p    *pages
	read bool
	size int64
}

// blockSize is a compromise: smaller blocks cost a name and a stamp more often, bigger ones are sent whole for a byte.
const blockSize = 4 << 10

// maxBlob bounds the size of a Blob that is not in a state: Bytes gives all of it at once.
const maxBlob = 1 << 30

// most is the size that a Blob may have. One that is longer, because the limit was higher once, may keep its size.
func (b *Blob) most() int64 {
	if b.p.most > 0 {
		return max(b.p.most, b.size)
	}
	return max(maxBlob, b.size)
}

func (b *Blob) tooLong(what string, size int64) error {
	return fmt.Errorf("%s: a blob would have %d bytes; at most %d are allowed", what, size, b.most())
}

func (b *Blob) at() *pages { return b.p }
func (b *Blob) forget()    { b.read = false }

func (b *Blob) on(p *pages) {
	old := b.p
	if old != nil {
		b.pages() // it may not have read its size
	}
	size := b.size
	b.p, b.read, p.owner = p, false, b
	if old == nil {
		return
	}
	if b.pages(); size > b.most() {
		panic(&Error{CodeFailed, b.tooLong("field "+strings.TrimSuffix(p.prefix, "/"), size).Error()})
	}
	for _, name := range old.list().all() {
		if block, ok := old.get(name); ok && name != "" {
			p.put(name, block)
		}
	}
	b.resize(size)
}

func (b *Blob) elem() reflect.Type { return nil }

// to gives the pages for a change.
func (b *Blob) to() *pages {
	b.pages().mine(b)
	return b.p
}

func (b *Blob) pages() *pages {
	if b.p == nil {
		b.p = empty()
	}
	if !b.read {
		b.size, b.read = 0, true
		if h, ok := b.p.get(""); ok {
			n, k := binary.Uvarint(h)
			if k <= 0 || n > math.MaxInt64 {
				panic(&Error{CodeFailed, fmt.Sprintf("page %s holds no size of a blob", b.p.prefix)})
			}
			b.size = int64(n)
		}
	}
	return b.p
}

func (b *Blob) resize(n int64) {
	b.size, b.read = n, true
	b.p.put("", binary.AppendUvarint(nil, uint64(n)))
}

// Size gives the number of bytes.
func (b *Blob) Size() int64 { b.pages(); return b.size }

// ReadAt reads from an offset; io.EOF if there is less than asked for.
func (b *Blob) ReadAt(dst []byte, off int64) (n int, err error) {
	p := b.pages()
	if off < 0 {
		return 0, fmt.Errorf("read at %d: below 0", off)
	}
	for n < len(dst) && off < b.size {
		block, _ := p.get(number(uint64(off / blockSize)))
		in := int(off % blockSize)
		want := int(min(int64(len(dst)-n), int64(blockSize-in), b.size-off))
		clear(dst[n : n+want]) // what was never written is zero
		if in < len(block) {
			copy(dst[n:n+want], block[in:])
		}
		n += want
		off += int64(want)
	}
	if n < len(dst) {
		err = io.EOF
	}
	return n, err
}

// WriteAt writes at an offset, beyond the end too: what lies between is zero.
func (b *Blob) WriteAt(src []byte, off int64) (n int, err error) {
	b.to()
	switch {
	case off < 0:
		return 0, fmt.Errorf("write at %d: below 0", off)
	case off > b.most()-int64(len(src)):
		return 0, fmt.Errorf("write of %d bytes at %d: a blob has at most %d bytes", len(src), off, b.most())
	}
	return b.write(src, off), nil
}

func (b *Blob) write(src []byte, off int64) (n int) {
	p := b.p
	for n < len(src) {
		name, in := number(uint64(off/blockSize)), int(off%blockSize)
		want := min(len(src)-n, blockSize-in)
		old, _ := p.get(name)
		block := make([]byte, max(len(old), in+want))
		copy(block, old)
		copy(block[in:], src[n:n+want])
		p.put(name, block)
		n += want
		off += int64(want)
	}
	if len(src) > 0 && off > b.size {
		b.resize(off)
	}
	return n
}

// Truncate sets the size: bytes beyond it go, new ones are zero.
func (b *Blob) Truncate(size int64) error {
	p := b.to()
	switch {
	case size < 0:
		return fmt.Errorf("truncate to %d: below 0", size)
	case size > b.most():
		return b.tooLong(fmt.Sprintf("truncate to %d", size), size)
	}
	if size < b.size {
		if last := (size + blockSize - 1) / blockSize; last <= (b.size-1)/blockSize {
			first := number(uint64(last)) // only blocks that are there: most of a long blob may never have been written
			for name, ok := p.list().from(first, false); ok; name, ok = p.list().from(name, true) {
				p.put(name, nil)
			}
		}
		if in := int(size % blockSize); in > 0 {
			name := number(uint64(size / blockSize))
			if block, ok := p.get(name); ok && len(block) > in {
				p.put(name, append([]byte{}, block[:in]...))
			}
		}
	}
	if size != b.size {
		b.resize(size)
	}
	return nil
}

// Bytes gives all of it. A handler that asks for more than a Blob may have now, because its limit was higher once, fails.
func (b *Blob) Bytes() []byte {
	b.pages()
	if most := cmp.Or(b.p.most, maxBlob); b.size > most {
		panic(&Error{CodeFailed, fmt.Sprintf("a blob has %d bytes, and at most %d are given at once; use ReadAt, or Truncate it", b.size, most)})
	}
	out := make([]byte, b.Size())
	b.ReadAt(out, 0)
	return out
}

// Set replaces all of it. What is too much for a state is refused when the handler has returned.
func (b *Blob) Set(data []byte) {
	b.Truncate(0)
	b.write(data, 0)
}
