package chainmail_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"chainmail"
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
