package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
	"chainmail/ring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// view places all keys on the given members.
func view(ids ...string) *core.View {
	v := &core.View{Revision: 1, Version: 1, Ring: ring.Params{Hash: ring.HashV1, VNodes: 16}, Replicas: map[string]int{"": 3}}
	for _, id := range ids {
		v.Base = append(v.Base, ring.Member{ID: id, Weight: 1})
		v.Members = append(v.Members, core.MemberInfo{ID: id, Incarnation: 7})
	}
	v.Next, v.Target = v.Base, v.Base
	return v
}

// memory is a store that remembers, in order, what became durable.
type memory struct {
	mu   sync.Mutex
	recs map[core.Key]core.CopyMeta
	fail error
	slow time.Duration
}

func (s *memory) Apply(_ context.Context, puts []core.Put, _ *core.View) error {
	if s.slow > 0 {
		<-time.After(s.slow)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for _, p := range puts {
		s.recs[p.Key] = p.Meta
	}
	return nil
}

func (s *memory) holds(k core.Key) core.CopyMeta {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recs[k]
}

// group is engines whose messages go straight to each other.
type group struct {
	mu      sync.Mutex
	members map[string]*Engine
	spy     func(m core.Message)
}

func (g *group) send(m core.Message, _ core.Time, _ bool) {
	g.mu.Lock()
	to, spy := g.members[m.To], g.spy
	g.mu.Unlock()
	if spy != nil {
		spy(m)
	}
	if to != nil {
		to.Deliver(m, false)
	}
}

func (g *group) start(t *testing.T, id string, edit func(*Config)) *Engine {
	t.Helper()
	c := Config{Core: core.Config{Self: id, Incarnation: 7, Boot: 1}, Runner: Kinds(kinds.Builtin()), Send: g.send,
		Report: func(context.Context, core.Report) error { return nil }, WantView: func() {}}
	if edit != nil {
		edit(&c)
	}
	e, err := Start(c)
	if err != nil {
		t.Fatal(err)
	}
	g.mu.Lock()
	g.members[id] = e
	g.mu.Unlock()
	t.Cleanup(func() { e.Close() })
	return e
}

func newGroup() *group { return &group{members: map[string]*Engine{}} }

func add(t testing.TB, e *Engine, key string, d time.Duration) core.Result {
	ctx, done := context.WithTimeout(context.Background(), d)
	defer done()
	r, err := e.Ask(ctx, Call{Key: core.Key{Type: kinds.Counter, Name: key}, Method: kinds.Add, Body: kinds.AppendInt(nil, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestThreeMembers(t *testing.T) {
	g := newGroup()
	var es []*Engine
	for _, id := range []string{"a", "b", "c"} {
		es = append(es, g.start(t, id, nil))
	}
	for _, e := range es {
		e.SetView(view("a", "b", "c"), false)
	}
	for i := range 30 {
		if r := add(t, es[i%3], fmt.Sprint("k", i%5), 5*time.Second); r.Code != core.CodeOK {
			t.Fatalf("%+v", r)
		}
	}
	sum := int64(0)
	for i := range 5 {
		r, err := es[i%3].Ask(context.Background(), Call{Key: core.Key{Type: kinds.Counter, Name: fmt.Sprint("k", i)}, Method: kinds.Get})
		if err != nil || r.Code != core.CodeOK {
			t.Fatalf("%+v %v", r, err)
		}
		n, _ := kinds.ParseInt(r.Body)
		sum += n
	}
	if sum != 30 {
		t.Errorf("the sums add up to %d", sum)
	}
}

// Without a placement, or without a quorum, a call is answered in its time and says why.
func TestDeadlines(t *testing.T) {
	g := newGroup()
	e := g.start(t, "a", nil)
	began := time.Now()
	if r := add(t, e, "k", 200*time.Millisecond); r.Code != core.CodeUnavailable || !strings.Contains(r.Text, "no placement") {
		t.Errorf("%+v", r)
	}
	e.SetView(view("a", "b", "c"), false) // b and c are not there
	for i := range 20 {
		r := add(t, e, fmt.Sprint("k", i), 200*time.Millisecond)
		if r.Code != core.CodeUnavailable && r.Code != core.CodeUnknownOutcome {
			t.Errorf("%+v", r)
		}
	}
	if d := time.Since(began); d > 8*time.Second {
		t.Errorf("21 calls of 200 ms took %s", d)
	}
}

// No promise and no acknowledgement leaves a member before what it says is durable.
func TestPersistBeforeSend(t *testing.T) {
	g := newGroup()
	stores := map[string]*memory{}
	var wrong sync.Map
	g.spy = func(m core.Message) {
		s := stores[m.From]
		switch b := m.Body.(type) {
		case *core.Promise:
			if b.Code == core.CodeOK && s.holds(b.Key).Promised.Less(b.Promised) {
				wrong.Store(fmt.Sprintf("%s promised %s for %s", m.From, b.Promised, b.Key), true)
			}
		case *core.Accepted:
			if b.Code == core.CodeOK && s.holds(b.Key).Stamp.IsZero() {
				wrong.Store(fmt.Sprintf("%s acknowledged %s", m.From, b.Key), true)
			}
		}
	}
	var es []*Engine
	for _, id := range []string{"a", "b", "c"} {
		stores[id] = &memory{recs: map[core.Key]core.CopyMeta{}, slow: time.Millisecond}
	}
	for _, id := range []string{"a", "b", "c"} {
		es = append(es, g.start(t, id, func(c *Config) { c.Store = stores[id] }))
	}
	for _, e := range es {
		e.SetView(view("a", "b", "c"), false)
	}
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if r := add(t, es[w%3], fmt.Sprint("k", w, i%4), 5*time.Second); r.Code != core.CodeOK {
					t.Errorf("%+v", r)
				}
			}
		})
	}
	wg.Wait()
	wrong.Range(func(k, _ any) bool { t.Error(k); return true })
	if len(stores["b"].recs) == 0 {
		t.Error("nothing was stored")
	}
}

// A store that fails stops the member at once: nothing is acknowledged after it.
func TestStoreFailure(t *testing.T) {
	g := newGroup()
	s := &memory{recs: map[core.Key]core.CopyMeta{}}
	e := g.start(t, "a", func(c *Config) { c.Store = s })
	e.SetView(view("a"), false)
	if r := add(t, e, "k", 5*time.Second); r.Code != core.CodeOK {
		t.Fatalf("%+v", r)
	}
	full := errors.New("no space left on device")
	s.mu.Lock()
	s.fail = full
	s.mu.Unlock()
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	r, err := e.Ask(ctx, Call{Key: core.Key{Type: kinds.Counter, Name: "k"}, Method: kinds.Add, Body: kinds.AppendInt(nil, 1)})
	if err == nil && r.Code != core.CodeUnknownOutcome {
		t.Errorf("after the failure: %+v", r)
	}
	select {
	case <-e.Failed():
	case <-ctx.Done():
		t.Fatal("the engine goes on without its store")
	}
	if err := e.Err(); !errors.Is(err, full) || !errors.Is(err, ErrStore) {
		t.Error(err)
	}
	if _, err := e.Ask(ctx, Call{Key: core.Key{Type: kinds.Counter, Name: "k"}, Method: kinds.Get}); !errors.Is(err, ErrClosed) {
		t.Errorf("a call after the failure: %v", err)
	}
}

// A member that has too much waiting refuses callers at once, and takes them again afterwards.
func TestTooMuchWaits(t *testing.T) {
	e := newGroup().start(t, "a", nil)
	e.SetView(view("a"), false)
	stopped, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.Do(context.Background(), func(*core.Core) { close(stopped); <-goOn }); err != nil {
			t.Error(err)
		}
	})
	<-stopped
	for e.in.offer(item{in: &core.Tick{}}) {
	}
	e.in.poke()
	if r := add(t, e, "k", 5*time.Second); r.Code != core.CodeOverloaded {
		t.Errorf("%+v", r)
	}
	if err := e.Tell(context.Background(), Call{Key: core.Key{Type: kinds.Counter, Name: "k"}, Method: kinds.Get}); !errors.Is(err, ErrFull) {
		t.Errorf("a message without an answer gives %v", err)
	}
	close(goOn)
	wg.Wait()
	if r := add(t, e, "k", 5*time.Second); r.Code != core.CodeOK {
		t.Errorf("afterwards: %+v", r)
	}
	if e.calls.take(1) != nil {
		t.Error("the refused call is remembered")
	}
}

