package transport

import (
	"testing"
	"time"
)

// A member that was away for long and sends something gets its answer at once: that it sent shows that it is there, whatever
// the attempts to reach it have come to so far.
func TestAnswerToOneThatIsBack(t *testing.T) {
	n := loopback(t)
	b := n.start("b", &recorder{})
	gone := n.listen("a")
	n.place("a", gone.Addr().String())
	gone.Close()
	for b.down() < 4 { // until b's attempts are far between
		downs := b.down() // before the attempt: it may fail at once
		b.Send("a", Messages, 3, []byte("anybody?"))
		eventually(t, "b may try again", func() bool { return b.Send("a", Messages, 3, nil) == nil })
		eventually(t, "b's attempt fails", func() bool { return b.down() > downs })
	}
	b.onFrame = func(heard) {
		if err := b.Send("a", Messages, 3, []byte("answer")); err != nil {
			t.Errorf("the answer cannot be sent: %v", err)
		}
	}
	began := time.Now()
	a := n.start("a", &recorder{})
	if err := a.Send("b", Messages, 3, []byte("question")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the answer arrives", func() bool { return len(a.heard()) == 1 })
	if d := time.Since(began); d > dialMost/4 {
		t.Errorf("the answer took %s", d)
	}
}

// A member has come back at another address while the process at its former one lives on and answers pings, as one does that
// was stopped for a while.
func TestMemberMoves(t *testing.T) {
	n := loopback(t)
	a := n.start("a", &recorder{})
	old := n.start("b", &recorder{})
	for _, lane := range []Lane{Messages, Bulk} {
		if err := a.Send("b", lane, 3, []byte("to the old one")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the old one has both", func() bool { return len(old.heard()) == 2 })
	next := n.start("b", &recorder{})
	a.Readdress()
	for _, lane := range []Lane{Messages, Bulk} {
		before := len(next.heard())
		eventually(t, "the new one has it", func() bool {
			a.Send("b", lane, 3, []byte("to the new one"))
			return len(next.heard()) > before
		})
	}
	was := len(old.heard())
	a.Readdress() // nothing has moved
	if err := a.Send("b", Messages, 3, []byte("once more")); err != nil {
		t.Errorf("a connection that is right was ended: %v", err)
	}
	if len(old.heard()) != was {
		t.Error("the old one is still sent to")
	}
}
