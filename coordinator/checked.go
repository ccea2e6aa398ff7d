package coordinator

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// checkedStore is a BoltStore whose entries, terms and votes have checksums: bbolt's pages have none. An entry carries its
// own in Extensions, which Raft leaves to log stores; what else Raft keeps has it behind the value.
type checkedStore struct{ *raftboltdb.BoltStore }

const (
	sumSize    = 4 // CRC-32C, big endian
	numberSize = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// logSum covers what Raft acts on: index (8), term (8), type (1), data.
func logSum(l *raft.Log) []byte {
	head := binary.BigEndian.AppendUint64(nil, l.Index)
	head = append(binary.BigEndian.AppendUint64(head, l.Term), byte(l.Type))
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, l.Data)
	return binary.BigEndian.AppendUint32(nil, sum)
}

func (s checkedStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s checkedStore) StoreLogs(ls []*raft.Log) error {
	out := make([]*raft.Log, len(ls))
	for i, l := range ls {
		c := *l
		c.Extensions = logSum(l)
		out[i] = &c
	}
	return s.BoltStore.StoreLogs(out)
}

func (s checkedStore) GetLog(i uint64, l *raft.Log) error {
	*l = raft.Log{} // the decoder leaves alone what an entry does not have
	if err := s.BoltStore.GetLog(i, l); err != nil {
		if errors.Is(err, raft.ErrLogNotFound) {
			return err
		}
		return fmt.Errorf("entry %d: %w: %w", i, ErrDamaged, err)
	}
	if l.Index != i || !bytes.Equal(l.Extensions, logSum(l)) {
		return fmt.Errorf("entry %d, which says that it is entry %d of term %d, has another checksum: %w", i, l.Index, l.Term, ErrDamaged)
	}
	l.Extensions = nil
	return nil
}

// withSum puts a checksum of both behind a value.
func withSum(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return binary.BigEndian.AppendUint32(bytes.Clone(value), sum)
}

// valueOf is the way back from withSum.
func valueOf(key, b []byte) ([]byte, error) {
	n := len(b) - sumSize
	if n < 0 || !bytes.Equal(withSum(key, b[:n]), b) {
		return nil, fmt.Errorf("%s has another checksum: %w", key, ErrDamaged)
	}
	return b[:n], nil
}

func (s checkedStore) Set(key, value []byte) error { return s.BoltStore.Set(key, withSum(key, value)) }

func (s checkedStore) Get(key []byte) ([]byte, error) {
	b, err := s.BoltStore.Get(key)
	if err != nil {
		return nil, err
	}
	return valueOf(key, b)
}

func (s checkedStore) SetUint64(key []byte, v uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

func (s checkedStore) GetUint64(key []byte) (uint64, error) {
	b, err := s.Get(key)
	switch {
	case err != nil:
		return 0, err
	case len(b) != numberSize:
		return 0, fmt.Errorf("%s has %d bytes: %w", key, len(b), ErrDamaged)
	}
	return binary.BigEndian.Uint64(b), nil
}
