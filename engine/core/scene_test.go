package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"chainmail/ring"
)

// scene is some cores whose messages arrive at once, in order.
type scene struct {
	cores map[string]*Core
	ids   []string
	dead  map[string]bool
	drop  func(Message) bool        // of the messages that it says arrive not, or not now
	on    func(id string, x Effect) // every effect
	each  func()                    // before what arrives at each instant; may be nil
	queue []Message
	now   Time
}

// newScene starts members a, b, ...; saved gives what each has on its disk.
func newScene(many int, saved func(id string) *Saved) *scene {
	s := &scene{cores: map[string]*Core{}, dead: map[string]bool{}, drop: func(Message) bool { return false }, on: func(string, Effect) {}}
	for i := range many {
		id := string(rune('a' + i))
		s.ids = append(s.ids, id)
		s.cores[id] = New(Config{Self: id, Incarnation: uint64(i + 1), Boot: 2, Durable: true}, 0, saved(id))
	}
	return s
}

// view is a placement of the scene's members.
func (s *scene) view(revision, version, began uint64, stage Stage, base, next string, down string, replicas map[string]int) *View {
	v := &View{Revision: revision, Version: version, Step: version, Began: began, Stage: stage, Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}, Replicas: replicas}
	of := func(ids string) (out []ring.Member) {
		for _, id := range ids {
			out = append(out, ring.Member{ID: string(id), Weight: 1})
		}
		return out
	}
	v.Base, v.Next, v.Target = of(base), of(next), of(next)
	for i, id := range s.ids {
		m := MemberInfo{ID: id, Incarnation: uint64(i + 1), Down: id == down}
		if m.Down {
			m.Marked = 1
		}
		v.Members = append(v.Members, m)
	}
	return v
}

func (s *scene) step(id string, now Time, in Input) {
	if s.dead[id] {
		return
	}
	for _, x := range s.cores[id].Step(now, in, nil) {
		if m, ok := x.(*Send); ok {
			s.queue = append(s.queue, m.Msg)
		}
		s.on(id, x)
	}
}

// run ticks until then; at gives placements to all members that live.
func (s *scene) run(until Time, at map[Time]*View) {
	for now := Time(0); now < until; now += 20 * ms {
		s.now = now
		for _, id := range s.ids {
			if v := at[now]; v != nil {
				s.step(id, now, &ViewChanged{View: v})
			}
			s.step(id, now, &Tick{})
		}
		if s.each != nil {
			s.each()
		}
		for len(s.queue) > 0 {
			m := s.queue[0]
			s.queue = s.queue[1:]
			if s.cores[m.To] != nil && !s.drop(m) {
				s.step(m.To, now, &Recv{m})
			}
		}
	}
}

// aheadAtC has a commit of 200 keys that c alone has taken.
func aheadAtC(id string) *Saved {
	saved := &Saved{}
	for k := range 200 {
		e := Epoch{Version: 5, Number: 1 << bootBits, Member: "c"}
		st := Stamp{e, 1}
		if id == "c" {
			st.Seq = 2
		}
		if id != "d" {
			saved.Records = append(saved.Records, Record{Key: Key{"t", fmt.Sprint("k", k)}, Meta: CopyMeta{e, st}, Pages: []Page{{Name: "p", Stamp: st, Sum: PageSum("p", nil)}}})
		}
	}
	return saved
}

// TestSourceDies has a source name newer copies than the others and die before it gives them. The receiver goes on without.
func TestSourceDies(t *testing.T) {
	for stage, want := range map[Stage]Reported{Copy: ReportCopied, Switch: ReportFilled} {
		s := newScene(4, aheadAtC)
		reports := 0
		s.on = func(id string, x Effect) {
			if r, ok := x.(*Report); ok && id == "d" && r.What == want {
				reports++
			}
		}
		s.drop = func(m Message) bool {
			_, sweeps := m.Body.(*Offer)
			if _, asks := m.Body.(*Fetch); asks && m.To == "c" {
				s.dead["c"] = true
			}
			return sweeps
		}
		r := map[string]int{"": 3}
		s.run(20000*ms, map[Time]*View{0: s.view(1, 7, 6, stage, "abc", "abcd", "", r), 3000 * ms: s.view(2, 7, 6, stage, "abc", "abcd", "c", r)})
		if !s.dead["c"] || reports == 0 || s.cores["d"].Stats().Wanted > 0 {
			t.Errorf("%s: c died: %t; %d reports; %d keys are wanted", stage, s.dead["c"], reports, s.cores["d"].Stats().Wanted)
		}
	}
}

