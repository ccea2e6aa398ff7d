package actor

import (
	"context"
	"reflect"

	"chainmail/engine/core"
)

// Settled notes that all that an activation has run is committed.
func (h *Host) Settled(e *core.Settled) {
	h.mu.RLock()
	i := h.acts[e.Activation]
	h.mu.RUnlock()
	if i != nil {
		i.clean.Store(true)
	}
}

// hosted is an Asker that runs actors itself.
type hosted interface{ Actors() *Host }

// askHere answers a query of a type with LocalReads in the caller's own goroutine, if the actor runs on this member and all
// it has done is committed. Nothing is encoded: the message and the answer hold no pointers.
func (m *Method[Req, Resp]) askHere(ctx context.Context, a Asker, key string, req Req) (resp Resp, err error, here bool) {
	n, ok := a.(hosted)
	if !ok {
		return resp, nil, false
	}
	h, k := n.Actors(), core.Key{Type: m.d.name, Name: key}
	h.mu.RLock()
	i := h.byKey[k]
	h.mu.RUnlock()
	if i == nil || ctx.Err() != nil {
		return resp, nil, false
	}
	path, err := Path(ctx, k)
	if err != nil {
		return resp, nil, false // it is told on the usual way
	}
	if !i.mu.TryLock() { // a message runs
		return resp, nil, false
	}
	defer i.mu.Unlock()
	if i.over || i.st == nil || !i.clean.Load() || i.awake != (i.d.onActivate != nil) {
		return resp, nil, false
	}
	err = i.query(m.name, func() (err error) {
		resp, err = m.fast(context.WithValue(ctx, turnKey{}, &Turn{i: i, path: path}), i.st.ptr.Interface(), req)
		return err
	})
	if err != nil {
		i.clean.Store(false)
		return resp, nil, false // the usual way runs it again, and tells the error as it is told elsewhere
	}
	return resp, nil, true
}

// isValue says whether values of a type share nothing when they are copied.
func isValue(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return true
	case reflect.Array:
		return isValue(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isValue(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return isPlain(t)
}
