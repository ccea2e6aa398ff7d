package actor_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

type steps struct{ N int }

// A body that fails is run again after pauses that grow, and one that has returned is not; the mark is there until then.
func TestBodyIsRunUntilItReturns(t *testing.T) {
	var mu sync.Mutex
	var began []time.Time
	runs := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(began)
	}
	typ := actor.NewType("work", actor.Options[steps]{Run: func(ctx context.Context, self *actor.Self[steps]) error {
		mu.Lock()
		began = append(began, time.Now())
		mu.Unlock()
		if actor.Node(ctx) == nil || self.Node() == nil {
			t.Error("a body has no node")
		}
		if err := self.Do(ctx, func(_ context.Context, s *steps) error { s.N++; return nil }); err != nil {
			return err
		}
		if err := self.Do(ctx, func(_ context.Context, s *steps) error { s.N += 100; return errOwn }); !errors.Is(err, errOwn) && runs() <= 5 { // who looks at it in the end wakes it again
			t.Errorf("what Do's function returned comes back as %v", err)
		}
		switch runs() {
		case 1, 3:
			return errOwn
		case 2, 4:
			panic("as asked")
		}
		return nil
	}})
	look := actor.Query(typ, "look", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	bubble(t, 1, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		must(look.Ask(ctx, c, "w", actor.None{}))
		if on, _ := marked(t, c, "work", "w"); !on {
			t.Error("a key with a body is not marked")
		}
		time.Sleep(time.Minute)
		if on, pages := marked(t, c, "work", "w"); on || len(pages) != 1 || runs() != 5 {
			t.Errorf("a key whose body has returned: marked %t, pages %q, run %d times", on, pages, runs())
		}
		if n := must(look.Ask(ctx, c, "w", actor.None{})); n != 5 {
			t.Errorf("%d steps, want 5", n)
		}
	})
	mu.Lock()
	defer mu.Unlock()
	for i, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond} {
		if d := began[i+1].Sub(began[i]); d != want {
			t.Errorf("pause %d is %s, want %s", i, d, want)
		}
	}
}

// A body runs where its key is: after a move and after a crash it runs there, without a message, and nowhere else.
func TestBodyFollowsItsKey(t *testing.T) {
	var running, most atomic.Int32
	var where atomic.Value
	typ := actor.NewType("work", actor.Options[steps]{Idle: 10 * time.Minute, Run: func(ctx context.Context, self *actor.Self[steps]) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer running.Add(-1)
		for ctx.Err() == nil {
			self.Do(ctx, func(ctx context.Context, s *steps) error { s.N++; where.Store(actor.Current(ctx).Member()); return nil })
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return ctx.Err()
	}})
	start := actor.Query(typ, "start", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	bubble(t, 4, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		key := keyOwnedBy(c, "work", 0)
		must(start.Ask(within(t, time.Minute), c, key, actor.None{}))
		at := func(what string) {
			t.Helper()
			eventually(t, "the body runs at the owner after "+what, func() bool {
				return running.Load() == 1 && where.Load() == fmt.Sprintf("m%d", c.Owner("work", key))
			})
			time.Sleep(5 * time.Second)
			if n := running.Load(); n != 1 {
				t.Errorf("after %s %d bodies run", what, n)
			}
		}
		at("its start")
		c.Remove(0)
		at("a move")
		c.Kill(c.Owner("work", key))
		c.Settle()
		at("a crash")
		if n := must(start.Ask(within(t, time.Minute), c, key, actor.None{})); n < 10 {
			t.Errorf("the state has %d steps", n)
		}
	})
	if n := running.Load(); n != 0 {
		t.Errorf("%d bodies are left", n)
	}
}

// An activation that is idle ends although its body runs, and takes its mark along: it is not started again until it is asked.
func TestIdleEndsBodies(t *testing.T) {
	var running atomic.Int32
	typ := actor.NewType("work", actor.Options[steps]{Idle: time.Minute, Run: func(ctx context.Context, self *actor.Self[steps]) error {
		running.Add(1)
		defer running.Add(-1)
		<-ctx.Done()
		return nil
	}})
	add := actor.Handle(typ, "add", func(_ context.Context, s *steps, n int) (int, error) { s.N += n; return s.N, nil })
	bubble(t, 3, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, 10*time.Hour)
		for i := range 2 {
			must(add.Ask(ctx, c, "w", 1))
			time.Sleep(50 * time.Second)
			if on, _ := marked(t, c, "work", "w"); !on || running.Load() != 1 {
				t.Errorf("round %d: marked %t, %d bodies", i, on, running.Load())
			}
			time.Sleep(10 * time.Minute)
			if on, pages := marked(t, c, "work", "w"); on || running.Load() != 0 || len(pages) == 0 {
				t.Errorf("round %d, idle: marked %t, %d bodies, pages %q", i, on, running.Load(), pages)
			}
		}
		c.Kill(c.Owner("work", "w"))
		c.Settle()
		time.Sleep(time.Minute)
		if running.Load() != 0 {
			t.Error("a body that had ended in order is run again after a crash")
		}
		if n := must(add.Ask(ctx, c, "w", 1)); n != 3 {
			t.Errorf("the state is %d", n)
		}
	})
}

