package postgres

import (
	"encoding/binary"
	"fmt"
	"strings"

	"chainmail/engine/core"
	"chainmail/engine/store"
)

// appendEpoch writes version (8), number (8), the member's bytes and a zero: the order of such bytes is that of epochs.
func appendEpoch(dst []byte, e core.Epoch) ([]byte, error) {
	if strings.Contains(e.Member, "\x00") {
		return nil, fmt.Errorf("epoch of member %q cannot be kept", e.Member)
	}
	dst = binary.BigEndian.AppendUint64(dst, e.Version)
	dst = binary.BigEndian.AppendUint64(dst, e.Number)
	return append(append(dst, e.Member...), 0), nil
}

// appendStamp writes an epoch and the sequence number (8).
func appendStamp(dst []byte, s core.Stamp) ([]byte, error) {
	dst, err := appendEpoch(dst, s.Epoch)
	return binary.BigEndian.AppendUint64(dst, s.Seq), err
}

func parseEpoch(b []byte) (e core.Epoch, err error) {
	if len(b) < 17 || b[len(b)-1] != 0 {
		return e, fmt.Errorf("epoch %x: %w", b, store.ErrDamaged)
	}
	return core.Epoch{Version: binary.BigEndian.Uint64(b), Number: binary.BigEndian.Uint64(b[8:]), Member: string(b[16 : len(b)-1])}, nil
}

func parseStamp(b []byte) (s core.Stamp, err error) {
	if len(b) < 25 {
		return s, fmt.Errorf("stamp %x: %w", b, store.ErrDamaged)
	}
	s.Epoch, err = parseEpoch(b[:len(b)-8])
	s.Seq = binary.BigEndian.Uint64(b[len(b)-8:])
	return s, err
}

// aboveAll is above every stamp.
var aboveAll = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
