//go:build unix

package transport

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// texts gives what a member has heard.
func (r *recorder) texts() (out []string) {
	for _, f := range r.heard() {
		out = append(out, f.text)
	}
	return out
}

// alone sends b a frame that its sender may write itself.
func (m *member) alone(text string) error {
	return m.SendFunc("b", Messages, 1, true, func(dst []byte) []byte { return append(dst, text...) })
}

// joined gives two members, and the pipe from a to b, whose writer sleeps. The first frame has arrived.
func joined(t *testing.T, n *network, r *recorder, set ...func(*member, *Config)) (a, b *member, p *pipe) {
	t.Helper()
	a, b = n.start("a", &recorder{}, set...), n.start("b", r)
	if err := a.Send("b", Messages, 1, []byte("first")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first frame arrives", func() bool { return len(b.heard()) == 1 })
	p, err := a.pipe("b", Messages)
	if err != nil {
		t.Fatal(err)
	}
	asleep(t, p)
	return a, b, p
}

func asleep(t *testing.T, p *pipe) {
	t.Helper()
	eventually(t, "the writer sleeps", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.sleep })
}

// instead has senders write with f, which is given what they wrote with before.
func instead(p *pipe, f func(socket func([]byte) int, data []byte) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	socket := p.direct
	p.direct = func(data []byte) int { return f(socket, data) }
}