// Timers come a fixed time after the answer to the last one, end with their activation, and are set only by handlers that
// succeed.
func TestTimers(t *testing.T) {
	j := &journal{}
	var t0 time.Time
	typ := actor.NewType("timed", actor.Options[steps]{Idle: time.Minute})
	tick := actor.Handle(typ, "tick", func(ctx context.Context, s *steps, took time.Duration) (int, error) {
		j.note("tick at %s", time.Since(t0))
		time.Sleep(took)
		return 0, nil
	})
	other := actor.NewType("other", actor.Options[steps]{})
	foreign := actor.Handle(other, "foreign", func(context.Context, *steps, int) (int, error) { return 0, nil })
	set := actor.Handle(typ, "set", func(ctx context.Context, s *steps, how string) (int, error) {
		if err := actor.After(ctx, "f", time.Second, foreign, 1); err == nil {
			t.Error("a timer for a method of another type is set")
		}
		switch how {
		case "every":
			return 0, actor.Every(ctx, "t", time.Second, tick, 3*time.Second)
		case "after":
			return 0, actor.After(ctx, "t", 5*time.Second, tick, 0)
		case "stop":
			actor.StopTimer(ctx, "t")
		case "delete":
			actor.Current(ctx).Delete()
		case "wrong":
			for _, err := range []error{
				actor.Every(ctx, "t", 0, tick, 0), actor.Every(ctx, "t", -1, tick, 0),
				actor.Remind(ctx, "t", time.Now(), -1, tick, 0),
				actor.Remind(ctx, "t", time.Time{}, 0, tick, 0), actor.Remind(ctx, "t", time.Now().AddDate(300, 0, 0), 0, tick, 0),
			} {
				if err == nil {
					t.Error("a time that cannot be meant is taken")
				}
			}
		case "fail":
			if err := actor.After(ctx, "other", time.Second, tick, 0); err != nil {
				t.Error(err)
			}
			actor.StopTimer(ctx, "t")
			return 0, errOwn
		}
		return 0, nil
	})
	if err := actor.After(t.Context(), "t", time.Second, tick, 0); err == nil {
		t.Error("a timer is set outside of a handler")
	}
	bubble(t, 2, []actor.Registered{typ, other}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, 10*time.Hour)
		key := keyOwnedBy(c, "timed", 0)
		do := func(how string) {
			t0 = time.Now()
			set.Ask(ctx, c, key, how)
		}
		do("every")
		time.Sleep(13500 * time.Millisecond)
		j.want(t, "every second after 3 s of work", "tick at 1s", "tick at 5s", "tick at 9s", "tick at 13s")
		time.Sleep(3 * time.Second)
		do("after")
		time.Sleep(30 * time.Second)
		j.want(t, "replaced", "tick at 5s")
		do("after")
		do("fail")
		time.Sleep(30 * time.Second)
		j.want(t, "a failed handler's timers", "tick at 5s")
		do("after")
		do("stop")
		time.Sleep(30 * time.Second)
		j.want(t, "stopped")
		do("wrong")
		time.Sleep(30 * time.Second)
		j.want(t, "wrong")
		do("every")
		do("delete")
		j.take()
		time.Sleep(30 * time.Second)
		j.want(t, "deleted")
		do("every")
		c.Remove(0)
		j.take()
		time.Sleep(time.Minute)
		j.want(t, "after a move")
	})
}

