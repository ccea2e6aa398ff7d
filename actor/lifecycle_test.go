package actor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

type visits struct {
	N    int
	Tags []string
	M    actor.Map[string, int]
	seen int // as long as the activation lives
}

// visitor is a type that notes its life.
func visitor(j *journal, o actor.Options[visits]) (*actor.Type[visits], *actor.Method[actor.None, int]) {
	o.OnActivate = func(ctx context.Context, v *visits) error {
		j.note("activate %s on %s at %d", actor.Current(ctx).Key(), actor.Current(ctx).Member(), v.N)
		v.seen = 100
		return nil
	}
	o.OnDeactivate = func(ctx context.Context, v *visits, reason string) {
		if ctx.Err() == nil {
			j.note("its context has not ended")
		}
		j.note("%s at %d", reason, v.N)
	}
	typ := actor.NewType("visits", o)
	visit := actor.Handle(typ, "visit", func(context.Context, *visits, actor.None) (int, error) { return 0, nil })
	*visit = *actor.Handle(typ, "count", func(_ context.Context, v *visits, _ actor.None) (int, error) {
		v.N++
		v.seen++
		return v.seen, nil
	})
	return typ, visit
}

// An activation that a handler has ended, or its failure, is told so.
func TestStoppedActivations(t *testing.T) {
	j := &journal{}
	typ, visit := visitor(j, actor.Options[visits]{OnFailure: actor.Stop})
	stop := actor.Handle(typ, "stop", func(ctx context.Context, v *visits, fail bool) (int, error) {
		if fail {
			return 0, errOwn
		}
		actor.Current(ctx).Stop()
		v.N += 10
		return v.N, nil
	})
	bubble(t, 1, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		for i, fail := range []bool{false, true} {
			must(visit.Ask(ctx, c, "k", actor.None{}))
			j.take()
			if _, err := stop.Ask(ctx, c, "k", fail); (err != nil) != fail {
				t.Error(err)
			}
			time.Sleep(time.Second)
			j.want(t, fmt.Sprintf("failed %t", fail), fmt.Sprintf("stopped at %d", 11+i))
		}
	})
}

// An activation is begun before its first message and ended once, with the reason; its state lives on.
func TestActivations(t *testing.T) {
	j := &journal{}
	typ, visit := visitor(j, actor.Options[visits]{Idle: time.Minute})
	bubble(t, 4, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		key := keyOwnedBy(c, "visits", 0)
		ask := func(i int, want int) {
			t.Helper()
			if got := must(visit.Ask(ctx, c.Node(i), key, actor.None{})); got != want {
				t.Errorf("seen %d, want %d", got, want)
			}
		}
		ask(1, 101)
		ask(2, 102)
		j.want(t, "two messages", "activate "+key+" on m0 at 0")
		time.Sleep(59 * time.Second)
		ask(0, 103)
		j.want(t, "within the idle time")
		time.Sleep(2 * time.Minute)
		j.want(t, "idle", "idle at 3")
		ask(0, 101)
		j.want(t, "again", "activate "+key+" on m0 at 3")
		c.Remove(0)
		j.want(t, "moved", "moved at 4")
		ask(1, 101)
		now := c.Owner("visits", key)
		j.want(t, "elsewhere", fmt.Sprintf("activate %s on m%d at 4", key, now))
		c.Kill(now)
		j.want(t, "killed", "closing at 5")
		ask(now%3+1, 101)
		j.want(t, "after a crash", fmt.Sprintf("activate %s on m%d at 5", key, c.Owner("visits", key)))
	})
	j.want(t, "closed", "closing at 6")
}

var errOwn = errors.New("an error of the type")

