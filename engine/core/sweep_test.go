package core

import (
	"fmt"
	"slices"
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
			if i%2 == 0 { // the mark is all that there ever was of the key
				return &Saved{View: view(1, "")}
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

// missedAtC has a and b commit something that c does not get, and nothing runs or is offered any more after 20 s.
func missedAtC(key Key, until Time) *scene {
	s := newScene(3, func(string) *Saved { return nil })
	s.on = func(id string, x Effect) {
		if x, ok := x.(*Execute); ok {
			s.step(id, s.now, &Executed{Activation: x.Activation, Seq: x.Seq, Changes: []Change{{Name: "v", Data: []byte("x")}}, Stop: true})
		}
	}
	s.drop = func(m Message) bool { return m.To == "c" && s.now < until }
	return s
}

// TestMissedMarks: a member whose mark was made and taken away in a placement that another one did not see is given what it
// missed all the same.
func TestMissedMarks(t *testing.T) {
	key, r := Key{"x", "k"}, map[string]int{"": 3}
	s := missedAtC(key, 25000*ms)
	v := s.view(3, 5, 0, Stable, "abc", "abc", "", r)
	v.Members[2].Marked = 2
	s.cores["a"].Step(0, &ViewChanged{View: s.view(1, 5, 0, Stable, "abc", "abc", "", r)}, nil)
	owner := s.cores["a"].Explain(key).Owner
	if owner == "c" {
		key, owner = Key{"x", "l"}, s.cores["a"].Explain(Key{"x", "l"}).Owner
	}
	s.step(owner, 0, &Call{ID: 1, Key: key, Method: "add", Deadline: 5000 * ms})
	s.run(40000*ms, map[Time]*View{0: s.view(1, 5, 0, Stable, "abc", "abc", "", r), 30000 * ms: v})
	a, c := s.cores["a"].Explain(key).Copy.Stamp, s.cores["c"].Explain(key).Copy.Stamp
	if a.IsZero() || a != c {
		t.Errorf("a holds %s of %s, and c, which was down in a placement that nobody saw, %s", a, key, c)
	}
}

// TestHandOverBesideStarts: copies that have to go are offered while marked keys still wait for their turn to be started.
func TestHandOverBesideStarts(t *testing.T) {
	saved := func(id string) *Saved {
		out := &Saved{}
		for k := range 2000 {
			e := Epoch{Version: 5, Number: 1, Member: "a"}
			out.Records = append(out.Records, Record{Key: Key{"act", fmt.Sprint("k", k)}, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{{Name: ActivePage, Stamp: Stamp{e, 1}, Sum: PageSum(ActivePage, nil)}}})
		}
		return out
	}
	s := newScene(4, saved)
	offered := map[Key]bool{}
	s.on = func(id string, x Effect) {
		if m, ok := x.(*Send); ok && id == "a" {
			if o, ok := m.Msg.Body.(*Offer); ok {
				for _, e := range o.Entries {
					offered[e.Key] = true
				}
			}
		}
	}
	s.drop = func(m Message) bool { // nothing can begin
		_, p := m.Body.(*Prepare)
		return p
	}
	v := s.view(1, 5, 0, Stable, "abcd", "abcd", "", map[string]int{"": 3})
	s.run(1000*ms, map[Time]*View{0: v})
	gone := 0
	for k := range 2000 {
		key := Key{"act", fmt.Sprint("k", k)}
		if slices.Contains(s.cores["a"].Explain(key).Base, "a") {
			continue
		}
		if gone++; !offered[key] {
			t.Fatalf("%s is not offered by a, which need not hold it, after 1 s; %d others are", key, len(offered))
		}
	}
	if gone < 100 {
		t.Errorf("%d keys have to go", gone)
	}
}

// TestNewerRepair: the offer of a newer state takes the place of one of an older state that is still open, and so does the
// offer to a member that said it has the state and may have lost it since.
func TestNewerRepair(t *testing.T) {
	s := newScene(3, func(string) *Saved { return nil })
	c := s.cores["a"]
	c.Step(0, &ViewChanged{View: s.view(1, 5, 0, Stable, "abc", "abc", "", map[string]int{"": 3})}, nil)
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	k := c.slot(Key{"x", "k"})
	for seq := range uint64(2) {
		c.install(k, e, Stamp{e, seq + 1}, []Page{{Name: "p"}})
		c.startRepair(k, nil)
		c.reoffer()
		if k.offer == nil || k.offer.stamp.Seq != seq+1 {
			t.Fatalf("state %d is offered by %+v", seq+1, k.offer)
		}
	}
	k.offer.acked = []string{"b"}
	c.startRepair(k, nil)
	if len(k.offer.acked) != 1 {
		t.Error("an offer that is answered in part was made again without need")
	}
	c.sweep.back["b"] = true
	c.startRepair(k, nil)
	if len(k.offer.acked) != 0 {
		t.Error("what b said before it came back is taken for what it holds")
	}
	k.offer.acked = []string{"b"}
	c.startRepair(k, []string{"b"})
	if to := slices.Collect(c.takers(k)); len(to) != 2 || len(k.offer.acked) != 0 {
		t.Errorf("c has not taken an offer that is made again because b is back, and it goes to %v", to)
	}
}

// keyOn gives a key whose replicas on a placement's base are these, in their order.
func keyOn(t *testing.T, v *View, replicas ...string) Key {
	t.Helper()
	base, err := ring.New(v.Ring, v.Base)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if k := (Key{"x", fmt.Sprint("k", i)}); slices.Equal(base.Replicas(ring.KeyToken(ring.HashV1, k.Type, k.Name), len(replicas)), replicas) {
			return k
		}
	}
}

// TestOwnerThatForgotRepairs: an owner that lost its memory is given back by one member what a third one never had, and
// gives it to that one.
func TestOwnerThatForgotRepairs(t *testing.T) {
	r := map[string]int{"": 3}
	first := (&scene{ids: []string{"a", "b", "c"}}).view(1, 5, 0, Stable, "abc", "abc", "", r)
	key := keyOn(t, first, []string{"a", "c", "b"}...)
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	s := newScene(3, func(id string) *Saved {
		if id != "b" {
			return nil
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, 1}, Sum: PageSum("p", nil)}}}}}
	})
	last := s.view(2, 5, 0, Stable, "abc", "abc", "", r)
	first.Members[0].Refilling, first.Members[0].Marked, last.Members[0].Marked = true, 1, 2
	s.run(5000*ms, map[Time]*View{0: first, 1000 * ms: last})
	for _, id := range s.ids {
		if got := s.cores[id].Explain(key).Copy.Stamp; got != (Stamp{e, 1}) {
			t.Errorf("%s holds %s of %s", id, got, key)
		}
	}
}

