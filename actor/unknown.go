package actor

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

// A page that a newer version of a program wrote may have fields that this one does not know. When it writes the page again
// they stay: in structs, in structs inside of structs, and in those that are values of a map under the same key. Protobuf
// keeps them by itself.
//
// Elements of slices and arrays have no keys: an element keeps them, wherever it is now, as long as what this program knows
// of it is as it was, and only if no other could be meant. One that it has changed loses them, since it could as well be
// another in its place. What has to keep them is better a value of a Map or a List, or of a map.

// form is how a codec writes structs, maps and lists: by names, keys and positions.
type form struct {
	codec Codec
	split func(b []byte) (map[string][]byte, bool) // a struct
	join  func(map[string][]byte) []byte
	pairs func(b []byte) ([]pair, bool) // a map
	unite func([]pair) []byte
	list  func(b []byte) ([][]byte, bool) // a slice or an array
	chain func([][]byte) []byte
	fold  bool // names that differ in case alone are one
}

// pair is an entry of a map: its key as it is written.
type pair struct {
	key  string
	data []byte
}

var msgpackForm = &form{codec: MsgPack, split: splitAs[codec.Raw](unmarshalRaw), join: joinAs[codec.Raw](marshalRaw),
	pairs: rawPairs, unite: uniteRaw, list: listAs[codec.Raw](unmarshalRaw), chain: chainAs[codec.Raw](marshalRaw)}

var (
	splitJSON = splitAs[json.RawMessage](json.Unmarshal)
	joinJSON  = joinAs[json.RawMessage](json.Marshal)
)

var jsonForm = &form{codec: JSON, split: splitJSON, join: joinJSON,
	pairs: namedPairs, unite: uniteNamed, list: listAs[json.RawMessage](json.Unmarshal), chain: chainAs[json.RawMessage](json.Marshal), fold: true}

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

func listAs[R ~[]byte](unmarshal func([]byte, any) error) func([]byte) ([][]byte, bool) {
	return func(b []byte) ([][]byte, bool) {
		var raw []R
		if err := unmarshal(b, &raw); err != nil || raw == nil {
			return nil, false
		}
		out := make([][]byte, len(raw))
		for i, v := range raw {
			out[i] = v
		}
		return out, true
	}
}

func chainAs[R ~[]byte](marshal func(any) ([]byte, error)) func([][]byte) []byte {
	return func(parts [][]byte) []byte {
		raw := make([]R, len(parts))
		for i, v := range parts {
			raw[i] = v
		}
		b, _ := marshal(raw) // nil: as with joinAs
		return b
	}
}

// keysAndValues is a map of MsgPack with keys of any kind: each is followed by its value.
type keysAndValues []codec.Raw

// MapBySlice tells the codec so.
func (keysAndValues) MapBySlice() {}

func rawPairs(b []byte) ([]pair, bool) {
	var raw keysAndValues
	if err := unmarshalRaw(b, &raw); err != nil || raw == nil || len(raw)%2 != 0 {
		return nil, false
	}
	var out []pair
	for i := 0; i < len(raw); i += 2 {
		out = append(out, pair{string(raw[i]), raw[i+1]})
	}
	return out, true
}

func uniteRaw(in []pair) []byte {
	raw := make(keysAndValues, 0, 2*len(in))
	for _, p := range in {
		raw = append(raw, codec.Raw(p.key), p.data)
	}
	b, _ := marshalRaw(raw)
	return b
}

// namedPairs is for JSON, where all keys are strings, and sorted.
func namedPairs(b []byte) ([]pair, bool) {
	parts, ok := splitJSON(b)
	var out []pair
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, pair{name, parts[name]})
	}
	return out, ok
}

func uniteNamed(in []pair) []byte {
	parts := make(map[string][]byte, len(in))
	for _, p := range in {
		parts[p.key] = p.data
	}
	return joinJSON(parts)
}

