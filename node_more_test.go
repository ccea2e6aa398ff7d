package chainmail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"chainmail/actor"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// A member that keeps its copies on disk has them after a restart, with its incarnation.
func TestRestartFromDisk(t *testing.T) {
	c := testConfig(t, "m1")
	c.DataDir, c.Store = t.TempDir(), StoreBolt
	n := start(t, c)
	if err := n.Coordinator().Bootstrap(map[string]string{"m1": n.Addr()}, false); err != nil {
		t.Fatal(err)
	}
	ready(t, n)
	ctx := limit(t, 20*time.Second)
	for i := range 50 {
		if _, err := n.Counter().Add(ctx, fmt.Sprint("c", i), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.KV().Delete(ctx, "nothing"); err != nil {
		t.Fatal(err)
	}
	inc := n.Incarnation()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	c.BindAddr = n.Addr()
	again := start(t, c)
	ready(t, again)
	if again.Incarnation() != inc {
		t.Errorf("incarnation %x, was %x", again.Incarnation(), inc)
	}
	for i := range 50 {
		if sum, err := again.Counter().Get(ctx, fmt.Sprint("c", i)); err != nil || sum != int64(i) {
			t.Fatalf("c%d is %d, %v", i, sum, err)
		}
	}
	if _, err := Start(ctx, c); err == nil {
		t.Error("a second process on the same directory and address has started")
	}
}

// What is wrong with a configuration is said before anything is started.
func TestConfigIsRefused(t *testing.T) {
	for _, x := range []struct {
		want string
		edit func(*Config)
	}{
		{"dev runs one member", func(c *Config) { c.Dev, c.DataDir = true, "x" }},
		{`store "disk" is not known`, func(c *Config) { c.Store = "disk" }},
		{"needs a data_dir", func(c *Config) { c.Store = StoreBolt }},
		{"need each other", func(c *Config) { c.Store, c.DataDir = StorePostgres, "x" }},
		{"need each other", func(c *Config) { c.StoreDSN = "host=h" }},
		{"bootstrap_expect is 4", func(c *Config) { c.BootstrapExpect = 4; c.RetryJoin = []string{"h:1"} }},
		{"retry_join is empty", func(c *Config) { c.BootstrapExpect = 3 }},
		{"weight is 65", func(c *Config) { c.Weight = 65 }},
		{"replicas is 8", func(c *Config) { c.Replicas = 8 }},
		{"state -1: none is below 0", func(c *Config) { c.Limits.State = -1 }},
		{"the limit of a state is", func(c *Config) { c.Limits.State = MaxMessage + 1 }},
		{"mailbox -2", func(c *Config) { c.Limits.Mailbox = -2 }},
		{"held -3", func(c *Config) { c.Limits.Held = -3 }},
		{"held bytes -4", func(c *Config) { c.Limits.HeldBytes = -4 }},
		{`retry_join has "nonsense"`, func(c *Config) { c.RetryJoin = []string{"h:1", "nonsense"} }},
		{`retry_join has ":8621"`, func(c *Config) { c.RetryJoin = []string{":8621"} }},
		{`retry_join has "h:0"`, func(c *Config) { c.RetryJoin = []string{"h:0"} }},
		{`retry_join has "h:x"`, func(c *Config) { c.RetryJoin = []string{"h:x"} }},
		{"together", func(c *Config) { c.TLS.CAFile = "x" }},
		{"node_id", func(c *Config) { c.NodeID = "a b" }},
		{"node_id", func(c *Config) { c.NodeID = strings.Repeat("x", 65) }},
		{"wildcard", func(c *Config) { c.Advertise = "0.0.0.0" }},
		{"no such file", func(c *Config) { c.TLS = TLS{CAFile: "none", CertFile: "none", KeyFile: "none"} }},
	} {
		c := testConfig(t, "m1")
		x.edit(&c)
		n, err := Start(t.Context(), c)
		if err == nil {
			n.Close()
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("want %q, got %v", x.want, err)
		}
	}
}

// Wrong calls are refused with what is wrong, and the errors have their classes wherever the call is made.
func TestWrongCalls(t *testing.T) {
	nodes := cluster(t, 3, nil)
	ctx := limit(t, 20*time.Second)
	for _, n := range nodes { // one of them owns each key, the others ask it
		for name, x := range map[string]struct {
			class error
			text  string
			call  func() error
		}{
			"key too long":   {ErrRejected, "1 to 1024", func() error { _, err := n.KV().Put(ctx, strings.Repeat("k", 1025), nil); return err }},
			"no key":         {ErrRejected, "1 to 1024", func() error { _, err := n.KV().Put(ctx, "", nil); return err }},
			"value too big":  {ErrRejected, "at most 1048576", func() error { _, err := n.KV().Put(ctx, "big", make([]byte, 1<<20+1)); return err }},
			"no such method": {ErrRejected, "no method", func() error { _, err := n.Ask(ctx, "kv", "k", "explode", nil); return err }},
			"no such type":   {ErrRejected, "", func() error { _, err := n.Ask(ctx, "nope", "k", "get", nil); return err }},
			"absent":         {ErrNotFound, "no value", func() error { _, _, err := n.KV().Get(ctx, "absent"); return err }},
			"other stamp":    {ErrStampMismatch, "stamp", func() error { _, err := n.KV().CompareAndSwap(ctx, "absent", "1.1.1@m1", nil); return err }},
		} {
			err := x.call()
			var call *CallError
			if !errors.Is(err, x.class) || !errors.As(err, &call) || call.Type == "" || call.Version == 0 || !strings.Contains(err.Error(), x.text) {
				t.Errorf("%s at %s gives %v", name, n.ID(), err)
			}
		}
	}
	expired, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	if _, err := nodes[0].Counter().Add(expired, "c", 1); err == nil {
		t.Error("a call whose time is up is answered")
	}
}

// Close returns within 5 seconds at any instant of a start, with calls under way, and nothing is left (goleak).
func TestCloseAtAnyInstant(t *testing.T) {
	for i := range 12 {
		c := testConfig(t, "m1")
		if i%2 == 1 {
			c.DataDir, c.Store = t.TempDir(), StoreBolt
		}
		n, err := Start(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() { n.Coordinator().Bootstrap(map[string]string{"m1": n.Addr()}, true) })
		for k := range 8 {
			wg.Go(func() {
				for j := range 20 {
					ctx, done := context.WithTimeout(context.Background(), 2*time.Second)
					n.Counter().Add(ctx, fmt.Sprint("c", k, j), 1)
					done()
				}
			})
		}
		select {
		case <-time.After(time.Duration(i) * 60 * time.Millisecond):
		case <-t.Context().Done():
		}
		began := time.Now()
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("close took %s", d)
		}
		wg.Wait()
		if _, err := n.Counter().Add(t.Context(), "c", 1); !errors.Is(err, ErrClosed) {
			t.Errorf("a call after the close gives %v", err)
		}
	}
}

// A leave that does not end in time says what is left: the handler that runs, by its key.
func TestLeaveNamesWhatIsLeft(t *testing.T) {
	block := make(chan struct{})
	typ := actor.NewType("slow", actor.Options[struct{ N int }]{})
	wait := actor.Handle(typ, "wait", func(ctx context.Context, s *struct{ N int }, _ actor.None) (int, error) {
		<-block
		s.N++
		return s.N, nil
	})
	nodes := cluster(t, 3, func(c *Config) { c.Types = []actor.Registered{typ} })
	key := ""
	for i := range 1000 {
		key = fmt.Sprint("k", i)
		if e, err := nodes[0].Explain(t.Context(), "slow", key); err == nil && e[0].Owner == nodes[2].ID() {
			break
		}
	}
	answered := make(chan error, 1)
	ctx := limit(t, 20*time.Second)
	go func() {
		_, err := wait.Ask(ctx, nodes[0], key, actor.None{})
		answered <- err
	}()
	for running := false; !running && ctx.Err() == nil; {
		nodes[2].engine.Do(ctx, func(c *core.Core) { running = strings.Contains(fmt.Sprint(c.Left(10)), "runs wait") })
	}
	short, done := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer done()
	if err := nodes[2].Leave(short); err == nil || !strings.Contains(err.Error(), "slow/"+key+" (runs wait)") {
		t.Errorf("leave with a handler that does not return gives %v", err)
	}
	close(block)
	if err := <-answered; err != nil {
		t.Errorf("the message was not answered: %v", err)
	}
	if err := nodes[2].Leave(ctx); err != nil {
		t.Error(err)
	}
}

// TestOddRings has a member make other rings of the same placement, as a broken program does, one that has served and one that
// joins: it stops itself, and the others go on.
func TestOddRings(t *testing.T) {
	var odd atomic.Bool
	edit := func(c *Config) {
		right := new(ringDigests)
		c.digestOf = func(p *membership.Placement) uint64 {
			if odd.Load() {
				return right.of(p) + 1
			}
			return right.of(p)
		}
	}
	nodes := cluster(t, 3, func(c *Config) {
		if c.NodeID == "m2" {
			edit(c)
		}
	})
	odd.Store(true)
	stops := func(n *Node) {
		t.Helper()
		select {
		case <-n.Failed():
		case <-limit(t, 30*time.Second).Done():
			t.Fatalf("%s goes on with other rings", n.ID())
		}
		if err := n.Err(); !errors.Is(err, coordinator.ErrDiverged) || !strings.Contains(err.Error(), "and its rings") {
			t.Errorf("%s stopped with %v", n.ID(), err)
		}
	}
	stops(nodes[1])
	c := testConfig(t, "m4")
	c.RetryJoin = []string{nodes[0].Addr()}
	edit(&c)
	stops(start(t, c))
	for _, n := range []*Node{nodes[0], nodes[2]} {
		if _, err := n.Counter().Add(limit(t, 15*time.Second), "visits", 1); err != nil || n.Err() != nil {
			t.Errorf("%s does not go on: %v, %v", n.ID(), err, n.Err())
		}
	}
}

// TestOddPlacement spoils the placement of one member of three: it shows another ring in its handshakes at once, and stops
// itself soon; the others serve on.
func TestOddPlacement(t *testing.T) {
	nodes := cluster(t, 3, nil)
	odd, rest := nodes[1], []*Node{nodes[0], nodes[2]}
	if _, err := odd.Counter().Add(limit(t, 5*time.Second), "visits", 1); err != nil {
		t.Fatal(err)
	}
	if a, b := odd.identity.Load(), rest[0].identity.Load(); a.Version != b.Version || a.RingDigest != b.RingDigest || a.RingDigest == 0 {
		t.Fatalf("equal placements, and the handshakes say %+v and %+v", a, b)
	}
	odd.Coordinator().Corrupt(func(p *membership.Placement) { p.Base, p.Next = p.Base[:2], p.Base[:2] })
	select {
	case <-odd.Failed():
	case <-limit(t, 15*time.Second).Done():
		t.Fatal("a member with another placement goes on")
	}
	if err := odd.Err(); !errors.Is(err, coordinator.ErrDiverged) {
		t.Errorf("it stopped with %v", err)
	}
	if a, b := odd.identity.Load(), rest[0].identity.Load(); a.Version != b.Version || a.RingDigest == b.RingDigest {
		t.Errorf("another ring at the same version, and the handshakes say %+v and %+v", a, b)
	}
	if err := odd.Close(); err != nil {
		t.Error(err)
	}
	if _, err := odd.Counter().Add(limit(t, 5*time.Second), "visits", 1); err == nil {
		t.Error("a member that has stopped itself goes on serving")
	}
	for _, n := range rest {
		if _, err := n.Counter().Add(limit(t, 15*time.Second), "visits", 1); err != nil {
			t.Errorf("%s does not go on: %v", n.ID(), err)
		}
		if n.Err() != nil {
			t.Errorf("%s has stopped too: %v", n.ID(), n.Err())
		}
	}
}
