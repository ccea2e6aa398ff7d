package core

import (
	"fmt"
	"testing"

	"chainmail/ring"
)

// TestMarkOutlivesItsOwner has the owner of a key die after it has committed a mark to one replica of two. The other one
// is the owner then and knows nothing of the mark: it has to run the key all the same.
func TestMarkOutlivesItsOwner(t *testing.T) {
	ids := []string{"a", "b", "c"}
	view := func(revision uint64, down string) *View {
		v := &View{Revision: revision, Version: 5, Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}, Replicas: map[string]int{"": 3}}
		for i, id := range ids {
			v.Base = append(v.Base, ring.Member{ID: id, Weight: 1})
			v.Members = append(v.Members, MemberInfo{ID: id, Incarnation: uint64(i + 1), Down: id == down})
		}
		v.Next, v.Target = v.Base, v.Base
		return v
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
		cores := map[string]*Core{}
		for j, id := range ids {
			saved := &Saved{View: view(1, ""), Records: []Record{before}}
			if id == other {
				saved.Records = []Record{marked}
			}
			if id != dead {
				cores[id] = New(Config{Self: id, Incarnation: uint64(j + 1), Boot: 2, Durable: true}, 0, saved)
			}
		}
		if !runsAt(cores, heir, key, view(2, dead)) {
			t.Errorf("%s of %v is marked at %s and does not run at %s", key, set, other, heir)
		}
	}
}

// runsAt gives cores a view and 10 s, and says whether a member runs a key in that time.
func runsAt(cores map[string]*Core, heir string, key Key, v *View) bool {
	var queue []Message
	runs := false
	step := func(id string, now Time, in Input) {
		for _, x := range cores[id].Step(now, in, nil) {
			switch x := x.(type) {
			case *Send:
				queue = append(queue, x.Msg)
			case *Execute:
				runs = runs || id == heir && x.Key == key
			}
		}
	}
	for now := Time(0); now < 10000*ms; now += 20 * ms {
		for _, id := range sortedKeys(cores) {
			if now == 0 {
				step(id, now, &ViewChanged{v})
			}
			step(id, now, &Tick{})
		}
		for len(queue) > 0 {
			m := queue[0]
			queue = queue[1:]
			if cores[m.To] != nil {
				step(m.To, now, &Recv{m})
			}
		}
		if runs {
			return true
		}
	}
	return false
}
