package actor

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
)

// maxDepth bounds how deep values are nested: what is a little deeper MsgPack would write and not read, and a value that has
// itself inside has no end.
const maxDepth = 1000

// checkDepth refuses a value that is nested too deep for MsgPack or JSON.
func checkDepth(c Codec, v any) error {
	if p := reflect.ValueOf(v); tooDeep(c, p, maxDepth) {
		return fmt.Errorf("%s is nested more than %d deep, or has itself inside", p.Type().Elem(), maxDepth)
	}
	return nil
}

// tooDeep looks into values whose types allow it alone.
func tooDeep(c Codec, v reflect.Value, left int) bool {
	if !v.IsValid() || !mayBeDeep(c, v.Type()) {
		return false
	}
	if left == 0 {
		return true
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() != reflect.Pointer { // it is not written as anything of its own
			left++
		}
		return tooDeep(c, v.Elem(), left-1)
	case reflect.Interface:
		return tooDeep(c, v.Elem(), left-1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if tooDeep(c, v.Index(i), left-1) {
				return true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if tooDeep(c, it.Value(), left-1) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if written(v.Type().Field(i)) && tooDeep(c, v.Field(i), left-1) {
				return true
			}
		}
	}
	return false
}

type codecType struct {
	c Codec
	t reflect.Type
}

var deepTypes sync.Map // of codecType to bool

// mayBeDeep says whether a type's values may have values of the same type inside, or of any.
func mayBeDeep(c Codec, t reflect.Type) bool {
	if known, ok := deepTypes.Load(codecType{c, t}); ok {
		return known.(bool)
	}
	yes := isDeep(c, t, nil)
	deepTypes.Store(codecType{c, t}, yes)
	return yes
}

func isDeep(c Codec, t reflect.Type, above []reflect.Type) bool {
	switch {
	case own(c, t):
		return false
	case t.Kind() == reflect.Interface || slices.Contains(above, t):
		return true
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map: // keys have an end
		return isDeep(c, t.Elem(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); written(f) && isDeep(c, f.Type, above) {
				return true
			}
		}
	}
	return false
}
