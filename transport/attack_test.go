package transport

import (
	"crypto/tls"
	"fmt"
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
			eventually(t, fmt.Sprintf("all garbage is refused, seed %d", seed), func() bool {
				refused := uint64(0)
				for _, k := range b.Stats().Refused {
					refused += k
				}
				return refused == 400
			})
			if sent == 0 || a.down() > 0 {
				t.Errorf("seed %d: %d messages, %d losses", seed, sent, a.down())
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

// silence opens connections from an address of this host that say nothing, until as many are accepted.
func silence(t *testing.T, m *member, from string, k int) (end func()) {
	t.Helper()
	var conns []net.Conn
	before := m.strangers()
	for range k {
		c := dialFrom(t, from, m.addr)
		c.Write([]byte(helloMagic[:1]))
		conns = append(conns, c)
	}
	eventually(t, "all are accepted", func() bool { return m.strangers() == before+k })
	return func() {
		for _, c := range conns {
			c.Close()
		}
	}
}

func (m *member) strangers() int {
	m.Transport.mu.Lock()
	defer m.Transport.mu.Unlock()
	return m.unknown.all
}

// dialFrom opens a connection from another address of this host: all of 127.0.0.0/8 is.
func dialFrom(t *testing.T, from, addr string) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).Dial("tcp", addr)
	if err != nil {
		t.Skipf("this host does not let a connection come from %s: %v", from, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// tooMany holds that a connection from there is closed at once.
func tooMany(t *testing.T, from, addr string) {
	t.Helper()
	c := dialFrom(t, from, addr)
	c.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
		t.Errorf("one too many from %s: %v", from, err)
	}
}

// At most maxUnknown connections may be silent, half of them from one address; one more is closed at once, and those that
// are open do not notice. When all places are taken, who holds most of them gives way.
func TestLimitOfUnknownConnections(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	a.Send("b", Messages, 1, nil)
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "traffic begins", func() bool { return len(b.heard()) == 1 })
	eventually(t, "all are known", func() bool { return b.strangers() == 0 })
	end := silence(t, b, "127.0.0.2", maxUnknownFrom)
	tooMany(t, "127.0.0.2", b.addr)
	c := n.start("c", &recorder{})
	if _, err := c.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Errorf("a member beside a host that is silent too often: %v", err)
	}
	endMore := silence(t, b, "127.0.0.3", maxUnknown-maxUnknownFrom)
	eventually(t, "it is counted", func() bool { return b.Stats().Refused[ErrLimit.Error()] == 1 })
	stop := make(chan struct{})
	wait := traffic(t, a, b, stop)
	eventually(t, "open connections go on", func() bool { return len(b.heard()) > 100 })
	var more []net.Conn
	for i := range 8 { // from further hosts that say nothing: they take the places of the two above
		more = append(more, dialFrom(t, fmt.Sprintf("127.0.0.%d", 4+i), b.addr))
	}
	d := n.start("d", &recorder{})
	if _, err := d.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Errorf("a member while all places are taken by hosts that say nothing: %v", err)
	}
	if k := b.strangers(); k > maxUnknown {
		t.Errorf("%d connections say nothing", k)
	}
	close(stop)
	wait()
	endMore()
	end()
	for _, c := range more {
		c.Close()
	}
	eventually(t, "there is room again", func() bool { return b.strangers() == 0 })
}

// At most MaxInbound connections may be open, MaxInboundFrom of them from one address, whatever they have said.
func TestLimitOfConnections(t *testing.T) {
	const most, mostFrom = 5, 3
	n := loopback(t)
	b := n.start("b", &recorder{}, func(_ *member, c *Config) { c.MaxInbound, c.MaxInboundFrom = most, mostFrom })
	greet := func(from, id string, class Class) net.Conn {
		t.Helper()
		c := dialFrom(t, from, b.addr)
		c.Write(hello{1, 1, class, ident(id)}.append(nil))
		if _, err := readAnswer(c); err != nil {
			t.Fatalf("%s from %s: %v", id, from, err)
		}
		return c
	}
	first := greet("127.0.0.2", "x", ClassMessages)
	greet("127.0.0.2", "y", ClassControl)
	greet("127.0.0.2", "z", ClassBulk)
	tooMany(t, "127.0.0.2", b.addr)
	greet("127.0.0.3", "v", ClassMessages)
	greet("127.0.0.3", "w", ClassMessages)
	tooMany(t, "127.0.0.4", b.addr)
	if refused := b.Stats().Refused[ErrLimit.Error()]; refused != 2 {
		t.Errorf("%d were refused", refused)
	}
	first.Close()
	eventually(t, "one has gone", func() bool { return b.Stats().Open == most-1 })
	greet("127.0.0.2", "u", ClassReplication)
	b.Transport.mu.Lock()
	defer b.Transport.mu.Unlock()
	if b.guests.all != most || b.guests.from[origin(&net.TCPAddr{IP: net.ParseIP("127.0.0.2")})] != mostFrom {
		t.Errorf("counted are %+v", b.guests)
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"192.0.2.7:1": "192.0.2.7/32", "[::ffff:192.0.2.7]:1": "192.0.2.7/32", "[2001:db8::1]:9": "2001:db8::/64",
		"[2001:db8:0:0:ffff::]:9": "2001:db8::/64", "[2001:db8:0:1::]:9": "2001:db8:0:1::/64", "[fe80::1%lo]:9": "fe80::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := origin(a).String(); got != want {
			t.Errorf("%s comes from %s, not %s", addr, got, want)
		}
	}
	if origin(address("x")).IsValid() {
		t.Error("what is no IP address has an origin")
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
