package actor

import (
	"reflect"
	"strings"
)

// pages is what a container of a state reads and writes: the key's pages whose names begin with the field's. Changes
// gather until they are taken for a commit, or undone.
type pages struct {
	read   func(name string) ([]byte, bool) // a page as it is committed, or about to be; nil: there are none
	each   func(prefix string) []string     // the names of those pages, in no order
	codec  Codec
	prefix string            // of all names
	form   *form             // of the values, nil if nothing in them can be unknown
	elem   reflect.Type      // of the values
	dirty  map[string][]byte // by name; nil: removed
	most   int64             // bytes that a state may take, 0: not known
	frozen bool              // a query runs: nothing may change
	broken bool              // something was changed while frozen

	owner any    // the container that is on them; a copy of it must not write
	names *names // of the entries; nil: not looked at
}

// empty is what a container is on that belongs to no actor.
func empty() *pages { return &pages{codec: MsgPack} }

func (p *pages) get(name string) ([]byte, bool) {
	name = p.prefix + name
	if b, ok := p.dirty[name]; ok {
		return b, b != nil
	}
	if p.read == nil {
		return nil, false
	}
	return p.read(name)
}

// put writes a page, or removes it with nil.
func (p *pages) put(name string, b []byte) {
	if p.frozen {
		p.broken = true
	}
	if p.dirty == nil {
		p.dirty = map[string][]byte{}
	}
	p.note(name, b != nil)
	p.dirty[p.prefix+name] = b
}

// replace writes a value in place of the one that an entry has, if it has one.
func (p *pages) replace(name string, b []byte) {
	if p.form != nil {
		if old, ok := p.get(name); ok {
			b = p.form.keep(p.elem, old, b)
		}
	}
	p.put(name, b)
}

// note keeps names as it is with an entry that is there or not.
func (p *pages) note(name string, there bool) {
	switch {
	case p.names == nil:
	case there:
		p.names.add(name)
	default:
		p.names.remove(name)
	}
}

// list gives the names of the entries.
func (p *pages) list() *names {
	if p.names != nil {
		return p.names
	}
	var all []string
	if p.each != nil {
		for _, n := range p.each(p.prefix) {
			if b, ok := p.dirty[n]; !ok || b != nil {
				all = append(all, strings.TrimPrefix(n, p.prefix))
			}
		}
	}
	for n, b := range p.dirty {
		if b == nil {
			continue
		}
		if p.read != nil {
			if _, ok := p.read(n); ok {
				continue // it is there already
			}
		}
		all = append(all, strings.TrimPrefix(n, p.prefix))
	}
	p.names = namesOf(all)
	return p.names
}

// undo forgets what has not been committed.
func (p *pages) undo() {
	for n := range p.dirty {
		_, had := p.read(n)
		p.note(strings.TrimPrefix(n, p.prefix), had)
	}
	p.dirty = emptied(p.dirty)
	p.broken = false
}

// mine stops a handler that changes a container through a copy of it: the pages are those of the original.
func (p *pages) mine(c box) {
	if p.read != nil && p.owner != any(c) {
		panic(&Error{CodeFailed, "a copy of the container " + strings.TrimSuffix(p.prefix, "/") + " is changed; keep a pointer to it, or fill another one"})
	}
}

// encode and decode are of values whose types were checked when the type was defined; what cannot be written or read stops
// the handler, whose changes are undone.
func (p *pages) encode(v any) []byte {
	b, err := p.codec.Marshal(v)
	if err != nil {
		panic(&Error{CodeFailed, "page of " + p.prefix + ": " + err.Error()})
	}
	if b == nil {
		b = []byte{}
	}
	return b
}

func (p *pages) decode(name string, b []byte, v any) {
	if err := p.codec.Unmarshal(b, v); err != nil {
		panic(&Error{CodeFailed, "page " + p.prefix + name + ": " + err.Error()})
	}
}

// recoded gives an entry of old pages as these write it.
func recoded[V any](p, old *pages, b []byte) []byte {
	if reflect.TypeOf(p.codec) == reflect.TypeOf(old.codec) {
		return b
	}
	var v V
	old.decode("", b, &v)
	return p.encode(&v)
}

// box is a container: a field of a state that has pages of its own.
type box interface {
	// on puts the container on a key's pages; what it held that came from nowhere is written there.
	on(p *pages)
	// at gives the pages that it is on.
	at() *pages
	// forget drops what was read, after an undo.
	forget()
	// elem gives the type of the values, nil for bytes.
	elem() reflect.Type
}
