// Package actor lets an application write its own actor types: a plain struct for the state, functions for the messages.
//
//	type Account struct {
//		Owner   string
//		Balance int64
//		Moves   actor.List[Move]
//	}
//
//	var (
//		Accounts = actor.NewType("bank.account", actor.Options[Account]{})
//		Deposit  = actor.Handle(Accounts, "deposit", func(ctx context.Context, a *Account, amount int64) (int64, error) {
//			a.Balance += amount
//			return a.Balance, nil
//		})
//		Balance = actor.Query(Accounts, "balance", func(ctx context.Context, a *Account, _ actor.None) (int64, error) {
//			return a.Balance, nil
//		})
//	)
//
//	node, err := chainmail.Start(ctx, chainmail.Config{Types: []actor.Registered{Accounts}})
//	sum, err := Deposit.Ask(ctx, node, "alice", 10)
//
// What a handler has changed is committed to the key's replicas before its caller is answered. If it returns an error, or
// panics, nothing is: the state is what it was before. One message of a key is run at a time, by the member that owns it.
//
// # State
//
// Each exported field is one page, the unit that is replicated when it has changed; a field with the tag `page:"-"`, or an
// unexported one, lives as long as the activation and is not kept. Map, List and Blob keep a page per entry or block, so
// that a small change of a big state stays small on the wire. They may be used as fields of the state only, not deeper.
//
// What a newer version of the type has written and this one does not know stays: pages as they are, and fields within pages
// with the struct, the map's key or the container's entry that they are in. An element of a slice keeps them as long as this
// version does not change it; one that it changes loses them, so that none can take over another's.
//
// # Concurrency
//
// A handler has the state to itself until it returns; it must not keep it, nor give it to other goroutines. Package-level
// functions and Types may be used from any goroutine. Everything here works without a cluster too: the zero values of
// the containers hold what is put into them.
package actor
