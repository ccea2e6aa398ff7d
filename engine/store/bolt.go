package store

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"chainmail/engine/core"
	"chainmail/internal/boltfile"
)

const (
	format = 2
)

var (
	bMeta   = []byte("meta")
	bCopies = []byte("copies")
	bPages  = []byte("pages")

	kFormat      = []byte("format")
	kMember      = []byte("member")
	kClusterName = []byte("cluster name")
	kCluster     = []byte("cluster")
	kIncarnation = []byte("incarnation")
	kBoot        = []byte("boot")
	kStarts      = []byte("starts")
	kView        = []byte("view")
	kTally       = []byte("tally")
)

// Bolt is a Store in a bbolt file.
type Bolt struct {
	db    *bbolt.DB
	path  string
	owner Owner
	file  os.FileInfo // of the file that is open

	mu   sync.Mutex
	size int64 // after the last commit
}

// OpenBolt opens or creates the store of a member in a file. Everything in it is checked before anything is changed.
func OpenBolt(path string, o Owner) (*Bolt, Start, error) {
	b := &Bolt{path: path, owner: o}
	start, err := b.open()
	if err != nil {
		if b.db != nil {
			b.db.Close()
		}
		return nil, Start{}, b.explain("open", err)
	}
	return b, start, nil
}

// explain says which store failed, and what to do next.
func (b *Bolt) explain(verb string, err error) error {
	next := ""
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		err, next = ErrInUse, "stop the process that has it open"
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG), errors.Is(err, bolterrors.ErrMaxSizeReached):
		err, next = fmt.Errorf("%w: %w", ErrNoSpace, err), "make room and start the member again: nothing that was acknowledged is lost"
	case errors.Is(err, bolterrors.ErrDatabaseNotOpen):
		err = ErrClosed
	case errors.Is(err, ErrDamaged):
		next = "move the file away and start the member again: it then begins a new incarnation and fills from the others; " +
			"do so on one member at a time. Do not put a copy of the file back"
	case errors.Is(err, ErrForeign):
		next = "name another data directory, or move the file away"
	case errors.Is(err, ErrIdentity):
		next = "start the member with its own data directory"
	case errors.Is(err, ErrFormat):
		next = "use the version of this program that wrote it"
	case errors.Is(err, fs.ErrPermission):
		next = "let the member's user read and write the file and its directory"
	}
	err = fmt.Errorf("%s store %s of member %s: %w", verb, b.path, b.owner.Member, err)
	if next != "" {
		err = fmt.Errorf("%w; %s", err, next)
	}
	return err
}

func (b *Bolt) open() (start Start, err error) {
	if _, err := os.Stat(b.path); errors.Is(err, fs.ErrNotExist) {
		if err := b.create(); err != nil {
			return start, err
		}
	}
	if err := b.inspect(); err != nil {
		return start, err
	}
	err = contain(func() error {
		if b.db, err = openFile(b.path); err != nil {
			return err
		}
		if err := b.db.View(func(tx *bbolt.Tx) (err error) { start, err = b.load(tx); return err }); err != nil {
			return err
		}
		start.Boot++
		start.Starts = NextStarts(start.Starts, NewStart(), b.owner.Member, start.Incarnation, start.Saved.View)
		return b.update(func(w *writer) error {
			if err := w.put(kindMeta, kStarts, AppendStarts(nil, start.Starts)); err != nil {
				return err
			}
			return w.put(kindMeta, kBoot, binary.BigEndian.AppendUint64(nil, start.Boot))
		})
	})
	return start, err
}

// contain makes an error of a panic over a damaged page that inspect does not know of. bbolt reads on in goroutines of its
// own when it opens for writing or rolls back: there it would be of no use.
func contain(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrDamaged, p)
		}
	}()
	return f()
}

func openFile(path string) (*bbolt.DB, error) {
	return bbolt.Open(path, 0o600, boltfile.Options())
}

// create makes the file under another name first: what is at the path is complete, so that an empty file there has lost
// something.
func (b *Bolt) create() error {
	return boltfile.Create(b.path, func(path string) (err error) {
		fresh := &Bolt{path: path, owner: b.owner}
		if fresh.db, err = openFile(path); err != nil {
			return err
		}
		return errors.Join(fresh.begin(), fresh.db.Close())
	})
}

