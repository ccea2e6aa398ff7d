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

// own says whether a type writes itself.
func own(t reflect.Type) bool {
	for _, t := range []reflect.Type{t, reflect.PointerTo(t)} {
		for _, i := range []reflect.Type{
			reflect.TypeFor[proto.Message](), reflect.TypeFor[encoding.BinaryMarshaler](), reflect.TypeFor[json.Marshaler](),
			reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[codec.Selfer](),
		} {
			if t.Implements(i) {
				return true
			}
		}
	}
	return false
}

// misfit says what of a type cannot be written, or would be lost without a word; "" if nothing is.
func misfit(t reflect.Type, above []reflect.Type) string {
	if slices.Contains(above, t) || own(t) {
		return ""
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
		return misfit(t.Elem(), above)
	case reflect.Map:
		if why := misfit(t.Key(), above); why != "" {
			return why
		}
		return misfit(t.Elem(), above)
	case reflect.Struct:
		return misfitStruct(t, above)
	}
	return ""
}

func misfitStruct(t reflect.Type, above []reflect.Type) string {
	written := 0
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() && !f.Anonymous || left(f) {
			continue
		}
		written++
		if why := misfit(f.Type, above); why != "" {
			return fmt.Sprintf("field %s of %s: %s", f.Name, t, why)
		}
	}
	if written == 0 && t.NumField() > 0 {
		return fmt.Sprintf("%s has no exported fields: nothing of it would be written", t)
	}
	return ""
}

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
	switch c := d.codec.(type) {
	case msgpack, jsonCodec, protobuf:
	case copying:
		if c.Codec != Binary {
			return ""
		}
	}
	return misfit(t, nil)
}
