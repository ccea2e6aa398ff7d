package membership

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Errors of the decoders.
var (
	ErrShort   = errors.New("short")
	ErrVersion = errors.New("unknown format version")
	ErrCorrupt = errors.New("corrupt")
)

const (
	// commandFormat is the first byte of an encoded command; JSON follows to the end. A command that has what earlier
	// programs do not know has a format of its own, so that they stop at it instead of reading something else; all others
	// keep the first one.
	commandFormat = 1
	// forgetFormat is a Forget that names its incarnation.
	forgetFormat = 2
	// startFormat is a Register that tells one start of its incarnation from the others.
	startFormat = 3
	// MaxCommand bounds an encoded command.
	MaxCommand = 1 << 20

	snapshotMagic   = "CMSN"
	snapshotVersion = 1
	snapshotHead    = 4 + 1 + 3 + 8 // magic, version, zero, length of the body
	maxSnapshot     = 256 << 20
)

// Encode gives the log entry of a command.
func Encode(c Command) ([]byte, error) {
	c.Format = format(c)
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	if len(b) >= MaxCommand {
		return nil, fmt.Errorf("command of %d bytes; at most %d are allowed", len(b), MaxCommand)
	}
	return append([]byte{c.Format}, b...), nil
}

func format(c Command) uint8 {
	if c.Forget != nil && c.Forget.Incarnation != 0 {
		return forgetFormat
	}
	if c.Register != nil && c.Register.Member.Start != 0 {
		return startFormat
	}
	return commandFormat
}

// Decode reads a log entry. Unknown fields and trailing bytes are errors.
func Decode(b []byte) (Command, error) {
	var c Command
	if len(b) == 0 {
		return c, fmt.Errorf("decode command: %w", ErrShort)
	}
	if b[0] < commandFormat || b[0] > startFormat {
		return c, fmt.Errorf("decode command of format %d: %w", b[0], ErrVersion)
	}
	if len(b) > MaxCommand {
		return c, fmt.Errorf("decode command of %d bytes: %w", len(b), ErrCorrupt)
	}
	if err := strict(b[1:], &c); err != nil {
		return c, fmt.Errorf("decode command: %w: %w", ErrCorrupt, err)
	}
	if f := format(c); f != b[0] {
		return c, fmt.Errorf("decode command of format %d with the first byte %d: %w", f, b[0], ErrCorrupt)
	}
	return c, nil
}

func strict(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("bytes after the end")
	}
	return nil
}

// Snapshot encodes a placement: magic "CMSN", version byte, three zero bytes, the body's length (8 bytes, big endian),
// the body (JSON), SHA-256 over all that precedes.
func Snapshot(p *Placement) ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	out := append([]byte(snapshotMagic), snapshotVersion, 0, 0, 0)
	out = binary.BigEndian.AppendUint64(out, uint64(len(body)))
	out = append(out, body...)
	sum := sha256.Sum256(out)
	return append(out, sum[:]...), nil
}

// Restore reads what Snapshot wrote.
func Restore(b []byte) (*Placement, error) {
	if len(b) < snapshotHead+sha256.Size {
		return nil, fmt.Errorf("restore snapshot of %d bytes: %w", len(b), ErrShort)
	}
	if string(b[:4]) != snapshotMagic || b[5]|b[6]|b[7] != 0 {
		return nil, fmt.Errorf("restore snapshot: no snapshot's first bytes: %w", ErrCorrupt)
	}
	if b[4] != snapshotVersion {
		return nil, fmt.Errorf("restore snapshot of version %d: %w", b[4], ErrVersion)
	}
	n := binary.BigEndian.Uint64(b[8:])
	switch have := uint64(len(b) - snapshotHead - sha256.Size); {
	case n > maxSnapshot || have > n:
		return nil, fmt.Errorf("restore snapshot: body of %d bytes, told %d: %w", have, n, ErrCorrupt)
	case have < n:
		return nil, fmt.Errorf("restore snapshot: body of %d bytes, told %d: %w", have, n, ErrShort)
	}
	end := snapshotHead + int(n)
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return nil, fmt.Errorf("restore snapshot: checksum differs: %w", ErrCorrupt)
	}
	p := new(Placement)
	if err := strict(b[snapshotHead:end], p); err != nil {
		return nil, fmt.Errorf("restore snapshot: %w: %w", ErrCorrupt, err)
	}
	return p, nil
}

// Digest is a fingerprint of a placement: equal placements have equal ones on every member. Members of different programs
// compare them too, so that a new field has to be left out of the JSON while nothing has set it.
func Digest(p *Placement) uint64 {
	b, err := json.Marshal(p) // struct order and sorted map keys: the same bytes everywhere
	if err != nil {
		panic("membership: placement cannot be encoded: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return binary.BigEndian.Uint64(sum[:8])
}
