package actor

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"chainmail/engine/core"
)

// field is an exported field of a state: one page, or a container's.
type field struct {
	name  string // of its page, or of its pages before the "/"
	index int
	box   bool
	plain bool         // == finds every change
	form  *form        // nil: nothing in it, or in its values, can be unknown
	elem  reflect.Type // of a container's values; nil: bytes
}

// maxPageName bounds the name of a field's page: names of a container's pages begin with it, and are bounded too.
const maxPageName = 128

// planOf gives the fields of a state type that are kept.
func (d *def) planOf(t reflect.Type) ([]field, error) {
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("the state %s is no struct", t)
	}
	var plan []field
	seen := map[string]string{}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, named := f.Tag.Lookup("page")
		if tag == "-" || !f.IsExported() {
			if hasBox(f.Type, nil) && tag != "-" {
				return nil, fmt.Errorf("field %s of %s is a container and not exported: it would not be kept; export it or tag it `page:\"-\"`", f.Name, t)
			}
			if f.Anonymous && tag != "-" && promotes(f.Type) {
				return nil, fmt.Errorf("%s is embedded in %s and not exported: its fields would not be kept; export it or tag it `page:\"-\"`", f.Name, t)
			}
			continue
		}
		x := field{name: f.Name, index: i}
		if named {
			x.name = tag
		}
		if x.name == "" || len(x.name) > maxPageName || strings.ContainsAny(x.name, "/@") {
			return nil, fmt.Errorf("field %s of %s: a page's name has 1 to %d bytes, without / and @: %q", f.Name, t, maxPageName, x.name)
		}
		if o, twice := seen[x.name]; twice {
			return nil, fmt.Errorf("fields %s and %s of %s are both page %q", o, f.Name, t, x.name)
		}
		seen[x.name] = f.Name
		inside := f.Type
		if b, ok := reflect.New(f.Type).Interface().(box); ok {
			x.box, inside = true, b.elem()
		}
		if inside != nil && hasBox(inside, nil) {
			return nil, fmt.Errorf("field %s of %s has a container inside: containers are fields of the state itself", f.Name, t)
		}
		if inside != nil {
			if why := d.misfit(inside); why != "" {
				return nil, fmt.Errorf("field %s of %s cannot be kept: %s; change it or tag it `page:\"-\"`", f.Name, t, why)
			}
		}
		if x.box {
			x.elem = inside
		}
		if inside != nil {
			x.form = formOf(d.codec, inside)
		}
		x.plain = !x.box && isPlain(f.Type)
		plan = append(plan, x)
	}
	return plan, nil
}

// promotes says whether an embedded type has exported fields.
func promotes(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || f.Anonymous && promotes(f.Type) {
			return true
		}
	}
	return false
}

var boxType = reflect.TypeFor[box]()

// hasBox says whether a type is, or has inside, a container.
func hasBox(t reflect.Type, above []reflect.Type) bool {
	if slices.Contains(above, t) {
		return false
	}
	if reflect.PointerTo(t).Implements(boxType) {
		return true
	}
	above = append(above, t)
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return hasBox(t.Elem(), above)
	case reflect.Map:
		return hasBox(t.Elem(), above) || hasBox(t.Key(), above)
	case reflect.Struct:
		for i := range t.NumField() {
			if hasBox(t.Field(i).Type, above) {
				return true
			}
		}
	}
	return false
}

