package transport

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// raftPair opens a stream between two members.
func raftPair(t *testing.T, a, b *member) (out, in net.Conn) {
	t.Helper()
	type accepted struct {
		c   net.Conn
		err error
	}
	ch := make(chan accepted, 1)
	go func() { c, err := b.RaftLayer().Accept(); ch <- accepted{c, err} }()
	out, err := a.RaftLayer().Dial(b.addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	got := <-ch
	if got.err != nil {
		t.Fatal(got.err)
	}
	return out, got.c
}

func echoRaft(t *testing.T, a, b *member, text string) string {
	t.Helper()
	out, in := raftPair(t, a, b)
	defer out.Close()
	defer in.Close()
	if _, err := out.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, len(text))
	if _, err := io.ReadFull(in, buf); err != nil {
		t.Fatal(err)
	}
	return string(buf)
}

func TestRaftStreams(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	if s := b.RaftLayer().Addr(); s.String() != b.addr || s.Network() != "tcp" {
		t.Errorf("address is %s %s", s.Network(), s)
	}
	out, in := raftPair(t, a, b)
	big := bytes.Repeat([]byte("chainmail"), 1<<17)
	go func() { out.Write(big); out.Close() }()
	in.SetReadDeadline(time.Now().Add(5 * time.Second))
	got, err := io.ReadAll(in)
	if err != nil || !bytes.Equal(got, big) {
		t.Errorf("%d of %d bytes arrived, %v", len(got), len(big), err)
	}
	if _, err := in.Write([]byte("x")); err != nil {
		t.Logf("write to a closed stream: %v", err)
	}
	in.Close()
	in.Close()
	eventually(t, "both ends are let go", func() bool { return a.Stats().Open == 0 && b.Stats().Open == 0 })
}

// A read and a write end at their deadline, and the stream can be used after it.
func TestRaftDeadlines(t *testing.T) {
	for name, set := range map[string]func(*authority, string) func(*member, *Config){
		"plain": func(*authority, string) func(*member, *Config) { return func(*member, *Config) {} },
		"TLS": func(ca *authority, id string) func(*member, *Config) {
			return secured(ca.config(ca.issue("chainmail://prod/member/" + id)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, ca := loopback(t), newAuthority(t)
			a, b := n.start("a", &recorder{}, set(ca, "a")), n.start("b", &recorder{}, set(ca, "b"))
			out, in := raftPair(t, a, b)
			defer out.Close()
			for side, c := range map[string]net.Conn{"dialled": out, "accepted": in} {
				begin := time.Now()
				c.SetReadDeadline(begin.Add(50 * time.Millisecond))
				_, err := c.Read(make([]byte, 1))
				if d := time.Since(begin); !isTimeout(err) || d < 40*time.Millisecond || d > 2*time.Second {
					t.Errorf("%s: read ended after %s with %v", side, d, err)
				}
				c.SetReadDeadline(time.Time{})
			}
			in.Write([]byte("x"))
			if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
				t.Errorf("after the deadline: %v", err)
			}
			out.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			begin := time.Now()
			_, err := out.Write(make([]byte, 64<<20)) // nobody reads
			if d := time.Since(begin); !isTimeout(err) || d > 2*time.Second {
				t.Errorf("write ended after %s with %v", d, err)
			}
		})
	}
}

// Closing the Transport closes what was accepted and dialled, whoever holds it now.
func TestCloseClosesRaftStreams(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	out, in := raftPair(t, a, b)
	reads := make(chan error, 2)
	for _, c := range []net.Conn{out, in} {
		go func() { _, err := c.Read(make([]byte, 1)); reads <- err }()
	}
	accepts := make(chan error, 1)
	go func() { _, err := b.RaftLayer().Accept(); accepts <- err }()
	closeSoon(t, b.Transport)
	for range 2 {
		if err := <-reads; err == nil {
			t.Error("a read went on")
		}
	}
	if err := <-accepts; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := in.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to an accepted stream: %v", err)
	}
	if _, err := b.RaftLayer().Dial(a.addr, time.Second); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnreachable) {
		t.Errorf("dial after Close: %v", err)
	}
	if _, err := a.RaftLayer().Dial(b.addr, time.Second); !errors.Is(err, ErrUnreachable) {
		t.Errorf("dial to a closed member: %v", err)
	}
}

// Raft closes the layer alone when it stops: streams that come later are let go, the other classes go on.
func TestCloseOfTheLayer(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	b.RaftLayer().Close()
	b.RaftLayer().Close()
	if _, err := b.RaftLayer().Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	c, err := a.RaftLayer().Dial(b.addr, 5*time.Second)
	if err == nil {
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("a stream that nobody takes: %v", err)
		}
		c.Close()
	}
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
		t.Error(err)
	}
}

func TestRaftDialTimeout(t *testing.T) {
	n := loopback(t)
	a := n.start("a", &recorder{})
	silent := n.listen("silent")
	defer silent.Close()
	begin := time.Now()
	_, err := a.RaftLayer().Dial(silent.Addr().String(), 100*time.Millisecond)
	if d := time.Since(begin); !errors.Is(err, ErrUnreachable) || d > 2*time.Second {
		t.Errorf("after %s: %v", d, err)
	}
}
