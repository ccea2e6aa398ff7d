package chainmailtest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// worker has a body that runs as long as its activation does.
type worker struct{ Off bool }

// workers counts where bodies were begun.
type workers struct {
	t           *actor.Type[worker]
	start, stop *actor.Method[actor.None, actor.None]
	mu          sync.Mutex
	begun       map[string]int // by key
	total       atomic.Int64
}

func newWorkers() *workers {
	w := &workers{begun: map[string]int{}}
	w.t = actor.NewType("worker", actor.Options[worker]{Run: func(ctx context.Context, self *actor.Self[worker]) error {
		w.mu.Lock()
		w.begun[self.Key()]++
		w.mu.Unlock()
		w.total.Add(1)
		off := false
		if err := self.Do(ctx, func(_ context.Context, s *worker) error { off = s.Off; return nil }); err != nil || off {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}})
	w.start = actor.Handle(w.t, "start", func(context.Context, *worker, actor.None) (actor.None, error) { return actor.None{}, nil })
	w.stop = actor.Handle(w.t, "stop", func(ctx context.Context, s *worker, _ actor.None) (actor.None, error) {
		s.Off = true
		actor.Current(ctx).Stop()
		return actor.None{}, nil
	})
	return w
}

func (w *workers) of(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun[key]
}

// TestWorkGoesOnElsewhere kills the owner of marked keys, again and again: their bodies run elsewhere within a second of its
// being taken for dead, and one that was stopped in order is never begun again.
func TestWorkGoesOnElsewhere(t *testing.T) {
	w := newWorkers()
	inBubble(t, chainmailtest.Options{Durable: true, Types: []actor.Registered{w.t}}, func(t *testing.T, c *chainmailtest.Cluster) {
		const keys = 20
		ctx := t.Context()
		for k := range keys {
			if _, err := w.start.Ask(ctx, c, fmt.Sprint("w", k), actor.None{}); err != nil {
				t.Fatal(err)
			}
		}
		for victim := range 3 {
			if _, err := w.stop.Ask(ctx, c, fmt.Sprint("w", victim), actor.None{}); err != nil {
				t.Fatal(err)
			}
			var owned []string
			for k := victim + 1; k < keys; k++ {
				if key := fmt.Sprint("w", k); c.Owner("worker", key) == victim {
					owned = append(owned, key)
				}
			}
			w.mu.Lock()
			before := map[string]int{}
			for key, n := range w.begun {
				before[key] = n
			}
			w.mu.Unlock()
			c.Kill(victim)
			for c.Owner("worker", owned[0]) == victim { // until it is taken for dead
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(time.Second)
			for _, key := range owned {
				if w.of(key) == before[key] {
					t.Errorf("a second after its owner was taken for dead %s does not run", key)
				}
			}
			c.Restart(victim)
			c.Settle()
			time.Sleep(20 * time.Second) // some walks of the sweep
			for k := range victim + 1 {
				if key := fmt.Sprint("w", k); w.of(key) != before[key] {
					t.Errorf("%s was stopped in order and was begun %d times more", key, w.of(key)-before[key])
				}
			}
		}
	})
}

// TestManyKeysAreReactivated kills a member that owns very many marked keys. They are taken up at a limited rate, and who
// asks other keys meanwhile is answered about as soon as before.
func TestManyKeysAreReactivated(t *testing.T) {
	keys := 20_000
	switch {
	case testing.Short() || raceEnabled:
		keys = 5_000
	case os.Getenv("CHAINMAIL_SOAK") != "": // make soak sets it
		keys = 100_000
	}
	w := newWorkers()
	c := chainmailtest.New(t, chainmailtest.Options{Types: []actor.Registered{w.t}})
	const victim = 2
	ctx := t.Context()
	mine := make([]string, 0, keys)
	for k := 0; len(mine) < keys; k++ {
		if key := fmt.Sprint("w", k); ownerOf(t, c.Node(0), key) == c.Node(victim).ID() {
			mine = append(mine, key)
		}
	}
	began := time.Now()
	eachOf(t, mine, func(key string) error { _, err := w.start.Ask(ctx, c.Node(victim), key, actor.None{}); return err })
	for w.total.Load() < int64(keys) && time.Since(began) < time.Minute { // they begin on their own, after the answer
		time.Sleep(time.Millisecond)
	}
	t.Logf("%d keys were started in %s", keys, time.Since(began).Round(time.Millisecond))

	var fore []string // keys of the others
	for k := 0; len(fore) < 50; k++ {
		key := fmt.Sprint("f", k)
		if loc, err := c.Node(0).Locate("counter", key); err == nil && loc.Owner != c.Node(victim).ID() {
			fore = append(fore, key)
		}
	}
	ask := func(until func() bool) (waits []time.Duration) {
		for i := 0; !until(); i++ {
			began := time.Now()
			if _, err := c.Node(i%2).Counter().Add(ctx, fore[i%len(fore)], 1); err != nil {
				t.Errorf("a foreground ask: %v", err)
			}
			waits = append(waits, time.Since(began))
			time.Sleep(time.Millisecond) // its pace
		}
		return waits
	}
	calm := ask(func() func() bool { n := 0; return func() bool { n++; return n > 2000 } }())
	c.Kill(victim)
	lost := time.Now()
	for c.Owner("worker", mine[0]) == victim && time.Since(lost) < 20*time.Second {
		time.Sleep(time.Millisecond)
	}
	dead := time.Now()
	busy := ask(func() bool { return w.total.Load() >= int64(2*keys) || time.Since(dead) > time.Minute })
	took := time.Since(dead)
	for _, key := range mine {
		if n := w.of(key); n < 2 {
			t.Fatalf("%s was begun %d times: %d of %d", key, n, w.total.Load(), 2*keys)
		}
	}
	a, b := p99(calm), p99(busy)
	t.Logf("%d bodies run again %s after the owner was taken for dead, %.0f a second; foreground asks p50 %s and p99 %s before, p50 %s and p99 %s during it (%d asks)",
		keys, took.Round(time.Millisecond), float64(keys)/took.Seconds(), calm[len(calm)/2], a, busy[len(busy)/2], b, len(busy))
	most := max(20*a, 150*time.Millisecond)
	if raceEnabled { // all that is started meanwhile takes ten times as long
		most = max(most, time.Second)
	}
	if b > most {
		t.Errorf("foreground asks starve: p99 is %s, was %s", b, a)
	}
	if rate := float64(keys) / took.Seconds(); rate > 2*3200*1.2 { // two members, 32 starts in each tick of 10 ms
		t.Errorf("%.0f keys a second: no limit is kept", rate)
	}
}

func p99(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)*99/100]
}

func ownerOf(t *testing.T, n *chainmail.Node, key string) string {
	loc, err := n.Locate("worker", key)
	if err != nil {
		t.Fatal(err)
	}
	return loc.Owner
}

// eachOf does something for each key, many at a time.
func eachOf(t *testing.T, keys []string, f func(key string) error) {
	t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, 64)
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(keys)); i = next.Add(1) - 1 {
				if err := f(keys[i]); err != nil {
					errs <- fmt.Errorf("%s: %w", keys[i], err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}
