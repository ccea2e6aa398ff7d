package chainmail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"chainmail/actor"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

func pinnedTally() (*actor.Type[struct{ N int }], *actor.Method[int, int]) {
	typ := actor.NewType("tally", actor.Options[struct{ N int }]{Pinned: true})
	return typ, actor.Handle(typ, "add", func(_ context.Context, s *struct{ N int }, n int) (int, error) { s.N += n; return s.N, nil })
}

// A pinned key stays on its member while others come and go; that member is not removed by mistake, and when it is on
// purpose the key says why it waits.
func TestPinnedKeysStay(t *testing.T) {
	typ, add := pinnedTally()
	edit := func(c *Config) { c.Types = []actor.Registered{typ} }
	nodes := cluster(t, 3, edit)
	ctx := limit(t, 40*time.Second)
	for i := range 30 {
		key := fmt.Sprintf("k%d@m%d", i, 1+i%3)
		if n, err := add.Ask(ctx, nodes[(i+1)%3], key, i); err != nil || n != i {
			t.Fatal(key, n, err)
		}
	}
	for _, key := range []string{"nobody", "nobody@"} {
		_, err := add.Ask(ctx, nodes[0], key, 1)
		if errors.Is(err, ErrRejected) && strings.Contains(err.Error(), "key@member") {
			continue
		}
		t.Errorf("a key without a member gives %v", err)
	}
	short, done := context.WithTimeout(ctx, 300*time.Millisecond)
	defer done()
	if _, err := add.Ask(short, nodes[0], "k@m9", 1); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), `pinned to "m9", which is not a member`) {
		t.Errorf("a key of a member that is not there gives %v", err)
	}

	c := testConfig(t, "m4")
	edit(&c)
	c.RetryJoin = []string{nodes[0].Addr()}
	m4 := start(t, c)
	change(t, ctx, nodes[0], coordinator.ChangeRequest{Add: []string{"m4"}})
	ready(t, m4)
	for i := range 30 {
		key := fmt.Sprintf("k%d@m%d", i, 1+i%3)
		if n, err := add.Ask(ctx, m4, key, 0); err != nil || n != i {
			t.Fatal(key, n, err)
		}
		if e, err := m4.Explain(ctx, "tally", key); err != nil || e[0].Owner != fmt.Sprintf("m%d", 1+i%3) || len(e) != 1 {
			t.Fatal(key, e, err)
		}
	}

	for told := 0; told < 3 && ctx.Err() == nil; told = len(nodes[0].Coordinator().Placement().Pins) {
		time.Sleep(lookEvery)
	}
	if err := nodes[1].Leave(ctx); !errors.Is(err, ErrPinned) || !strings.Contains(err.Error(), "10 pinned keys of type tally") {
		t.Errorf("a member with pinned keys leaves: %v", err)
	}
	p, err := nodes[0].Plan(ctx, coordinator.ChangeRequest{Remove: []string{"m2"}})
	if err != nil || p.OK() || !strings.Contains(fmt.Sprint(p.Checks), "10 keys of type tally are pinned to m2") {
		t.Errorf("the plan says %+v, %v", p.Checks, err)
	}
	if err := nodes[1].Leave(ctx, DropPinned()); err != nil {
		t.Fatal(err)
	}
	if n, err := add.Ask(ctx, m4, "k0@m1", 0); err != nil || n != 0 {
		t.Error(n, err)
	}
	if n, err := add.Ask(ctx, m4, "k3@m1", 0); err != nil || n != 3 {
		t.Error(n, err)
	}
}

// change submits a change and waits until it is done.
func change(t testing.TB, ctx context.Context, n *Node, q coordinator.ChangeRequest) {
	t.Helper()
	var ch, err = n.Coordinator().Submit(ctx, q)
	for err != nil && ctx.Err() == nil { // whoever joins may not have registered yet
		ch, err = n.Coordinator().Submit(ctx, q)
	}
	for err == nil && ch.Outcome == membership.Running {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
		}
		ch, err = n.Coordinator().Change(ctx, ch.ID)
	}
	if err != nil || ch.Outcome != membership.Done {
		t.Fatal(ch, err)
	}
}

// With a store a pinned key has its state after a restart, in memory it begins anew.
func TestPinnedKeysRestart(t *testing.T) {
	for _, kept := range []bool{true, false} {
		typ, add := pinnedTally()
		c := testConfig(t, "m1")
		c.Types = []actor.Registered{typ}
		c.DataDir = t.TempDir()
		if c.Store = StoreMemory; kept {
			c.Store = StoreBolt
		}
		n := start(t, c)
		if err := n.Coordinator().Bootstrap(map[string]string{"m1": n.Addr()}, false); err != nil {
			t.Fatal(err)
		}
		ready(t, n)
		ctx := limit(t, 20*time.Second)
		if x, err := add.Ask(ctx, n, "k@m1", 5); err != nil || x != 5 {
			t.Fatal(x, err)
		}
		n.Close()
		again := start(t, c)
		ready(t, again)
		want := map[bool]int{true: 6, false: 1}[kept]
		if x, err := add.Ask(ctx, again, "k@m1", 1); err != nil || x != want {
			t.Errorf("with a store: %t; after a restart the sum is %d, %v", kept, x, err)
		}
		again.Close()
	}
}
