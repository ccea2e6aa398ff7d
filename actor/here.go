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
func (m *Method[Req, Resp]) askHere(ctx context.Context, a Asker, key string, req Req) (resp Resp, here bool) {
	n, ok := a.(hosted)
	if !ok {
		return resp, false
	}
	k := core.Key{Type: m.d.name, Name: key}
	i := n.Actors().readable(k)
	if i == nil || ctx.Err() != nil {
		return resp, false
	}
	defer i.mu.Unlock()
	path, err := Path(ctx, k)
	if err != nil {
		return resp, false // it is told on the usual way
	}
	hc := &hereCtx{ctx, Turn{i: i, path: path}}
	return resp, i.here(&hc.turn, m.name, func() (err error) {
		resp, err = m.fast(hc, i.st.ptr.Interface(), req)
		return err
	})
}

// Answer answers a query of an Inline type with LocalReads that another member has sent, likewise; false if it has to go the
// usual way.
func (h *Host) Answer(k core.Key, method string, path []core.Key, body []byte) (answer []byte, here bool) {
	d := h.types[k.Type]
	if d == nil || !d.inline || !d.set.LocalReads {
		return nil, false
	}
	m := d.methods[method]
	if m == nil || !m.reads || m.call == nil {
		return nil, false
	}
	i := h.readable(k)
	if i == nil {
		return nil, false
	}
	defer i.mu.Unlock()
	hc := &hereCtx{i.ctx, Turn{i: i, path: path}}
	return answer, i.here(&hc.turn, method, func() (err error) {
		if answer, err = m.call(hc, i.st.ptr.Interface(), body); err == nil {
			err = h.fits(k, method, answer)
		}
		return err
	})
}

// hereCtx is the context of such a query.
type hereCtx struct {
	context.Context
	turn Turn
}

func (c *hereCtx) Value(k any) any {
	if k == (turnKey{}) {
		return &c.turn
	}
	return c.Context.Value(k)
}

// readable gives a key's instance, locked, if it can be read where it is: its state is loaded, and all of it is committed.
func (h *Host) readable(k core.Key) *instance {
	h.mu.RLock()
	i := h.byKey[k]
	h.mu.RUnlock()
	if i == nil || !i.mu.TryLock() { // a message runs
		return nil
	}
	if i.over || i.st == nil || !i.clean.Load() || i.awake != (i.d.onActivate != nil) {
		i.mu.Unlock()
		return nil
	}
	return i
}

// here runs a query. After an error the usual way runs it again, and tells the error as it is told elsewhere.
func (i *instance) here(t *Turn, method string, f func() error) bool {
	defer t.end()
	if i.query(t, method, f) != nil {
		i.clean.Store(false)
		return false
	}
	return true
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
