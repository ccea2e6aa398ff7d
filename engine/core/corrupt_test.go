package core

import "testing"

// TestDamagedMemory: a page that changes in a member's memory ends that member when its copy is given to others or loaded here. No
// copy is sent with it, and a commit is refused. The others have the key as it was.
func TestDamagedMemory(t *testing.T) {
	key := Key{"t", "k"}
	e := Epoch{Version: 5, Number: 1 << bootBits, Member: "a"}
	old := Stamp{e, 1}
	sound, bent := []byte("state"), []byte("stAte")
	page := func(name string, data []byte) Page { return Page{name, old, PageSum(name, sound), data} }
	saved := func(string) *Saved {
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, old}, Pages: []Page{page("p", sound), page("q", sound)}}}}
	}
	spoil := func(c *Core) { c.slot(key).pages = listOf([]Page{page("p", sound), page("q", bent)}) }
	view := newScene(3, saved).view(1, 5, 0, Stable, "abc", "abc", "", map[string]int{"": 3})
	var owner, other string
	{
		s := newScene(3, saved)
		s.run(40*ms, map[Time]*View{0: view})
		owner = s.cores["a"].Explain(key).Owner
		other = map[string]string{"a": "b", "b": "c", "c": "a"}[owner]
	}
	call := func(s *scene) {
		s.step(owner, s.now, &Call{ID: 1, Key: key, Method: "m", Deadline: s.now + 1000*ms})
	}
	for name, x := range map[string]struct {
		bad    string
		what   string
		saved  func(string) *Saved
		before func(s *scene)
		during func(c *Core) // as the owner's handler runs
		after  func(s *scene)
	}{
		"loaded by the owner": {bad: owner, what: "copy", before: func(s *scene) { spoil(s.cores[owner]) }},
		"promised": {bad: other, what: "copy", before: func(s *scene) { spoil(s.cores[other]) }, saved: func(id string) *Saved {
			if id == owner {
				return nil
			}
			return saved(id)
		}},
		"fetched": {bad: other, what: "copy", before: func(s *scene) {
			spoil(s.cores[other])
			s.step(other, s.now, &Recv{Message{From: owner, To: other, FromInc: s.cores[owner].cfg.Incarnation, Version: 5, Body: &Fetch{Keys: []Key{key}}}})
		}},
		"sent whole": {bad: owner, what: "copy", after: func(s *scene) {
			spoil(s.cores[owner])
			s.step(owner, s.now, &Recv{Message{From: other, To: owner, FromInc: s.cores[other].cfg.Incarnation, Version: 5, Body: &Accepted{Key: key, Code: CodeNeedFull}}})
		}},
		"written back": {bad: owner, what: "commit", during: func(c *Core) { c.slots.find(key).act.pages["q"] = page("q", bent) }},
	} {
		t.Run(name, func(t *testing.T) {
			if x.saved == nil {
				x.saved = saved
			}
			s := newScene(3, x.saved)
			s.drop = func(m Message) bool { _, is := m.Body.(*Offer); return is } // no other way to have the copy
			ended := map[string]string{}
			s.on = func(id string, e Effect) {
				switch e := e.(type) {
				case *Send:
					var ps []Page
					switch b := e.Msg.Body.(type) {
					case *Promise:
						ps = b.Pages
					case *Fetched:
						ps = b.Entries[0].Pages
					case *Accept:
						if x.during == nil {
							ps = b.Pages
						}
					}
					if !soundPages(ps) {
						t.Errorf("%s sends %T with a damaged page", id, e.Msg.Body)
					}
				case *Corrupt:
					ended[id] = e.What
				case *Execute:
					if x.during != nil {
						x.during(s.cores[id])
					}
					s.step(id, s.now, &Executed{Activation: e.Activation, Seq: e.Seq, Changes: []Change{{Name: "p", Data: []byte("new")}}})
				}
			}
			s.run(40*ms, map[Time]*View{0: view})
			if x.before != nil {
				x.before(s)
			}
			call(s)
			s.run(200*ms, nil)
			if x.after != nil {
				x.after(s)
			}
			if len(ended) != 1 || ended[x.bad] != x.what {
				t.Errorf("ended: %v, want the %s of %s", ended, x.what, x.bad)
			}
			if out := s.cores[x.bad].Step(s.now, &Tick{}, nil); len(out) > 0 {
				t.Errorf("%s goes on: %v", x.bad, out)
			}
			for id, c := range s.cores {
				if r := c.Snapshot(); id != x.bad && (len(r) != 1 || !soundPages(r[0].Pages)) {
					t.Errorf("%s holds %v", id, r)
				}
			}
		})
	}
}
