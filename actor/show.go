package actor

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ShowState gives a key's pages as JSON, for people: fields with their values, as text where JSON cannot show them, containers with the number of their pages.
func ShowState(t Registered, kept map[string][]byte) (json.RawMessage, error) {
	d := t.definition()
	out := map[string]any{}
	state := d.newState().Elem()
	for _, f := range d.plan {
		if f.box {
			out[f.name] = map[string]int{"pages": countPages(kept, f.name+"/")}
			continue
		}
		v := state.Field(f.index)
		if b, ok := kept[f.name]; ok {
			if err := d.codec.Unmarshal(b, v.Addr().Interface()); err != nil {
				return nil, fmt.Errorf("type %s: page %s of %d bytes: %w", d.name, f.name, len(b), err)
			}
		}
		b, err := marshalJSON(v.Addr().Interface())
		if err != nil { // JSON has not all that pages have
			out[f.name] = fmt.Sprintf("%+v", v.Interface())
			continue
		}
		out[f.name] = json.RawMessage(b)
	}
	return json.Marshal(out)
}

func countPages(kept map[string][]byte, prefix string) (n int) {
	for name := range kept {
		if strings.HasPrefix(name, prefix) && name != prefix { // that one holds bounds
			n++
		}
	}
	return n
}
