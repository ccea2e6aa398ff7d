package chainmail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testConfig(t testing.TB, id string) Config {
	c := Config{NodeID: id, BindAddr: "127.0.0.1:0", Store: StoreMemory,
		Raft: Raft{Heartbeat: 300 * time.Millisecond}, Membership: Membership{DownAfter: 1500 * time.Millisecond, RemoveDownAfter: -1}}
	if os.Getenv("CHAINMAIL_TEST_LOG") != "" {
		c.Logger = hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.LevelFromString(os.Getenv("CHAINMAIL_TEST_LOG"))})
	}
	return c
}

func start(t testing.TB, c Config) *Node {
	t.Helper()
	n, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		begin := time.Now()
		if err := n.Close(); err != nil {
			t.Errorf("close %s: %v", n.ID(), err)
		}
		if d := time.Since(begin); d > 5*time.Second {
			t.Errorf("close of %s took %s", n.ID(), d)
		}
	})
	return n
}

func limit(t testing.TB, d time.Duration) context.Context {
	ctx, done := context.WithTimeout(t.Context(), d)
	t.Cleanup(done)
	return ctx
}

// cluster starts k members and forms a cluster of them.
func cluster(t testing.TB, k int, edit func(*Config)) []*Node {
	t.Helper()
	voters := map[string]string{}
	var nodes []*Node
	for i := range k {
		c := testConfig(t, fmt.Sprintf("m%d", i+1))
		if edit != nil {
			edit(&c)
		}
		n := start(t, c)
		voters[n.ID()] = n.Addr()
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		if err := n.Coordinator().Bootstrap(voters, true); err != nil {
			t.Fatal(err)
		}
	}
	ready(t, nodes...)
	return nodes
}

func ready(t testing.TB, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.WaitReady(limit(t, 15*time.Second)); err != nil {
			t.Fatalf("%s is not ready: %v\n%s", n.ID(), err, n.Coordinator().Placement())
		}
	}
}