func TestSenderWrites(t *testing.T) {
	a, b, p := joined(t, loopback(t), &recorder{})
	wrote := 0
	instead(p, func(socket func([]byte) int, data []byte) int { wrote++; return socket(data) })
	for i := range 100 {
		if err := a.alone(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		if !p.sleep {
			t.Error("the writer was woken")
		}
		p.mu.Unlock()
	}
	a.Send("b", Messages, 1, []byte("not alone"))
	asleep(t, p)
	a.alone(strings.Repeat("x", directBytes))
	eventually(t, "all arrive", func() bool { return len(b.heard()) == 103 })
	if wrote != 100 {
		t.Errorf("senders have written %d times", wrote)
	}
}

// A sender whose write takes long keeps no other one, and what they send meanwhile comes after it, in their order.
func TestSlowWriteKeepsNobody(t *testing.T) {
	a, b, p := joined(t, loopback(t), &recorder{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	instead(p, func(socket func([]byte) int, data []byte) int { close(begun); <-goOn; return socket(data) })
	var wg sync.WaitGroup
	wg.Go(func() { a.alone("0") })
	<-begun
	for i := range 20 {
		if text := fmt.Sprint(i + 1); i%2 == 0 {
			a.alone(text)
		} else {
			a.Send("b", Messages, 1, []byte(text))
		}
	}
	if len(b.heard()) > 1 {
		t.Error("frames have overtaken one that is being written")
	}
	close(goOn)
	wg.Wait()
	eventually(t, "all arrive", func() bool { return len(b.heard()) == 22 })
	for i, s := range b.texts()[1:] {
		if s != fmt.Sprint(i) {
			t.Fatalf("in this order: %q", b.texts())
		}
	}
}

// What the socket does not take is written by the writer, before all that is sent later.
func TestSocketTakesAPart(t *testing.T) {
	a, b, p := joined(t, loopback(t), &recorder{})
	want := []string{"first"}
	takes := 0
	instead(p, func(socket func([]byte) int, data []byte) int { return socket(data[:takes]) })
	for takes = range headerSize + len("half") {
		asleep(t, p)
		for _, text := range []string{"half", fmt.Sprint("after ", takes)} {
			if err := a.alone(text); err != nil {
				t.Fatal(err)
			}
			want = append(want, text)
		}
	}
	eventually(t, "all arrive", func() bool { return len(b.heard()) == len(want) })
	if got := b.texts(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// Time to ping that comes while a sender writes must not put the ping into the middle of its frame.
func TestPingAfterASendersFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := inMemory(t)
		var conn net.Conn
		a, b, p := joined(t, n, &recorder{}, func(_ *member, c *Config) {
			c.Dial = func(ctx context.Context, addr string) (c net.Conn, err error) {
				conn, err = n.dial(ctx, addr)
				return conn, err
			}
		})
		open := b.Stats().Open
		p.mu.Lock()
		p.direct = func(data []byte) int {
			k, _ := conn.Write(data[:7])
			time.Sleep(2 * pingEvery)
			return k
		}
		p.mu.Unlock()
		for range 3 {
			if err := a.alone("whole"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(2 * deadAfter) // pings go on
		if got := b.texts(); !slices.Equal(got, []string{"first", "whole", "whole", "whole"}) {
			t.Errorf("%q", got)
		}
		if s := b.Stats(); s.BadFrames != 0 || s.Open != open || a.Stats().Reconnects != 0 {
			t.Errorf("%+v, %d connections failed", s, a.Stats().Reconnects)
		}
	})
}

// A connection that ends while a sender writes to it takes half a frame with it: the next one begins with a whole one.
func TestConnectionEndsWhileASenderWrites(t *testing.T) {
	a, b, p := joined(t, loopback(t), &recorder{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	instead(p, func(socket func([]byte) int, data []byte) int { close(begun); <-goOn; return socket(data[:7]) })
	var wg sync.WaitGroup
	wg.Go(func() { a.alone("lost") })
	<-begun
	b.Transport.mu.Lock()
	for c := range b.conns {
		c.Close()
	}
	b.Transport.mu.Unlock()
	close(goOn)
	wg.Wait()
	eventually(t, "the end is reported", func() bool { return a.down() == 1 })
	eventually(t, "the next frame arrives", func() bool { a.alone("next"); return len(b.heard()) > 1 })
	if got := b.texts()[1]; got != "next" || b.Stats().BadFrames != 0 {
		t.Errorf("%q, %+v", got, b.Stats())
	}
}

// Close does not wait for a sender that writes, and the sender ends.
func TestCloseWhileASenderWrites(t *testing.T) {
	a, _, p := joined(t, loopback(t), &recorder{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	instead(p, func(socket func([]byte) int, data []byte) int { close(begun); <-goOn; return socket(data) })
	var wg sync.WaitGroup
	wg.Go(func() { a.alone("late") })
	<-begun
	closeSoon(t, a.Transport)
	a.alone("later")
	close(goOn)
	wg.Wait()
}

// tight gives connections whose sockets take little.
func tight(ctx context.Context, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return c, err
}

// Many senders, some of which write themselves, to a receiver that is slower than they are: all of it comes, in order.
func TestOrderOfSendersThatWrite(t *testing.T) {
	n := loopback(t)
	var mu sync.Mutex
	const senders, each = 6, 400
	var next [senders]uint32
	wrong, got := 0, 0
	b := n.start("b", &recorder{onFrame: func(h heard) {
		mu.Lock()
		defer mu.Unlock()
		s, i := h.text[0], binary.BigEndian.Uint32([]byte(h.text[1:]))
		if i != next[s] {
			wrong++
		}
		next[s]++
		if got++; got%500 == 0 {
			time.Sleep(2 * time.Millisecond)
		}
	}})
	a := n.start("a", &recorder{}, func(_ *member, c *Config) { c.Dial = tight })
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				p := append(binary.BigEndian.AppendUint32([]byte{byte(s)}, uint32(i)), make([]byte, 37*i%3000)...)
				for a.SendFunc("b", Messages, 1, (s+i)%3 > 0, func(dst []byte) []byte { return append(dst, p...) }) != nil {
					time.Sleep(time.Millisecond) // too much waits
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all arrive", func() bool { mu.Lock(); defer mu.Unlock(); return got == senders*each })
	if wrong > 0 || b.Stats().BadFrames != 0 || a.down() != 0 {
		t.Errorf("%d frames out of order, %+v, %d losses", wrong, b.Stats(), a.down())
	}
}

// OnFrame is told that more has arrived.
func TestMoreHasArrived(t *testing.T) {
	n := loopback(t)
	var mu sync.Mutex
	var got []bool
	b := n.start("b", &recorder{onMore: func(more bool) { mu.Lock(); defer mu.Unlock(); got = append(got, more) }})
	c := n.shake(b.addr, ClassMessages, "x")
	var wire []byte
	for range 3 {
		wire = appendFrame(wire, frame{kind: 1})
	}
	if _, err := c.Write(wire); err != nil {
		t.Fatal(err)
	}
	seen := func() []bool { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
	eventually(t, "all arrive", func() bool { return len(seen()) == 3 })
	if s := seen(); !slices.Equal(s, []bool{true, true, false}) {
		t.Errorf("%v", s)
	}
}