// Close answers what is under way and returns soon.
func TestCloseWithCalls(t *testing.T) {
	g := newGroup()
	e := g.start(t, "a", nil)
	e.SetView(view("a", "b", "c"), false)
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			ctx, done := context.WithTimeout(context.Background(), 30*time.Second)
			defer done()
			r, err := e.Ask(ctx, Call{Key: core.Key{Type: kinds.Counter, Name: fmt.Sprint(i)}, Method: kinds.Add, Body: kinds.AppendInt(nil, 1)})
			if err == nil && r.Code != core.CodeUnknownOutcome && r.Code != core.CodeClosing && r.Code != core.CodeUnavailable {
				t.Errorf("%+v", r)
			}
		})
	}
	began := time.Now()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if d := time.Since(began); d > 2*time.Second {
		t.Errorf("close took %s", d)
	}
	if err := e.Close(); err != nil {
		t.Errorf("the second close: %v", err)
	}
}

// A handler that panics fails its message alone.
func TestPanic(t *testing.T) {
	g := newGroup()
	e := g.start(t, "a", func(c *Config) {
		hs := kinds.Builtin()
		hs["bad"] = func(map[string]core.Page, string, []byte) ([]byte, []core.Change, error) { panic("oops") }
		c.Runner = Kinds(hs)
	})
	e.SetView(view("a"), false)
	for range 3 {
		r, err := e.Ask(context.Background(), Call{Key: core.Key{Type: "bad", Name: "k"}, Method: "m"})
		if err != nil || r.AppCode != kinds.Internal || !strings.Contains(r.Text, "oops") {
			t.Fatalf("%+v %v", r, err)
		}
	}
	if r := add(t, e, "k", 5*time.Second); r.Code != core.CodeOK {
		t.Errorf("%+v", r)
	}
}

