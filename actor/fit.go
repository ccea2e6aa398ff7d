package actor

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"google.golang.org/protobuf/proto"
)

// has says whether a type, or a pointer to it, implements one of some interfaces.
func has(t reflect.Type, some ...reflect.Type) bool {
	return t.Kind() != reflect.Interface && slices.ContainsFunc(some, func(i reflect.Type) bool {
		return t.Implements(i) || reflect.PointerTo(t).Implements(i)
	})
}

var message = reflect.TypeFor[proto.Message]()

func writesBinary(t reflect.Type) bool { return has(t, reflect.TypeFor[encoding.BinaryMarshaler]()) }
func readsBinary(t reflect.Type) bool  { return has(t, reflect.TypeFor[encoding.BinaryUnmarshaler]()) }

func writesJSON(t reflect.Type) bool {
	return has(t, reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]())
}

func readsJSON(t reflect.Type) bool {
	return has(t, reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]())
}

// own says whether MsgPack or JSON leaves it to a type to write and read itself.
func own(c Codec, t reflect.Type) bool {
	if c == JSON {
		return writesJSON(t) && readsJSON(t)
	}
	return writesBinary(t) && readsBinary(t) || has(t, reflect.TypeFor[codec.Selfer]())
}

// parts gives the codec that writes what is inside of a value, and with a type that is none the value itself: MsgPack or JSON,
// nil for one that is not of this package.
func parts(c Codec) Codec {
	switch c := c.(type) {
	case jsonCodec:
		return c
	case msgpack, protobuf:
		return MsgPack
	case copying:
		if c.Codec == Binary {
			return MsgPack
		}
	}
	return nil
}

// whole says whether Protobuf or Binary leaves a whole value to its type.
func whole(c Codec, t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	x, copied := c.(copying)
	return c == Protobuf && has(t, message) || copied && x.Codec == Binary && writesBinary(t) && readsBinary(t)
}

// misfit says what of a type cannot be written, or would be lost without a word; "" if nothing is. c is MsgPack or JSON.
func misfit(c Codec, t reflect.Type, above []reflect.Type) string {
	switch {
	case slices.Contains(above, t):
		return ""
	case own(c, t):
		return swallowed(c, t)
	case c == JSON && writesJSON(t):
		return fmt.Sprintf("%s writes its JSON itself and does not read it; give it UnmarshalJSON, or UnmarshalText", t)
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Func, reflect.Chan, reflect.UnsafePointer, reflect.Complex64, reflect.Complex128:
		return fmt.Sprintf("%s is a %s", t, t.Kind())
	case reflect.Interface:
		if t.NumMethod() > 0 {
			return fmt.Sprintf("%s is an interface: what is read back has to be of a known type", t)
		}
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return misfit(c, t.Elem(), above)
	case reflect.Map:
		if why := misfit(c, t.Key(), above); why != "" {
			return why
		}
		return misfit(c, t.Elem(), above)
	case reflect.Struct:
		return misfitStruct(c, t, above)
	}
	return ""
}

func misfitStruct(c Codec, t reflect.Type, above []reflect.Type) string {
	n := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if !written(f) {
			continue
		}
		if f.Anonymous && !f.IsExported() && f.Type.Kind() == reflect.Pointer {
			return fmt.Sprintf("%s is embedded in %s by a pointer and not exported: it would not be read back", f.Type, t)
		}
		n++
		if why := misfit(c, f.Type, above); why != "" {
			return fmt.Sprintf("field %s of %s: %s", f.Name, t, why)
		}
	}
	if n == 0 && t.NumField() > 0 {
		hint := ""
		if c != JSON && writesJSON(t) {
			hint = "; it can be written with JSON, or with MarshalBinary and UnmarshalBinary of its own"
		}
		return fmt.Sprintf("%s has no exported fields: nothing of it would be written%s", t, hint)
	}
	return ""
}

// swallowed says whether a type that writes itself most likely does so as a field that is embedded in it, whose methods are
// its own then: other fields would not be written.
func swallowed(c Codec, t reflect.Type) string {
	if t.Kind() != reflect.Struct {
		return ""
	}
	fields := reflect.VisibleFields(t)
	for _, f := range fields {
		if !f.Anonymous || len(f.Index) > 1 || !own(c, f.Type) {
			continue
		}
		if slices.ContainsFunc(fields, func(o reflect.StructField) bool { return len(o.Index) == 1 && o.Name != f.Name && o.IsExported() }) {
			return fmt.Sprintf("%s is embedded in %s and writes itself, without the fields beside it; give the field a name", f.Type, t)
		}
	}
	return ""
}

// written says whether a field is.
func written(f reflect.StructField) bool { return (f.IsExported() || f.Anonymous) && !left(f) }

// left says whether a field's tag takes it out.
func left(f reflect.StructField) bool {
	for _, key := range []string{"codec", "json"} {
		if tag, ok := f.Tag.Lookup(key); ok {
			name, _, _ := strings.Cut(tag, ",")
			return name == "-"
		}
	}
	return false
}

// misfit is that of a type for this codec: others may know more than this package does.
func (d *def) misfit(t reflect.Type) string {
	c, one := parts(d.codec), t
	if t.Kind() == reflect.Pointer {
		one = t.Elem()
	}
	switch x, copied := d.codec.(copying); {
	case c == nil || whole(d.codec, t):
		return ""
	case copied && x.Codec == Binary && writesBinary(one) != readsBinary(one):
		return fmt.Sprintf("%s has one of MarshalBinary and UnmarshalBinary: both are needed", one)
	}
	return misfit(c, t, nil)
}
