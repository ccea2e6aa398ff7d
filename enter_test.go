package chainmail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// Members that come at once enter one after the other, leave, and their successors enter again.
func TestEnterAndLeave(t *testing.T) {
	c := testConfig(t, "a")
	c.BootstrapExpect = 1
	first := start(t, c)
	ready(t, first)
	ctx := limit(t, 20*time.Second)
	nodes := []*Node{first}
	for _, id := range []string{"b", "c", "d"} {
		c := testConfig(t, id)
		c.RetryJoin = []string{first.Addr()}
		nodes = append(nodes, start(t, c))
	}
	var wg sync.WaitGroup
	for _, n := range nodes { // for the first there is nothing to do
		wg.Go(func() {
			if err := n.Enter(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := nodes[2].Leave(ctx); err != nil {
		t.Fatal(err)
	}
	nodes[2].Close()
	c = testConfig(t, "c")
	c.RetryJoin = []string{first.Addr()}
	again := start(t, c)
	if err := again.Enter(ctx); err != nil {
		t.Fatal(err)
	}
	if p := again.Coordinator().Placement(); len(p.Base) != 4 || !p.Places("c") {
		t.Errorf("the placement is %s", p)
	}
}

// A member that only follows the log leaves as well: nobody lists it any more.
func TestStandbyLeaves(t *testing.T) {
	c := testConfig(t, "a")
	c.BootstrapExpect = 1
	first := start(t, c)
	ready(t, first)
	c = testConfig(t, "b")
	c.RetryJoin = []string{first.Addr()}
	standby := start(t, c)
	ready(t, standby)
	ctx := limit(t, 10*time.Second)
	if err := standby.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	if p := first.Coordinator().Placement(); len(p.Members) != 1 || len(first.Coordinator().Status().Servers) != 1 {
		t.Errorf("after the standby has left: %+v", p.Members)
	}
	if err := standby.Leave(ctx); err != nil {
		t.Errorf("leaving twice gives %v", err)
	}
}

// Without a cluster there is nothing to leave, and nothing to wait for.
func TestLeaveNoCluster(t *testing.T) {
	n := start(t, testConfig(t, "a"))
	if err := n.Leave(limit(t, 10*time.Second)); !errors.Is(err, ErrNoCluster) || !strings.Contains(err.Error(), "member a") {
		t.Errorf("leaving no cluster gives %v", err)
	}
}

// A closed node cannot leave, whatever it was part of.
func TestLeaveWhenClosed(t *testing.T) {
	alone := start(t, testConfig(t, "a"))
	one, err := Start(t.Context(), Config{Dev: true})
	if err != nil {
		t.Fatal(err)
	}
	three := cluster(t, 3, nil)
	for name, n := range map[string]*Node{"without a cluster": alone, "the only member": one, "one of three": three[0]} {
		n.Close()
		if err := n.Leave(limit(t, 5*time.Second)); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: leaving with a closed node gives %v", name, err)
		}
	}
}

// Without a cluster there is nothing to enter.
func TestEnterInTime(t *testing.T) {
	n := start(t, testConfig(t, "a"))
	ctx, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer done()
	if err := n.Enter(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "member a") {
		t.Errorf("entering no cluster gives %v", err)
	}
	n.Close()
	if err := n.Enter(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("entering with a closed node gives %v", err)
	}
}

// The first member is put on the ring by the cluster itself, at about the time at which it asks for it.
func TestFirstMemberEnters(t *testing.T) {
	for range 10 {
		c := testConfig(t, "a")
		c.BootstrapExpect = 1
		c.Raft.Heartbeat = 100 * time.Millisecond
		n := start(t, c)
		if err := n.Enter(limit(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
		n.Close()
	}
}

// A member that serves says so while others come and go: load balancers look at any instant.
func TestReadyDuringChanges(t *testing.T) {
	c := testConfig(t, "a")
	c.BootstrapExpect = 1
	a := start(t, c)
	ctx := limit(t, 20*time.Second)
	if err := a.Enter(ctx); err != nil {
		t.Fatal(err)
	}
	over, looks := make(chan struct{}), 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for _, c := range a.Ready(ctx) {
				if !c.OK {
					t.Errorf("%+v", c)
				}
			}
			looks++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	for i := range 3 {
		c := testConfig(t, fmt.Sprint("b", i))
		c.RetryJoin = []string{a.Addr()}
		b := start(t, c)
		if err := b.Enter(ctx); err != nil {
			t.Error(err)
		}
		if err := b.Leave(ctx); err != nil {
			t.Error(err)
		}
		b.Close()
	}
	close(over)
	wg.Wait()
	t.Logf("%d looks", looks)
}
