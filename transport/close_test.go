package transport

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// Close at any instant, with traffic of all kinds in both directions, returns in time and leaves no goroutine.
func TestCloseAtAnyInstant(t *testing.T) {
	ca := newAuthority(t)
	certs := map[string]*TLS{}
	for _, id := range []string{"a", "b", "c"} {
		certs[id] = ca.config(ca.issue("chainmail://prod/member/" + id))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	var slowest time.Duration
	for round := range 40 {
		before := goleak.IgnoreCurrent()
		n := loopback(t)
		var all []*member
		for id := range certs {
			m := &recorder{onRequest: func(ctx context.Context, _ Peer, kind uint8, p []byte) ([]byte, error) {
				if kind%2 == 0 {
					<-ctx.Done()
				}
				return p, ctx.Err()
			}}
			set := func(*member, *Config) {}
			if round%3 == 0 {
				set = secured(certs[id])
			}
			all = append(all, n.start(id, m, set))
		}
		ctx, stop := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		for i, m := range all {
			busy(ctx, &wg, m, all[(i+1)%len(all)])
			busy(ctx, &wg, m, all[(i+2)%len(all)])
		}
		time.Sleep(time.Duration(r.Int64N(int64(40 * time.Millisecond)))) // the random instant, not a wait for something
		for _, i := range r.Perm(len(all)) {
			wg.Go(func() { closeSoon(t, all[i].Transport); closeSoon(t, all[i].Transport) })
			if r.IntN(2) == 0 {
				time.Sleep(time.Duration(r.Int64N(int64(5 * time.Millisecond))))
			}
		}
		begin := time.Now()
		for _, m := range all {
			closeSoon(t, m.Transport)
			if s := m.Stats(); s.Open != 0 {
				t.Errorf("seed %d, round %d: %d connections are open after Close", seed, round, s.Open)
			}
		}
		slowest = max(slowest, time.Since(begin))
		stop()
		wg.Wait()
		if err := goleak.Find(before); err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
	}
	t.Logf("the slowest of 40 rounds closed three members in %s", slowest)
}

// busy starts everything that a member can do to another one.
func busy(ctx context.Context, wg *sync.WaitGroup, a, b *member) {
	for l := Messages; l < lanes; l++ {
		wg.Go(func() {
			page := make([]byte, 1<<(4+8*int(l)/2))
			for ctx.Err() == nil && !errors.Is(a.Send(b.id, l, 1, page), ErrClosed) {
				time.Sleep(50 * time.Microsecond)
			}
		})
	}
	for kind := range uint8(4) {
		wg.Go(func() {
			for ctx.Err() == nil {
				_, err := a.RequestMember(ctx, b.id, kind, []byte("x"))
				if errors.Is(err, ErrClosed) {
					return
				}
				if err != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Go(func() {
		for ctx.Err() == nil {
			c, err := a.RaftLayer().Dial(b.addr, time.Second)
			if errors.Is(err, ErrClosed) {
				return
			}
			if err == nil {
				c.Write([]byte("x"))
				c.Close()
			}
			time.Sleep(time.Millisecond)
		}
	})
	wg.Go(func() {
		for {
			c, err := b.RaftLayer().Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 1))
			c.Close()
		}
	})
}

// Callers that wait when their own side closes hear of it at once.
func TestCloseEndsCallers(t *testing.T) {
	n := loopback(t)
	r, _, left := waits()
	n.start("b", r)
	a := n.start("a", &recorder{})
	silent := n.listen("silent")
	defer silent.Close()
	errs := make(chan error, 2)
	go func() { _, err := a.RequestMember(context.Background(), "b", 1, nil); errs <- err }()
	go func() { _, _, err := a.Request(context.Background(), silent.Addr().String(), 1, nil); errs <- err }()
	<-left
	eventually(t, "both connections are open", func() bool { return a.Stats().Open == 2 })
	begin := time.Now()
	closeSoon(t, a.Transport)
	for range 2 {
		if err := <-errs; err == nil {
			t.Error("an answer from nowhere")
		}
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("callers waited for %s", d)
	}
	if _, err := a.RequestMember(context.Background(), "b", 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// What was read ahead when Close comes is not handled to its end: that could take long.
func TestCloseWithFramesReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		b := n.start("b", &recorder{onFrame: func(heard) { time.Sleep(50 * time.Millisecond) }})
		c := n.shakeMemory(b.addr, ClassMessages, "x")
		defer c.Close()
		var wire []byte
		for range 1000 {
			wire = appendFrame(wire, frame{kind: 1})
		}
		if _, err := c.Write(wire); err != nil { // one read takes it all
			t.Fatal(err)
		}
		closeSoon(t, b.Transport)
	})
}