// TestSourcesTakeTurns: with one stream, sources that have nothing to give now do not keep the others from being asked.
func TestSourcesTakeTurns(t *testing.T) {
	s := newScene(6, aheadAtC)
	reports := 0
	s.on = func(id string, x Effect) {
		if r, ok := x.(*Report); ok && id == "f" && r.What == ReportFilled {
			reports++
		}
	}
	s.drop = func(m Message) bool {
		_, filled := m.Body.(*Pulled)
		return filled && (m.To == "a" || m.To == "b")
	}
	v := s.view(1, 7, 6, Switch, "abcde", "abcdef", "", map[string]int{"": 5})
	v.Streams = 1
	v.Members[0].Refilling, v.Members[1].Refilling = true, true
	s.run(10000*ms, map[Time]*View{0: v})
	if reports == 0 {
		t.Errorf("with two of five sources that refill, f waits for %s", s.cores["f"].fill.step.missing())
	}
}

// TestRefillBesideAChange: what a source has answered a member without memory does not count for the keys that the source
// gains afterwards.
func TestRefillBesideAChange(t *testing.T) {
	r := map[string]int{"": 3}
	before := (&scene{ids: []string{"a", "b", "c", "d"}}).view(1, 7, 0, Stable, "abcd", "abcd", "", r)
	base, err := ring.New(before.Ring, before.Base)
	if err != nil {
		t.Fatal(err)
	}
	key := Key{"t", "k"}
	for i := 0; slices.Contains(base.Replicas(ring.KeyToken(ring.HashV1, key.Type, key.Name), 3), "b"); i++ {
		key.Name = fmt.Sprint("k", i)
	}
	e := Epoch{Version: 5, Number: 1, Member: "d"}
	s := newScene(4, func(id string) *Saved { // b takes the place of d, and has from it what a has missed
		seq := map[string]uint64{"a": 1, "b": 2, "d": 2}[id]
		if seq == 0 {
			return nil
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, Stamp{e, seq}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, seq}, Sum: PageSum("p", nil)}}}}}
	})
	s.drop = func(m Message) bool {
		switch m.Body.(type) {
		case *Offer, *Accept:
			return true
		case *Pulled, *Fetched:
			return m.From == "d" && m.To == "c"
		}
		return false
	}
	after := s.view(2, 8, 0, Stable, "abc", "abc", "", r)
	before.Members[2].Refilling, after.Members[2].Refilling = true, true
	s.run(3000*ms, map[Time]*View{0: before, 1000 * ms: after})
	if x := s.cores["c"].Explain(key); !x.Filled || x.Copy.Stamp.Seq != 2 {
		t.Errorf("c counts for %s: %t, with %s; b has %s", key, x.Filled, x.Copy.Stamp, Stamp{e, 2})
	}
}

// TestReportsGoOn: what a source names after enough others have answered does not end the reports: the first one may be lost.
func TestReportsGoOn(t *testing.T) {
	s := newScene(4, aheadAtC)
	reports := 0
	var late []Message
	s.on = func(id string, x Effect) {
		if r, ok := x.(*Report); ok && id == "d" && r.What == ReportFilled {
			if reports++; reports == 1 {
				s.queue = append(s.queue, late...)
			}
		}
	}
	s.drop = func(m Message) bool {
		_, sweeps := m.Body.(*Offer)
		_, asks := m.Body.(*Fetch)
		if reports == 0 && m.From == "c" && m.To == "d" {
			late = append(late, m)
			return true
		}
		return sweeps || asks && m.To == "c"
	}
	s.run(10000*ms, map[Time]*View{0: s.view(1, 7, 6, Switch, "abc", "abcd", "", map[string]int{"": 3})})
	if len(late) == 0 || reports < 5 {
		t.Errorf("%d messages came late; %d reports in 10 s", len(late), reports)
	}
}

