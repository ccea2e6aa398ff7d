package chainmail_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
)

var errPoor = errors.New("not enough money")

type account struct {
	Owner   string
	Balance int64
	Tags    []string
	Moves   actor.List[int64]
	Limits  actor.Map[string, int]
	asks    int
}

// bank is a type with all kinds of methods, made anew for each test.
type bank struct {
	t       *actor.Type[account]
	deposit *actor.Method[int64, int64]
	balance *actor.Method[actor.None, int64]
	panics  *actor.Method[string, actor.None]
	pay     *actor.Method[payment, int64]
	spoil   *actor.Method[actor.None, actor.None]
	moves   *actor.Source[int, int64]
	many    *actor.Sink[int64, int64]
	remove  *actor.Method[actor.None, actor.None]
}

type payment struct {
	To     string
	Amount int64
}

func newBank(o actor.Options[account]) *bank {
	o.Errors = map[uint16]error{1: errPoor}
	b := &bank{t: actor.NewType("bank.account", o)}
	b.deposit = actor.Handle(b.t, "deposit", func(ctx context.Context, a *account, amount int64) (int64, error) {
		a.Balance += amount
		a.Moves.Append(amount)
		a.asks++
		if a.Balance < 0 {
			return 0, fmt.Errorf("%d: %w", a.Balance, errPoor)
		}
		return a.Balance, nil
	})
	b.balance = actor.Query(b.t, "balance", func(ctx context.Context, a *account, _ actor.None) (int64, error) { return a.Balance, nil })
	b.panics = actor.Handle(b.t, "panic", func(ctx context.Context, a *account, text string) (actor.None, error) {
		a.Tags = append(a.Tags, text)
		a.Limits.Set(text, 1)
		a.Balance = 1 << 40
		panic(text)
	})
	b.pay = actor.Handle(b.t, "pay", func(ctx context.Context, a *account, p payment) (int64, error) {
		if a.Balance < p.Amount {
			return 0, errPoor
		}
		a.Balance -= p.Amount
		return b.deposit.Ask(ctx, actor.Node(ctx), p.To, p.Amount)
	})
	b.spoil = actor.Query(b.t, "spoil", func(ctx context.Context, a *account, _ actor.None) (actor.None, error) {
		a.Balance++
		return actor.None{}, nil
	})
	b.moves = actor.Stream(b.t, "moves", func(ctx context.Context, a *account, from int) iter.Seq2[int64, error] {
		return func(yield func(int64, error) bool) {
			for i := uint64(from); i < a.Moves.Next(); i++ {
				if v, _ := a.Moves.At(i); !yield(v, nil) {
					return
				}
			}
		}
	})
	b.many = actor.Collect(b.t, "many", func(ctx context.Context, a *account, in iter.Seq2[int64, error]) (int64, error) {
		for v, err := range in {
			if err != nil {
				return 0, err
			}
			a.Balance += v
		}
		return a.Balance, nil
	})
	b.remove = actor.Handle(b.t, "remove", func(ctx context.Context, a *account, _ actor.None) (actor.None, error) {
		actor.Current(ctx).Delete()
		return actor.None{}, nil
	})
	return b
}

func devNode(t *testing.T, types ...actor.Registered) (context.Context, *chainmail.Node) {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(done)
	n, err := chainmail.Start(ctx, chainmail.Config{Dev: true, Types: types})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return ctx, n
}