// A reminder takes effect once each time, whoever owns the key by then, and is kept while nobody runs.
func TestRemindersSurvive(t *testing.T) {
	typ := actor.NewType("reminded", actor.Options[steps]{Idle: time.Minute})
	ring := actor.Handle(typ, "ring", func(_ context.Context, s *steps, n int) (int, error) { s.N += n; return s.N, nil })
	set := actor.Handle(typ, "set", func(ctx context.Context, s *steps, d [2]time.Duration) (int, error) {
		return 0, actor.Remind(ctx, "r", time.Now().Add(d[0]), d[1], ring, 1)
	})
	stop := actor.Handle(typ, "stop", func(ctx context.Context, s *steps, _ actor.None) (int, error) {
		actor.StopReminder(ctx, "r")
		return 0, nil
	})
	look := actor.Query(typ, "look", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	bubble(t, 3, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, 100*time.Hour)
		want := map[string]int{}
		for i, at := range []time.Duration{0, 200 * time.Millisecond, 900 * time.Millisecond, 3 * time.Second, 4 * time.Minute} {
			key := fmt.Sprint("once", i)
			must(set.Ask(ctx, c, key, [2]time.Duration{at, 0}))
			want[key] = 1
		}
		must(set.Ask(ctx, c, "often", [2]time.Duration{time.Second, time.Minute}))
		for i := range 3 { // every member once
			time.Sleep(3 * time.Minute)
			c.Kill(i)
			c.Settle()
			c.Restart(i)
			c.Settle()
		}
		for key, n := range want {
			if got := must(look.Ask(ctx, c, key, actor.None{})); got != n {
				t.Errorf("%s was rung %d times, want %d", key, got, n)
			}
			if on, _ := marked(t, c, "reminded", key); on {
				t.Errorf("%s has no reminder left and is marked", key)
			}
		}
		if n := must(look.Ask(ctx, c, "often", actor.None{})); n < 9 || n > 10 { // and the time that it takes to see who is gone
			t.Errorf("within 9 minutes it was rung %d times, every minute", n)
		}
		must(stop.Ask(ctx, c, "often", actor.None{}))
		n := must(look.Ask(ctx, c, "often", actor.None{}))
		time.Sleep(3 * time.Minute)
		if got := must(look.Ask(ctx, c, "often", actor.None{})); got != n {
			t.Errorf("a reminder that was stopped rang %d times", got-n)
		}
		if on, pages := marked(t, c, "reminded", "often"); on || pages["@remind/r"] != nil {
			t.Errorf("marked %t, pages %q", on, pages)
		}
	})
}

// Actors that wait for each other in a circle are told so at once, whatever the members.
func TestAskCycleIsRefused(t *testing.T) {
	typ := actor.NewType("chain", actor.Options[steps]{})
	var pass *actor.Method[[]string, int]
	pass = actor.Handle(typ, "pass", func(ctx context.Context, s *steps, to []string) (int, error) {
		if len(to) == 0 {
			return 1, nil
		}
		n, err := pass.Ask(ctx, actor.Node(ctx), to[0], to[1:])
		return n + 1, err
	})
	bubble(t, 3, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		a, b, x := keyOwnedBy(c, "chain", 0), keyOwnedBy(c, "chain", 1), keyOwnedBy(c, "chain", 2)
		if n, err := pass.Ask(within(t, time.Minute), c, a, []string{b, x}); err != nil || n != 3 {
			t.Errorf("three in a row: %d, %v", n, err)
		}
		for _, to := range [][]string{{a}, {b, a}, {b, b}, {b, x, a}} {
			began := time.Now()
			_, err := pass.Ask(within(t, time.Minute), c, a, to)
			if !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "ask cycle") || time.Since(began) > time.Second {
				t.Errorf("%s and %v: after %s %v", a, to, time.Since(began), err)
			}
		}
		long := make([]string, 40)
		for i := range long {
			long[i] = fmt.Sprint("long", i)
		}
		if _, err := pass.Ask(within(t, time.Minute), c, a, long); !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "wait for each other") {
			t.Errorf("40 in a row: %v", err)
		}
	})
}

// A handler's context ends with the time of its caller, when another member has taken its key, and when its member stops.
func TestHandlersContextEnds(t *testing.T) {
	j := &journal{}
	typ := actor.NewType("waits", actor.Options[steps]{})
	wait := actor.Handle(typ, "wait", func(ctx context.Context, s *steps, _ actor.None) (int, error) {
		if actor.Current(ctx).Member() != "m0" {
			return 7, nil
		}
		began := time.Now()
		s.N++
		<-ctx.Done()
		j.note("%v after %s", ctx.Err(), time.Since(began).Round(time.Second))
		return s.N, nil
	})
	bubble(t, 4, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		key := keyOwnedBy(c, "waits", 0)
		wait.Ask(within(t, 3*time.Second), c.Node(1), key, actor.None{})
		eventually(t, "the handler is told", func() bool { return len(j.list) > 0 })
		j.want(t, "the caller's time", "context deadline exceeded after 3s")
		answer := make(chan error)
		go func() {
			n, err := wait.Ask(within(t, time.Hour), c.Node(1), key, actor.None{})
			if err == nil && n != 7 {
				err = fmt.Errorf("answered %d", n)
			}
			answer <- err
		}()
		time.Sleep(time.Second)
		c.Pause(0)
		c.Settle()
		if err := <-answer; err != nil && !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("a message whose owner went silent: %v", err)
		}
		c.Resume(0)
		eventually(t, "the old owner's handler is told", func() bool { return len(j.take()) > 0 })
		c.Settle()
		key = keyOwnedBy(c, "waits", 0)
		go func() {
			_, err := wait.Ask(within(t, time.Hour), c.Node(1), key, actor.None{})
			answer <- err
		}()
		time.Sleep(time.Second)
		ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
		err := c.Node(0).Leave(ctx)
		done()
		t.Logf("leave: %v", err)
		c.Kill(0)
		eventually(t, "the handler of a member that stops is told", func() bool { return len(j.take()) > 0 })
		if err := <-answer; err != nil && !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("a message whose owner stopped: %v", err)
		}
	})
}