// failing is a type whose messages fail in all ways.
func failing(j *journal, f actor.Failure) (typ *actor.Type[visits], fail *actor.Method[string, int], look *actor.Method[actor.None, [4]int], badQuery *actor.Method[string, actor.None]) {
	typ = actor.NewType("failing", actor.Options[visits]{OnFailure: f, Errors: map[uint16]error{1: errOwn},
		OnActivate:   func(_ context.Context, v *visits) error { v.seen = 100; j.note("activate"); return nil },
		OnDeactivate: func(_ context.Context, v *visits, why string) { j.note("deactivate") },
	})
	fail = actor.Handle(typ, "fail", func(_ context.Context, v *visits, how string) (int, error) {
		v.N++
		v.seen++
		v.Tags = append(v.Tags, how)
		v.M.Set(how, v.N)
		switch how {
		case "error":
			return 0, fmt.Errorf("as asked: %w", errOwn)
		case "panic":
			panic(how)
		case "goexit":
			runtime.Goexit()
		}
		return v.N, nil
	})
	look = actor.Query(typ, "look", func(_ context.Context, v *visits, _ actor.None) ([4]int, error) {
		return [4]int{v.N, len(v.Tags), v.M.Len(), v.seen}, nil
	})
	badQuery = actor.Query(typ, "bad", func(_ context.Context, v *visits, how string) (actor.None, error) {
		v.N += 1000
		v.M.Set("query", 1)
		v.Tags = append(v.Tags, "query")
		switch how {
		case "error":
			return actor.None{}, errOwn
		case "panic":
			panic(how)
		}
		return actor.None{}, nil
	})
	return typ, fail, look, badQuery
}

// What becomes of the state after a failure is what the type says; that of a query leaves nothing, whatever it says.
func TestSupervision(t *testing.T) {
	for f, want := range map[actor.Failure]struct {
		error, panic, goexit [4]int // N, tags, entries, seen
		activations, ends    int    // by three failures
	}{
		actor.Undo:  {[4]int{1, 1, 1, 102}, [4]int{1, 1, 1, 103}, [4]int{1, 1, 1, 100}, 1, 0}, // who ends the goroutine loses what it had
		actor.Reset: {[4]int{1, 1, 1, 100}, [4]int{1, 1, 1, 100}, [4]int{1, 1, 1, 100}, 3, 0},
		actor.Keep:  {[4]int{2, 2, 2, 102}, [4]int{3, 3, 3, 103}, [4]int{3, 3, 3, 100}, 1, 0},
		actor.Stop:  {[4]int{1, 1, 1, 100}, [4]int{1, 1, 1, 100}, [4]int{1, 1, 1, 100}, 3, 2},
	} {
		t.Run(fmt.Sprint(f), func(t *testing.T) {
			j := &journal{}
			typ, fail, look, bad := failing(j, f)
			bubble(t, 1, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
				ctx := within(t, time.Hour)
				must(fail.Ask(ctx, c, "a", "not"))
				j.want(t, "first", "activate")
				check := func(what string, want [4]int) {
					t.Helper()
					for range 2 {
						if got := must(look.Ask(ctx, c, "a", actor.None{})); got != want {
							t.Errorf("after %s: %v, want %v", what, got, want)
						}
					}
				}
				for how, want := range map[string]error{"error": errOwn, "panic": chainmail.ErrFailed, "": chainmail.ErrFailed} {
					before := must(look.Ask(ctx, c, "a", actor.None{}))
					if _, err := bad.Ask(ctx, c, "a", how); !errors.Is(err, want) {
						t.Errorf("a query that changes things and ends with %q gives %v", how, err)
					}
					before[3] = 100 // a state that is not built anew is checked below
					got := must(look.Ask(ctx, c, "a", actor.None{}))
					if got[3] = 100; got != before {
						t.Errorf("after a query: %v, want %v", got, before)
					}
				}
				synctest.Wait()                          // an activation's end is noted after the answer that caused it
				if f == actor.Stop || f == actor.Reset { // begin anew
					j.take()
				}
				for _, x := range []struct {
					how  string
					want [4]int
				}{{"error", want.error}, {"panic", want.panic}} {
					if _, err := fail.Ask(ctx, c, "a", x.how); !errors.Is(err, chainmail.ErrFailed) || errors.Is(err, errOwn) != (x.how == "error") {
						t.Errorf("%s gives %v", x.how, err)
					}
					check(x.how, x.want)
				}
				synctest.Wait()
				acts, ends := 0, 0
				for _, what := range j.take() {
					if what == "activate" {
						acts++
					} else {
						ends++
					}
				}
				if acts != want.activations-1 || ends != want.ends {
					t.Errorf("%d activations and %d ends", acts, ends)
				}
				if _, err := fail.Ask(ctx, c, "a", "goexit"); !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "ended its goroutine") {
					t.Errorf("a handler that ends its goroutine gives %v", err)
				}
				check("goexit", want.goexit)
			})
		})
	}
}
