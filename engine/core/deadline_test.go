package core

import (
	"fmt"
	"strings"
	"testing"
)

// A message that waits behind another one until its time is up was not run, and its caller is told so in time.
func TestExpiresInMailbox(t *testing.T) {
	s := newScene(2, func(string) *Saved { return nil })
	answers := map[uint64]Result{}
	var ran []uint64
	s.on = func(id string, x Effect) {
		switch x := x.(type) {
		case *Reply:
			answers[x.ID] = x.Result
		case *Execute: // the first one never ends
			ran = append(ran, x.Seq)
		}
	}
	first := s.view(1, 5, 0, Stable, "a", "a", "", map[string]int{"": 1})
	s.step("a", 0, &ViewChanged{View: first})
	s.step("b", 0, &ViewChanged{View: first})
	call := func(from string, id uint64, deadline Time) {
		s.step(from, 0, &Call{ID: id, Key: Key{"t", "k"}, Method: fmt.Sprint("m", id), Deadline: deadline})
	}
	call("a", 1, 60000*ms)
	s.run(100*ms, nil)
	call("a", 2, 5000*ms)
	call("a", 3, 2000*ms) // sooner than the one before
	call("b", 4, 3000*ms)
	call("b", 5, 60000*ms)
	for until, want := range []int{0, 0, 1, 2, 2, 3} {
		s.run(Time(until)*1000*ms, nil)
		if len(answers) != want {
			t.Errorf("after %d s there are the answers %v", until, answers)
		}
	}
	for id, r := range answers {
		if id == 1 || id == 5 || r.Code != CodeUnavailable || !strings.Contains(r.Text, "t/k is running m1") {
			t.Errorf("message %d: %v", id, r)
		}
	}
	if len(ran) != 1 {
		t.Errorf("%d messages were run", len(ran))
	}
}

// So it is with one that waits for a placement.
func TestExpiresParked(t *testing.T) {
	s := newScene(2, func(string) *Saved { return nil })
	var answers []Result
	ran := 0
	s.on = func(id string, x Effect) {
		switch x := x.(type) {
		case *Reply:
			answers = append(answers, x.Result)
		case *Execute:
			ran++
		}
	}
	r := map[string]int{"": 1}
	next := s.view(2, 6, 0, Stable, "a", "a", "", r)
	s.drop = func(m Message) bool { _, wants := m.Body.(*WantNewView); return wants && m.To == "b" }
	s.step("a", 0, &ViewChanged{View: s.view(1, 5, 0, Stable, "a", "a", "", r)})
	s.step("b", 0, &ViewChanged{View: next})
	s.step("b", 0, &Call{ID: 1, Key: Key{"t", "k"}, Method: "add", Deadline: 2000 * ms})
	s.run(3000*ms, nil)
	if len(answers) != 1 || answers[0].Code != CodeUnavailable || !strings.Contains(answers[0].Text, "a does not have placement 6 yet") {
		t.Errorf("the caller is told %v", answers)
	}
	s.run(5000*ms, map[Time]*View{3000 * ms: next})
	if len(answers) != 1 || ran != 0 {
		t.Errorf("after the placement: %v, %d ran", answers, ran)
	}
}

// A write that waits for all replicas says how many that are. A read behind it has changed nothing, whatever becomes of it.
func TestWriteAllSaysHowMany(t *testing.T) {
	s := newScene(3, func(string) *Saved { return nil })
	answers := map[uint64]Result{}
	s.on = func(id string, x Effect) {
		switch x := x.(type) {
		case *Reply:
			answers[x.ID] = x.Result
		case *Execute:
			done := &Executed{Activation: x.Activation, Seq: x.Seq}
			if x.Method == "write" {
				done.Changes = []Change{{Name: "p", Data: []byte{1}}}
			}
			s.step(id, x.Now, done)
		}
	}
	first := s.view(1, 5, 0, Stable, "abc", "abc", "", map[string]int{"": 3})
	for _, id := range s.ids {
		s.cores[id].cfg.Types = map[string]TypeConfig{"t": {All: true}}
		s.step(id, 0, &ViewChanged{View: first})
	}
	call := func(id uint64, method string) {
		s.step("a", 0, &Call{ID: id, Key: Key{"t", "k"}, Method: method, Deadline: 3000 * ms})
	}
	s.run(1000*ms, nil)
	call(1, "write")
	s.run(2000*ms, nil)
	s.drop = func(m Message) bool { _, accept := m.Body.(*Accept); return accept && m.To == "c" }
	call(2, "write")
	call(3, "read")
	s.run(5000*ms, nil)
	if r := answers[1]; r.Code != CodeOK {
		t.Errorf("with all replicas: %v", r)
	}
	if r := answers[2]; r.Code != CodeUnknownOutcome || !strings.Contains(r.Text, "needs 3 of [") || !strings.Contains(r.Text, "missing c (no answer)") {
		t.Errorf("with one away: %v", r)
	}
	if r := answers[3]; r.Code != CodeUnavailable {
		t.Errorf("a read behind it: %v", r)
	}
}
