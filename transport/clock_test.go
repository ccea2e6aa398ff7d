package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// These tests run in virtual time over connections in memory: minutes take milliseconds, and times are exact.

// dialMemory dials a member by hand.
func (n *network) dialMemory(addr string) net.Conn {
	n.tb.Helper()
	c, err := n.dial(context.Background(), addr)
	if err != nil {
		n.tb.Fatal(err)
	}
	return c
}

// shakeMemory says HELLO too.
func (n *network) shakeMemory(addr string, class Class, id string) net.Conn {
	n.tb.Helper()
	c := n.dialMemory(addr)
	if _, err := c.Write(hello{protocol, protocol, class, ident(id)}.append(nil)); err != nil {
		n.tb.Fatal(err)
	}
	if _, err := readAnswer(c); err != nil {
		n.tb.Fatal(err)
	}
	return c
}

// lasts gives how long the other side keeps a connection open.
func lasts(c net.Conn) time.Duration {
	begin := time.Now()
	io.Copy(io.Discard, c)
	c.Close()
	return time.Since(begin)
}

func TestSlowHandshakesAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, ca := inMemory(t), newAuthority(t)
		b := n.start("b", &recorder{})
		s := n.start("s", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/s", virtual))))
		hi := hello{1, 1, ClassControl, ident("x")}.append(nil)
		tlsStart := []byte{22, 3, 1, 1, 0, 1}
		var wg sync.WaitGroup
		for _, c := range []struct {
			addr string
			send []byte
		}{{b.addr, nil}, {b.addr, hi[:1]}, {b.addr, hi[:9]}, {b.addr, hi[:len(hi)-1]}, {s.addr, nil}, {s.addr, tlsStart[:1]}, {s.addr, tlsStart}} {
			wg.Go(func() {
				conn := n.dialMemory(c.addr)
				if len(c.send) > 0 {
					conn.Write(c.send)
				}
				if d := lasts(conn); d != helloTimeout {
					t.Errorf("after %x and silence: closed after %s, want %s", c.send, d, helloTimeout)
				}
			})
		}
		// One byte a second is no better: the whole handshake has one deadline.
		wg.Go(func() {
			conn := n.dialMemory(b.addr)
			begin := time.Now()
			for i := range hi {
				if _, err := conn.Write(hi[i : i+1]); err != nil {
					break
				}
				time.Sleep(time.Second)
			}
			conn.Close()
			if d := time.Since(begin); d > helloTimeout+time.Second {
				t.Errorf("a byte a second was let go on for %s", d)
			}
		})
		a := n.start("a", &recorder{})
		begin := time.Now()
		if _, err := a.RequestMember(context.Background(), "b", 1, nil); err != nil || time.Since(begin) != 0 {
			t.Errorf("a request meanwhile took %s, %v", time.Since(begin), err)
		}
		wg.Wait()
		eventually(t, "only the good connection is left", func() bool { return b.Stats().Open == 1 && s.Stats().Open == 0 })
	})
}

// A connection that has said HELLO and then nothing, or half a frame, is dead after 45 s.
func TestSilentConnectionsAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		b := n.start("b", &recorder{})
		one := appendFrame(nil, frame{kind: 1, payload: make([]byte, 100)})
		var wg sync.WaitGroup
		for class := ClassControl; class <= ClassBulk; class++ {
			for name, send := range map[string][]byte{"nothing": nil, "one byte": one[:1], "half a frame": one[:60]} {
				wg.Go(func() {
					c := n.shakeMemory(b.addr, class, class.String()+name)
					if len(send) > 0 {
						c.Write(send)
					}
					if d := lasts(c); d != deadAfter {
						t.Errorf("%s, %s: closed after %s, want %s", class, name, d, deadAfter)
					}
				})
			}
		}
		wg.Go(func() { // nobody takes this one
			if d := lasts(n.shakeMemory(b.addr, ClassRaft, "raft")); d != helloTimeout {
				t.Errorf("raft: closed after %s, want %s", d, helloTimeout)
			}
		})
		wg.Wait()
		synctest.Wait()
		if s := b.Stats(); s.Open != 0 || b.unknown.all != 0 {
			t.Errorf("open: %d, unknown: %d", s.Open, b.unknown.all)
		}
	})
}

