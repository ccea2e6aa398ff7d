package core

import (
	"fmt"
	"testing"

	"chainmail/ring"
)

// TestMarkOutlivesItsOwner has the owner of a key die after it has committed a mark to one replica of two. The other one
// is the owner then and knows nothing of the mark: it has to run the key all the same.
func TestMarkOutlivesItsOwner(t *testing.T) {
	view := func(revision uint64, down string) *View {
		return (&scene{ids: []string{"a", "b", "c"}}).view(revision, 5, 0, Stable, "abc", "abc", down, map[string]int{"": 3})
	}
	r, err := ring.New(view(1, "").Ring, view(1, "").Base)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		key := Key{"act", fmt.Sprint("k", i)}
		set := r.Replicas(ring.KeyToken(ring.HashV1, key.Type, key.Name), 3)
		dead, heir, other := set[0], set[1], set[2]
		e := Epoch{Version: 5, Number: 1, Member: dead}
		page := func(name string) Page { return Page{Name: name, Sum: PageSum(name, nil)} }
		before := Record{Key: key, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{page("p")}}
		marked := Record{Key: key, Meta: CopyMeta{e, Stamp{e, 2}}, Pages: []Page{page(ActivePage), page("p")}}
		s := newScene(3, func(id string) *Saved {
			if id == other {
				return &Saved{View: view(1, ""), Records: []Record{marked}}
			}
			return &Saved{View: view(1, ""), Records: []Record{before}}
		})
		s.dead[dead] = true
		runs := false
		s.on = func(id string, x Effect) {
			if x, ok := x.(*Execute); ok {
				runs = runs || id == heir && x.Key == key
			}
		}
		s.run(10000*ms, map[Time]*View{0: view(2, dead)})
		if !runs {
			t.Errorf("%s of %v is marked at %s and does not run at %s", key, set, other, heir)
		}
	}
}