// What the log did not take is reported again.
func TestReports(t *testing.T) {
	g := newGroup()
	var mu sync.Mutex
	var got []core.Report
	done := make(chan struct{})
	e := g.start(t, "b", func(c *Config) {
		c.Report = func(_ context.Context, r core.Report) error {
			mu.Lock()
			defer mu.Unlock()
			if got = append(got, r); len(got) == 2 {
				close(done)
			}
			return errors.New("no leader")
		}
	})
	v := view("a", "b")
	v.Stage, v.Version, v.Step, v.Began = core.Switch, 3, 3, 2
	v.Base, v.Target = v.Base[:1], v.Next // b joins; a, the only source, is not there, so b never has it
	g.start(t, "a", nil).SetView(v, false)
	e.SetView(v, false)
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("no second report")
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(got, core.Report{What: core.ReportFilled, Step: 3}) {
		t.Errorf("%+v", got)
	}
}

func BenchmarkLocalAsk(b *testing.B) {
	g := newGroup()
	e, err := Start(Config{Core: core.Config{Self: "a", Incarnation: 7, Boot: 1}, Runner: Kinds(kinds.Builtin()), Send: g.send,
		Report: func(context.Context, core.Report) error { return nil }, WantView: func() {}})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	e.SetView(view("a"), false)
	b.ReportAllocs()
	for b.Loop() {
		if r := add(b, e, "k", 5*time.Second); r.Code != core.CodeOK {
			b.Fatalf("%+v", r)
		}
	}
}
