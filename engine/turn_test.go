package engine

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// startProbe starts a member that owns all keys, with a kind "probe" whose handler is f.
func startProbe(t *testing.T, f func(method string) error, edit func(*Config)) *Engine {
	t.Helper()
	e := newGroup().start(t, "a", func(c *Config) {
		hs := kinds.Builtin()
		hs["probe"] = func(_ map[string]core.Page, method string, _ []byte) ([]byte, []core.Change, error) {
			return nil, nil, f(method)
		}
		c.Runner = Kinds(hs)
		if edit != nil {
			edit(c)
		}
	})
	e.later(item{in: &core.ViewChanged{View: view("a")}})
	return e
}

func probe(method string) Call {
	return Call{Key: core.Key{Type: "probe", Name: "k"}, Method: method, ReadLocal: true}
}

func mustAsk(t *testing.T, e *Engine, c Call) {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	if r, err := e.Ask(ctx, c); err != nil || r.Code != core.CodeOK {
		t.Fatalf("%s: %+v %v", c.Method, r, err)
	}
}

// A caller that finds the core idle steps it itself, one that finds it at work does not wait for it.
func TestCallerStepsTheCore(t *testing.T) {
	var mu sync.Mutex
	stacks := map[string]string{}
	e := startProbe(t, func(method string) error {
		mu.Lock()
		defer mu.Unlock()
		stacks[method] = string(debug.Stack())
		return nil
	}, nil)
	mustAsk(t, e, probe("first"))
	helped := func() bool {
		mustAsk(t, e, probe("alone"))
		s := stacks["alone"]
		return strings.Contains(s, ".Ask(") && !strings.Contains(s, ".loop(")
	}
	tries := 0
	for ; tries < 50 && !helped(); tries++ { // the loop may be at it for a tick
	}
	if tries == 50 {
		t.Errorf("a caller that is alone leaves its message to the loop:\n%s", stacks["alone"])
	}
	at, goOn := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { e.Do(context.Background(), func(*core.Core) { close(at); <-goOn }) })
	<-at
	ctx, done := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer done()
	if r, err := e.Ask(ctx, probe("late")); err != nil || r.Code != core.CodeUnknownOutcome {
		t.Errorf("while the core is at work: %+v %v", r, err)
	}
	close(goOn)
	wg.Wait()
	mustAsk(t, e, probe("last"))
}

// Messages of one caller are run in the order in which it sent them, whoever steps the core.
func TestOrderOfOneCaller(t *testing.T) {
	var got []string // the core's
	e := startProbe(t, func(method string) error { got = append(got, method); return nil }, nil)
	mustAsk(t, e, probe("start"))
	got = nil
	var want []string
	for i := range 300 {
		m := string(rune('a'+i%26)) + strings.Repeat("x", i%3)
		want = append(want, m)
		if i%4 == 3 {
			mustAsk(t, e, probe(m))
		} else if err := e.Tell(context.Background(), probe(m)); err != nil {
			t.Fatal(err)
		}
	}
	mustAsk(t, e, probe("end"))
	e.Do(context.Background(), func(*core.Core) {
		if s := strings.Join(got, " "); s != strings.Join(append(want, "end"), " ") {
			t.Errorf("run as %s", s)
		}
	})
}

// Who tells may hold a lock that a handler takes.
func TestTellUnderALock(t *testing.T) {
	var mu sync.Mutex
	ran := make(chan struct{}, 1)
	e := startProbe(t, func(method string) error {
		mu.Lock()
		defer mu.Unlock()
		if method == "told" {
			ran <- struct{}{}
		}
		return nil
	}, nil)
	mustAsk(t, e, probe("first"))
	mu.Lock()
	if err := e.Tell(context.Background(), probe("told")); err != nil {
		t.Error(err)
	}
	mu.Unlock()
	<-ran
}

// A handler may tell others, and is run by a caller when it does.
func TestTellInAHandler(t *testing.T) {
	told := make(chan struct{}, 1)
	var e *Engine
	e = startProbe(t, func(method string) error {
		switch method {
		case "tells":
			return e.Tell(context.Background(), probe("told"))
		case "told":
			told <- struct{}{}
		}
		return nil
	}, nil)
	mustAsk(t, e, probe("first"))
	mustAsk(t, e, probe("tells"))
	<-told
}

// A handler that ends its goroutine ends that of the caller that runs it, and not the core.
func TestHandlerEndsItsGoroutine(t *testing.T) {
	e := startProbe(t, func(method string) error {
		if method == "exit" {
			runtime.Goexit()
		}
		return nil
	}, nil)
	mustAsk(t, e, probe("first"))
	var wg sync.WaitGroup
	wg.Go(func() {
		e.Ask(context.Background(), probe("exit"))
		t.Error("the caller went on")
	})
	wg.Wait()
	mustAsk(t, e, Call{Key: core.Key{Type: "probe", Name: "other"}, Method: "next", ReadLocal: true})
}

// stuck is a store that takes nothing.
type stuck struct{}

func (stuck) Apply(ctx context.Context, _ []core.Put, _ *core.View) error {
	<-ctx.Done()
	return ctx.Err()
}

// A store that is behind keeps the loop, but no caller beyond its time, with a deadline or without; and Close ends in time.
func TestCallersOfAStuckStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := startProbe(t, func(string) error { return nil }, func(c *Config) { c.Store = stuck{} })
		synctest.Wait()
		e.commits.mu.Lock()
		e.commits.wait = make([]core.Effect, maxEffects+1)
		e.commits.mu.Unlock()
		for _, d := range []time.Duration{time.Second, 0, DefaultTimeout} {
			ctx, want := context.Background(), DefaultTimeout
			if d > 0 {
				var done context.CancelFunc
				ctx, done = context.WithTimeout(ctx, d)
				defer done()
				want = d
			}
			began := time.Now()
			r, err := e.Ask(ctx, probe("x"))
			if took := time.Since(began); err != nil || r.Code != core.CodeUnknownOutcome || took < want || took > want+2*tickEvery+2*watchEvery {
				t.Errorf("a call of %s: %+v %v after %s", want, r, err, took)
			}
		}
		e.commits.mu.Lock()
		e.commits.wait = nil // they are none
		e.commits.mu.Unlock()
		var wg sync.WaitGroup
		began := time.Now()
		wg.Go(func() {
			if r, err := e.Ask(context.Background(), probe("x")); err != nil || r.Code != core.CodeUnknownOutcome || !strings.Contains(r.Text, "closing") {
				t.Errorf("a call at the time of Close: %+v %v", r, err)
			}
		})
		synctest.Wait()
		e.Close()
		wg.Wait()
		if d := time.Since(began); d > time.Second {
			t.Errorf("Close took %s", d)
		}
	})
}

// A core that panics ends the process, whoever steps it: callers recover from panics and would go on with what is broken.
func TestPanicOfTheCore(t *testing.T) {
	if os.Getenv("CHAINMAIL_PANIC") != "" {
		e := startProbe(t, func(string) error { return nil }, nil)
		mustAsk(t, e, probe("first"))
		defer func() { recover(); select {} }()
		e.in.put(item{do: func(*core.Core) { panic("it is broken") }})
		e.help()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPanicOfTheCore$", "-test.timeout", "20s")
	cmd.Env = append(os.Environ(), "CHAINMAIL_PANIC=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: it is broken") {
		t.Errorf("%v\n%s", err, out)
	}
}
