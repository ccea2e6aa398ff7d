package chainmailtest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"chainmail/actor"
	"chainmail/chainmailtest"
)

type alarm struct{ Rang time.Time }

func newAlarm() (t *actor.Type[alarm], set *actor.Method[time.Duration, actor.None], rang *actor.Method[actor.None, time.Time]) {
	t = actor.NewType("alarm", actor.Options[alarm]{})
	ring := actor.Handle(t, "ring", func(_ context.Context, a *alarm, _ actor.None) (actor.None, error) {
		a.Rang = time.Now()
		return actor.None{}, nil
	})
	set = actor.Handle(t, "set", func(ctx context.Context, a *alarm, d time.Duration) (actor.None, error) {
		return actor.None{}, actor.Remind(ctx, "alarm", time.Now().Add(d), 0, ring, actor.None{})
	})
	rang = actor.Query(t, "rang", func(_ context.Context, a *alarm, _ actor.None) (time.Time, error) { return a.Rang, nil })
	return t, set, rang
}

func TestReminderInVirtualTime(t *testing.T) {
	real := time.Now()
	defer func() { t.Log("real", time.Since(real)) }()
	synctest.Test(t, func(t *testing.T) {
		typ, set, rang := newAlarm()
		c := chainmailtest.New(t, chainmailtest.Options{Types: []actor.Registered{typ}})
		ctx, due := t.Context(), time.Now().Add(time.Hour)
		if _, err := set.Ask(ctx, c, "a", time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Second)
		if at, err := rang.Ask(ctx, c, "a", actor.None{}); err != nil || !at.IsZero() {
			t.Fatal(at, err)
		}
		time.Sleep(2 * time.Second)
		at, err := rang.Ask(ctx, c, "a", actor.None{})
		if d := at.Sub(due); err != nil || d < 0 || d > time.Second {
			t.Errorf("an alarm for %s rang at %s, %v", due, at, err)
		}
	})
}
