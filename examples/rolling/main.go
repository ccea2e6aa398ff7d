// Command rolling restarts the members of a cluster one after the other under load, and shows that no caller notices.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/examples/internal/local"
)

const (
	members  = 5
	keys     = 100
	workers  = 8
	deadline = 5 * time.Second // of one ask
)

type tally struct{ Sum int64 }

var tallies = actor.NewType("tally", actor.Options[tally]{})

var count = actor.Handle(tallies, "count", func(_ context.Context, t *tally, by int64) (int64, error) {
	t.Sum += by
	return t.Sum, nil
})

var sum = actor.Query(tallies, "sum", func(_ context.Context, t *tally, _ actor.None) (int64, error) { return t.Sum, nil })

func main() {
	ctx, done := context.WithTimeout(context.Background(), time.Minute)
	defer done()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "rolling")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c := &cluster{dir: dir}
	defer c.close()
	for i := range members {
		if err := c.start(ctx, i); err != nil {
			return err
		}
	}
	if err := local.WaitVotes(ctx, c.slots[0].node, members); err != nil {
		return err
	}
	var l load
	l.begin(ctx, c)
	for i := range members {
		if err := c.restart(ctx, i); err != nil {
			return err
		}
		if err := l.more(ctx, keys); err != nil { // not only while members are away
			return err
		}
		fmt.Printf("member %s is back\n", name(i))
	}
	l.end()
	return l.verdict(ctx, c)
}

// cluster is members that keep their state in directories: a restarted one has what it had, so that nothing has to move.
type cluster struct {
	dir   string
	slots [members]slot
}

// slot is a place for one member. Callers hold use while they ask it, so that it is stopped when nobody does: as a load
// balancer drains a host before it is restarted.
type slot struct {
	use  sync.RWMutex
	node *chainmail.Node
}

func name(i int) string { return string(rune('a' + i)) }

// start starts a member on its directory, and on the address that the others know it by.
func (c *cluster) start(ctx context.Context, i int) error {
	s := &c.slots[i]
	cfg := chainmail.Config{DataDir: filepath.Join(c.dir, name(i)), Types: []actor.Registered{tallies}}
	if s.node != nil {
		cfg.BindAddr = s.node.Addr()
	}
	var others []*chainmail.Node
	for j := range c.slots {
		if n := c.slots[j].node; j != i && n != nil {
			others = append(others, n)
		}
	}
	if len(others) == 0 {
		cfg.BootstrapExpect = 1
	}
	n, err := local.Add(ctx, cfg, name(i), others...)
	if err == nil {
		s.node = n
	}
	return err
}

func (c *cluster) restart(ctx context.Context, i int) error {
	s := &c.slots[i]
	s.use.Lock()
	defer s.use.Unlock()
	if err := s.node.Close(); err != nil {
		return err
	}
	return c.start(ctx, i)
}

// ask has a member that is not being restarted make a call.
func (c *cluster) ask(i int, call func(*chainmail.Node) error) error {
	for {
		if s := &c.slots[i%members]; s.use.TryRLock() {
			defer s.use.RUnlock()
			return call(s.node)
		}
		i++
	}
}

func (c *cluster) close() {
	for i := range c.slots {
		if n := c.slots[i].node; n != nil {
			n.Close()
		}
	}
}

// load counts in all keys, and what was acknowledged.
type load struct {
	wg     sync.WaitGroup
	over   atomic.Bool
	acked  [keys]atomic.Int64
	total  atomic.Int64
	failed atomic.Int64
	each   chan struct{} // one value for an acknowledged ask, if somebody waits for it

	mu      sync.Mutex
	slowest time.Duration
}

func (l *load) begin(ctx context.Context, c *cluster) {
	l.each = make(chan struct{})
	for w := range workers {
		l.wg.Go(func() {
			for i := w; !l.over.Load(); i += workers {
				l.one(ctx, c, i)
			}
		})
	}
}

func (l *load) one(ctx context.Context, c *cluster, i int) {
	k := i % keys
	ctx, done := context.WithTimeout(ctx, deadline)
	defer done()
	began := time.Now()
	if err := c.ask(i/keys, func(n *chainmail.Node) error {
		_, err := count.Ask(ctx, n, fmt.Sprint("tally-", k), 1)
		return err
	}); err != nil {
		log.Print(err)
		l.failed.Add(1)
		return
	}
	l.mu.Lock()
	l.slowest = max(l.slowest, time.Since(began))
	l.mu.Unlock()
	l.acked[k].Add(1)
	l.total.Add(1)
	select {
	case l.each <- struct{}{}:
	default:
	}
}

// more waits for so many acknowledged asks.
func (l *load) more(ctx context.Context, n int) error {
	for range n {
		select {
		case <-l.each:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *load) end() {
	l.over.Store(true)
	l.wg.Wait()
}

// verdict compares every key with what was acknowledged: less is lost, more was counted twice.
func (l *load) verdict(ctx context.Context, c *cluster) error {
	var lost, twice int64
	for k := range keys {
		got, err := sum.Ask(ctx, c.slots[k%members].node, fmt.Sprint("tally-", k), actor.None{})
		if err != nil {
			return err
		}
		lost += max(0, l.acked[k].Load()-got)
		twice += max(0, got-l.acked[k].Load())
	}
	log.Printf("%d asks, the slowest took %s", l.total.Load(), l.slowest.Round(time.Millisecond))
	fmt.Printf("failed asks %d\nlost %d\ncounted twice %d\n", l.failed.Load(), lost, twice)
	if l.failed.Load()+lost+twice > 0 {
		return errors.New("verdict FAIL")
	}
	fmt.Println("verdict PASS")
	return nil
}
