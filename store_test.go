package chainmail

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail/engine/store"
	"chainmail/internal/pgtest"
)

// durable are the stores that outlive a process; each gives its part of the configuration of a new cluster.
var durable = map[string]func(t *testing.T) func(*Config){
	StoreBolt: func(*testing.T) func(*Config) { return func(c *Config) { c.Store = "bolt" } },
	StorePostgres: func(t *testing.T) func(*Config) {
		dsn := pgtest.Start(t).DSN()
		return func(c *Config) { c.Store, c.StoreDSN = StorePostgres, dsn }
	},
}

// durableCluster starts three members whose copies are kept.
func durableCluster(t *testing.T, edit func(*Config)) ([]*Node, []Config) {
	t.Helper()
	var configs []Config
	nodes := cluster(t, 3, func(c *Config) {
		c.DataDir = t.TempDir()
		edit(c)
		configs = append(configs, *c)
	})
	for i, n := range nodes {
		configs[i].BindAddr = n.Addr()
	}
	return nodes, configs
}

// write adds to counters and gives the sums that were acknowledged.
func write(t *testing.T, n *Node, keys int) map[string]int64 {
	t.Helper()
	ctx := limit(t, 30*time.Second)
	sums := map[string]int64{}
	for i := range 3 * keys {
		k := fmt.Sprint("c", i%keys)
		sum, err := n.Counter().Add(ctx, k, int64(i))
		if err != nil {
			t.Fatal(err)
		}
		sums[k] = sum
	}
	return sums
}

func check(t *testing.T, n *Node, sums map[string]int64) {
	t.Helper()
	ctx := limit(t, 30*time.Second)
	for k, want := range sums {
		if sum, err := n.Counter().Get(ctx, k); err != nil || sum != want {
			t.Fatalf("%s is %d, %v; %d was acknowledged", k, sum, err, want)
		}
	}
}

