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

// checkValue refuses a value that is nested too deep for MsgPack or JSON, or that has something inside, in an interface where
// the type does not show it, that MsgPack would write as something else without a word: it takes what is in a channel.
func checkValue(c Codec, v any) error {
	p := reflect.ValueOf(v)
	if err := checkInside(c, p, maxDepth); err != nil {
		return fmt.Errorf("%s %w", p.Type().Elem(), err)
	}
	return nil
}

// checkInside looks into values whose types do not say all alone.
func checkInside(c Codec, v reflect.Value, left int) error {
	if !v.IsValid() || !mayBeDeep(c, v.Type()) {
		return nil
	}
	if left == 0 {
		return fmt.Errorf("is nested more than %d deep, or has itself inside", maxDepth)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().Kind() != reflect.Pointer { // it is not written as anything of its own
			left++
		}
		return checkInside(c, v.Elem(), left-1)
	case reflect.Interface:
		if !v.IsNil() {
			if t := unwritten(c, v.Elem().Type()); t != nil {
				return fmt.Errorf("has a %s inside, which cannot be written", t)
			}
		}
		return checkInside(c, v.Elem(), left-1)
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := checkInside(c, v.Index(i), left-1); err != nil {
				return err
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if err := checkInside(c, it.Value(), left-1); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if written(v.Type().Field(i)) {
				if err := checkInside(c, v.Field(i), left-1); err != nil {
					return err
				}
			}
		}
	}
	return nil
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

var unwrittenTypes sync.Map // of codecType to struct{ t reflect.Type }, with nil for none

// unwritten gives a type inside of one whose values are not written; nil if there is none.
func unwritten(c Codec, t reflect.Type) reflect.Type {
	if known, ok := unwrittenTypes.Load(codecType{c, t}); ok {
		return known.(struct{ t reflect.Type }).t
	}
	found := findUnwritten(c, t, nil)
	unwrittenTypes.Store(codecType{c, t}, struct{ t reflect.Type }{found})
	return found
}

func findUnwritten(c Codec, t reflect.Type, above []reflect.Type) reflect.Type {
	if own(c, t) || slices.Contains(above, t) {
		return nil
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.UnsafePointer:
		return t
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return findUnwritten(c, t.Elem(), above)
	case reflect.Map:
		if found := findUnwritten(c, t.Key(), above); found != nil {
			return found
		}
		return findUnwritten(c, t.Elem(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); written(f) {
				if found := findUnwritten(c, f.Type, above); found != nil {
					return found
				}
			}
		}
	}
	return nil
}