// TestPinnedEndsWithItsMember: a member whose joining is aborted ends the activations of what is pinned to it.
func TestPinnedEndsWithItsMember(t *testing.T) {
	s := newScene(4, func(string) *Saved { return nil })
	ran, ended := false, false
	s.on = func(id string, x Effect) {
		switch x := x.(type) {
		case *Execute:
			ran = true
			s.step(id, x.Now, &Executed{Activation: x.Activation, Seq: x.Seq, Changes: []Change{{Name: "v", Data: []byte("x")}}})
		case *Ended:
			ended = true
		}
	}
	r := map[string]int{"": 3, "p": Pinned}
	began := s.view(1, 5, 5, Copy, "abc", "abcd", "", r)
	s.step("d", 0, &ViewChanged{View: began})
	s.step("d", 0, &Call{ID: 1, Key: Key{"p", "k@d"}, Method: "add", Deadline: 5000 * ms})
	s.run(20000*ms, map[Time]*View{0: began, 2000 * ms: s.view(2, 6, 0, Stable, "abc", "abc", "", r)})
	if !ran || !ended || s.cores["d"].Stats().Activations > 0 {
		t.Errorf("ran %t, ended %t, %d activations", ran, ended, s.cores["d"].Stats().Activations)
	}
}

// TestWaitForPlacementAges: a request that had to wait for a placement is so old when it runs.
func TestWaitForPlacementAges(t *testing.T) {
	s := newScene(2, func(string) *Saved { return nil })
	var tried []time.Duration
	s.on = func(id string, x Effect) {
		if x, ok := x.(*Execute); ok && x.RequestID == "r" {
			tried = append(tried, x.Tried)
		}
	}
	r := map[string]int{"": 1}
	first := s.view(1, 5, 0, Stable, "a", "a", "", r)
	s.step("a", 0, &ViewChanged{View: first})
	s.step("a", 0, &Recv{Message{From: "b", To: "a", FromInc: 2, Version: 6, Body: &Ask{ID: 7, Key: Key{"x", "k"}, Method: "add", RequestID: "r", Deadline: 60000 * ms}}})
	s.dead["b"] = true
	s.run(22000*ms, map[Time]*View{0: first, 20000 * ms: s.view(2, 6, 0, Stable, "a", "a", "", r)})
	if len(tried) != 1 || !slices.ContainsFunc(tried, func(d time.Duration) bool { return d > 19*time.Second }) {
		t.Errorf("a request that waited 20 s runs with %v", tried)
	}
}

// TestFullOfParkedRefuses: a message for which there is no room until a placement comes is not run, and its caller is told so.
func TestFullOfParkedRefuses(t *testing.T) {
	s := newScene(2, func(string) *Saved { return nil })
	answers, ran := map[Code]int{}, 0
	s.on = func(id string, x Effect) {
		switch x := x.(type) {
		case *Reply:
			answers[x.Result.Code]++
		case *Execute:
			ran++
			s.step(id, x.Now, &Executed{Activation: x.Activation, Seq: x.Seq})
		}
	}
	r := map[string]int{"": 1}
	next := s.view(2, 6, 0, Stable, "a", "a", "", r)
	s.drop = func(m Message) bool { _, wants := m.Body.(*WantNewView); return wants && m.To == "b" }
	s.step("a", 0, &ViewChanged{View: s.view(1, 5, 0, Stable, "a", "a", "", r)})
	s.step("b", 0, &ViewChanged{View: next})
	for i := range maxParked + 10 {
		s.step("b", 0, &Call{ID: uint64(i + 1), Key: Key{"t", fmt.Sprint("k", i%100)}, Method: "add", Deadline: 60000 * ms})
	}
	s.run(1000*ms, nil)
	if ran > 0 || len(answers) != 1 || answers[CodeOverloaded] != 10 {
		t.Errorf("before the placement: %v were answered, %d ran", answers, ran)
	}
	s.run(2000*ms, map[Time]*View{1000 * ms: next})
	if ran != maxParked || answers[CodeOK] != maxParked || answers[CodeOverloaded] != 10 {
		t.Errorf("after the placement: %v were answered, %d ran", answers, ran)
	}
}

