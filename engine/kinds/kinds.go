// Package kinds has the built-in actor types: kv, a value under a key, and counter. They are pure handlers: what a
// message does is a function of the state and the message.
package kinds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"chainmail/engine/core"
)

// Handler runs one message of an actor type on the state of its key. It gives the answer, and the changes to the pages;
// none for a read.
type Handler func(state map[string]core.Page, method string, body []byte) ([]byte, []core.Change, error)

// AppError is a handler's own refusal. It travels with its code.
type AppError struct {
	Code uint16
	Text string
}

func (e *AppError) Error() string { return e.Text }

// Codes of AppErrors of the built-in types.
const (
	NotFound uint16 = iota + 1
	StampMismatch
	BadRequest
	Overflow
	TooLarge
	Internal // the handler panicked
)

// MaxValue bounds a kv value, in bytes.
const MaxValue = 1 << 20

// Names of the types, of their methods, and of the pages that they use.
const (
	KV      = "kv"
	Counter = "counter"

	Get    = "get"
	Put    = "put"
	CAS    = "cas"
	Delete = "delete"
	Add    = "add"

	valuePage = "v"
	countPage = "n"
)

// Builtin gives the handlers by type.
func Builtin() map[string]Handler {
	return map[string]Handler{KV: kv, Counter: counter}
}

func appErr(code uint16, format string, args ...any) error {
	return &AppError{code, fmt.Sprintf(format, args...)}
}

// kv's bodies: get and delete have none, put has the value, cas the expected stamp ("" for absent) and the value as
// AppendCAS writes them. A get is answered as AppendValue writes it, a delete by one byte, 1 if there was a value.
func kv(state map[string]core.Page, method string, body []byte) ([]byte, []core.Change, error) {
	p, ok := state[valuePage]
	switch method {
	case Get:
		if !ok {
			return nil, nil, appErr(NotFound, "the key has no value")
		}
		return AppendValue(nil, p.Stamp, p.Data), nil, nil
	case Put:
		return kvPut(body)
	case CAS:
		expect, value, err := ParseCAS(body)
		if err != nil {
			return nil, nil, err
		}
		have := ""
		if ok {
			have = StampString(p.Stamp)
		}
		if have != expect {
			return nil, nil, appErr(StampMismatch, "expected stamp %q, the value has %q", expect, have)
		}
		return kvPut(value)
	case Delete:
		if !ok {
			return []byte{0}, nil, nil
		}
		return []byte{1}, []core.Change{{Delete: true}}, nil
	}
	return nil, nil, appErr(BadRequest, "kv has no method %q; it has get, put, cas and delete", method)
}

func kvPut(value []byte) ([]byte, []core.Change, error) {
	if len(value) > MaxValue {
		return nil, nil, appErr(TooLarge, "value of %d bytes; at most %d are allowed", len(value), MaxValue)
	}
	return nil, []core.Change{{Name: valuePage, Data: append([]byte{}, value...)}}, nil
}

// counter's bodies: add has the signed amount in 8 bytes, big endian, get has none; both are answered by the sum,
// likewise.
func counter(state map[string]core.Page, method string, body []byte) ([]byte, []core.Change, error) {
	var n int64
	if p, ok := state[countPage]; ok {
		if len(p.Data) != 8 {
			return nil, nil, appErr(Internal, "the counter's page has %d bytes, not 8", len(p.Data))
		}
		n = int64(binary.BigEndian.Uint64(p.Data))
	}
	switch method {
	case Get:
		return AppendInt(nil, n), nil, nil
	case Add:
		d, err := ParseInt(body)
		if err != nil {
			return nil, nil, err
		}
		if d > 0 && n > math.MaxInt64-d || d < 0 && n < math.MinInt64-d {
			return nil, nil, appErr(Overflow, "%d and %d do not fit into 64 bits", n, d)
		}
		// The answer is the caller's to change, the page's bytes are not.
		return AppendInt(nil, n+d), []core.Change{{Name: countPage, Data: AppendInt(nil, n+d)}}, nil
	}
	return nil, nil, appErr(BadRequest, "counter has no method %q; it has add and get", method)
}

// AppendInt and ParseInt are the counter's encoding of a number.
func AppendInt(dst []byte, n int64) []byte { return binary.BigEndian.AppendUint64(dst, uint64(n)) }

// ParseInt is described at AppendInt.
func ParseInt(b []byte) (int64, error) {
	if len(b) != 8 {
		return 0, appErr(BadRequest, "a number of %d bytes; 8 are needed", len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

// AppendCAS encodes the body of a compare-and-swap: the expected stamp, "" for a key without a value, and the value.
func AppendCAS(dst []byte, expect string, value []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(expect)))
	return append(append(dst, expect...), value...)
}

// ParseCAS is the way back from AppendCAS.
func ParseCAS(b []byte) (expect string, value []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return "", nil, appErr(BadRequest, "a compare-and-swap without an expected stamp")
	}
	return string(b[k : k+int(n)]), b[k+int(n):], nil
}

// AppendValue encodes a value and the stamp of the write that made it.
func AppendValue(dst []byte, s core.Stamp, value []byte) []byte {
	return AppendCAS(dst, StampString(s), value)
}

// ParseValue is the way back from AppendValue.
func ParseValue(b []byte) (stamp string, value []byte, err error) { return ParseCAS(b) }

// StampString writes a stamp as people and HTTP see it: version.number.sequence@member.
func StampString(s core.Stamp) string {
	return fmt.Sprintf("%d.%d.%d@%s", s.Epoch.Version, s.Epoch.Number, s.Seq, s.Epoch.Member)
}

var errStamp = errors.New("a stamp is version.number.sequence@member")

// ParseStamp is the way back from StampString.
func ParseStamp(text string) (core.Stamp, error) {
	var s core.Stamp
	nums, member, ok := strings.Cut(text, "@")
	parts := strings.Split(nums, ".")
	if !ok || member == "" || len(parts) != 3 {
		return s, fmt.Errorf("%q: %w", text, errStamp)
	}
	for i, p := range []*uint64{&s.Epoch.Version, &s.Epoch.Number, &s.Seq} {
		x, err := strconv.ParseUint(parts[i], 10, 64)
		if err != nil {
			return s, fmt.Errorf("%q: %w", text, errStamp)
		}
		*p = x
	}
	s.Epoch.Member = member
	return s, nil
}
