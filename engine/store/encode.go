package store

import (
	"encoding/binary"
	"fmt"

	"chainmail/engine/core"
)

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendKey(dst []byte, k core.Key) []byte { return appendText(appendText(dst, k.Type), k.Name) }

func appendEpoch(dst []byte, e core.Epoch) []byte {
	dst = binary.AppendUvarint(dst, e.Version)
	dst = binary.AppendUvarint(dst, e.Number)
	return appendText(dst, e.Member)
}

func appendStamp(dst []byte, s core.Stamp) []byte {
	return binary.AppendUvarint(appendEpoch(dst, s.Epoch), s.Seq)
}

// reader reads what the functions above write; the first short field makes the rest zero and bad true.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) num() uint64 {
	x, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return x
}

func (r *reader) text() string {
	n := r.num()
	if n > uint64(len(r.b)) {
		r.bad = true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) epoch() core.Epoch {
	return core.Epoch{Version: r.num(), Number: r.num(), Member: r.text()}
}

func (r *reader) stamp() core.Stamp { return core.Stamp{Epoch: r.epoch(), Seq: r.num()} }

func readCopy(k, v []byte) (core.Record, error) {
	rk, rv := reader{b: k}, reader{b: v}
	r := core.Record{Key: core.Key{Type: rk.text(), Name: rk.text()}}
	r.Meta.Promised, r.Meta.Stamp = rv.epoch(), rv.stamp()
	if rk.bad || rv.bad || len(rk.b)+len(rv.b) > 0 {
		return r, fmt.Errorf("copy %x: %w", k, ErrDamaged)
	}
	return r, nil
}

func readPage(name, v []byte) (core.Page, error) {
	r := reader{b: v}
	p := core.Page{Name: string(name), Stamp: r.stamp()}
	if r.bad || len(r.b) < 4 {
		return p, fmt.Errorf("page %q: %w", name, ErrDamaged)
	}
	p.Sum = binary.BigEndian.Uint32(r.b)
	p.Data = append([]byte(nil), r.b[4:]...)
	return p, nil
}