// begin writes what an empty store holds.
func (b *Bolt) begin() error {
	err := b.db.Update(func(tx *bbolt.Tx) error {
		for _, name := range [][]byte{bMeta, bCopies, bPages} {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(bMeta).Put(kTally, tally{}.append(nil))
	})
	if err != nil {
		return err
	}
	return b.update(func(w *writer) error {
		for _, e := range []struct{ k, v []byte }{
			{kFormat, []byte{format}}, {kMember, []byte(b.owner.Member)}, {kClusterName, []byte(b.owner.ClusterName)},
			{kIncarnation, binary.BigEndian.AppendUint64(nil, NewIncarnation())}, {kBoot, make([]byte, 8)},
		} {
			if err := w.put(kindMeta, e.k, e.v); err != nil {
				return err
			}
		}
		return nil
	})
}

// inspect checks the file before it is mapped.
func (b *Bolt) inspect() error {
	info, buckets, err := boltfile.Check(b.path, nil)
	if err == nil && !slices.Contains(buckets, string(bMeta)) {
		err = fmt.Errorf("its buckets are %q: %w", buckets, ErrForeign)
	}
	b.file = info
	return err
}

// Close closes the file.
func (b *Bolt) Close() error { return b.db.Close() }

// load reads everything and checks that it is all that was written.
func (b *Bolt) load(tx *bbolt.Tx) (Start, error) {
	start := Start{Saved: &core.Saved{}}
	m := tx.Bucket(bMeta)
	switch f := m.Get(kFormat); {
	case f == nil:
		return start, fmt.Errorf("it has no format: %w", ErrForeign)
	case len(f) != 1 || f[0] != format:
		return start, fmt.Errorf("format %x, this version knows %d: %w", f, format, ErrFormat)
	case tx.Bucket(bCopies) == nil || tx.Bucket(bPages) == nil:
		return start, fmt.Errorf("a bucket is missing: %w", ErrDamaged)
	}
	if err := checkTally(tx); err != nil {
		return start, err
	}
	if o := (Owner{string(m.Get(kClusterName)), string(m.Get(kMember))}); o != b.owner {
		return start, fmt.Errorf("it is of %s, not of %s: %w", o, b.owner, ErrIdentity)
	}
	inc, boot := m.Get(kIncarnation), m.Get(kBoot)
	if len(inc) != 8 || len(boot) != 8 { // to count boots anew would use epochs twice
		return start, fmt.Errorf("incarnation %x, boot %x: %w", inc, boot, ErrDamaged)
	}
	start.Incarnation, start.Boot = binary.BigEndian.Uint64(inc), binary.BigEndian.Uint64(boot)
	var err error
	if start.Starts, err = ParseStarts(m.Get(kStarts)); err != nil {
		return start, err
	}
	if v := m.Get(kView); v != nil {
		start.Saved.View = new(core.View)
		if err := json.Unmarshal(v, start.Saved.View); err != nil {
			return start, fmt.Errorf("view: %w: %w", ErrDamaged, err)
		}
	}
	return start, loadCopies(tx, start.Saved)
}

func checkTally(tx *bbolt.Tx) error {
	want, ok := parseTally(tx.Bucket(bMeta).Get(kTally))
	var have tally
	for i, name := range [][]byte{bMeta, bCopies, bPages} {
		tx.Bucket(name).ForEach(func(k, v []byte) error {
			if i > 0 || string(k) != string(kTally) {
				have.add(kindMeta+byte(i), k, v)
			}
			return nil
		})
	}
	switch {
	case !ok || have.n != want.n:
		return fmt.Errorf("it holds %d entries and should hold %d: %w", have.n, want.n, ErrDamaged)
	case have != want:
		return fmt.Errorf("its %d entries do not match their digest: %w", have.n, ErrDamaged)
	}
	return nil
}

// loadCopies walks copies and pages side by side: both are in the order of keys.
func loadCopies(tx *bbolt.Tx, saved *core.Saved) error {
	pages := tx.Bucket(bPages).Cursor()
	pk, pv := pages.First()
	err := tx.Bucket(bCopies).ForEach(func(k, v []byte) error {
		r, err := readCopy(k, v)
		if err != nil {
			return err
		}
		for ; pk != nil && hasPrefix(pk, k); pk, pv = pages.Next() {
			p, err := readPage(pk[len(k):], pv)
			if err != nil {
				return fmt.Errorf("key %s: %w", r.Key, err)
			}
			if p.Sum != core.PageSum(p.Name, p.Data) {
				return fmt.Errorf("key %s: page %q does not match its checksum: %w", r.Key, p.Name, ErrDamaged)
			}
			r.Pages = append(r.Pages, p)
		}
		saved.Records = append(saved.Records, r)
		return nil
	})
	if err == nil && pk != nil {
		err = fmt.Errorf("page %x is of no copy: %w", pk, ErrDamaged)
	}
	return err
}

func hasPrefix(b, prefix []byte) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == string(prefix)
}

