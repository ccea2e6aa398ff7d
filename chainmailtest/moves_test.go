package chainmailtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// mail is what a sender writes into a ledger: its own numbers, in order.
type mail struct {
	From string
	Seq  int
}

// ledger logs mail in the order in which it took effect, until it is taken.
type ledger struct{ Log actor.List[mail] }

type ledgers struct {
	t    *actor.Type[ledger]
	post *actor.Method[mail, actor.None]
	take *actor.Method[actor.None, []mail]
}

func newLedgers() *ledgers {
	l := &ledgers{t: actor.NewType("ledger", actor.Options[ledger]{})}
	l.post = actor.Handle(l.t, "post", func(_ context.Context, s *ledger, m mail) (actor.None, error) {
		s.Log.Append(m)
		return actor.None{}, nil
	})
	l.take = actor.Handle(l.t, "take", func(_ context.Context, s *ledger, _ actor.None) (out []mail, _ error) {
		for _, m := range s.Log.All() {
			out = append(out, m)
		}
		s.Log.Trim(s.Log.Next())
		return out, nil
	})
	return l
}

// sender posts numbers, one after the other, and notes what became of each.
type sender struct {
	name  string
	once  bool // with a request id: it is sent again while the outcome is unknown
	acked map[int]bool
	maybe map[int]bool // the outcome is unknown
	err   error        // the first
	slow  time.Duration
}

// post posts one mail, with a request id or without.
func (s *sender) post(l *ledgers, a actor.Asker, key string, seq int) {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	c, err := l.post.Call(key, mail{s.name, seq})
	if err == nil {
		c.Once = s.once
		began := time.Now()
		_, err = a.AskActor(ctx, c)
		s.slow = max(s.slow, time.Since(began))
	}
	switch {
	case err == nil:
		s.acked[seq] = true
	case errors.Is(err, chainmail.ErrUnknownOutcome):
		s.maybe[seq] = true
	}
	if err != nil && s.err == nil {
		s.err = err
	}
}

// check holds a log to what the senders were answered: what was acknowledged is there once, what was refused is not, and
// each sender's numbers are in its order.
func check(t *testing.T, log []mail, senders []*sender) {
	t.Helper()
	seen, last := map[mail]int{}, map[string]int{}
	for _, m := range log {
		seen[m]++
		if before, ok := last[m.From]; ok && m.Seq <= before {
			t.Errorf("%s: %d is logged after %d", m.From, m.Seq, before)
		}
		last[m.From] = m.Seq
	}
	for _, s := range senders {
		for seq := range s.acked {
			if n := seen[mail{s.name, seq}]; n != 1 {
				t.Errorf("%s: %d was acknowledged and is logged %d times", s.name, seq, n)
			}
			delete(seen, mail{s.name, seq})
		}
		for seq := range s.maybe {
			if n := seen[mail{s.name, seq}]; n > 1 {
				t.Errorf("%s: %d has an unknown outcome and is logged %d times", s.name, seq, n)
			}
			delete(seen, mail{s.name, seq})
		}
	}
	for m, n := range seen {
		t.Errorf("%s: %d was refused and is logged %d times", m.From, m.Seq, n)
	}
}