// isPlain says whether == tells all values of a type apart that are encoded differently: those with pointers may change
// behind them, and 0 equals -0.
func isPlain(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.String, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return true
	case reflect.Array:
		return isPlain(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !isPlain(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return false
}

// state is an actor's state in memory and the pages that it is kept in.
type state struct {
	d      *def
	ptr    reflect.Value // *S
	last   reflect.Value // S as it was when its pages were last taken, for its plain fields
	boxes  []*pages      // by field of the plan; nil for those that are no container
	kept   map[string]core.Page
	recent map[string][]byte // taken, and not in kept yet; nil: removed
	known  map[string]bool   // pages that were written here, with nothing unknown in them
}

// load builds the state from its pages. Pages of fields that the type does not have stay as they are.
func (d *def) load(kept map[string]core.Page) (*state, error) {
	s := &state{d: d, ptr: d.newState(), kept: kept, boxes: make([]*pages, len(d.plan)), recent: map[string][]byte{}, known: map[string]bool{}}
	s.last = reflect.New(s.ptr.Elem().Type()).Elem()
	for i, f := range d.plan {
		if f.box {
			s.boxes[i] = &pages{read: s.page, each: s.names, codec: d.codec, prefix: f.name + "/", form: f.form, elem: f.elem}
			s.box(i).on(s.boxes[i])
			continue
		}
		if err := s.read(f); err != nil {
			return nil, err
		}
	}
	s.last.Set(s.ptr.Elem())
	return s, nil
}

// bound tells containers how many bytes the state may take.
func (s *state) bound(most int64) {
	for _, p := range s.boxes {
		if p != nil {
			p.most = most
		}
	}
}

func (s *state) box(i int) box {
	return s.ptr.Elem().Field(s.d.plan[i].index).Addr().Interface().(box)
}

// read decodes a field's page.
func (s *state) read(f field) error {
	v := s.ptr.Elem().Field(f.index)
	v.SetZero()
	b, ok := s.page(f.name)
	if !ok {
		return nil
	}
	if err := s.d.codec.Unmarshal(b, v.Addr().Interface()); err != nil {
		return &Error{CodeFailed, fmt.Sprintf("type %s: page %q of %d bytes is no %s: %v", s.d.name, f.name, len(b), v.Type(), err)}
	}
	return nil
}

// on makes the pages those that are kept now.
func (s *state) on(kept map[string]core.Page) {
	s.kept = kept
	s.recent = emptied(s.recent)
}

// emptied gives an empty map. One that was big is let go: to clear it takes as long as when it was full.
func emptied(m map[string][]byte) map[string][]byte {
	if len(m) > 64 {
		return map[string][]byte{}
	}
	clear(m)
	return m
}

func (s *state) page(name string) ([]byte, bool) {
	if b, ok := s.recent[name]; ok {
		return b, b != nil
	}
	p, ok := s.kept[name]
	return p.Data, ok
}

func (s *state) names(prefix string) []string {
	var out []string
	for n := range s.kept {
		if strings.HasPrefix(n, prefix) {
			if b, ok := s.recent[n]; !ok || b != nil {
				out = append(out, n)
			}
		}
	}
	for n, b := range s.recent {
		if _, ok := s.kept[n]; !ok && b != nil && strings.HasPrefix(n, prefix) {
			out = append(out, n)
		}
	}
	return out
}

// take gives the changes since the last take. A field with its zero value has no page. After an error nothing was taken.
func (s *state) take() ([]core.Change, error) {
	var out []core.Change
	for _, f := range s.d.plan {
		v := s.ptr.Elem().Field(f.index)
		if f.box || f.plain && v.Equal(s.last.Field(f.index)) {
			continue
		}
		ch, changed, err := s.takeField(f, v)
		if err != nil {
			return nil, err
		}
		if changed {
			out = append(out, ch)
		}
	}
	s.replaced()
	for i := range s.d.plan {
		if s.d.plan[i].box {
			out = s.takeBox(out, i)
		}
	}
	for i := range out {
		s.recent[out[i].Name] = out[i].Data
	}
	s.last.Set(s.ptr.Elem())
	return out, nil
}

func (s *state) takeField(f field, v reflect.Value) (ch core.Change, changed bool, err error) {
	old, had := s.page(f.name)
	if v.IsZero() && (!had || f.form == nil || s.known[f.name] || v.Kind() != reflect.Struct) {
		return core.Change{Name: f.name, Delete: true}, had, nil
	}
	b, err := s.d.codec.Marshal(v.Addr().Interface())
	if err != nil {
		return ch, false, &Error{CodeFailed, fmt.Sprintf("type %s: field %s cannot be written: %v", s.d.name, f.name, err)}
	}
	if b == nil {
		b = []byte{}
	}
	extra := false
	if had && !bytes.Equal(old, b) && f.form != nil && !s.known[f.name] {
		with := f.form.keep(v.Type(), old, b)
		extra = !bytes.Equal(with, b)
		s.known[f.name], b = !extra, with
	}
	if v.IsZero() && !extra {
		return core.Change{Name: f.name, Delete: true}, had, nil
	}
	return core.Change{Name: f.name, Data: b}, !had || !bytes.Equal(old, b), nil
}

// replaced puts containers that were put into fields in place of others onto the fields' pages. What they hold is copied
// first: they may have changed places.
func (s *state) replaced() {
	var which []int
	for i, f := range s.d.plan {
		if f.box && s.box(i).at() != s.boxes[i] {
			which = append(which, i)
			if old := s.box(i).at(); old != nil {
				s.box(i).on(&pages{codec: old.codec})
			}
		}
	}
	for _, i := range which {
		for _, n := range s.boxes[i].list().all() {
			s.boxes[i].put(n, nil)
		}
		s.box(i).on(s.boxes[i])
	}
}

// takeBox gives a container's changes.
func (s *state) takeBox(out []core.Change, i int) []core.Change {
	p := s.boxes[i]
	for _, n := range slices.Sorted(maps.Keys(p.dirty)) {
		data := p.dirty[n]
		old, had := s.page(n)
		if data == nil && !had || data != nil && had && bytes.Equal(data, old) {
			continue
		}
		out = append(out, core.Change{Name: n, Data: data, Delete: data == nil})
	}
	p.dirty = emptied(p.dirty)
	return out
}

// undo brings the state back to its pages.
func (s *state) undo() error {
	for i, f := range s.d.plan {
		v := s.ptr.Elem().Field(f.index)
		switch {
		case f.box:
			b := s.box(i)
			s.boxes[i].undo()
			if b.at() != s.boxes[i] {
				v.SetZero()
				b.on(s.boxes[i])
			}
			b.forget()
		case f.plain:
			v.Set(s.last.Field(f.index))
		default:
			if err := s.read(f); err != nil {
				return err
			}
		}
	}
	return nil
}

// freeze lets a query run: spoiled then says which field it has changed, "" for none as far as can be seen cheaply.
func (s *state) freeze(on bool) {
	for _, p := range s.boxes {
		if p != nil {
			p.frozen = on
		}
	}
}

func (s *state) spoiled() string {
	for i, f := range s.d.plan {
		switch {
		case f.box && (s.boxes[i].broken || s.box(i).at() != s.boxes[i]):
			return f.name
		case f.plain && !s.ptr.Elem().Field(f.index).Equal(s.last.Field(f.index)):
			return f.name
		}
	}
	return ""
}
