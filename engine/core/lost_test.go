package core

import "testing"

// TestOnlyTheNamedAreGivenUp: a person has given up what one member had. Another one that is away, too, is waited for all the
// same: what it holds was acknowledged, and nobody has given that up.
func TestOnlyTheNamedAreGivenUp(t *testing.T) {
	key := Key{"t", "k"}
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	s := newScene(3, func(id string) *Saved {
		if id != "a" {
			return nil
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, 1}, Sum: PageSum("p", nil)}}}}}
	})
	s.dead["b"] = true
	r := map[string]int{"": 3}
	view := func(revision uint64, down bool) *View {
		v := s.view(revision, 7, 0, Stable, "abc", "abc", "b", r)
		v.Lost = 7
		v.Members[0].Down, v.Members[0].Marked = down, revision
		v.Members[1].Refilling, v.Members[1].GivenUp = true, true
		v.Members[2].Refilling = true
		return v
	}
	done := Time(0)
	s.on = func(id string, x Effect) {
		if r, ok := x.(*Report); ok && id == "c" && r.What == ReportRefilled && done == 0 {
			done = s.now
		}
	}
	s.drop = func(m Message) bool { return s.now < 2000*ms && (m.From == "a" || m.To == "a") }
	s.run(5000*ms, map[Time]*View{0: view(1, true), 2000 * ms: view(2, false)})
	if done < 2000*ms {
		t.Errorf("c has filled at %v (0: never) without a, which is there from 2 s on", done)
	}
	if x := s.cores["c"].Explain(key); x.Copy.Stamp != (Stamp{e, 1}) {
		t.Errorf("c holds %s", x.Copy.Stamp)
	}
}
