package actor

import (
	"encoding/binary"
	"iter"
	"reflect"
)

// MapKey is what the keys of a Map may be.
type MapKey interface {
	~string | ~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// Map is a map with a page per entry: a change of one entry replicates that entry. As a field of an actor's state it is
// kept; elsewhere it is a map in memory. Values that Get and All give are copies: to change one, Set it again. Entries are
// in the order of their keys. A string key has at most about 1,000 bytes, the limit for a page's name.
type Map[K MapKey, V any] struct{ p *pages }

func (m *Map[K, V]) pages() *pages {
	if m.p == nil {
		m.p = empty()
	}
	return m.p
}

func (m *Map[K, V]) at() *pages { return m.p }
func (m *Map[K, V]) forget()    {}

func (m *Map[K, V]) on(p *pages) {
	old := m.p
	m.p, p.owner = p, m
	if old != nil {
		for _, n := range old.list().all() {
			b, _ := old.get(n)
			p.put(n, recoded[V](p, old, b))
		}
	}
}

func (m *Map[K, V]) elem() reflect.Type { return reflect.TypeFor[V]() }

// to gives the pages for a change.
func (m *Map[K, V]) to() *pages {
	m.pages().mine(m)
	return m.p
}

// Get gives the value of a key, false if there is none.
func (m *Map[K, V]) Get(k K) (V, bool) {
	var v V
	name := nameOf(k)
	b, ok := m.pages().get(name)
	if ok {
		m.p.decode(name, b, &v)
	}
	return v, ok
}

// Has says whether a key is there.
func (m *Map[K, V]) Has(k K) bool {
	_, ok := m.pages().get(nameOf(k))
	return ok
}

// Set puts a value under a key. Of a value that is replaced stays what this program does not know.
func (m *Map[K, V]) Set(k K, v V) { m.to().replace(nameOf(k), m.p.encode(&v)) }

// Delete removes a key and says whether it was there.
func (m *Map[K, V]) Delete(k K) bool {
	if !m.Has(k) {
		return false
	}
	m.to().put(nameOf(k), nil)
	return true
}

// Len gives the number of keys. The first use in an activation looks at all names, as All does.
func (m *Map[K, V]) Len() int { return m.pages().list().n }

// All gives all keys with their values, in order, as they are when their turn comes.
func (m *Map[K, V]) All() iter.Seq2[K, V] { return m.after("") }

// From is All from a key on.
func (m *Map[K, V]) From(k K) iter.Seq2[K, V] { return m.after(nameOf(k)) }

func (m *Map[K, V]) after(first string) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		p := m.pages()
		for name, ok := p.list().from(first, false); ok; name, ok = p.list().from(name, true) { // entries may come and go
			if b, there := p.get(name); there {
				var v V
				p.decode(name, b, &v)
				if !yield(keyOf[K](name), v) {
					return
				}
			}
		}
	}
}

// Clear removes all keys.
func (m *Map[K, V]) Clear() {
	for _, name := range m.to().list().all() {
		m.p.put(name, nil)
	}
}

// nameOf writes a key so that names are ordered as keys are.
func nameOf[K MapKey](k K) string {
	v := reflect.ValueOf(k)
	switch {
	case v.Kind() == reflect.String:
		return v.String()
	case v.CanInt():
		return string(binary.BigEndian.AppendUint64(nil, uint64(v.Int())^1<<63))
	}
	return string(binary.BigEndian.AppendUint64(nil, v.Uint()))
}

func keyOf[K MapKey](name string) K {
	var k K
	v := reflect.ValueOf(&k).Elem()
	switch {
	case v.Kind() == reflect.String:
		v.SetString(name)
	case len(name) != 8:
		panic(&Error{CodeFailed, "page named " + name + " is no entry of a map with numbers as keys"})
	case v.CanInt():
		v.SetInt(int64(binary.BigEndian.Uint64([]byte(name)) ^ 1<<63))
	default:
		v.SetUint(binary.BigEndian.Uint64([]byte(name)))
	}
	return k
}
