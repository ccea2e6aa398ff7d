package actor

import (
	"encoding"
	"encoding/json"
	"reflect"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"google.golang.org/protobuf/proto"
)

// Codec writes messages and pages as bytes. v is always a pointer. Equal values should give equal bytes: what differs is
// sent to the replicas.
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
	return h
}()

func (msgpack) Marshal(v any) ([]byte, error) {
	var out []byte
	err := codec.NewEncoderBytes(&out, msgpackHandle).Encode(v)
	return out, err
}

func (msgpack) Unmarshal(data []byte, v any) error {
	return codec.NewDecoderBytes(data, msgpackHandle).Decode(v)
}

type jsonCodec struct{}

func (jsonCodec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (jsonCodec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

type protobuf struct{}

func (protobuf) Marshal(v any) ([]byte, error) {
	if m, ok := pointee(v).(proto.Message); ok {
		return proto.MarshalOptions{Deterministic: true}.Marshal(m)
	}
	return MsgPack.Marshal(v)
}

func (protobuf) Unmarshal(data []byte, v any) error {
	if m, ok := pointee(v).(proto.Message); ok {
		return proto.Unmarshal(data, m)
	}
	return MsgPack.Unmarshal(data, v)
}

type binaryCodec struct{}

func (binaryCodec) Marshal(v any) ([]byte, error) {
	if m, ok := pointee(v).(encoding.BinaryMarshaler); ok {
		return m.MarshalBinary()
	}
	return MsgPack.Marshal(v)
}

func (binaryCodec) Unmarshal(data []byte, v any) error {
	if m, ok := pointee(v).(encoding.BinaryUnmarshaler); ok {
		return m.UnmarshalBinary(data)
	}
	return MsgPack.Unmarshal(data, v)
}

// pointee gives v itself, or for a pointer to a pointer the latter, made if it is nil: a state's field may be a *T.
func pointee(v any) any {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.Elem().Kind() != reflect.Pointer {
		return v
	}
	if p.Elem().IsNil() {
		p.Elem().Set(reflect.New(p.Elem().Type().Elem()))
	}
	return p.Elem().Interface()
}
