package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// raw dials a member by hand.
func (n *network) raw(addr string) net.Conn {
	n.tb.Helper()
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		n.tb.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Second))
	n.tb.Cleanup(func() { c.Close() })
	return c
}

// shake dials a member by hand and says HELLO.
func (n *network) shake(addr string, class Class, id string) net.Conn {
	n.tb.Helper()
	c := n.raw(addr)
	if _, err := c.Write(hello{protocol, protocol, class, ident(id)}.append(nil)); err != nil {
		n.tb.Fatal(err)
	}
	if _, err := readAnswer(c); err != nil {
		n.tb.Fatal(err)
	}
	return c
}

// fake listens and gives every connection the same answer to its HELLO. A deaf one reads nothing after it.
func (n *network) fake(answer []byte, deaf bool) (addr string) {
	l := n.listen("fake")
	var wg sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				readHello(c)
				c.Write(answer)
				if deaf {
					<-ctx.Done()
				}
				io.Copy(io.Discard, c)
			})
		}
	})
	n.tb.Cleanup(func() { stop(); l.Close(); wg.Wait() })
	return l.Addr().String()
}

// Each refusal is the same typed error at the member that refuses and at the one that is refused.
func TestRefusals(t *testing.T) {
	removed := func(inc uint64) func(Identity, Class) error {
		return func(p Identity, _ Class) error {
			if p.Incarnation == inc {
				return ErrRemoved
			}
			return nil
		}
	}
	for _, c := range []struct {
		name     string
		dialer   func(*Identity)
		listener func(*Identity)
		admit    func(Identity, Class) error
		class    Class
		want     error
	}{
		{"another cluster", func(i *Identity) { i.ClusterID = "c2" }, nil, nil, ClassControl, ErrWrongCluster},
		{"another ring", func(i *Identity) { i.RingDigest++ }, nil, nil, ClassMessages, ErrRingDiverged},
		{"another ring, bulk", func(i *Identity) { i.RingDigest++ }, nil, nil, ClassBulk, ErrRingDiverged},
		{"another ring, control", func(i *Identity) { i.RingDigest++ }, nil, nil, ClassControl, nil}, // to find out who is the odd one
		{"another ring at another version", func(i *Identity) { i.RingDigest++; i.Version++ }, nil, nil, ClassMessages, nil},
		{"banned incarnation", func(i *Identity) { i.Incarnation = 6 }, nil, removed(6), ClassControl, ErrRemoved},
		{"next incarnation", func(i *Identity) { i.Incarnation = 8 }, nil, removed(6), ClassControl, nil},
		{"no cluster, control", func(i *Identity) { i.ClusterID = "" }, nil, nil, ClassControl, nil},
		{"no cluster, raft", func(i *Identity) { i.ClusterID = "" }, nil, nil, ClassRaft, nil},
		{"no cluster at the dialer", func(i *Identity) { i.ClusterID = "" }, nil, nil, ClassMessages, ErrNoCluster},
		{"no cluster at the listener", nil, func(i *Identity) { i.ClusterID = "" }, nil, ClassReplication, ErrNoCluster},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := loopback(t)
			none := func(*Identity) {}
			pick := func(f func(*Identity)) func(*Identity) {
				if f == nil {
					return none
				}
				return f
			}
			var told [2]atomic.Bool
			tell := func(i int) func(*member, *Config) {
				return func(_ *member, c *Config) { c.Diverged = func() { told[i].Store(true) } }
			}
			a := n.start("a", &recorder{}, identity(pick(c.dialer)), tell(0))
			b := n.start("b", &recorder{admit: c.admit}, identity(pick(c.listener)), tell(1))
			conn, raw, _, err := a.dial(ctx5(t), b.addr, c.class, "b")
			if err == nil {
				a.untrack(raw)
			}
			if other := strings.HasPrefix(c.name, "another ring") && c.name != "another ring at another version"; told[0].Load() != other || told[1].Load() != other {
				t.Errorf("told of another ring: dialer %t, listener %t; want %t", told[0].Load(), told[1].Load(), other)
			}
			if c.want == nil {
				if err != nil || conn == nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, c.want) || errors.Is(err, ErrUnreachable) {
				t.Errorf("dialer: %v, want %v", err, c.want)
			}
			eventually(t, "the listener counts it", func() bool { return b.Stats().Refused[c.want.Error()] == 1 })
		})
	}
}