// Pings keep connections that carry nothing; requests may take longer than any of the times.
func TestIdleConnectionsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		n.start("b", &recorder{onRequest: func(ctx context.Context, _ Peer, _ uint8, p []byte) ([]byte, error) {
			select {
			case <-time.After(10 * time.Minute):
			case <-ctx.Done():
			}
			return p, ctx.Err()
		}})
		a := n.start("a", &recorder{})
		for l := Messages; l < lanes; l++ {
			a.Send("b", l, 1, nil)
		}
		begin := time.Now()
		if got, err := a.RequestMember(context.Background(), "b", 1, []byte("x")); err != nil || string(got) != "x" || time.Since(begin) != 10*time.Minute {
			t.Errorf("a long request: %q, %v after %s", got, err, time.Since(begin))
		}
		if s := a.Stats(); s.Open != 4 || s.Reconnects != 0 || a.down() != 0 {
			t.Errorf("after 10 minutes: %d open, %d lost", s.Open, s.Reconnects)
		}
		// The connection for requests goes when nobody uses it, those of the lanes stay.
		time.Sleep(deadAfter + 2*pingEvery)
		if s := a.Stats(); s.Open != 3 {
			t.Errorf("%d open", s.Open)
		}
		ctx, done := context.WithTimeout(context.Background(), time.Second)
		defer done()
		if _, err := a.RequestMember(ctx, "b", 1, nil); errors.Is(err, ErrUnreachable) {
			t.Errorf("next request: %v", err)
		}
	})
}

// A queue that never empties must not hold pings back, and a queue that is full for long must not keep pongs away for
// too long: the connection would be taken for dead.
func TestBusyConnectionsLive(t *testing.T) {
	for name, c := range map[string]struct{ begin, each, size int }{
		"never empty": {100, 1, 1000}, // never enough for a whole step of the writer
		"full":        {1, 3, 8000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := inMemory(t)
				var a *member
				var got atomic.Int64
				started := make(chan struct{})
				send := func(k int) {
					for range k {
						a.Send("b", Bulk, 1, make([]byte, c.size)) // ErrBusy is fine: the queue is full
					}
				}
				n.start("b", &recorder{onFrame: func(heard) {
					<-started
					got.Add(1)
					send(c.each)
					time.Sleep(50 * time.Millisecond)
				}})
				a = n.start("a", &recorder{})
				send(c.begin)
				close(started)
				time.Sleep(3 * time.Minute)
				if s := a.Stats(); s.Reconnects != 0 || a.Pressure("b", Bulk) == 0 {
					t.Errorf("%d connections were lost, %d bytes wait", s.Reconnects, a.Pressure("b", Bulk))
				}
				if got.Load() < 3000 {
					t.Errorf("%d frames in 3 minutes", got.Load())
				}
			})
		})
	}
}

// A slow line is not a dead one.
func TestSlowLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		b := n.start("b", &recorder{})
		a := n.start("a", &recorder{})
		dial := a.cfg.Dial
		a.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := dial(ctx, addr)
			return slowConn{c}, err
		}
		const size = 4 << 20
		a.Send("b", Bulk, 1, make([]byte, size))
		time.Sleep(size/slowRate*time.Second + time.Second)
		if len(b.heard()) != 1 || a.Stats().Reconnects != 0 {
			t.Errorf("%d frames arrived, %d connections were lost", len(b.heard()), a.Stats().Reconnects)
		}
	})
}

const slowRate = 48 << 10 // bytes in a second

// slowConn takes a second for every slowRate bytes, and keeps to write deadlines as well as it can.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var m int
		m, err = c.Conn.Write(b[n:min(n+slowRate, len(b))])
		n += m
		time.Sleep(time.Duration(m) * time.Second / slowRate)
	}
	return n, err
}

// The sender sees a peer that takes nothing after 10 s, and one that answers no ping after 45 s.
func TestDeadPeersAreSeenInTime(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool
		want  time.Duration
	}{"takes nothing": {false, writeTimeout}, "answers no ping": {true, deadAfter}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := inMemory(t)
				l := n.listen("b")
				n.place("b", "b")
				over := make(chan struct{})
				var wg sync.WaitGroup
				defer wg.Wait()
				defer l.Close()
				defer close(over)
				wg.Go(func() {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					readHello(conn)
					conn.Write(hello{1, 1, ClassMessages, ident("b")}.append(nil))
					if c.reads {
						io.Copy(io.Discard, conn)
					} else {
						<-over
					}
					conn.Close()
				})
				a := n.start("a", &recorder{})
				begin := time.Now()
				if err := a.Send("b", Messages, 1, make([]byte, 100)); err != nil {
					t.Fatal(err)
				}
				for a.down() == 0 && time.Since(begin) < 2*deadAfter {
					time.Sleep(time.Second)
				}
				if d := time.Since(begin); d != c.want && d != c.want+time.Second {
					t.Errorf("seen after %s, want %s", d, c.want)
				}
			})
		})
	}
}