func TestDevNode(t *testing.T) {
	n := start(t, Config{Dev: true})
	ctx := limit(t, 5*time.Second)
	if sum, err := n.Counter().Add(ctx, "visits", 2); err != nil || sum != 2 {
		t.Fatal(sum, err)
	}
	if _, _, err := n.KV().Get(ctx, "a"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	stamp, err := n.KV().Put(ctx, "a", []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.KV().CompareAndSwap(ctx, "a", "", []byte("y")); !errors.Is(err, ErrStampMismatch) {
		t.Fatal(err)
	}
	if _, err := n.KV().CompareAndSwap(ctx, "a", stamp, []byte("y")); err != nil {
		t.Fatal(err)
	}
	v, _, err := n.KV().Get(ctx, "a")
	if err != nil || string(v) != "y" {
		t.Fatal(string(v), err)
	}
	if was, err := n.KV().Delete(ctx, "a"); err != nil || !was {
		t.Fatal(was, err)
	}
	if _, _, err := n.KV().Get(ctx, "a"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

// load adds to counters until stop, and says what was acknowledged and attempted.
type load struct {
	acked, tried [50]atomic.Int64
	failed       atomic.Int64
	unknown      atomic.Int64
	done         chan struct{}
	wg           sync.WaitGroup
	first        atomic.Pointer[error]
	slowest      atomic.Int64
}

func (l *load) run(t *testing.T, nodes func() []*Node, workers int) {
	l.done = make(chan struct{})
	for w := range workers {
		l.wg.Go(func() {
			for i := w; ; i++ {
				select {
				case <-l.done:
					return
				default:
				}
				k := i % len(l.tried)
				ns := nodes()
				n := ns[i%len(ns)]
				l.tried[k].Add(1)
				begin := time.Now()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, err := n.Counter().Add(ctx, fmt.Sprint("c", k), 1)
				cancel()
				l.slowest.Store(max(l.slowest.Load(), int64(time.Since(begin))))
				switch {
				case err == nil:
					l.acked[k].Add(1)
				case errors.Is(err, ErrUnknownOutcome):
					l.unknown.Add(1)
					l.first.CompareAndSwap(nil, &err)
				default:
					l.tried[k].Add(-1)
					l.failed.Add(1)
					l.first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
}

// stop ends the load and checks every counter: within what was acknowledged and what was attempted.
func (l *load) stop(t *testing.T, n *Node, errorsAllowed bool) {
	t.Helper()
	close(l.done)
	l.wg.Wait()
	total := int64(0)
	for k := range l.acked {
		sum, err := n.Counter().Get(limit(t, 5*time.Second), fmt.Sprint("c", k))
		if err != nil || sum < l.acked[k].Load() || sum > l.tried[k].Load() {
			t.Errorf("counter c%d is %d (%v), acknowledged %d, attempted %d", k, sum, err, l.acked[k].Load(), l.tried[k].Load())
		}
		total += l.acked[k].Load()
	}
	t.Logf("%d adds acknowledged, %d failed, %d unknown, slowest %s", total, l.failed.Load(), l.unknown.Load(), time.Duration(l.slowest.Load()))
	if total == 0 {
		t.Error("no add was acknowledged")
	}
	if e := l.first.Load(); e != nil && !errorsAllowed {
		t.Errorf("callers saw errors, the first: %v", *e)
	}
}

func waitChange(t *testing.T, n *Node, id string) membership.Change {
	t.Helper()
	ctx := limit(t, 30*time.Second)
	for {
		ch, err := n.Coordinator().Change(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if ch.Outcome != membership.Running {
			return ch
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			pr, _ := n.Progress(t.Context(), id)
			t.Fatalf("change %s does not end: %s, waiting %v", id, pr, pr.Waiting)
		}
	}
}

func TestGrowAndShrinkUnderLoad(t *testing.T) {
	nodes := cluster(t, 1, nil)
	var l load
	var mu sync.Mutex
	l.run(t, func() []*Node { mu.Lock(); defer mu.Unlock(); return nodes }, 4)
	var add []string
	for i := 2; i <= 4; i++ {
		n := start(t, testConfig(t, fmt.Sprintf("m%d", i)))
		if err := n.Coordinator().Join(limit(t, 5*time.Second), []string{nodes[0].Addr()}); err != nil {
			t.Fatal(err)
		}
		add = append(add, n.ID())
		mu.Lock()
		nodes = append(nodes[:len(nodes):len(nodes)], n)
		mu.Unlock()
	}
	for _, n := range nodes[1:] {
		waitRegistered(t, n)
	}
	ch, err := nodes[0].Coordinator().Submit(limit(t, 5*time.Second), coordinator.ChangeRequest{Add: add})
	if err != nil {
		t.Fatal(err)
	}
	if ch = waitChange(t, nodes[0], ch.ID); ch.Outcome != membership.Done || ch.StepDone != 3 {
		t.Fatalf("%+v", ch)
	}
	ready(t, nodes...)
	ch, err = nodes[2].Coordinator().Submit(limit(t, 5*time.Second), coordinator.ChangeRequest{Remove: []string{"m1", "m3"}})
	if err != nil {
		t.Fatal(err)
	}
	if ch = waitChange(t, nodes[1], ch.ID); ch.Outcome != membership.Done {
		t.Fatalf("%+v", ch)
	}
	left := []*Node{nodes[1], nodes[3]}
	mu.Lock()
	gone := []*Node{nodes[0], nodes[2]}
	nodes = left
	mu.Unlock()
	for _, n := range gone {
		select {
		case <-n.Removed():
		case <-time.After(10 * time.Second):
			t.Errorf("%s was not let go", n.ID())
		}
	}
	l.stop(t, left[0], false)
}

func waitRegistered(t *testing.T, n *Node) {
	t.Helper()
	ctx := limit(t, 10*time.Second)
	for {
		if m, ok := n.Coordinator().Placement().Member(n.ID()); ok && m.Incarnation == n.Incarnation() {
			return
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s is not registered", n.ID())
		}
	}
}