// Bind is described at Store.
func (b *Bolt) Bind(_ context.Context, cluster string) error {
	err := b.update(func(w *writer) error {
		switch old := w.buckets[0].Get(kCluster); {
		case old == nil:
			return w.put(kindMeta, kCluster, []byte(cluster))
		case string(old) != cluster:
			return fmt.Errorf("its copies are of the cluster with id %s, not %s: %w", old, cluster, ErrIdentity)
		}
		return nil
	})
	if err != nil {
		return b.explain("bind", err)
	}
	return nil
}

// Apply is described at Store.
func (b *Bolt) Apply(_ context.Context, puts []core.Put, view *core.View) error {
	err := b.update(func(w *writer) error {
		if view != nil {
			v, err := json.Marshal(view)
			if err != nil {
				return err
			}
			if err := w.put(kindMeta, kView, v); err != nil {
				return err
			}
		}
		for i := range puts {
			if err := w.apply(&puts[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return b.explain("write", err)
	}
	return nil
}

func (b *Bolt) update(f func(*writer) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.there(); err != nil {
		return err
	}
	err := b.db.Update(func(tx *bbolt.Tx) error {
		w := writer{buckets: [...]*bbolt.Bucket{tx.Bucket(bMeta), tx.Bucket(bCopies), tx.Bucket(bPages)}}
		w.tally, _ = parseTally(w.buckets[0].Get(kTally))
		if err := f(&w); err != nil {
			return err
		}
		return w.buckets[0].Put(kTally, w.tally.append(nil))
	})
	if err != nil {
		return err
	}
	info, err := os.Stat(b.path)
	if err == nil {
		b.size = info.Size()
	}
	return err
}

// there checks that the file is still the one that was opened, and as long as it must be: what is written to a file that
// was moved away is lost, and to touch what was cut off ends the process.
func (b *Bolt) there() error {
	info, err := os.Stat(b.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && b.file != nil && !os.SameFile(info, b.file):
		return fmt.Errorf("the file was moved or replaced while it was open: %w", ErrDamaged)
	case err == nil && info.Size() < b.size:
		return fmt.Errorf("the file has %d bytes and had %d: its end was cut off while it was open: %w", info.Size(), b.size, ErrDamaged)
	}
	return err
}

// writer changes entries and keeps the tally.
type writer struct {
	buckets [3]*bbolt.Bucket // by kind
	tally   tally
}

func (w *writer) put(kind byte, k, v []byte) error {
	b := w.buckets[kind-kindMeta]
	if old := b.Get(k); old != nil {
		w.tally.remove(kind, k, old)
	}
	w.tally.add(kind, k, v)
	return b.Put(k, v)
}

func (w *writer) delete(kind byte, k []byte) error {
	b := w.buckets[kind-kindMeta]
	old := b.Get(k)
	if old == nil {
		return nil
	}
	w.tally.remove(kind, k, old)
	return b.Delete(k)
}

func (w *writer) apply(p *core.Put) error {
	k := appendKey(nil, p.Key)
	if old := w.buckets[1].Get(k); old != nil {
		held, err := readCopy(k, old)
		if err != nil {
			return err
		}
		if err := Admissible(held.Meta, p); err != nil {
			return err
		}
	}
	if p.Full || p.Drop {
		if err := w.deletePages(k); err != nil {
			return err
		}
	}
	if p.Drop {
		return w.delete(kindCopy, k)
	}
	if err := w.put(kindCopy, k, appendStamp(appendEpoch(nil, p.Meta.Promised), p.Meta.Stamp)); err != nil {
		return err
	}
	for _, name := range p.Removed {
		if err := w.delete(kindPage, append(k[:len(k):len(k)], name...)); err != nil {
			return err
		}
	}
	for _, pg := range p.Pages {
		v := binary.BigEndian.AppendUint32(appendStamp(nil, pg.Stamp), pg.Sum)
		if err := w.put(kindPage, append(k[:len(k):len(k)], pg.Name...), append(v, pg.Data...)); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) deletePages(key []byte) error {
	var old [][]byte
	c := w.buckets[2].Cursor()
	for pk, _ := c.Seek(key); pk != nil && hasPrefix(pk, key); pk, _ = c.Next() {
		old = append(old, append([]byte(nil), pk...))
	}
	for _, pk := range old {
		if err := w.delete(kindPage, pk); err != nil {
			return err
		}
	}
	return nil
}
