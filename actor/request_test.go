package actor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// A message that is repeated under its id takes effect once and gives the first answer: on the same member, after a move,
// after a crash, and while members come and go.
func TestRepeatedRequests(t *testing.T) {
	typ := actor.NewType("adder", actor.Options[steps]{Window: 64})
	add := actor.Handle(typ, "add", func(_ context.Context, s *steps, n int) (int, error) { s.N += n; return s.N, nil })
	look := actor.Query(typ, "look", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	bubble(t, 4, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		key := keyOwnedBy(c, "adder", 0)
		once := func(what, id string, want int) {
			t.Helper()
			for range 2 {
				if n, err := add.AskOnce(ctx, c, key, id, 10); err != nil || n != want {
					t.Errorf("%s: %s gives %d, %v; want %d", what, id, n, err, want)
				}
			}
		}
		once("at first", "a", 10)
		once("another", "b", 20)
		c.Remove(0)
		once("after a move", "a", 10)
		once("after a move", "c", 30)
		c.Kill(c.Owner("adder", key))
		c.Settle()
		once("after a crash", "a", 10)
		once("after a crash", "c", 30)
		once("after a crash", "d", 40)
		if n := must(look.Ask(ctx, c, key, actor.None{})); n != 40 {
			t.Errorf("4 requests make %d", n)
		}
	})
	bubble(t, 3, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		const many = 40
		key := keyOwnedBy(c, "adder", 0)
		done := make(chan struct{})
		unsure := 0
		go func() {
			defer close(done)
			for i := range many {
				for {
					_, err := add.AskOnce(within(t, 3*time.Second), c, key, fmt.Sprint("id", i), 1)
					if err == nil {
						break
					}
					unsure++
				}
				time.Sleep(200 * time.Millisecond)
			}
		}()
		for i := range 3 {
			time.Sleep(time.Second)
			c.Kill(c.Owner("adder", key))
			time.Sleep(2 * time.Second)
			c.Settle()
			for j := range 3 {
				if _, err := c.Node(j).Ask(within(t, time.Second), "kv", "x", "get", nil); errors.Is(err, chainmail.ErrClosed) {
					c.Restart(j)
				}
			}
			c.Settle()
			_ = i
		}
		<-done
		if n := must(look.Ask(within(t, time.Minute), c, key, actor.None{})); n != many {
			t.Errorf("%d requests, of which %d attempts failed, make %d", many, unsure, n)
		}
		t.Logf("%d attempts failed", unsure)
	})
}

// What a key remembers of requests is bounded, by number and bytes, and it does not take for new what it has forgotten.
func TestWindowIsBounded(t *testing.T) {
	typ := actor.NewType("adder", actor.Options[steps]{Window: 8})
	add := actor.Handle(typ, "add", func(_ context.Context, s *steps, n int) (string, error) {
		s.N++
		return strings.Repeat("x", n), nil
	})
	bubble(t, 1, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		for i := range 100 {
			must(add.AskOnce(ctx, c, "a", fmt.Sprintf("%0128d", i), 60<<10))
		}
		_, pages := marked(t, c, "adder", "a")
		n, bytes := 0, 0
		for name, data := range pages {
			if strings.HasPrefix(name, "@req/") {
				n++
				bytes += len(name) + len(data)
			}
		}
		if n != 8 || bytes > 8*(61<<10) || len(pages) != 9 {
			t.Errorf("%d requests are kept, in %d bytes; %d pages", n, bytes, len(pages))
		}
		must(add.AskOnce(ctx, c, "a", "long", 65<<10))
		if _, err := add.AskOnce(ctx, c, "a", "long", 65<<10); !errors.Is(err, chainmail.ErrUnknownOutcome) || errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "took effect the first time") || !strings.Contains(err.Error(), "65536 bytes") {
			t.Errorf("a request whose answer was not kept gives %v", err)
		}
		call := must(add.Call("a", 1))
		call.RequestID = fmt.Sprintf("%0128d", 5)
		for _, tried := range []time.Duration{time.Second, 10 * time.Second, time.Minute} {
			call.Tried = tried
			if _, err := c.AskActor(ctx, call); !errors.Is(err, chainmail.ErrUnknownOutcome) {
				t.Errorf("a request that was forgotten, first made %s ago, gives %v", tried, err)
			}
		}
		time.Sleep(time.Minute)
		call.RequestID, call.Tried = "later", time.Second
		if _, err := c.AskActor(ctx, call); err != nil {
			t.Errorf("one that was made after all that were forgotten: %v", err)
		}
	})
}

// A request id belongs to the method that it was used for first: another one is not run, and is not given its answer.
func TestRequestIDOfAnotherMethod(t *testing.T) {
	typ := actor.NewType("adder", actor.Options[steps]{})
	add := actor.Handle(typ, "add", func(_ context.Context, s *steps, n int) (int, error) { s.N += n; return s.N, nil })
	sub := actor.Handle(typ, "sub", func(_ context.Context, s *steps, n int) (int, error) { s.N -= n; return s.N, nil })
	bubble(t, 2, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Minute)
		must(add.AskOnce(ctx, c, "a", "id", 5))
		for range 2 {
			if n, err := sub.AskOnce(ctx, c, "a", "id", 3); !errors.Is(err, chainmail.ErrRejected) || !strings.Contains(err.Error(), "another method") {
				t.Errorf("the id of another method gives %d, %v", n, err)
			}
			if n := must(add.AskOnce(ctx, c, "a", "id", 5)); n != 5 {
				t.Errorf("the first answer was 5, not %d", n)
			}
		}
		if _, err := c.Any().KV().Put(ctx, "a", []byte("x"), chainmail.RequestID("id")); err != nil {
			t.Error(err)
		}
		if gone, err := c.Any().KV().Delete(ctx, "a", chainmail.RequestID("id")); gone || !errors.Is(err, chainmail.ErrRejected) {
			t.Errorf("kv: the id of another method gives %t, %v", gone, err)
		}
	})
}