func TestOwnType(t *testing.T) {
	b := newBank(actor.Options[account]{})
	ctx, n := devNode(t, b.t)
	for i := range 3 {
		if sum, err := b.deposit.Ask(ctx, n, "alice", 10); err != nil || sum != int64(10*(i+1)) {
			t.Fatal(sum, err)
		}
	}
	if _, err := b.deposit.Ask(ctx, n, "alice", -100); !errors.Is(err, errPoor) || !errors.Is(err, chainmail.ErrFailed) {
		t.Errorf("a refused deposit gives %v", err)
	}
	if _, err := b.panics.Ask(ctx, n, "alice", "oops"); !errors.Is(err, chainmail.ErrFailed) {
		t.Errorf("a panic gives %v", err)
	}
	if _, err := b.spoil.Ask(ctx, n, "alice", actor.None{}); !errors.Is(err, chainmail.ErrFailed) {
		t.Errorf("a query that changes the state gives %v", err)
	}
	if sum, err := b.balance.Ask(ctx, n, "alice", actor.None{}); err != nil || sum != 30 {
		t.Errorf("after failures the balance is %d, %v", sum, err)
	}
	if sum, err := b.pay.Ask(ctx, n, "alice", payment{"bob", 25}); err != nil || sum != 25 {
		t.Error(sum, err)
	}
	if _, err := b.pay.Ask(ctx, n, "bob", payment{"bob", 5}); !errors.Is(err, chainmail.ErrFailed) {
		t.Errorf("paying oneself gives %v", err)
	}
	var got []int64
	for v, err := range b.moves.Ask(ctx, n, "alice", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if fmt.Sprint(got) != "[10 10 10]" {
		t.Errorf("moves are %v", got)
	}
	sum, err := b.many.Send(ctx, n, "carol", func(yield func(int64, error) bool) {
		for range 1000 {
			if !yield(2, nil) {
				return
			}
		}
	})
	if err != nil || sum != 2000 {
		t.Error(sum, err)
	}
	if _, err := b.remove.Ask(ctx, n, "carol", actor.None{}); err != nil {
		t.Error(err)
	}
	if sum, err := b.balance.Ask(ctx, n, "carol", actor.None{}); err != nil || sum != 0 {
		t.Error(sum, err)
	}
}

func TestRequestTakesEffectOnce(t *testing.T) {
	b := newBank(actor.Options[account]{Window: 4})
	ctx, n := devNode(t, b.t)
	c, err := b.deposit.Call("alice", 10)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if sum, err := b.deposit.AskOnce(ctx, n, "bob", "a", 10); err != nil || sum != 10 {
			t.Errorf("a deposit under an id of the caller's gives %d, %v", sum, err)
		}
	}
	for _, id := range []string{"a", "b", "a", "b", "a"} {
		c.RequestID = id
		if _, err := n.AskActor(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := b.balance.Ask(ctx, n, "alice", actor.None{}); err != nil || sum != 20 {
		t.Errorf("two requests, repeated, give %d, %v", sum, err)
	}
	for i := range 1100 { // 256 times the window are remembered for some seconds, no more
		c.RequestID = fmt.Sprint("later", i)
		n.AskActor(ctx, c)
	}
	c.RequestID = "a" // out of the window: it is a new one
	n.AskActor(ctx, c)
	if sum, err := b.balance.Ask(ctx, n, "alice", actor.None{}); err != nil || sum != 11030 {
		t.Errorf("the window keeps another number of requests: %d, %v", sum, err)
	}
	for range 3 {
		if _, err := n.Once(ctx, "counter", "c", "add", []byte{0, 0, 0, 0, 0, 0, 0, 5}, chainmail.RequestID("x")); err != nil {
			t.Fatal(err)
		}
	}
	if sum, err := n.Counter().Get(ctx, "c"); err != nil || sum != 5 {
		t.Error(sum, err)
	}
}

func TestBodyTimersReminders(t *testing.T) {
	type worker struct {
		Steps, Ticks, Reminded, Once int
	}
	var mu sync.Mutex
	starts := 0
	typ := actor.NewType("worker", actor.Options[worker]{Run: func(ctx context.Context, self *actor.Self[worker]) error {
		mu.Lock()
		starts++
		first := starts == 1
		mu.Unlock()
		for range 3 {
			if err := self.Do(ctx, func(_ context.Context, w *worker) error { w.Steps++; return nil }); err != nil {
				return err
			}
		}
		if first {
			panic("once")
		}
		return nil
	}})
	tick := actor.Handle(typ, "tick", func(_ context.Context, w *worker, _ actor.None) (int, error) { w.Ticks++; return w.Ticks, nil })
	ring := actor.Handle(typ, "ring", func(_ context.Context, w *worker, n int) (int, error) { w.Reminded += n; return w.Reminded, nil })
	start := actor.Handle(typ, "start", func(ctx context.Context, w *worker, _ actor.None) (int, error) {
		if err := actor.Every(ctx, "t", time.Millisecond, tick, actor.None{}); err != nil {
			return 0, err
		}
		if err := actor.Remind(ctx, "r", time.Now(), 0, ring, 7); err != nil {
			return 0, err
		}
		return 0, actor.Remind(ctx, "later", time.Now().Add(time.Hour), 0, ring, 100)
	})
	stop := actor.Handle(typ, "stop", func(ctx context.Context, w *worker, _ actor.None) (int, error) {
		actor.StopReminder(ctx, "later")
		return 0, nil
	})
	look := actor.Query(typ, "look", func(_ context.Context, w *worker, _ actor.None) (worker, error) { return *w, nil })
	ctx, n := devNode(t, typ)
	if _, err := start.Ask(ctx, n, "w", actor.None{}); err != nil {
		t.Fatal(err)
	}
	until(t, ctx, "the body has run twice, a timer often, a reminder once", func() (bool, string) {
		w, err := look.Ask(ctx, n, "w", actor.None{})
		return err == nil && w.Steps == 6 && w.Ticks > 3 && w.Reminded == 7, fmt.Sprintf("%+v %v", w, err)
	})
	if _, err := stop.Ask(ctx, n, "w", actor.None{}); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition.
func until(t *testing.T, ctx context.Context, what string, ok func() (bool, string)) {
	t.Helper()
	last := ""
	for {
		yes, how := ok()
		if yes {
			return
		}
		last = how
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s; last %s", what, last)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// A request that is repeated so late that it may have been dropped from the window is not run again.
func TestLateRepeatIsNotRunTwice(t *testing.T) {
	b := newBank(actor.Options[account]{Window: 2})
	ctx, n := devNode(t, b.t)
	for i := range 5 {
		if _, err := b.deposit.Ask(ctx, n, "alice", 1); err != nil {
			t.Fatal(i, err)
		}
	}
	c, err := b.deposit.Call("alice", 100)
	if err != nil {
		t.Fatal(err)
	}
	c.RequestID, c.Tried = "late", time.Minute
	if _, err := n.AskActor(ctx, c); !errors.Is(err, chainmail.ErrUnknownOutcome) {
		t.Errorf("a late repeat gives %v", err)
	}
	if sum, err := b.balance.Ask(ctx, n, "alice", actor.None{}); err != nil || sum != 5 {
		t.Error(sum, err)
	}
}