// formOf gives the form of a type's values, nil if it has no fields that could be unknown.
func formOf(c Codec, t reflect.Type) *form {
	switch in := parts(c); {
	case in == nil || whole(c, t) || !hasFields(in, t, nil):
		return nil
	case in == JSON:
		return jsonForm
	}
	return msgpackForm
}

// hasFields says whether a type is a struct, or has some where unknown fields can be kept.
func hasFields(c Codec, t reflect.Type, above []reflect.Type) bool {
	switch {
	case own(c, t):
		return false
	case slices.Contains([]reflect.Kind{reflect.Pointer, reflect.Map, reflect.Slice, reflect.Array}, t.Kind()):
		return len(above) < 8 && hasFields(c, t.Elem(), append(above, t))
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
	switch {
	case own(f.codec, t):
	case t.Kind() == reflect.Struct:
		return f.mergeStruct(t, old, b)
	case t.Kind() == reflect.Map:
		return f.mergeMap(t.Elem(), old, b)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return f.mergeList(t.Elem(), old, b)
	}
	return b, false
}

func (f *form) mergeStruct(t reflect.Type, old, b []byte) ([]byte, bool) {
	was, ok1 := f.split(old)
	is, ok2 := f.split(b)
	if !ok1 || !ok2 {
		return b, false
	}
	again, ok1 := f.again(t, old)
	known, ok2 := f.split(again)
	if !ok1 || !ok2 {
		return b, false
	}
	changed := false
	for name, data := range was {
		if !f.has(is, name) && !f.has(known, name) {
			is[name], changed = data, true
		}
	}
	inside := map[string]reflect.Type{}
	fieldNames(t, inside)
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

// mergeMap merges the values of the keys that are in both. A key that is written in another way is another one.
func (f *form) mergeMap(elem reflect.Type, old, b []byte) ([]byte, bool) {
	had, ok1 := f.pairs(old)
	is, ok2 := f.pairs(b)
	was, ok3 := byKey(had)
	_, ok4 := byKey(is)
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return b, false
	}
	changed := false
	for i, p := range is {
		if was[p.key] == nil {
			continue
		}
		if part, yes := f.merge(elem, was[p.key], p.data); yes {
			is[i].data, changed = part, true
		}
	}
	if !changed {
		return b, false
	}
	out := f.unite(is)
	return out, out != nil
}

// byKey is false if a key is there twice, as NaN may be.
func byKey(in []pair) (map[string][]byte, bool) {
	out := make(map[string][]byte, len(in))
	for _, p := range in {
		out[p.key] = p.data
	}
	return out, len(out) == len(in)
}

// mergeList gives elements that look to this program as they did what they had besides. Of those that look the same it may
// be any, unless they are where they were or have the same besides; then too there must not be more of them than before, or
// some are new.
func (f *form) mergeList(elem reflect.Type, old, b []byte) ([]byte, bool) {
	was, ok1 := f.list(old)
	is, ok2 := f.list(b)
	if !ok1 || !ok2 {
		return b, false
	}
	type alike struct{ was, is []int }
	looks := map[string]*alike{}
	for i, data := range was {
		again, ok := f.again(elem, data)
		if !ok {
			return b, false
		}
		if looks[string(again)] == nil {
			looks[string(again)] = &alike{}
		}
		a := looks[string(again)]
		a.was = append(a.was, i)
	}
	for i, data := range is {
		if a := looks[string(data)]; a != nil {
			a.is = append(a.is, i)
		}
	}
	changed := false
	for _, a := range looks {
		one := !slices.ContainsFunc(a.was, func(i int) bool { return !bytes.Equal(was[i], was[a.was[0]]) })
		if !slices.Equal(a.was, a.is) && (!one || len(a.is) > len(a.was)) {
			continue
		}
		for k, i := range a.is {
			from := was[a.was[k]]
			changed = changed || !bytes.Equal(is[i], from)
			is[i] = from
		}
	}
	if !changed {
		return b, false
	}
	out := f.chain(is)
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