// dials counts the attempts of a member, with their times.
func dials(m *member) func() []time.Duration {
	var mu sync.Mutex
	var at []time.Duration
	begin, dial := time.Now(), m.cfg.Dial
	m.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		mu.Lock()
		at = append(at, time.Since(begin))
		mu.Unlock()
		return dial(ctx, addr)
	}
	return func() []time.Duration { mu.Lock(); defer mu.Unlock(); return slices.Clone(at) }
}

// A peer that cannot be reached is dialled again every 1 to 2 s at last, one that refuses for good every 30 to 60 s.
func TestNoRetryStorm(t *testing.T) {
	for name, c := range map[string]struct {
		spoil       func(*Identity)
		gone        bool
		least, most int
	}{
		"unreachable":     {gone: true, least: 150, most: 320},
		"another cluster": {spoil: func(i *Identity) { i.ClusterID = "c2" }, least: 5, most: 11},
		"another ring":    {spoil: func(i *Identity) { i.RingDigest++ }, least: 5, most: 11},
		"no cluster yet":  {spoil: func(i *Identity) { i.ClusterID = "" }, least: 150, most: 320},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := inMemory(t)
				a := n.start("a", &recorder{})
				if c.gone {
					n.place("b", "nowhere")
				} else {
					n.start("b", &recorder{}, identity(c.spoil))
				}
				count := dials(a)
				for begin := time.Now(); time.Since(begin) < 5*time.Minute; time.Sleep(10 * time.Millisecond) {
					a.Send("b", Messages, 1, nil)
				}
				if k := len(count()); k < c.least || k > c.most {
					t.Errorf("%d attempts in 5 minutes, want %d to %d", k, c.least, c.most)
				}
			})
		})
	}
}

// What is sent while a member starts is not lost.
func TestSendBeforeTheMemberListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		a := n.start("a", &recorder{})
		n.place("b", "b")
		if err := a.Send("b", Messages, 1, []byte("early")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(dialSoon / 2)
		b := n.start("b", &recorder{})
		time.Sleep(dialSoon)
		if h := b.heard(); len(h) != 1 || h[0].text != "early" || a.down() != 0 {
			t.Errorf("arrived: %v, losses: %d", h, a.down())
		}
	})
}

// A connection that worked and fails is replaced at the next send, with no pause, and with no attempt before.
func TestReconnectAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
		count := dials(a)
		a.Send("b", Messages, 1, []byte("1"))
		time.Sleep(time.Minute)
		b.Transport.mu.Lock()
		for c := range b.conns {
			c.Close()
		}
		b.Transport.mu.Unlock()
		begin := time.Now()
		synctest.Wait()
		if len(count()) != 1 || a.down() != 1 {
			t.Errorf("%d attempts and %d losses with nothing to send", len(count()), a.down())
		}
		time.Sleep(time.Nanosecond) // the least pause there is
		if err := a.Send("b", Messages, 1, []byte("2")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(b.heard()) != 2 || time.Since(begin) > time.Microsecond {
			t.Errorf("%d frames after %s", len(b.heard()), time.Since(begin))
		}
		time.Sleep(time.Minute)
		if len(count()) != 2 || a.down() != 1 {
			t.Errorf("%d attempts and %d losses in the end", len(count()), a.down())
		}
	})
}

// What was queued when a connection failed is lost, as its sender was told: it must not come later.
func TestNothingComesAfterItsLossWasReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		a := n.start("a", &recorder{})
		n.place("b", "b")
		for range 5 {
			if err := a.Send("b", Messages, 1, []byte("lost")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for a.down() == 0 {
			time.Sleep(time.Millisecond)
		}
		b := n.start("b", &recorder{})
		time.Sleep(dialMost)
		if a.down() != 1 {
			t.Errorf("the loss was reported %d times", a.down())
		}
		if err := a.Send("b", Messages, 1, []byte("new")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if h := b.heard(); len(h) != 1 || h[0].text != "new" {
			t.Errorf("heard %v", h)
		}
	})
}
