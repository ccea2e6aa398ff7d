package main

import (
	"context"
	"time"

	"chainmail"
	"chainmail/actor"
)

// account is one account: its key is the owner's name. The ledger is what makes a step safe to repeat: what is in it was
// decided, and stays so.
type account struct {
	Balance int64
	Ledger  actor.Map[string, int64] // by transfer; 0: refused
}

// booking changes a balance on behalf of a transfer.
type booking struct {
	Transfer string
	Amount   int64
}

var accounts = actor.NewType("bank.account", actor.Options[account]{})

// book says whether the balance was changed. A refusal is kept too: a step of an activation that was overtaken may come
// late, and must not find another answer than the one that the transfer ended with.
var book = actor.Handle(accounts, "book", func(_ context.Context, a *account, b booking) (bool, error) {
	if was, known := a.Ledger.Get(b.Transfer); known {
		return was != 0, nil
	}
	if a.Balance+b.Amount < 0 {
		b.Amount = 0
	}
	a.Balance += b.Amount
	a.Ledger.Set(b.Transfer, b.Amount)
	return b.Amount != 0, nil
})

var balance = actor.Query(accounts, "balance", func(_ context.Context, a *account, _ actor.None) (int64, error) {
	return a.Balance, nil
})

// transfer is one transfer: its key is the transfer's id. Nobody else has to remember it: once it is ordered it ends.
type transfer struct {
	From, To string
	Amount   int64
	Outcome  string // "", done or refused
}

// order is what is known of a transfer before it begins.
type order struct {
	From, To string
	Amount   int64
}

const (
	done    = "done"
	refused = "refused"
)

// recoverEvery is how often a transfer that nobody carries out goes on by itself.
const recoverEvery = 500 * time.Millisecond

var transfers = actor.NewType("bank.transfer", actor.Options[transfer]{})

// place commits what is to be done, and the reminder to do it, before any money moves.
var place = actor.Handle(transfers, "place", func(ctx context.Context, t *transfer, o order) (actor.None, error) {
	if t.From != "" { // the caller asks again
		return actor.None{}, nil
	}
	t.From, t.To, t.Amount = o.From, o.To, o.Amount
	return actor.None{}, actor.Remind(ctx, "carry", time.Now().Add(recoverEvery), recoverEvery, carry, actor.None{})
})

// carry takes both steps. If it fails halfway, or its member dies, the reminder has it run again: what was booked stays
// booked, once.
var carry *actor.Method[actor.None, string]

func init() { // place and carry name each other
	carry = actor.Handle(transfers, "carry", func(ctx context.Context, t *transfer, _ actor.None) (string, error) {
		id, node := actor.Current(ctx).Key(), actor.Node(ctx)
		if t.Outcome != "" {
			return t.Outcome, nil
		}
		taken, err := book.Ask(ctx, node, t.From, booking{id, -t.Amount})
		if err != nil {
			return "", err
		}
		t.Outcome = refused
		if taken {
			if _, err := book.Ask(ctx, node, t.To, booking{id, t.Amount}); err != nil {
				return "", err // and the outcome is undone
			}
			t.Outcome = done
		}
		actor.StopReminder(ctx, "carry")
		return t.Outcome, nil
	})
}

// pay transfers money, and gives the outcome. If it fails the transfer may be under way: paying again with the same id
// is safe, and if it was placed it ends without that.
func pay(ctx context.Context, n *chainmail.Node, id string, o order) (string, error) {
	if _, err := place.Ask(ctx, n, id, o); err != nil {
		return "", err
	}
	return carry.Ask(ctx, n, id, actor.None{})
}

var outcome = actor.Query(transfers, "outcome", func(_ context.Context, t *transfer, _ actor.None) (string, error) {
	return t.Outcome, nil
})
