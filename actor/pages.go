package actor

import (
	"slices"
	"strings"
)

// pages is what a container of a state reads and writes: the key's pages whose names begin with the field's. Changes
// gather until they are taken for a commit, or undone.
type pages struct {
	read   func(name string) ([]byte, bool) // a page as it is committed, or about to be; nil: there are none
	each   func(prefix string) []string     // the names of those pages, in no order
	codec  Codec
	prefix string            // of all names
	dirty  map[string][]byte // by name; nil: removed
	frozen bool              // a query runs: nothing may change
	broken bool              // something was changed while frozen

	names []string // of the entries, sorted; nil: not looked at
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
	if p.names != nil {
		i, ok := slices.BinarySearch(p.names, name)
		switch {
		case b != nil && !ok:
			p.names = slices.Insert(p.names, i, name)
		case b == nil && ok:
			p.names = slices.Delete(p.names, i, i+1)
		}
	}
	p.dirty[p.prefix+name] = b
}

// list gives the names of the entries, sorted. It is valid until the next put.
func (p *pages) list() []string {
	if p.names != nil {
		return p.names
	}
	p.names = []string{}
	if p.each != nil {
		for _, n := range p.each(p.prefix) {
			if b, ok := p.dirty[n]; !ok || b != nil {
				p.names = append(p.names, strings.TrimPrefix(n, p.prefix))
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
		p.names = append(p.names, strings.TrimPrefix(n, p.prefix))
	}
	slices.Sort(p.names)
	return p.names
}

// undo forgets what has not been committed.
func (p *pages) undo() {
	if len(p.dirty) > 0 {
		clear(p.dirty)
		p.names = nil
	}
	p.broken = false
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

// box is a container: a field of a state that has pages of its own.
type box interface {
	// on puts the container on a key's pages; what it held that came from nowhere is written there.
	on(p *pages)
	// at gives the pages that it is on.
	at() *pages
	// forget drops what was read, after an undo.
	forget()
}
