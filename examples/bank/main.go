// Command bank moves money between accounts while members come, go and die, and shows that none is made or lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"sync/atomic"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/examples/internal/local"
)

const (
	people  = 10
	opening = 100
	workers = 4
)

func main() {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	cfg := chainmail.Config{Types: []actor.Registered{accounts, transfers}}
	nodes, err := local.Start(ctx, cfg, "a", "b", "c")
	b := &bank{nodes: nodes}
	defer b.close()
	if err != nil {
		return err
	}
	for i := range people {
		if _, err := book.Ask(ctx, nodes[0], owner(i), booking{"opening", opening}); err != nil {
			return err
		}
	}
	fmt.Printf("%d accounts with %d each\n", people, opening)
	if err := b.during(ctx, "d enters", func() error {
		d, err := local.Add(ctx, cfg, "d", nodes...)
		if err == nil {
			b.add(d)
		}
		return err
	}); err != nil {
		return err
	}
	if err := b.during(ctx, "b leaves", func() error {
		n := b.take("b")
		defer n.Close()
		if err := n.Leave(ctx); err != nil {
			return err
		}
		return local.WaitVotes(ctx, nodes[0], 3) // with two of three left, one may die
	}); err != nil {
		return err
	}
	if err := b.during(ctx, "c is killed", func() error {
		b.take("c").Close()     // without leaving
		for i := range people { // until every account is served by those that are left
			if _, err := balance.Ask(ctx, nodes[0], owner(i), actor.None{}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return b.check(ctx)
}

// bank makes transfers from any of its members.
type bank struct {
	mu    sync.Mutex
	nodes []*chainmail.Node
	next  atomic.Int64 // transfer
	again atomic.Int64 // asks that failed and were made again
}

func owner(i int) string { return fmt.Sprint("owner-", i%people) }

// orderOf is what a transfer is: some ask for more than there is.
func orderOf(i int) order {
	return order{owner(i), owner(i + 1 + i/people%7), int64(1 + (7*i+i/people)%23)}
}

func id(i int) string { return fmt.Sprint("transfer-", i) }

// alone says whether the caller goes away once a transfer is placed.
func alone(i int) bool { return i%10 == 3 }

// during makes transfers while something happens: some before it, and on until it is over.
func (b *bank) during(ctx context.Context, what string, happens func() error) error {
	fmt.Printf("%s while transfers run\n", what)
	var over atomic.Bool
	var wg sync.WaitGroup
	first := make(chan struct{}, workers)
	for range workers {
		wg.Go(func() {
			for n := 0; !over.Load(); n++ {
				b.transfer(ctx, int(b.next.Add(1)-1))
				if n == 0 {
					first <- struct{}{}
				}
			}
		})
	}
	<-first
	err := happens()
	over.Store(true)
	wg.Wait()
	return err
}

// transfer asks one member after the other until a transfer has ended, or is placed. Each attempt is bounded, ctx by main.
func (b *bank) transfer(ctx context.Context, i int) {
	for try := i; ctx.Err() == nil; try++ {
		n := b.member(try)
		var err error
		if alone(i) {
			_, err = place.Ask(ctx, n, id(i), orderOf(i))
		} else {
			_, err = pay(ctx, n, id(i), orderOf(i))
		}
		if err == nil {
			return
		}
		b.again.Add(1)
	}
}

// check waits until all transfers have ended, and compares the balances with what they make of them.
func (b *bank) check(ctx context.Context) error {
	n := b.member(0)
	want := map[string]int64{}
	for i := range people {
		want[owner(i)] = opening
	}
	count := map[string]int{}
	for i := range int(b.next.Load()) {
		out, err := ended(ctx, n, id(i))
		if err != nil {
			return err
		}
		count[out]++
		if o := orderOf(i); out == done {
			want[o.From] -= o.Amount
			want[o.To] += o.Amount
		}
	}
	fmt.Println("every transfer has ended")
	log.Printf("%d done, %d refused, %d asks made again", count[done], count[refused], b.again.Load())
	total, wrong := int64(0), 0
	for name, w := range want {
		sum, err := balance.Ask(ctx, n, name, actor.None{})
		if err != nil {
			return err
		}
		if total += sum; sum != w {
			wrong++
		}
	}
	fmt.Printf("balances that are not what the transfers make of them: %d\n", wrong)
	fmt.Printf("total %d\n", total)
	if wrong > 0 || total != people*opening {
		return errors.New("money was made or lost")
	}
	return nil
}

// ended waits for a transfer's outcome: one that was left alone goes on by its reminder.
func ended(ctx context.Context, n *chainmail.Node, id string) (string, error) {
	for {
		out, err := outcome.Ask(ctx, n, id, actor.None{})
		if err != nil || out != "" {
			return out, err
		}
		select {
		case <-time.After(recoverEvery / 10):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (b *bank) member(i int) *chainmail.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[i%len(b.nodes)]
}

func (b *bank) add(n *chainmail.Node) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes[:len(b.nodes):len(b.nodes)], n)
}

// take gives a member out of those that are asked.
func (b *bank) take(id string) *chainmail.Node {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []*chainmail.Node
	var out *chainmail.Node
	for _, n := range b.nodes {
		if n.ID() == id {
			out = n
		} else {
			left = append(left, n)
		}
	}
	b.nodes = left
	return out
}

func (b *bank) close() {
	for _, n := range b.nodes {
		n.Close()
	}
}
