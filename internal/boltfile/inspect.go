package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"slices"
)

// Inspect reads a bbolt file without mapping it and checks everything that bbolt relies on: it maps the file and follows
// offsets in it, so that a file that was cut short or has bits flipped ends the process, or shows less than was written.
// It gives the names of the buckets, and each entry of a bucket to visit, which may be nil.
//
//	page    id (8)  flags (2)  count (2)  overflow (4)  elements  keys and values
//	branch  position (4)  key size (4)  page (8)
//	leaf    flags (4)  position (4)  key size (4)  value size (4)
//	bucket  root page (8, 0: the page follows)  sequence (8)
//	meta    magic (4)  version (4)  page size (4)  flags (4)  bucket (16)  freelist (8)  pages in use (8)  txid (8)  FNV-1a of these (8)
//
// in the byte order of the machine. [go.etcd.io/bbolt: internal/common]
func Inspect(r io.ReaderAt, size int64, visit Visit) (buckets []string, err error) {
	m, err := readMetas(r, size)
	if err != nil {
		return nil, err
	}
	if m.freelist != noFreelist {
		return nil, fmt.Errorf("it keeps a list of free pages: %w", ErrForeign)
	}
	w := walk{r: r, m: m, seen: make([]bool, m.pages)}
	w.seen[0], w.seen[1] = true, true
	err = w.tree(m.root, nil, nil, func(e *element) error {
		if e.flags != bucketFlag || len(e.value) < bucketSize {
			return fmt.Errorf("entry %q is no bucket", e.key)
		}
		buckets = append(buckets, string(e.key))
		if err := w.bucket(string(e.key), e.value, visit); err != nil {
			return fmt.Errorf("bucket %q: %w", e.key, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return buckets, nil
}

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2
	noFreelist  = 1<<64 - 1

	pageHeader = 16
	elemSize   = 16
	bucketSize = 16
	metaSize   = 64

	branchFlag, leafFlag, metaFlag = 1, 2, 4
	bucketFlag                     = 1 // of a leaf's element

	minPageSize, maxPageSize = 1 << 10, 1 << 24
)

var order = binary.NativeEndian

// boltMeta is what a meta page says.
type boltMeta struct {
	pageSize, root, freelist, pages, txid uint64
}

// readMetas gives the newer of the two meta pages. Commits write them in turn. If one is bad bbolt goes back to the
// other and forgets the last commit; a power cut does not do that to 64 bytes of one sector, so it is taken for damage.
func readMetas(r io.ReaderAt, size int64) (boltMeta, error) {
	first, err := readMeta(r, 0)
	if err != nil {
		return boltMeta{}, fmt.Errorf("meta page 0 of %d bytes of file: %w: %w", size, ErrDamaged, err)
	}
	second, err := readMeta(r, int64(first.pageSize))
	if err != nil {
		return boltMeta{}, fmt.Errorf("meta page 1 of %d bytes of file, the last commit may be missing: %w: %w", size, ErrDamaged, err)
	}
	m, old := first, second
	if m.txid < old.txid {
		m, old = old, m
	}
	switch {
	case m.txid != old.txid+1 || first.txid%2 != 0 || first.pageSize != second.pageSize:
		return m, fmt.Errorf("meta pages are of commits %d and %d: %w", first.txid, second.txid, ErrDamaged)
	case m.pages > uint64(size)/m.pageSize:
		return m, fmt.Errorf("the file has %d bytes and needs %d pages of %d: its end is missing: %w", size, m.pages, m.pageSize, ErrDamaged)
	}
	return m, nil
}

func readMeta(r io.ReaderAt, at int64) (boltMeta, error) {
	b := make([]byte, pageHeader+metaSize)
	if _, err := r.ReadAt(b, at); err != nil {
		return boltMeta{}, fmt.Errorf("read %d bytes at %d: %w", len(b), at, err)
	}
	flags, b := order.Uint16(b[8:]), b[pageHeader:]
	sum := fnv.New64a()
	sum.Write(b[:metaSize-8])
	m := boltMeta{pageSize: uint64(order.Uint32(b[8:])), root: order.Uint64(b[16:]), freelist: order.Uint64(b[32:]), pages: order.Uint64(b[40:]), txid: order.Uint64(b[48:])}
	switch {
	case order.Uint32(b) != boltMagic || flags != metaFlag:
		return m, fmt.Errorf("no bbolt file")
	case order.Uint32(b[4:]) != boltVersion:
		return m, fmt.Errorf("bbolt version %d, %d is known", order.Uint32(b[4:]), boltVersion)
	case sum.Sum64() != order.Uint64(b[metaSize-8:]):
		return m, fmt.Errorf("its checksum does not match")
	case m.pageSize < minPageSize || m.pageSize > maxPageSize || bits.OnesCount64(m.pageSize) != 1:
		return m, fmt.Errorf("its page size is %d", m.pageSize)
	}
	return m, nil
}

// walk follows trees of pages; each page may be reached once.
type walk struct {
	r    io.ReaderAt
	m    boltMeta
	seen []bool
}

type element struct {
	flags      uint32
	key, value []byte
	page       uint64 // of a branch
}

// bucket walks the tree of a bucket, or the page that follows its header.
func (w *walk) bucket(name string, value []byte, visit Visit) error {
	entry := func(e *element) error {
		if e.flags != 0 {
			return fmt.Errorf("entry %x has flags %x", e.key, e.flags)
		}
		if visit != nil {
			return visit(name, e.key, e.value)
		}
		return nil
	}
	if root := order.Uint64(value); root != 0 {
		return w.tree(root, nil, nil, entry)
	}
	page := value[bucketSize:]
	if len(page) < pageHeader || order.Uint16(page[8:]) != leafFlag {
		return fmt.Errorf("its page is missing")
	}
	es, err := elements(page)
	for i := range es {
		if err == nil {
			err = entry(&es[i])
		}
	}
	return err
}

// tree walks the pages below and including id, whose keys are all from lo on and below hi. nil is no bound.
func (w *walk) tree(id uint64, lo, hi []byte, leaf func(*element) error) error {
	page, err := w.page(id)
	if err != nil {
		return err
	}
	es, err := elements(page)
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if n := len(es); n > 0 && (bytes.Compare(es[0].key, lo) < 0 || hi != nil && bytes.Compare(es[n-1].key, hi) >= 0) {
		return fmt.Errorf("page %d holds keys of another page", id)
	}
	if order.Uint16(page[8:]) == leafFlag {
		for i := range es {
			if err := leaf(&es[i]); err != nil {
				return fmt.Errorf("page %d: %w", id, err)
			}
		}
		return nil
	}
	if len(es) == 0 {
		return fmt.Errorf("page %d is empty", id)
	}
	for i := range es {
		end := hi
		if i+1 < len(es) {
			end = es[i+1].key
		}
		if err := w.tree(es[i].page, es[i].key, end, leaf); err != nil {
			return err
		}
	}
	return nil
}

// page reads a page with those that it overflows into.
func (w *walk) page(id uint64) ([]byte, error) {
	if id >= w.m.pages {
		return nil, fmt.Errorf("page %d is beyond the end", id)
	}
	head := make([]byte, pageHeader)
	if _, err := w.r.ReadAt(head, int64(id*w.m.pageSize)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	flags, n := order.Uint16(head[8:]), uint64(order.Uint32(head[12:]))+1
	switch {
	case order.Uint64(head) != id || flags != branchFlag && flags != leafFlag:
		return nil, fmt.Errorf("page %d says that it is page %d of kind %x", id, order.Uint64(head), flags)
	case n > w.m.pages-id:
		return nil, fmt.Errorf("page %d and its next %d go beyond the end", id, n-1)
	case slices.Contains(w.seen[id:id+n], true):
		return nil, fmt.Errorf("page %d is used twice", id)
	}
	for i := range n {
		w.seen[id+i] = true
	}
	b := make([]byte, n*w.m.pageSize)
	if _, err := w.r.ReadAt(b, int64(id*w.m.pageSize)); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return b, nil
}

// elements takes a page apart. Keys must ascend, and lie behind the elements one after another, as bbolt writes them: it keeps
// no checksum of a page, and with another count or size there would be fewer of them without a word.
func elements(page []byte) ([]element, error) {
	branch, count := order.Uint16(page[8:]) == branchFlag, int(order.Uint16(page[10:]))
	if count > (len(page)-pageHeader)/elemSize {
		return nil, fmt.Errorf("%d elements do not fit", count)
	}
	es := make([]element, count)
	next := uint64(pageHeader + count*elemSize)
	for i := range es {
		at := pageHeader + i*elemSize
		b, e := page[at:], &es[i]
		pos, ksize, vsize := uint64(order.Uint32(b[4:])), uint64(order.Uint32(b[8:])), uint64(order.Uint32(b[12:]))
		e.flags = order.Uint32(b)
		if branch {
			pos, ksize, vsize = uint64(order.Uint32(b)), uint64(order.Uint32(b[4:])), 0
			e.flags, e.page = 0, order.Uint64(b[8:])
		}
		if uint64(at)+pos != next || pos+ksize+vsize > uint64(len(b)) {
			return nil, fmt.Errorf("element %d does not fit", i)
		}
		next += ksize + vsize
		e.key, e.value = b[pos:pos+ksize:pos+ksize], b[pos+ksize:pos+ksize+vsize]
		if i > 0 && bytes.Compare(es[i-1].key, e.key) >= 0 {
			return nil, fmt.Errorf("element %d is out of order", i)
		}
	}
	return es, nil
}
