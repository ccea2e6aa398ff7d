package actor_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// flow is a type with streams both ways that count what they give and take.
type flow struct {
	typ    *actor.Type[steps]
	count  *actor.Source[int, int]
	sum    *actor.Sink[int, int]
	add    *actor.Method[int, int]
	given  atomic.Int64
	ended  atomic.Int64 // producers and takers that are over
	begun  atomic.Int64
	onStop func()
}

func newFlow() *flow {
	f := &flow{typ: actor.NewType("flow", actor.Options[steps]{Errors: map[uint16]error{1: errOwn}})}
	f.count = actor.Stream(f.typ, "count", func(ctx context.Context, s *steps, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			f.begun.Add(1)
			defer f.ended.Add(1)
			for i := range n {
				f.given.Add(1)
				if !yield(i, nil) {
					if f.onStop != nil {
						f.onStop()
					}
					return
				}
			}
			if n%10 == 3 {
				yield(0, fmt.Errorf("at %d: %w", n, errOwn))
			} else if n%10 == 4 {
				panic("as asked")
			} else if n%10 == 5 {
				s.N++ // a stream changes nothing
				yield(-1, nil)
			}
		}
	})
	f.sum = actor.Collect(f.typ, "sum", func(ctx context.Context, s *steps, in iter.Seq2[int, error]) (int, error) {
		f.begun.Add(1)
		defer f.ended.Add(1)
		sum := 0
		for v, err := range in {
			if err != nil {
				return sum, err
			}
			f.given.Add(1)
			if sum += v; v == -7 {
				return sum, nil // wants no more
			}
			if s.N++; v == -8 {
				panic("as asked")
			}
		}
		return sum, nil
	})
	f.add = actor.Handle(f.typ, "add", func(_ context.Context, s *steps, n int) (int, error) { s.N += n; return s.N, nil })
	return f
}

// over waits until all that was begun has ended.
func (f *flow) over(t *testing.T) {
	t.Helper()
	eventually(t, "all streams are over", func() bool { return f.begun.Load() == f.ended.Load() })
}