// TestOwnerIsTouchedAgain: a repair that a replica refuses, because it has promised more, ends when the owner has written: the
// first times that it is told so may be lost.
func TestOwnerIsTouchedAgain(t *testing.T) {
	r := map[string]int{"": 3}
	key := Key{"x", "k"}
	e, higher := Epoch{Version: 5, Number: 1, Member: "a"}, Epoch{Version: 5, Number: 2, Member: "b"}
	s := newScene(3, func(id string) *Saved {
		rec := Record{Key: key, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, 1}, Sum: PageSum("p", nil)}}}
		if id == "c" {
			rec.Meta, rec.Pages = CopyMeta{Promised: higher}, nil
		}
		return &Saved{Records: []Record{rec}}
	})
	touched, late := 0, 0
	s.drop = func(m Message) bool {
		_, ask := m.Body.(*Ask)
		switch {
		case ask && s.now > 6000*ms:
			late++
		case ask:
			touched++
		}
		return ask && s.now < 3000*ms
	}
	first, last := s.view(1, 5, 0, Stable, "abc", "abc", "c", r), s.view(2, 5, 0, Stable, "abc", "abc", "", r)
	last.Members[2].Marked = 2
	s.run(15000*ms, map[Time]*View{0: first, 1000 * ms: last})
	want := s.cores["a"].Explain(key).Copy.Stamp
	for _, id := range s.ids {
		if got := s.cores[id].Explain(key).Copy.Stamp; got != want || got == (Stamp{e, 1}) {
			t.Errorf("%s holds %s of %s, a %s; the owner was told %d times", id, got, key, want, touched)
		}
	}
	if late > 0 {
		t.Errorf("the owner is told %d times more, though all hold the same", late)
	}
}

// TestRefusedAfterTheCommit: a replica that has promised more refuses what an owner commits with the others, and says so when it
// is committed already. The owner begins anew above that: it would go without this replica for as long as it lives.
func TestRefusedAfterTheCommit(t *testing.T) {
	r := map[string]int{"": 3}
	v := (&scene{ids: []string{"a", "b", "c"}}).view(1, 5, 0, Stable, "abc", "abc", "", r)
	key := keyOn(t, v, []string{"a", "b", "c"}...)
	s := newScene(3, func(id string) *Saved {
		if id != "c" {
			return nil
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{Promised: Epoch{Version: 5, Number: 1 << 40, Member: "b"}}}}}
	})
	s.each = func() {
		if s.now == 1000*ms || s.now == 2000*ms {
			s.queue = append(s.queue, Message{From: "b", To: "a", FromInc: 2, Version: 5, Body: &Ask{Key: key, Method: TouchMethod, Deadline: s.now + 1000*ms}})
		}
	}
	s.run(4000*ms, map[Time]*View{0: v})
	want := s.cores["a"].Explain(key).Copy.Stamp
	if want.IsZero() {
		t.Fatal("a has written nothing")
	}
	for _, id := range s.ids {
		if got := s.cores[id].Explain(key).Copy.Stamp; got != want {
			t.Errorf("%s holds %s of %s, a %s", id, got, key, want)
		}
	}
}

