package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"chainmail/engine/core"
)

// Errors of Open and Apply.
var (
	ErrInUse    = errors.New("store is in use")
	ErrIdentity = errors.New("store belongs to another member")
	ErrFormat   = errors.New("store has an unknown format")
	ErrDamaged  = errors.New("store is damaged")
	ErrNoSpace  = errors.New("no space left for the store")
)

const (
	format      = 1
	openTimeout = time.Second
)

var (
	bMeta   = []byte("meta")
	bCopies = []byte("copies")
	bPages  = []byte("pages")

	kFormat      = []byte("format")
	kMember      = []byte("member")
	kIncarnation = []byte("incarnation")
	kBoot        = []byte("boot")
	kView        = []byte("view")
)

// Bolt is an open store.
type Bolt struct {
	db          *bbolt.DB
	path        string
	incarnation uint64
	boot        uint64
	// Corrupt names the copies that Load left out because a page did not match its sum.
	Corrupt []core.Key
}

// Open opens or creates the store of a member. The boot number is one higher, durably, when it returns. Errors: ErrInUse,
// ErrIdentity, ErrFormat, ErrDamaged, or what the file system says.
func Open(path, member string) (*Bolt, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	_, statErr := os.Stat(path)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: openTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("open %s for member %s: another process holds its lock; stop it first: %w", path, member, ErrInUse)
	case errors.Is(err, bolterrors.ErrInvalid), errors.Is(err, bolterrors.ErrChecksum), errors.Is(err, bolterrors.ErrVersionMismatch):
		return nil, fmt.Errorf("open %s for member %s: %w; move it away and start with an empty data directory: the member then fills from the others: %w", path, member, err, ErrDamaged)
	case err != nil:
		return nil, fmt.Errorf("open %s for member %s: %w", path, member, err)
	}
	b := &Bolt{db: db, path: path}
	if err := b.begin(member); err != nil {
		db.Close()
		return nil, fmt.Errorf("open %s for member %s: %w", path, member, err)
	}
	if errors.Is(statErr, fs.ErrNotExist) {
		if err := syncDir(filepath.Dir(path)); err != nil {
			db.Close()
			return nil, err
		}
	}
	return b, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// begin checks whose store it is and counts the start.
func (b *Bolt) begin(member string) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		m, err := tx.CreateBucketIfNotExists(bMeta)
		if err != nil {
			return err
		}
		for _, name := range [][]byte{bCopies, bPages} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		switch f := m.Get(kFormat); {
		case f == nil:
			var inc [8]byte
			rand.Read(inc[:])
			inc[0] |= 1 // never zero
			for k, v := range map[string][]byte{string(kFormat): {format}, string(kMember): []byte(member), string(kIncarnation): inc[:]} {
				if err := m.Put([]byte(k), v); err != nil {
					return err
				}
			}
		case len(f) != 1 || f[0] != format:
			return fmt.Errorf("format %x, this version knows %d: %w", f, format, ErrFormat)
		case string(m.Get(kMember)) != member:
			return fmt.Errorf("it is of member %q: %w", m.Get(kMember), ErrIdentity)
		}
		if len(m.Get(kIncarnation)) != 8 {
			return ErrDamaged
		}
		b.incarnation = binary.BigEndian.Uint64(m.Get(kIncarnation))
		if v := m.Get(kBoot); len(v) == 8 {
			b.boot = binary.BigEndian.Uint64(v)
		}
		b.boot++
		return m.Put(kBoot, binary.BigEndian.AppendUint64(nil, b.boot))
	})
}

// Incarnation is that of the file, Boot the number of this start.
func (b *Bolt) Incarnation() uint64 { return b.incarnation }

// Boot is described at Incarnation.
func (b *Bolt) Boot() uint64 { return b.boot }

// Close closes the file.
func (b *Bolt) Close() error { return b.db.Close() }

// Load reads everything.
func (b *Bolt) Load() (*core.Saved, error) {
	saved := &core.Saved{}
	err := b.db.View(func(tx *bbolt.Tx) error {
		if v := tx.Bucket(bMeta).Get(kView); v != nil {
			saved.View = new(core.View)
			if err := json.Unmarshal(v, saved.View); err != nil {
				return fmt.Errorf("view: %w: %w", ErrDamaged, err)
			}
		}
		pages := tx.Bucket(bPages).Cursor()
		pk, pv := pages.First()
		return tx.Bucket(bCopies).ForEach(func(k, v []byte) error {
			r, err := readCopy(k, v)
			if err != nil {
				return err
			}
			good := true
			for ; pk != nil && hasPrefix(pk, k); pk, pv = pages.Next() {
				p, err := readPage(pk[len(k):], pv)
				if err != nil {
					return err
				}
				good = good && p.Sum == core.PageSum(p.Name, p.Data)
				r.Pages = append(r.Pages, p)
			}
			if !good {
				b.Corrupt = append(b.Corrupt, r.Key)
				return nil
			}
			saved.Records = append(saved.Records, r)
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", b.path, err)
	}
	return saved, nil
}

func hasPrefix(b, prefix []byte) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == string(prefix)
}

// Apply makes changes durable, all or none. After an error the member must stop: the file may be behind what it told.
func (b *Bolt) Apply(puts []core.Put, view *core.View) error {
	err := b.db.Update(func(tx *bbolt.Tx) error {
		if view != nil {
			v, err := json.Marshal(view)
			if err != nil {
				return err
			}
			if err := tx.Bucket(bMeta).Put(kView, v); err != nil {
				return err
			}
		}
		copies, pages := tx.Bucket(bCopies), tx.Bucket(bPages)
		for i := range puts {
			if err := put(copies, pages, &puts[i]); err != nil {
				return fmt.Errorf("key %s: %w", puts[i].Key, err)
			}
		}
		return nil
	})
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("write %s: %w: %w", b.path, ErrNoSpace, err)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", b.path, err)
	}
	return nil
}

func put(copies, pages *bbolt.Bucket, p *core.Put) error {
	k := appendKey(nil, p.Key)
	if p.Full || p.Drop {
		var old [][]byte
		c := pages.Cursor()
		for pk, _ := c.Seek(k); pk != nil && hasPrefix(pk, k); pk, _ = c.Next() {
			old = append(old, append([]byte(nil), pk...))
		}
		for _, pk := range old {
			if err := pages.Delete(pk); err != nil {
				return err
			}
		}
	}
	if p.Drop {
		return copies.Delete(k)
	}
	if err := copies.Put(k, appendStamp(appendEpoch(nil, p.Meta.Promised), p.Meta.Stamp)); err != nil {
		return err
	}
	for _, name := range p.Removed {
		if err := pages.Delete(append(k[:len(k):len(k)], name...)); err != nil {
			return err
		}
	}
	for _, pg := range p.Pages {
		v := binary.BigEndian.AppendUint32(appendStamp(nil, pg.Stamp), pg.Sum)
		if err := pages.Put(append(k[:len(k):len(k)], pg.Name...), append(v, pg.Data...)); err != nil {
			return err
		}
	}
	return nil
}