func upTo(n int, bad ...int) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range n {
			if !yield(i, nil) {
				return
			}
		}
		for _, b := range bad {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// Streams bring all elements in order, are held to the pace of who takes them, and end both sides.
func TestStreams(t *testing.T) {
	f := newFlow()
	bubble(t, 3, []actor.Registered{f.typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		key := keyOwnedBy(c, "flow", 0)
		for _, n := range []int{0, 1, 63, 64, 65, 1000, 1003, 1004, 1005} {
			got, last := 0, error(nil)
			for v, err := range f.count.Ask(ctx, c.Node(1), key, n) {
				if last = err; err != nil {
					break
				}
				if v != got {
					t.Fatalf("%d comes as number %d", v, got)
				}
				got++
			}
			want := map[int]error{3: errOwn, 4: chainmail.ErrFailed, 5: chainmail.ErrFailed}[n%10]
			if n < 10 || n == 63 || n == 64 || n == 65 {
				want = nil
				if n == 63 || n == 64 || n == 65 { // those end as their last digit says
					want = map[int]error{63: errOwn, 64: chainmail.ErrFailed, 65: chainmail.ErrFailed}[n]
				}
			}
			if !errors.Is(last, want) || want == nil && last != nil {
				t.Errorf("%d elements end with %v, want %v", n, last, want)
			}
			if whole := n%10 < 4; whole && got != n {
				t.Errorf("%d elements of %d", got, n)
			}
			f.over(t)
		}
		f.given.Store(0)
		taken := 0
		for v, err := range f.count.Ask(ctx, c.Node(1), key, 100_000) {
			if err != nil || v != taken {
				t.Fatal(v, err)
			}
			if taken++; taken%50 == 0 {
				time.Sleep(time.Second) // slow
			}
			if ahead := f.given.Load() - int64(taken); ahead > 64 {
				t.Fatalf("the producer is %d elements ahead", ahead)
			}
			if taken == 500 {
				break
			}
		}
		f.over(t) // breaking off ends it
		if n := must(f.add.Ask(ctx, c, key, 0)); n != 0 {
			t.Errorf("streams have changed the state to %d", n)
		}
		f.given.Store(0)
		for n, want := range map[int]int{0: 0, 1: 0, 63: 1953, 64: 2016, 65: 2080, 1000: 499500} {
			if sum, err := f.sum.Send(ctx, c.Node(1), key, upTo(n)); err != nil || sum != want {
				t.Errorf("%d elements are %d, %v", n, sum, err)
			}
		}
		f.over(t)
		made := 0
		sum, err := f.sum.Send(ctx, c.Node(1), key, func(yield func(int, error) bool) {
			for v := range upTo(100_000) {
				if made = v; v == 200 {
					v = -7
				}
				if !yield(v, nil) {
					return
				}
			}
		})
		if err != nil || sum != 199*100-7 || made > 200+2*64 {
			t.Errorf("a taker that wants no more: %d, %v, %d were made", sum, err, made)
		}
		if _, err := f.sum.Send(ctx, c.Node(1), key, func(yield func(int, error) bool) { _ = yield(1, nil) && yield(0, errOwn) }); !errors.Is(err, chainmail.ErrFailed) {
			t.Errorf("an error in the stream gives %v", err)
		}
		n := must(f.add.Ask(ctx, c, key, 0))
		if _, err := f.sum.Send(ctx, c.Node(1), key, upTo(10, -8)); !errors.Is(err, chainmail.ErrFailed) {
			t.Errorf("a panic gives %v", err)
		}
		if m := must(f.add.Ask(ctx, c, key, 0)); m != n {
			t.Errorf("a panic leaves %d of the part that it came with", m-n)
		}
		f.over(t)
	})
}

// A stream ends with ErrStreamGone when its key moves, its owner dies or its activation ends, on both sides.
func TestStreamsEndWithTheirActivation(t *testing.T) {
	f := newFlow()
	f.onStop = func() { panic("a handler that fails when it is stopped") }
	bubble(t, 4, []actor.Registered{f.typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		key := keyOwnedBy(c, "flow", 0)
		under := func(what string, end func()) {
			t.Helper()
			asker := c.Node(1)
			if c.Owner("flow", key) == 1 {
				asker = c.Node(2)
			}
			var wg sync.WaitGroup
			var once sync.Once
			var mid sync.WaitGroup
			mid.Add(2)
			goOn := make(chan struct{})
			pause := func() { mid.Done(); <-goOn }
			wg.Go(func() {
				got, last := 0, error(nil)
				for v, err := range f.count.Ask(ctx, asker, key, 10_000) {
					if last = err; err != nil {
						break
					}
					if got = v; v == 100 {
						pause()
					}
				}
				if !errors.Is(last, actor.ErrStreamGone) || got < 100 {
					t.Errorf("%s: after %d elements %v", what, got, last)
				}
			})
			wg.Go(func() {
				_, err := f.sum.Send(ctx, asker, key, func(yield func(int, error) bool) {
					for v := range upTo(10_000) {
						if v == 100 {
							pause()
						}
						if !yield(v, nil) {
							return
						}
					}
				})
				if !errors.Is(err, actor.ErrStreamGone) {
					t.Errorf("%s: a sender gets %v", what, err)
				}
			})
			mid.Wait()
			end()
			once.Do(func() { close(goOn) })
			wg.Wait()
			f.over(t)
		}
		under("move", func() { c.Remove(0) })
		under("crash", func() { c.Kill(c.Owner("flow", key)); c.Settle() })
		if n := must(f.add.Ask(ctx, c, key, 0)); n != 2*64 {
			t.Errorf("of two broken streams %d elements are there, want what was committed", n)
		}
	})
}

// A stream that is cut off while it flows goes on without a gap or an element twice, or ends with an error.
func TestStreamsOverABadNetwork(t *testing.T) {
	f := newFlow()
	bubble(t, 3, []actor.Registered{f.typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		key := keyOwnedBy(c, "flow", 0)
		ctx := within(t, time.Minute)
		got := []int{}
		last := error(nil)
		for v, err := range f.count.Ask(ctx, c.Node(1), key, 500) {
			if last = err; err != nil {
				break
			}
			if got = append(got, v); len(got) == 100 {
				c.Cut(0, 1) // the answers are cut off, for less than it takes to be taken for down
				time.AfterFunc(1500*time.Millisecond, c.Heal)
			}
		}
		if last != nil && !errors.Is(last, actor.ErrStreamGone) && !errors.Is(last, chainmail.ErrUnavailable) || last == nil && len(got) != 500 {
			t.Errorf("%d elements, %v", len(got), last)
		}
		if !slices.IsSorted(got) || len(got) > 0 && got[len(got)-1] != len(got)-1 {
			t.Errorf("elements are missing or there twice: %v", got)
		}
		c.Settle()
		sum, err := f.sum.Send(ctx, c.Node(1), key, func(yield func(int, error) bool) {
			for v := range upTo(500) {
				if v == 100 {
					c.Cut(0, 1)
					time.AfterFunc(1500*time.Millisecond, c.Heal)
				}
				if !yield(v, nil) {
					return
				}
			}
		})
		if err == nil && sum != 124750 || err != nil && !errors.Is(err, actor.ErrStreamGone) && !errors.Is(err, chainmail.ErrUnknownOutcome) {
			t.Errorf("the sum is %d, %v", sum, err)
		}
		t.Logf("%d elements, %v; sum %d, %v", len(got), last, sum, err)
		c.Settle()
		f.over(t)
	})
}

// A caller whose time ends leaves no producer and no taker behind.
func TestStreamsOfCallersThatLeave(t *testing.T) {
	f := newFlow()
	bubble(t, 2, []actor.Registered{f.typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx, done := context.WithCancel(t.Context())
		var last error
		for v, err := range f.count.Ask(ctx, c.Node(0), "k", 1000) {
			if last = err; v == 100 {
				done()
			}
		}
		if !errors.Is(last, chainmail.ErrUnavailable) {
			t.Errorf("a reader whose context has ended gets %v", last)
		}
		f.over(t)
		ctx, done = context.WithCancel(t.Context())
		_, err := f.sum.Send(ctx, c.Node(0), "k", func(yield func(int, error) bool) {
			for v := range upTo(1000) {
				if v == 100 {
					done()
				}
				if !yield(v, nil) {
					return
				}
			}
		})
		if !errors.Is(err, chainmail.ErrUnknownOutcome) || errors.Is(err, chainmail.ErrUnavailable) { // 64 were taken
			t.Errorf("a sender whose context has ended gets %v", err)
		}
		if _, err = f.sum.Send(ctx, c.Node(0), "k", upTo(1000)); !errors.Is(err, chainmail.ErrUnavailable) { // nothing was
			t.Errorf("a sender whose context had ended gets %v", err)
		}
		f.over(t)
	})
}

// A stream that was idle for too long ends in a turn of its own: what its handler does then is committed by itself, and has
// nothing to do with the message that has found it, be that a query or one that fails.
func TestIdleStreamEndsInItsOwnTurn(t *testing.T) {
	var ending, finding *actor.Turn
	typ := actor.NewType("flow", actor.Options[steps]{Errors: map[uint16]error{1: errOwn}})
	sum := actor.Collect(typ, "sum", func(ctx context.Context, s *steps, in iter.Seq2[int, error]) (int, error) {
		for v, err := range in {
			if err != nil {
				ending = actor.Current(ctx)
				s.N += 1000
				return s.N, nil
			}
			if v < 0 {
				finding = actor.Current(ctx)
				s.N = v
				return 0, errOwn
			}
			s.N++
		}
		return s.N, nil
	})
	count := actor.Stream(typ, "count", func(ctx context.Context, s *steps, n int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			finding = actor.Current(ctx)
			for i := range n {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	look := actor.Query(typ, "look", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	for name, find := range map[string]func(ctx context.Context, c *chainmailtest.Cluster) error{
		"a query": func(ctx context.Context, c *chainmailtest.Cluster) (last error) {
			for _, err := range count.Ask(ctx, c, "k", 100) {
				last = err
			}
			return last
		},
		"one that fails": func(ctx context.Context, c *chainmailtest.Cluster) error {
			if _, err := sum.Send(ctx, c, "k", func(yield func(int, error) bool) { yield(-1, nil) }); !errors.Is(err, errOwn) {
				return fmt.Errorf("it gives %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ending, finding = nil, nil
			bubble(t, 1, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
				ctx := within(t, time.Hour)
				goOn, sent := make(chan struct{}), make(chan error)
				go func() {
					_, err := sum.Send(ctx, c, "k", func(yield func(int, error) bool) {
						for v := range 65 {
							if v == 64 { // what was sent is with the actor
								<-goOn
							}
							if !yield(v, nil) {
								return
							}
						}
					})
					sent <- err
				}()
				time.Sleep(2 * time.Minute)
				if err := find(ctx, c); err != nil {
					t.Error(err)
				}
				n := 0
				for range 100 {
					if n = must(look.Ask(ctx, c, "k", actor.None{})); n > 64 {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				if n != 1064 || ending == nil || ending == finding {
					t.Errorf("the sum is %d, the stream ended in turn %p and was found in %p", n, ending, finding)
				}
				close(goOn)
				if err := <-sent; !errors.Is(err, actor.ErrStreamGone) {
					t.Errorf("the sender goes on with %v", err)
				}
			})
		})
	}
}

// Errors of streams, and of a body's Do, name what the caller knows, and no message of this package's own.
func TestErrorsNameTheMethod(t *testing.T) {
	bad := make(chan error, 1)
	worker := actor.NewType("worker", actor.Options[steps]{Run: func(ctx context.Context, self *actor.Self[steps]) error {
		bad <- self.Do(ctx, func(context.Context, *steps) error { panic("in the body") })
		return nil
	}})
	start := actor.Handle(worker, "start", func(_ context.Context, s *steps, _ actor.None) (int, error) { return s.N, nil })
	typ := actor.NewType("flow", actor.Options[steps]{})
	count := actor.Stream(typ, "count", func(ctx context.Context, s *steps, how int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range 200 {
				switch {
				case i < 100:
				case how == 1:
					panic("in the stream")
				case how == 2:
					s.N++
				case how == 3:
					runtime.Goexit()
				}
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	sum := actor.Collect(typ, "sum", func(ctx context.Context, s *steps, in iter.Seq2[int, error]) (int, error) {
		for v := range in {
			switch v {
			case 101:
				panic("in the sum")
			case 103:
				runtime.Goexit()
			}
		}
		return 0, errOwn
	})
	bubble(t, 2, []actor.Registered{typ, worker}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Minute)
		names := func(what string, err error, words string) {
			t.Helper()
			if err == nil || strings.Contains(err.Error(), "@") || !strings.Contains(err.Error(), words) {
				t.Errorf("%s: %v", what, err)
			}
		}
		over, done := context.WithCancel(ctx)
		done()
		for how := range 4 {
			ctx, what := ctx, fmt.Sprint("stream ", how)
			if how == 0 {
				ctx = over
			}
			var last error
			for _, last = range count.Ask(ctx, c, "k", how) {
			}
			names(what, last, "count flow/k at version")
			if how == 1 || how == 3 {
				names(what, last, "count of flow/k")
			}
			_, err := sum.Send(ctx, c, "k", func(yield func(int, error) bool) {
				for range 100 {
					if !yield(0, nil) {
						return
					}
				}
				yield(100+how, nil)
			})
			names(what, err, "sum flow/k at version")
			if how == 1 || how == 3 {
				names(what, err, "sum of flow/k")
			}
		}
		must(start.Ask(ctx, c, "k", actor.None{}))
		names("the body", <-bad, "Do of worker/k panicked")
	})
}