// TestLaterMemberOffersOnce: a member that will hold a key on a later ring alone, and has an old copy of it, does not have the
// owner write again and again: nothing that the owner writes is given to it.
func TestLaterMemberOffersOnce(t *testing.T) {
	r := map[string]int{"": 2}
	view := func(revision uint64) *View {
		v := (&scene{ids: []string{"a", "b", "c", "d", "e"}}).view(revision, 7, 6, Copy, "abcde", "abcd", "", r)
		v.Target = v.Base[:3]
		return v
	}
	var rings []*ring.Ring
	for _, ms := range [][]ring.Member{view(1).Base, view(1).Next, view(1).Target} {
		x, err := ring.New(view(1).Ring, ms)
		if err != nil {
			t.Fatal(err)
		}
		rings = append(rings, x)
	}
	key := Key{"x", "k"}
	for i := 0; ; i++ {
		key.Name = fmt.Sprint("k", i)
		on := func(n int) []string { return rings[n].Replicas(ring.KeyToken(ring.HashV1, key.Type, key.Name), 2) }
		if !slices.Contains(on(0), "c") && !slices.Contains(on(1), "c") && slices.Contains(on(2), "c") && slices.Contains(on(0), "a") {
			break
		}
	}
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	s := newScene(5, func(id string) *Saved {
		seq := uint64(2)
		if id == "c" {
			seq = 1
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, Stamp{e, seq}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, seq}, Sum: PageSum("p", nil)}}}}}
	})
	touched, open := 0, 0
	s.drop = func(m Message) bool {
		if x, ok := m.Body.(*Ask); ok && x.Method == TouchMethod && m.From == "c" {
			touched++
		}
		return false
	}
	last := view(2)
	last.Members[0].Marked = 2 // a is back: all that hold what it has offer that
	s.run(15000*ms, map[Time]*View{0: view(1), 1000 * ms: last})
	open = s.cores["c"].Stats().HandingOver
	if touched > 0 || open > 0 {
		t.Errorf("c, which holds %s on the last ring alone, has the owner touched %d times; %d offers are open", key, touched, open)
	}
	if got := s.cores["c"].Explain(key).Copy.Stamp; got.IsZero() {
		t.Errorf("c has given up %s", key)
	}
}

// TestFencedReadIsRunAgain: a read whose state was being written back when another epoch was found is run again; it changed
// nothing, so nobody has to be told that its outcome is unknown.
func TestFencedReadIsRunAgain(t *testing.T) {
	r := map[string]int{"": 3}
	v := (&scene{ids: []string{"a", "b", "c"}}).view(1, 5, 0, Stable, "abc", "abc", "", r)
	key := keyOn(t, v, []string{"a", "b", "c"}...)
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	for method, want := range map[string]Code{"get": CodeOK, "set": CodeUnknownOutcome} {
		s := newScene(3, func(id string) *Saved {
			rec := Record{Key: key, Meta: CopyMeta{e, Stamp{e, 1}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, 1}, Sum: PageSum("p", nil)}}}
			if id == "c" {
				rec.Meta.Promised = Epoch{Version: 5, Number: 1 << 40, Member: "b"}
			}
			return &Saved{Records: []Record{rec}}
		})
		var got []Result
		s.on = func(id string, x Effect) {
			switch x := x.(type) {
			case *Execute:
				done := &Executed{Activation: x.Activation, Seq: x.Seq}
				if x.Method == "set" {
					done.Changes = []Change{{Name: "p", Data: []byte("x")}}
				}
				s.step(id, s.now, done)
			case *Reply:
				got = append(got, x.Result)
			}
		}
		s.drop = func(m Message) bool { // c refuses before b has taken what is written
			_, accepted := m.Body.(*Accepted)
			return accepted && m.From == "b" && s.now < 100*ms
		}
		s.each = func() {
			if s.now == 20*ms {
				s.step("a", s.now, &Call{ID: 1, Key: key, Method: method, Deadline: s.now + 2000*ms})
			}
		}
		s.run(4000*ms, map[Time]*View{0: v})
		if len(got) != 1 || got[0].Code != want {
			t.Errorf("%s is answered with %+v, want %s", method, got, want)
		}
	}
}
