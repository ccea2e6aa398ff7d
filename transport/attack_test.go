package transport

import (
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// traffic sends messages and requests between two members until stop is closed, and fails the test when one is lost.
func traffic(t *testing.T, a, b *member, stop chan struct{}) (wait func() int) {
	var wg sync.WaitGroup
	sent := 0
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := a.Send(b.id, Messages, 1, []byte("legitimate")); err != nil {
				t.Errorf("send: %v", err)
				return
			}
			sent++
			if _, err := a.RequestMember(ctx5(t), b.id, 1, []byte("legitimate")); err != nil {
				t.Errorf("request: %v", err)
				return
			}
		}
	})
	return func() int { wg.Wait(); return sent }
}

// Whatever comes in on the port is closed at once, and does not touch what is open.
func TestGarbageOnThePort(t *testing.T) {
	for _, mode := range []string{"plain", "TLS"} {
		t.Run(mode, func(t *testing.T) {
			n, ca := loopback(t), newAuthority(t)
			set := func(id string) func(*member, *Config) {
				if mode == "plain" {
					return func(*member, *Config) {}
				}
				return secured(ca.config(ca.issue("chainmail://prod/member/" + id)))
			}
			a, b := n.start("a", &recorder{}, set("a")), n.start("b", &recorder{}, set("b"))
			a.Send("b", Messages, 1, nil)
			if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
				t.Fatal(err)
			}
			eventually(t, "traffic begins", func() bool { return len(b.heard()) == 1 && b.Stats().Open == 2 })
			goroutines := runtime.NumGoroutine()
			stop := make(chan struct{})
			wait := traffic(t, a, b, stop)
			seed := rand.Uint64()
			var wg sync.WaitGroup
			for w := range 4 {
				wg.Go(func() { garbage(t, b.addr, rand.New(rand.NewPCG(seed, uint64(w))), 100) })
			}
			wg.Wait()
			close(stop)
			sent := wait()
			eventually(t, "all messages arrive", func() bool { return len(b.heard()) == sent+1 })
			eventually(t, "nothing is left of the garbage", func() bool { return b.Stats().Open == 2 && runtime.NumGoroutine() <= goroutines })
			var refused uint64
			for _, k := range b.Stats().Refused {
				refused += k
			}
			if sent == 0 || refused != 400 || a.down() > 0 {
				t.Errorf("seed %d: %d messages beside %d refusals, %d losses", seed, sent, refused, a.down())
			}
		})
	}
}

// garbage opens connections one after another and writes something to each: random bytes, or good ones that go bad.
func garbage(t *testing.T, addr string, r *rand.Rand, conns int) {
	starts := [][]byte{nil, []byte(helloMagic), []byte(refusedMagic), {22, 3, 1, 0, 200}, []byte("GET / HTTP/1.1\r\n")}
	for range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		b := slices.Clone(starts[r.IntN(len(starts))])
		for range 64 + r.IntN(4000) {
			b = append(b, byte(r.Uint32()))
		}
		c.SetDeadline(time.Now().Add(2 * time.Second))
		c.Write(b)
		if r.IntN(2) == 0 {
			c.(*net.TCPConn).CloseWrite()
			for err == nil {
				_, err = c.Read(make([]byte, 2000))
			}
			if isTimeout(err) {
				t.Errorf("connection stays open after %x", b[:20])
			}
		}
		c.Close()
	}
}

// At most maxUnknown connections may be silent; one more is closed at once, and those that are open do not notice.
func TestLimitOfUnknownConnections(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	a.Send("b", Messages, 1, nil)
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "traffic begins", func() bool { return len(b.heard()) == 1 })
	unknown := func() int { b.Transport.mu.Lock(); defer b.Transport.mu.Unlock(); return b.unknown }
	eventually(t, "all are known", func() bool { return unknown() == 0 })
	var silent []net.Conn
	for range maxUnknown {
		c := n.raw(b.addr)
		c.Write([]byte(helloMagic[:1]))
		silent = append(silent, c)
	}
	eventually(t, "all are accepted", func() bool { return unknown() == maxUnknown })
	for range 5 {
		c := n.raw(b.addr)
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("one too many: %v", err)
		}
	}
	eventually(t, "they are counted", func() bool { return b.Stats().Refused[ErrLimit.Error()] == 5 })
	stop := make(chan struct{})
	wait := traffic(t, a, b, stop)
	eventually(t, "open connections go on", func() bool { return len(b.heard()) > 100 })
	close(stop)
	wait()
	c := n.start("c", &recorder{})
	if _, err := c.RequestMember(ctx5(t), "b", 1, nil); !errors.Is(err, ErrUnreachable) {
		t.Errorf("a new connection meanwhile: %v", err)
	}
	for _, s := range silent {
		s.Close()
	}
	eventually(t, "there is room again", func() bool { return unknown() == 0 })
	if _, err := c.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Errorf("a new connection after it: %v", err)
	}
}

// A peer that closes in the middle of anything leaves nothing behind.
func TestHalfOpenConnectionsLeaveNothing(t *testing.T) {
	n, ca := loopback(t), newAuthority(t)
	b := n.start("b", &recorder{})
	s := n.start("s", &recorder{}, secured(ca.config(ca.issue("chainmail://prod/member/s"))))
	goroutines := runtime.NumGoroutine()
	hi := hello{1, 1, ClassBulk, ident("x")}.append(nil)
	whole := appendFrame(hi, frame{kind: 1, payload: make([]byte, 300)})
	for cut := range whole {
		for _, m := range []*member{b, s} {
			c := n.raw(m.addr)
			c.Write(whole[:cut])
			if cut%2 == 0 { // a reset instead of an orderly end
				c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
		}
		if cut%50 == 0 {
			tc := tls.Client(n.raw(s.addr), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{alpn}, Certificates: []tls.Certificate{*ca.issue("chainmail://prod/member/x")}})
			tc.Write(whole[:cut])
			tc.NetConn().Close()
		}
	}
	eventually(t, "nothing is left", func() bool {
		return b.Stats().Open+s.Stats().Open == 0 && runtime.NumGoroutine() <= goroutines
	})
	if len(b.heard())+len(s.heard()) > 0 {
		t.Error("half a frame was handled")
	}
}