// The listener refuses what is no HELLO, and says why.
func TestListenerRefusesBytes(t *testing.T) {
	good := hello{protocol, protocol, ClassControl, ident("x")}
	flipped := good.append(nil)
	flipped[20] ^= 1
	for _, c := range []struct {
		name string
		send []byte
		want error
	}{
		{"other software", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), ErrFrame},
		{"magic of another version", append([]byte("CML2"), good.append(nil)[4:]...), ErrFrame},
		{"later protocol", hello{2, 3, ClassControl, ident("x")}.append(nil), ErrProtocol},
		{"earlier protocol", hello{0, 0, ClassControl, ident("x")}.append(nil), ErrProtocol},
		{"protocols the wrong way round", hello{1, 0, ClassControl, ident("x")}.append(nil), ErrProtocol},
		{"flipped bit", flipped, ErrFrame},
		{"unknown class", hello{1, 1, 6, ident("x")}.append(nil), ErrFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := loopback(t)
			b := n.start("b", &recorder{})
			conn := n.raw(b.addr)
			conn.Write(c.send)
			if _, err := readAnswer(conn); !errors.Is(err, c.want) {
				t.Errorf("answer: %v, want %v", err, c.want)
			}
			eventually(t, "the listener counts it", func() bool { return b.Stats().Refused[c.want.Error()] == 1 })
			eventually(t, "the connection is let go", func() bool { return b.Stats().Open == 0 })
		})
	}
}

func TestListenerChoosesItsProtocol(t *testing.T) {
	n := loopback(t)
	b := n.start("b", &recorder{})
	conn := n.raw(b.addr)
	conn.Write(hello{0, 9, ClassControl, ident("x")}.append(nil))
	h, err := readAnswer(conn)
	if want := (hello{protocol, protocol, ClassControl, b.self}); err != nil || h != want {
		t.Errorf("answer %+v, %v; want %+v", h, err, want)
	}
}

// The dialer holds the answer against the same rules.
func TestDialerRefusesAnswers(t *testing.T) {
	other := ident("b")
	other.ClusterID = "c2"
	banned := ident("b")
	banned.Incarnation = 6
	for _, c := range []struct {
		name   string
		answer []byte
		want   error
	}{
		{"other software", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), ErrFrame},
		{"later protocol", hello{2, 2, ClassControl, ident("b")}.append(nil), ErrProtocol},
		{"another class", hello{1, 1, ClassBulk, ident("b")}.append(nil), ErrFrame},
		{"another cluster", hello{1, 1, ClassControl, other}.append(nil), ErrWrongCluster},
		{"banned incarnation", hello{1, 1, ClassControl, banned}.append(nil), ErrRemoved},
		{"another member", hello{1, 1, ClassControl, ident("z")}.append(nil), ErrWrongMember},
		{"refusal", appendRefused(nil, ErrRingDiverged), ErrRingDiverged},
		{"half a refusal, flipped", func() []byte { b := appendRefused(nil, ErrRemoved); b[5] ^= 1; return b }(), ErrFrame},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := loopback(t)
			a := n.start("a", &recorder{admit: func(p Identity, _ Class) error {
				if p.Incarnation == 6 {
					return ErrRemoved
				}
				return nil
			}})
			_, _, _, err := a.dial(ctx5(t), n.fake(c.answer, false), ClassControl, "b")
			if !errors.Is(err, c.want) || errors.Is(err, ErrUnreachable) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if a.Stats().Open != 0 {
				t.Error("a refused connection stays open")
			}
		})
	}
}

// A request for one member is not carried out by another one at its address.
func TestAnotherMemberAtTheAddress(t *testing.T) {
	n := loopback(t)
	a := n.start("a", &recorder{})
	var asked atomic.Int32
	b := n.start("b", &recorder{})
	z := n.start("z", &recorder{onRequest: func(context.Context, Peer, uint8, []byte) ([]byte, error) { asked.Add(1); return nil, nil }})
	n.place("b", z.addr)
	if _, err := a.RequestMember(ctx5(t), "b", 1, []byte("x")); !errors.Is(err, ErrWrongMember) {
		t.Errorf("request: %v", err)
	}
	if err := a.Send("b", Messages, 1, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the sender hears that the member is not there", func() bool { return a.down() > 0 })
	if err := a.Send("b", Messages, 1, nil); !errors.Is(err, ErrWrongMember) {
		t.Errorf("send: %v", err)
	}
	n.place("b", b.addr)
	eventually(t, "the member is found again", func() bool { a.Send("b", Messages, 1, nil); return len(b.heard()) > 0 })
	if len(z.heard()) > 0 || asked.Load() > 0 {
		t.Error("frames or requests went to another member")
	}
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Error(err)
	}
	if _, err := a.RequestMember(ctx5(t), "nobody", 1, nil); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("request to nobody: %v", err)
	}
}