// TestAnswerToTheRunBefore brings a member what it asked for one key in its run before, after it has lost its memory: what
// the key has become meanwhile was told to that run.
func TestAnswerToTheRunBefore(t *testing.T) {
	key := Key{"t", "k"}
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	at := func(seq uint64) Record {
		return Record{Key: key, Meta: CopyMeta{e, Stamp{e, seq}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, seq}, Sum: PageSum("p", nil)}}}
	}
	s := newScene(3, func(id string) *Saved {
		if id == "c" {
			return nil
		}
		return &Saved{Records: []Record{at(2)}}
	})
	s.drop = func(m Message) bool { return m.From == "c" } // it has asked nobody yet
	s.run(100*ms, map[Time]*View{0: s.view(1, 7, 6, Switch, "ab", "abc", "", map[string]int{"": 3})})
	late := &Pulled{Session: 6, Mode: PullSwitch, Code: CodeOK, One: true, Done: true, Key: key,
		Entries: []Entry{{Key: key, Meta: at(1).Meta, Has: true, Pages: at(1).Pages}}}
	for _, from := range []string{"a", "b"} {
		s.step("c", s.now, &Recv{Message{From: from, To: "c", FromInc: s.cores[from].cfg.Incarnation, Version: 7, Body: late}})
	}
	if x := s.cores["c"].Explain(key); x.Filled {
		t.Errorf("c counts for %s with %s by what its run before was told; a and b hold %s", key, x.Copy.Stamp, at(2).Meta.Stamp)
	}
}

// TestNewestNamedIsLost: a source names a state and is lost before it gives that. What another one has named, which is older
// and goes on counting, has to be here before the key counts.
func TestNewestNamedIsLost(t *testing.T) {
	key := Key{"t", "k"}
	e := Epoch{Version: 5, Number: 1, Member: "a"}
	s := newScene(3, func(id string) *Saved {
		seq := map[string]uint64{"a": 2, "b": 1}[id]
		if seq == 0 {
			return nil
		}
		return &Saved{Records: []Record{{Key: key, Meta: CopyMeta{e, Stamp{e, seq}}, Pages: []Page{{Name: "p", Stamp: Stamp{e, seq}, Sum: PageSum("p", nil)}}}}}
	})
	s.drop = func(m Message) bool {
		switch b := m.Body.(type) {
		case *Pulled:
			for i := range b.Entries { // sources name it alone
				b.Entries[i].Has, b.Entries[i].Pages = false, nil
			}
		case *Offer, *Prepare, *Accept:
			return true
		case *Fetch:
			return s.now < 2000*ms
		}
		return false
	}
	r := map[string]int{"": 3}
	first, last := s.view(1, 7, 6, Switch, "ab", "abc", "", r), s.view(2, 7, 6, Switch, "ab", "abc", "a", r)
	counted := Time(0)
	s.on = func(id string, x Effect) {
		if c := s.cores["c"]; id == "c" && c.view != nil && counted == 0 {
			if x := c.Explain(key); x.Filled {
				counted = s.now
				if x.Copy.Stamp.Seq != 1 {
					t.Errorf("c counts for %s at %v with %s; b holds %s", key, s.now, x.Copy.Stamp, Stamp{e, 1})
				}
			}
		}
	}
	s.run(4000*ms, map[Time]*View{0: first, 1000 * ms: last})
	if counted < 2000*ms {
		t.Errorf("c counts for %s since %v; what it has to hold comes at 2 s", key, counted)
	}
}
