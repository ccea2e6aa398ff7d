package actor_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// A query that asks for timers, reminders, a delete or a stop is told so, on every way by which it can be answered, and so
// is a handler that has returned; nothing of it comes about.
func TestQueriesAskForNothing(t *testing.T) {
	for name, o := range map[string]actor.Options[steps]{"usual": {}, "local": {LocalReads: true}, "inline": {LocalReads: true, Inline: true}} {
		t.Run(name, func(t *testing.T) { queriesAskForNothing(t, o) })
	}
}

func queriesAskForNothing(t *testing.T, o actor.Options[steps]) {
	var late context.Context
	typ := actor.NewType("quiet", o)
	tick := actor.Handle(typ, "tick", func(_ context.Context, s *steps, _ actor.None) (int, error) { s.N++; return s.N, nil })
	ask := func(ctx context.Context, how int) error {
		switch how {
		case 1:
			return actor.After(ctx, "a", time.Second, tick, actor.None{})
		case 2:
			return actor.Every(ctx, "a", time.Second, tick, actor.None{})
		case 3:
			return actor.Remind(ctx, "a", time.Now().Add(time.Second), 0, tick, actor.None{})
		case 4:
			actor.StopTimer(ctx, "a")
		case 5:
			actor.StopReminder(ctx, "a")
		case 6:
			actor.Current(ctx).Delete()
		case 7:
			actor.Current(ctx).Stop()
		}
		return nil
	}
	query := actor.Query(typ, "query", func(ctx context.Context, s *steps, how int) (int, error) { return s.N, ask(ctx, how) })
	flow := actor.Stream(typ, "flow", func(ctx context.Context, s *steps, how int) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) { yield(s.N, ask(ctx, how)) }
	})
	keep := actor.Handle(typ, "keep", func(ctx context.Context, s *steps, _ actor.None) (int, error) { late = ctx; return s.N, nil })
	keepQuery := actor.Query(typ, "keepQuery", func(ctx context.Context, s *steps, _ actor.None) (int, error) { late = ctx; return s.N, nil })
	bubble(t, 2, []actor.Registered{typ}, func(t *testing.T, c *chainmailtest.Cluster) {
		ctx := within(t, time.Hour)
		key := keyOwnedBy(c, "quiet", 0)
		must(tick.Ask(ctx, c, key, actor.None{}))
		for how := 1; how <= 7; how++ {
			for m := range 2 {
				if _, err := query.Ask(ctx, c.Node(m), key, how); !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "by a query") {
					t.Errorf("query %d from member %d gives %v", how, m, err)
				}
				var last error
				for _, last = range flow.Ask(ctx, c.Node(m), key, how) {
				}
				if !errors.Is(last, chainmail.ErrFailed) || !strings.Contains(last.Error(), "by a query") {
					t.Errorf("stream %d from member %d gives %v", how, m, last)
				}
			}
		}
		if n, err := query.Ask(ctx, c, key, 0); n != 1 || err != nil {
			t.Errorf("a query that asks for nothing: %d, %v", n, err)
		}
		for _, m := range []*actor.Method[actor.None, int]{keep, keepQuery} {
			must(m.Ask(ctx, c.Node(0), key, actor.None{}))
			for how := 1; how <= 7; how++ {
				if err := ask(late, how); how <= 3 && (err == nil || !strings.Contains(err.Error(), "has returned")) {
					t.Errorf("%d after the return of %s: %v", how, m.Name(), err)
				}
			}
		}
		time.Sleep(time.Minute)
		if n := must(query.Ask(ctx, c, key, 0)); n != 1 {
			t.Errorf("then the state is %d", n)
		}
	})
}
