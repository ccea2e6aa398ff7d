package actor

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"google.golang.org/protobuf/proto"
)

// Codec writes messages and pages as bytes. v is always a pointer. Equal values should give equal bytes: what differs is
// sent to the replicas. MsgPack and JSON refuse what is nested more than about 1,000 deep.
type Codec interface {
	Marshal(v any) ([]byte, error)
	Unmarshal(data []byte, v any) error
}

// Codecs for Options. Protobuf and Binary are for values that are proto.Messages, or that implement
// encoding.BinaryMarshaler and BinaryUnmarshaler; what is neither is written by MsgPack.
var (
	MsgPack  Codec = msgpack{}
	JSON     Codec = jsonCodec{}
	Protobuf Codec = protobuf{}
	Binary   Codec = binaryCodec{}
)

type msgpack struct{}

var msgpackHandle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.RawToString = true
	h.Canonical = true // maps in the order of their keys
	h.MapType = reflect.TypeFor[map[string]any]()
	h.MapValueReset = true // see immutable
	return h
}()

// Encoders and decoders are kept: each has a buffer of some KiB.
var (
	encoders = sync.Pool{New: func() any { return &encoder{e: codec.NewEncoderBytes(new([]byte), msgpackHandle)} }}
	decoders = sync.Pool{New: func() any { return codec.NewDecoderBytes(nil, msgpackHandle) }}
)

type encoder struct {
	e   *codec.Encoder
	buf []byte
}

// maxScratch bounds a buffer that is kept.
const maxScratch = 64 << 10

func (msgpack) Marshal(v any) ([]byte, error) {
	if err := checkValue(MsgPack, v); err != nil {
		return nil, err
	}
	e := encoders.Get().(*encoder)
	e.e.ResetBytes(&e.buf)
	if err := e.e.Encode(v); err != nil { // one that failed is left with what it had
		return nil, err
	}
	out := bytes.Clone(e.buf)
	if cap(e.buf) <= maxScratch {
		encoders.Put(e)
	}
	return out, nil
}

func (msgpack) Unmarshal(data []byte, v any) error {
	if retains(reflect.TypeOf(v)) {
		data = bytes.Clone(data)
	}
	d := decoders.Get().(*codec.Decoder)
	d.ResetBytes(data)
	err := d.Decode(v)
	if err == nil {
		d.ResetBytes(nil)
		decoders.Put(d)
	}
	return err
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error) {
	if err := checkValue(JSON, v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// Unmarshal copies, since an UnmarshalJSON may keep what it is given.
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(bytes.Clone(data), v) }

type protobuf struct{}

func (protobuf) Marshal(v any) ([]byte, error) {
	if m, ok := pointee(v, false).(proto.Message); ok {
		return proto.MarshalOptions{Deterministic: true}.Marshal(m)
	}
	return MsgPack.Marshal(v)
}

func (protobuf) Unmarshal(data []byte, v any) error {
	if m, ok := pointee(v, true).(proto.Message); ok {
		return proto.Unmarshal(data, m)
	}
	return MsgPack.Unmarshal(data, v)
}

type binaryCodec struct{}

func (binaryCodec) Marshal(v any) ([]byte, error) {
	if m, ok := pointee(v, false).(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return MsgPack.Marshal(v)
}

func (binaryCodec) Unmarshal(data []byte, v any) error {
	if m, ok := pointee(v, true).(encoding.BinaryUnmarshaler); ok {
		return m.UnmarshalBinary(data)
	}
	return MsgPack.Unmarshal(data, v)
}

// pointee gives v itself, or for a pointer to a pointer the latter: a state's field may be a *T. For one that is nil it gives
// a new T, and with fill puts it there.
func pointee(v any, fill bool) any {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Pointer {
		return v
	}
	if !p.Elem().IsNil() {
		return p.Elem().Interface()
	}
	made := reflect.New(p.Elem().Type().Elem())
	if fill {
		p.Elem().Set(made)
	}
	return made.Interface()
}

// owned gives a codec that shares no memory with its callers: what it has written must not change with the value, nor a
// page with what was read from it. The codecs of this package copy by themselves, but for Binary, which is up to the types.
func owned(c Codec) Codec {
	switch c.(type) {
	case nil:
		return MsgPack
	case msgpack, jsonCodec, protobuf:
		return c
	}
	return copying{c}
}

type copying struct{ Codec }

func (c copying) Marshal(v any) ([]byte, error) {
	b, err := c.Codec.Marshal(v)
	return bytes.Clone(b), err
}

func (c copying) Unmarshal(data []byte, v any) error { return c.Codec.Unmarshal(bytes.Clone(data), v) }

var retainers sync.Map // reflect.Type to bool

// retains says whether a type, or one inside, reads itself, and so may keep the bytes that it is given: a page must not change
// with it.
func retains(t reflect.Type) bool {
	if known, ok := retainers.Load(t); ok {
		return known.(bool)
	}
	yes := readsItself(t, nil)
	retainers.Store(t, yes)
	return yes
}

func readsItself(t reflect.Type, above []reflect.Type) bool {
	p := reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[time.Time]() || slices.Contains(above, t):
		return false
	case p.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]()) || p.Implements(reflect.TypeFor[codec.Selfer]()):
		return true
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return readsItself(t.Elem(), above)
	case reflect.Map:
		return readsItself(t.Key(), above) || readsItself(t.Elem(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if readsItself(t.Field(i).Type, above) {
				return true
			}
		}
	}
	return false
}