// A leave that does not end in its time ends the contexts of what still runs on its member: handlers, streams and bodies. The
// member is left as it is, and goes on if it can: the body is run again, here or by who owns the key then.
func TestLeaveInterrupts(t *testing.T) {
	j := &journal{}
	var bodies atomic.Int32
	ended := func(ctx context.Context, what string) {
		<-ctx.Done()
		j.note("%s: %v", what, ctx.Err())
	}
	typ := actor.NewType("waits", actor.Options[steps]{Run: func(ctx context.Context, self *actor.Self[steps]) error {
		bodies.Add(1)
		defer bodies.Add(-1)
		ended(ctx, "body")
		return nil
	}})
	wait := actor.Handle(typ, "wait", func(ctx context.Context, s *steps, until bool) (int, error) {
		if s.N++; until {
			ended(ctx, "handler")
		}
		return s.N, ctx.Err()
	})
	plain := actor.NewType("plain", actor.Options[steps]{})
	take := actor.Collect(plain, "take", func(ctx context.Context, s *steps, in iter.Seq2[int, error]) (int, error) {
		for range in {
			ended(ctx, "stream")
			return s.N, nil
		}
		return 0, nil
	})
	bubble(t, 4, []actor.Registered{typ, plain}, func(t *testing.T, c *chainmailtest.Cluster) {
		key, other := keyOwnedBy(c, "waits", 0), keyOwnedBy(c, "plain", 0)
		must(wait.Ask(within(t, time.Hour), c.Node(0), key, false))
		c.Pause(3) // what it gains cannot be filled: the change stands still
		answers := make(chan error)
		go func() {
			_, err := wait.Ask(within(t, 2*time.Minute), c.Node(0), key, true)
			answers <- err
		}()
		go func() {
			_, err := take.Send(within(t, 2*time.Minute), c.Node(0), other, upTo(100))
			answers <- err
		}()
		time.Sleep(time.Second)
		if n := bodies.Load(); n != 1 {
			t.Errorf("%d bodies run", n)
		}
		j.want(t, "before the leave")
		ctx, done := context.WithTimeout(t.Context(), 20*time.Second)
		err := c.Node(0).Leave(ctx)
		done()
		if err == nil || !strings.Contains(err.Error(), "waits/"+key+" (runs wait)") {
			t.Errorf("a leave while a handler waits gives %v", err)
		}
		if c.Owner("waits", key) != 0 || c.Owner("plain", other) != 0 {
			t.Error("the keys moved: what follows shows nothing")
		}
		synctest.Wait()
		got := j.take()
		slices.Sort(got)
		if want := []string{"body: context canceled", "handler: context canceled", "stream: context canceled"}; !slices.Equal(got, want) {
			t.Errorf("after the leave: %q, want %q", got, want)
		}
		for range 2 {
			if err := <-answers; err != nil && !errors.Is(err, chainmail.ErrFailed) {
				t.Errorf("a message that was interrupted gives %v", err)
			}
		}
		if n := must(wait.Ask(within(t, time.Minute), c.Node(0), key, false)); n != 2 { // the other one was undone
			t.Errorf("the next message gives %d", n)
		}
		time.Sleep(time.Minute)
		if n := bodies.Load(); n != 1 {
			t.Errorf("after a pause %d bodies run", n)
		}
		j.want(t, "after a pause")
		c.Resume(3)
		eventually(t, "the change goes on", func() bool {
			select {
			case <-c.Node(0).Removed():
				return c.Owner("waits", key) != 0
			default:
				return false
			}
		})
		eventually(t, "the body runs at the new owner", func() bool { return bodies.Load() == 1 })
		c.Kill(0)
	})
}
