package actor

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// A page that a newer version of a program wrote may have fields that this one does not know. When it writes the page again
// they stay: in structs, in structs inside of structs, and in those that are values of a map under the same key. In slices
// they are lost, because nobody can say which element is which. Protobuf keeps them by itself.

// form is how a codec writes structs and maps: by names.
type form struct {
	codec Codec
	split func(b []byte) (map[string][]byte, bool)
	join  func(map[string][]byte) []byte
	fold  bool // names that differ in case alone are one
}

var msgpackForm = &form{codec: MsgPack, split: splitAs[codec.Raw](unmarshalRaw), join: joinAs[codec.Raw](marshalRaw)}
var jsonForm = &form{codec: JSON, split: splitAs[json.RawMessage](json.Unmarshal), join: joinAs[json.RawMessage](json.Marshal), fold: true}

var rawHandle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.RawToString, h.Canonical, h.Raw = true, true, true
	return h
}()

func unmarshalRaw(b []byte, v any) error { return codec.NewDecoderBytes(b, rawHandle).Decode(v) }

func marshalRaw(v any) (b []byte, err error) {
	err = codec.NewEncoderBytes(&b, rawHandle).Encode(v)
	return b, err
}

func splitAs[R ~[]byte](unmarshal func([]byte, any) error) func([]byte) (map[string][]byte, bool) {
	return func(b []byte) (map[string][]byte, bool) {
		var raw map[string]R
		if err := unmarshal(b, &raw); err != nil || raw == nil {
			return nil, false
		}
		out := make(map[string][]byte, len(raw))
		for k, v := range raw {
			out[k] = v
		}
		return out, true
	}
}

func joinAs[R ~[]byte](marshal func(any) ([]byte, error)) func(map[string][]byte) []byte {
	return func(parts map[string][]byte) []byte {
		raw := make(map[string]R, len(parts))
		for k, v := range parts {
			raw[k] = v
		}
		b, _ := marshal(raw) // nil: what it is made of was read before
		return b
	}
}

// formOf gives the form of a type's values, nil if it has no fields that could be unknown.
func formOf(c Codec, t reflect.Type) *form {
	if !hasFields(t, nil) {
		return nil
	}
	switch c := c.(type) {
	case msgpack, protobuf:
		return msgpackForm
	case jsonCodec:
		return jsonForm
	case copying:
		if c.Codec == Binary {
			return msgpackForm
		}
	}
	return nil
}

// hasFields says whether a type is a struct, or has some where unknown fields can be kept.
func hasFields(t reflect.Type, above []reflect.Type) bool {
	switch {
	case own(t):
		return false
	case t.Kind() == reflect.Pointer, t.Kind() == reflect.Map:
		return len(above) < 8 && hasFields(t.Elem(), append(above, t))
	}
	return t.Kind() == reflect.Struct
}

// keep gives what is to be written for a value in place of old, with what only old has.
func (f *form) keep(t reflect.Type, old, b []byte) []byte {
	if f == nil || old == nil {
		return b
	}
	if again, ok := f.again(t, old); !ok || bytes.Equal(again, old) {
		return b // all of it is known
	}
	if merged, changed := f.merge(t, old, b); changed {
		return merged
	}
	return b
}

// again gives what this program would write for what it reads.
func (f *form) again(t reflect.Type, old []byte) ([]byte, bool) {
	v := reflect.New(t)
	if err := f.codec.Unmarshal(old, v.Interface()); err != nil {
		return nil, false
	}
	b, err := f.codec.Marshal(v.Interface())
	return b, err == nil
}

func (f *form) merge(t reflect.Type, old, b []byte) ([]byte, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if own(t) || t.Kind() != reflect.Struct && t.Kind() != reflect.Map {
		return b, false
	}
	was, ok1 := f.split(old)
	is, ok2 := f.split(b)
	if !ok1 || !ok2 {
		return b, false
	}
	inside := map[string]reflect.Type{}
	changed := false
	if t.Kind() == reflect.Map {
		for name := range is {
			inside[name] = t.Elem()
		}
	} else {
		again, ok := f.again(t, old)
		known, ok2 := f.split(again)
		if !ok || !ok2 {
			return b, false
		}
		for name, data := range was {
			if !f.has(is, name) && !f.has(known, name) {
				is[name], changed = data, true
			}
		}
		fieldNames(t, inside)
	}
	for name, t := range inside {
		if was[name] == nil || is[name] == nil {
			continue
		}
		if part, yes := f.merge(t, was[name], is[name]); yes {
			is[name], changed = part, true
		}
	}
	if !changed {
		return b, false
	}
	out := f.join(is)
	return out, out != nil
}

func (f *form) has(m map[string][]byte, name string) bool {
	if _, ok := m[name]; ok || !f.fold {
		return ok
	}
	for n := range maps.Keys(m) {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

// fieldNames gives the types of the fields by the names that they are written under.
func fieldNames(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous && f.Type.Kind() == reflect.Struct && f.Tag == "" {
			fieldNames(f.Type, into)
			continue
		}
		if !f.IsExported() || left(f) {
			continue
		}
		name := f.Name
		for _, key := range []string{"json", "codec"} {
			if n, _, _ := strings.Cut(f.Tag.Get(key), ","); n != "" {
				name = n
			}
		}
		into[name] = f.Type
	}
}
