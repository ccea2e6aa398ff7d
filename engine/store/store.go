package store

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"chainmail/engine/core"
	"chainmail/internal/boltfile"
)

// Store makes durable what one member must not forget. Its methods may be called from any goroutine. After an error but
// ErrIdentity the member must stop: what it told others may be more than what is kept. Opened again, the store shows the
// changes that failed or does not; never a part of them.
type Store interface {
	// Apply makes changes durable, in their order, all or none, before it returns. It refuses with ErrOlder, and changes
	// nothing, when a put would lower a promise or a stamp: a copy's promise only goes up until it is dropped, and so does
	// its stamp until a Full put without pages forgets it.
	// When ctx ends first the outcome is not known.
	Apply(ctx context.Context, puts []core.Put, view *core.View) error
	// Bind notes which cluster the copies are of. Any other one is refused with ErrIdentity from then on.
	Bind(ctx context.Context, cluster string) error
	Close() error
}

// Owner says whose store it is to be.
type Owner struct {
	ClusterName, Member string
}

func (o Owner) String() string {
	return fmt.Sprintf("member %q of cluster %q", o.Member, o.ClusterName)
}

// Start is what a store gives when it is opened. Boot is one higher at each open, durably, so that no epoch is ever used
// twice; the incarnation stays as long as the store does.
type Start struct {
	Incarnation, Boot uint64
	Starts            []uint64    // numbers that its starts have drawn, since the one that its view lists, this one's last: durable
	Saved             *core.Saved // records in any order
}

// Errors of stores. What to do next is in their texts.
var (
	ErrInUse    = errors.New("store is in use")
	ErrIdentity = errors.New("store belongs to another member")
	ErrForeign  = boltfile.ErrForeign
	ErrFormat   = errors.New("store has an unknown format")
	ErrDamaged  = boltfile.ErrDamaged
	ErrNoSpace  = errors.New("no space left for the store")
	ErrOlder    = errors.New("change is older than what the store holds")
	ErrAway     = errors.New("store cannot be reached")
	ErrClosed   = errors.New("store is closed")
)

// NewIncarnation draws the number of an incarnation; it is never zero.
func NewIncarnation() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.BigEndian.Uint64(b[:]) | 1<<56
}

// NewStart draws the number of a start; it is never zero.
func NewStart() uint64 { return NewIncarnation() }

// mostStarts is how many numbers are kept at most: of a member that cannot register, and is started again and again, the first,
// which the log lists as far as the store knows, and the newest.
const mostStarts = 4096

// NextStarts gives the numbers that a store has to know of, with that of the start that begins: the log may list any of those
// from the one on that the view lists. The log refuses a start that does not know of the one that is listed, so that a store's
// state from before that is found out.
func NextStarts(starts []uint64, fresh uint64, member string, incarnation uint64, v *core.View) []uint64 {
	if v != nil {
		if m, ok := v.Member(member); ok && m.Incarnation == incarnation {
			starts = starts[max(0, slices.Index(starts, m.Start)):]
		}
	}
	if n := len(starts); n >= mostStarts {
		starts = slices.Delete(slices.Clone(starts), 1, n-mostStarts+2)
	}
	return append(slices.Clip(starts), fresh)
}

// AppendStarts and ParseStarts are the numbers' form in a store: 8 bytes each, big endian.
func AppendStarts(dst []byte, starts []uint64) []byte {
	for _, s := range starts {
		dst = binary.BigEndian.AppendUint64(dst, s)
	}
	return dst
}

// ParseStarts is described at AppendStarts. What is no such form is ErrDamaged.
func ParseStarts(b []byte) (starts []uint64, err error) {
	if len(b)%8 != 0 {
		return nil, fmt.Errorf("%d bytes of starts: %w", len(b), ErrDamaged)
	}
	for ; len(b) > 0; b = b[8:] {
		starts = append(starts, binary.BigEndian.Uint64(b))
	}
	return starts, nil
}

// Admissible says whether a put may replace a copy that a store holds.
func Admissible(held core.CopyMeta, p *core.Put) error {
	switch {
	case p.Drop:
		return nil
	case p.Meta.Promised.Less(held.Promised):
		return fmt.Errorf("key %s: promise %s replaces %s: %w", p.Key, p.Meta.Promised, held.Promised, ErrOlder)
	case p.Meta.Stamp.Less(held.Stamp) && !Forgets(p):
		return fmt.Errorf("key %s: stamp %s replaces %s: %w", p.Key, p.Meta.Stamp, held.Stamp, ErrOlder)
	}
	return nil
}

// Forgets says whether a put leaves nothing of a copy but its promise.
func Forgets(p *core.Put) bool { return p.Full && len(p.Pages) == 0 && p.Meta.Stamp.IsZero() }
