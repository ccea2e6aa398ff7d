package transport

import (
	"context"
	"net"
	"sync"
	"time"
)

// StreamLayer gives the connections of class raft, raw after the handshake. The Transport tracks all of them and closes
// them when it closes: hashicorp/raft's own transport neither closes accepted connections nor waits for them.
type StreamLayer struct {
	t      *Transport
	in     chan net.Conn
	once   sync.Once
	closed chan struct{}
	init   sync.Once
}

// RaftLayer gives the stream layer; there is one.
func (t *Transport) RaftLayer() *StreamLayer { return t.raft }

func (l *StreamLayer) done() chan struct{} {
	l.init.Do(func() { l.closed = make(chan struct{}) })
	return l.closed
}

// deliver hands an accepted connection over; it says whether somebody took it. Nobody does while Raft is not open yet.
func (l *StreamLayer) deliver(c net.Conn) bool {
	select {
	case l.in <- c:
		return true
	case <-l.done():
	case <-l.t.ctx.Done():
	case <-time.After(helloTimeout): // its dialer may be long gone
	}
	return false
}

// Accept waits for a connection. After Close it fails with net.ErrClosed.
func (l *StreamLayer) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done():
	case <-l.t.ctx.Done():
	}
	return nil, net.ErrClosed
}

// Dial opens a connection to an address, resolved anew each time.
func (l *StreamLayer) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	ctx, done := context.WithTimeout(l.t.ctx, timeout)
	defer done()
	conn, raw, _, err := l.t.dial(ctx, addr, ClassRaft, "")
	if err != nil {
		return nil, err
	}
	return &streamConn{Conn: conn, raw: raw, t: l.t}, nil
}

// Close ends Accept. The connections are closed by the Transport.
func (l *StreamLayer) Close() error {
	l.once.Do(func() { close(l.done()) })
	return nil
}

// Addr is the advertised address.
func (l *StreamLayer) Addr() net.Addr { return address(l.t.cfg.Advertise) }

type address string

func (a address) Network() string { return "tcp" }
func (a address) String() string  { return string(a) }

// streamConn tells the Transport when it is closed.
type streamConn struct {
	net.Conn
	raw net.Conn
	t   *Transport
}

func (c *streamConn) Close() error {
	c.t.untrack(c.raw)
	return nil
}
