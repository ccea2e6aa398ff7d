package chainmail_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"chainmail"
	"chainmail/actor"
)

// One member in memory, for tests and for trying things out.
func ExampleStart() {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	node, err := chainmail.Start(ctx, chainmail.Config{Dev: true})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	for range 3 {
		if _, err := node.Counter().Add(ctx, "visits", 2); err != nil {
			log.Fatal(err)
		}
	}
	sum, err := node.Counter().Get(ctx, "visits")
	fmt.Println(sum, err)
	// Output: 6 <nil>
}

// A value is replaced only by who has seen it.
func ExampleKV_CompareAndSwap() {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	node, err := chainmail.Start(ctx, chainmail.Config{Dev: true})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	kv := node.KV()
	stamp, err := kv.CompareAndSwap(ctx, "leader", "", []byte("a"))
	fmt.Println("first:", err)
	_, err = kv.CompareAndSwap(ctx, "leader", "", []byte("b"))
	fmt.Println("second:", errors.Is(err, chainmail.ErrStampMismatch))
	_, err = kv.CompareAndSwap(ctx, "leader", stamp, []byte("c"))
	fmt.Println("third:", err)
	value, _, err := kv.Get(ctx, "leader")
	fmt.Println(string(value), err)
	// Output:
	// first: <nil>
	// second: true
	// third: <nil>
	// c <nil>
}

type Account struct{ Balance int64 }

var errOverdrawn = errors.New("not enough money")

var Accounts = actor.NewType("bank.account", actor.Options[Account]{Errors: map[uint16]error{1: errOverdrawn}})

var Book = actor.Handle(Accounts, "book", func(ctx context.Context, a *Account, amount int64) (int64, error) {
	if a.Balance += amount; a.Balance < 0 {
		return 0, errOverdrawn // and the balance is what it was
	}
	return a.Balance, nil
})

// An actor type of the application's own: a handler that fails changes nothing.
func Example_ownType() {
	ctx, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	node, err := chainmail.Start(ctx, chainmail.Config{Dev: true, Types: []actor.Registered{Accounts}})
	if err != nil {
		log.Fatal(err)
	}
	defer node.Close()
	fmt.Println(Book.Ask(ctx, node, "alice", 10))
	_, err = Book.Ask(ctx, node, "alice", -15)
	fmt.Println(errors.Is(err, errOverdrawn))
	fmt.Println(Book.Ask(ctx, node, "alice", -5))
	// Output:
	// 10 <nil>
	// true
	// 5 <nil>
}