func closeAll(t *testing.T, nodes []*Node) {
	t.Helper()
	for _, n := range nodes {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// When all members were stopped and are started again, every acknowledged write is there.
func TestAllStopAndStartAgain(t *testing.T) {
	for name, place := range durable {
		t.Run(name, func(t *testing.T) {
			nodes, configs := durableCluster(t, place(t))
			sums := write(t, nodes[1], 40)
			incs := map[string]uint64{}
			var starts []uint64
			for _, n := range nodes {
				incs[n.ID()] = n.Incarnation()
				starts = append(starts, n.startNumber())
			}
			closeAll(t, nodes)
			for i, c := range configs {
				nodes[i] = start(t, c)
			}
			ready(t, nodes...)
			for _, n := range nodes {
				if n.Incarnation() != incs[n.ID()] {
					t.Errorf("%s begins a new incarnation", n.ID())
				}
				if m, _ := n.Coordinator().Placement().Member(n.ID()); m.Start != n.startNumber() || slices.Contains(starts, m.Start) {
					t.Errorf("the log lists start %x of %s, which is %x now", m.Start, n.ID(), n.startNumber())
				}
				check(t, n, sums)
			}
		})
	}
}

// A member whose store is damaged does not start and says what to do. Done so, it fills from the others.
func TestDamagedStore(t *testing.T) {
	nodes, configs := durableCluster(t, durable[StoreBolt](t))
	sums := write(t, nodes[0], 40)
	if err := nodes[2].Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(configs[2].DataDir, copiesFile)
	if err := os.Truncate(path, 4*int64(os.Getpagesize())); err != nil { // the file has room at its end that nothing is in
		t.Fatal(err)
	}
	_, err := Start(t.Context(), configs[2])
	if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "move the file away") {
		t.Fatalf("a store that was cut short gives %v", err)
	}
	if err := os.Rename(path, path+".damaged"); err != nil {
		t.Fatal(err)
	}
	old := nodes[2].Incarnation()
	nodes[2] = start(t, configs[2])
	ready(t, nodes...)
	if nodes[2].Incarnation() == old {
		t.Error("the incarnation is the old one")
	}
	refilled(t, nodes[2])
	check(t, nodes[2], sums)
	if err := nodes[0].Close(); err != nil { // now it counts
		t.Fatal(err)
	}
	check(t, nodes[2], sums)
}

// A store's older state was put back, of before the last run or of one earlier: the member stops. What it had promised and
// acknowledged since is not there.
func TestOlderStorePutBack(t *testing.T) {
	for runs := 1; runs <= 2; runs++ {
		t.Run(fmt.Sprintf("%d runs ago", runs), func(t *testing.T) { putBack(t, runs) })
	}
}

func putBack(t *testing.T, runs int) {
	nodes, configs := durableCluster(t, durable[StoreBolt](t))
	path := filepath.Join(configs[2].DataDir, copiesFile)
	again := func() {
		t.Helper()
		nodes[2] = start(t, configs[2])
		ready(t, nodes...)
	}
	closeAll(t, nodes[2:])
	older, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range runs {
		again()
		sums := write(t, nodes[0], 10)
		closeAll(t, nodes[2:])
		check(t, nodes[0], sums)
	}
	if err := os.WriteFile(path, older, 0o600); err != nil {
		t.Fatal(err)
	}
	n := start(t, configs[2])
	select {
	case <-n.Failed():
	case <-limit(t, 20*time.Second).Done():
		t.Fatal("the member runs on what it held before")
	}
	if err := n.Err(); !errors.Is(err, ErrSuperseded) || !strings.Contains(err.Error(), "with an empty store") {
		t.Error(err)
	}
}

// refilled waits until the placement lists a member's incarnation, with its copies.
func refilled(t *testing.T, n *Node) {
	t.Helper()
	w := n.Coordinator().Watch()
	defer w.Close()
	ctx := limit(t, 30*time.Second)
	for {
		if m, ok := n.Coordinator().Placement().Member(n.ID()); ok && m.Incarnation == n.Incarnation() && !m.Refilling {
			return
		}
		select {
		case <-w.C():
		case <-ctx.Done():
			t.Fatal(context.Cause(ctx))
		}
	}
}

// A member whose database is away answers nothing that it could not keep, and can be closed.
func TestCloseWhileDatabaseIsAway(t *testing.T) {
	srv := pgtest.Start(t)
	c := testConfig(t, "m1")
	c.DataDir, c.Store, c.StoreDSN = t.TempDir(), StorePostgres, srv.DSN()
	n := start(t, c)
	if err := n.Coordinator().Bootstrap(map[string]string{"m1": n.Addr()}, false); err != nil {
		t.Fatal(err)
	}
	ready(t, n)
	sums := write(t, n, 3)
	if err := srv.Stop(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	if _, err := n.Counter().Add(ctx, "c0", 1); !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrUnavailable) {
		t.Errorf("a write without the database gives %v", err)
	}
	if n.Err() != nil {
		t.Errorf("the member has given up: %v", n.Err())
	}
	began := time.Now()
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("close took %s", d)
	}
	if err := srv.Run(); err != nil {
		t.Fatal(err)
	}
	n = start(t, c)
	ready(t, n)
	for k, want := range sums { // the write that was not answered may have happened
		if sum, err := n.Counter().Get(limit(t, 20*time.Second), k); err != nil || sum != want && (k != "c0" || sum != want+1) {
			t.Errorf("%s is %d, %v; %d was acknowledged", k, sum, err, want)
		}
	}
}

// A store that holds copies of another cluster stops the member.
func TestStoreOfAnotherCluster(t *testing.T) {
	for name, place := range durable {
		t.Run(name, func(t *testing.T) {
			c := testConfig(t, "m1")
			place(t)(&c)
			c.DataDir = t.TempDir()
			n := start(t, c)
			form := func(n *Node) {
				if err := n.Coordinator().Bootstrap(map[string]string{"m1": n.Addr()}, false); err != nil {
					t.Fatal(err)
				}
			}
			form(n)
			ready(t, n)
			write(t, n, 3)
			closeAll(t, []*Node{n})
			if err := os.RemoveAll(filepath.Join(c.DataDir, "raft")); err != nil { // what was the cluster is forgotten
				t.Fatal(err)
			}
			n = start(t, c)
			form(n)
			select {
			case <-n.Failed():
			case <-limit(t, 20*time.Second).Done():
				t.Fatal("the member runs on the copies of another cluster")
			}
			if err := n.Err(); !errors.Is(err, store.ErrIdentity) {
				t.Error(err)
			}
		})
	}
}