// TestBackAndForth moves one key fifty times between the members and one more, which comes and goes, while a thousand
// messages a second are sent to it: by members that stay, and by any, the guest too while it is only beginning to follow.
func TestBackAndForth(t *testing.T) {
	// longest is more than a second of round trips in the bubble, where messages take no time: what is longer is a timer
	// that ran out because somebody was not told.
	const longest = 50 * time.Millisecond
	rounds := 25
	if testing.Short() {
		rounds = 3
	}
	const senders, steady, pause = 10, 8, 10 * time.Millisecond
	l := newLedgers()
	inBubble(t, chainmailtest.Options{Types: []actor.Registered{l.t}}, func(t *testing.T, c *chainmailtest.Cluster) {
		guest := c.Add(1)[0]
		key := ownedBy(t, c, "ledger", guest)
		all := make([]*sender, senders)
		var over atomic.Bool
		var wg sync.WaitGroup
		began := time.Now()
		for i := range all {
			s := &sender{name: fmt.Sprint("s", i), once: i%2 == 0, acked: map[int]bool{}, maybe: map[int]bool{}}
			all[i] = s
			wg.Go(func() {
				for seq := 0; !over.Load(); seq++ {
					next := time.Now().Add(pause)
					if i < steady {
						s.post(l, c.Node(i%3), key, seq)
					} else {
						s.post(l, c, key, seq)
					}
					time.Sleep(time.Until(next))
				}
			})
		}
		moves := 0
		moved := func(to bool) {
			if o := c.Owner("ledger", key); (o == guest) != to {
				t.Fatalf("the key is at %d, the guest is %d and should have it: %t", o, guest, to)
			}
			moves++
		}
		var log []mail
		drain := func() {
			part, err := l.take.Ask(t.Context(), c, key, actor.None{})
			if err != nil {
				t.Fatal(err)
			}
			log = append(log, part...)
		}
		for range rounds {
			c.Remove(guest)
			moved(false)
			comeBack(t, c, guest)
			moved(true)
			drain()
		}
		took := time.Since(began)
		over.Store(true)
		wg.Wait()
		drain()
		check(t, log, all)
		sent := 0
		for i, s := range all {
			sent += len(s.acked)
			if i < steady && s.slow > longest {
				t.Errorf("%s waited %s for an answer", s.name, s.slow)
			}
			if s.err != nil {
				t.Errorf("%s, of a planned change: %v", s.name, s.err)
			}
		}
		t.Logf("%d moves in %s, %d messages acknowledged, %d logged", moves, took, sent, len(log))
	})
}

// ownedBy finds a key that a member owns.
func ownedBy(t *testing.T, c *chainmailtest.Cluster, typ string, i int) string {
	t.Helper()
	for k := range 10000 {
		if key := fmt.Sprint("key-", k); c.Owner(typ, key) == i {
			return key
		}
	}
	t.Fatalf("member %d owns nothing", i)
	return ""
}

// comeBack starts a member that was removed, and puts it on the ring again.
func comeBack(t *testing.T, c *chainmailtest.Cluster, i int) {
	t.Helper()
	c.Restart(i)
	var addrs []string
	for j := range c.Len() {
		if j != i {
			addrs = append(addrs, c.Node(j).Addr())
		}
	}
	ctx, done := context.WithTimeout(t.Context(), 5*time.Minute)
	defer done()
	for err := errors.New(""); err != nil; {
		if err = c.Node(i).Coordinator().Join(ctx, addrs); err != nil {
			if time.Sleep(10 * time.Millisecond); ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	if err := c.Node(i).Enter(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestHeldUpRequest has a request held up in the network, while it is sent again by another way, takes effect, and is
// forgotten because the key is busy. When the network heals it must not take effect once more.
func TestHeldUpRequest(t *testing.T) {
	type tally struct{ N int }
	typ := actor.NewType("tally", actor.Options[tally]{Window: 1})
	add := actor.Handle(typ, "add", func(_ context.Context, s *tally, n int) (int, error) { s.N += n; return s.N, nil })
	inBubble(t, chainmailtest.Options{Types: []actor.Registered{typ}}, func(t *testing.T, c *chainmailtest.Cluster) {
		leader := -1
		for i := range 3 {
			if c.Node(i).ID() == c.Node(0).Coordinator().Status().LeaderID {
				leader = i
			}
		}
		asker := (leader + 1) % 3
		owner := 3 - leader - asker
		ctx, key := t.Context(), ownedBy(t, c, "tally", owner)
		for range 3 {
			if _, err := add.Ask(ctx, c.Node(asker), key, 1); err != nil {
				t.Fatal(err)
			}
		}
		call, err := add.Call(key, 100)
		if err != nil {
			t.Fatal(err)
		}
		call.RequestID, call.Once = "the one", false
		c.Cut(asker, owner)
		held := make(chan error, 1)
		go func() {
			ctx, done := context.WithTimeout(ctx, time.Minute)
			defer done()
			_, err := c.Node(asker).AskActor(ctx, call)
			held <- err
		}()
		time.Sleep(500 * time.Millisecond)
		again := call
		again.Tried = 500 * time.Millisecond
		if _, err := c.Node(leader).AskActor(ctx, again); err != nil {
			t.Fatal(err)
		}
		for range 300 {
			if _, err := add.Ask(ctx, c.Node(leader), key, 1); err != nil {
				t.Fatal(err)
			}
		}
		c.Heal()
		if err := <-held; !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("the request that was held up gives %v", err)
		}
		if n, err := add.Ask(ctx, c.Node(leader), key, 0); err != nil || n != 403 {
			t.Errorf("the sum is %d, not 403: %v", n, err)
		}
	})
}
