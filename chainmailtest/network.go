package chainmailtest

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// network joins the members of a cluster in memory. What one host sends to another stalls while the way between them is
// closed, and takes as long as its delay. Nothing is lost and nothing is reset by that, as with TCP.
type network struct {
	mu        sync.Mutex
	listeners map[string]*listener // by address
	cut       map[way]bool
	delay     map[way]time.Duration
	paused    map[string]bool
	lines     map[*line]bool // those whose reader has not closed them
	moved     chan struct{}  // closed and replaced when a way has changed
}

// way is a direction between two hosts.
type way struct{ from, to string }

func newNetwork() *network {
	return &network{listeners: map[string]*listener{}, cut: map[way]bool{}, delay: map[way]time.Duration{}, paused: map[string]bool{},
		lines: map[*line]bool{}, moved: make(chan struct{})}
}

// change changes the ways and tells all who wait on them.
func (n *network) change(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	for l := range n.lines {
		l.set(n.open(l.way), n.delay[l.way])
	}
	close(n.moved)
	n.moved = make(chan struct{})
}

// open says whether a way is. The caller holds mu.
func (n *network) open(w way) bool {
	return w.from == w.to || !n.cut[w] && !n.paused[w.from] && !n.paused[w.to]
}

// port is the one that every host listens at.
const port = "1"

func address(name string) string { return net.JoinHostPort(name, port) }

// host is a member's place on the network: its chainmail.Network, from its start until it is killed.
type host struct {
	n    *network
	name string
	dead chan struct{}

	mu    sync.Mutex
	conns map[*conn]bool // nil once it is dead
}

func (n *network) host(name string) *host {
	return &host{n: n, name: name, dead: make(chan struct{}), conns: map[*conn]bool{}}
}

// kill closes all that the host has open, as a kernel does for a process that it kills: what was written is still
// delivered.
func (h *host) kill() {
	h.mu.Lock()
	conns := h.conns
	h.conns = nil
	h.mu.Unlock()
	if conns == nil {
		return
	}
	close(h.dead)
	for c := range conns {
		c.shut()
	}
}

// Listen is a part of chainmail.Network.
func (h *host) Listen(_ context.Context, addr string) (net.Listener, error) {
	l := &listener{host: h, addr: netAddr(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	if old := h.n.listeners[addr]; old != nil && !old.over() {
		return nil, fmt.Errorf("listen at %s: %w", addr, syscall.EADDRINUSE)
	}
	h.n.listeners[addr] = l
	return l, nil
}

// Dial is a part of chainmail.Network. While the way is closed in either direction it waits, as for a lost SYN.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	to, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	there, back := way{h.name, to}, way{to, h.name}
	for {
		h.n.mu.Lock()
		open, moved := h.n.open(there) && h.n.open(back), h.n.moved
		trip := h.n.delay[there] + h.n.delay[back]
		l := h.n.listeners[addr]
		h.n.mu.Unlock()
		switch {
		case !open:
			select {
			case <-moved:
				continue
			case <-ctx.Done():
				return nil, fmt.Errorf("dial %s: %w", addr, context.Cause(ctx))
			case <-h.dead:
				return nil, net.ErrClosed
			}
		case l == nil || l.over():
			return nil, fmt.Errorf("dial %s: %w", addr, syscall.ECONNREFUSED)
		}
		if err := h.wait(ctx, trip); err != nil {
			return nil, fmt.Errorf("dial %s: %w", addr, err)
		}
		return h.connect(ctx, l)
	}
}

func (h *host) wait(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.dead:
		return net.ErrClosed
	}
}

func (h *host) connect(ctx context.Context, l *listener) (net.Conn, error) {
	out, in := h.n.pair(h.name, l.host.name)
	near := &conn{host: h, in: in, out: out, local: netAddr(h.name), remote: l.addr}
	far := &conn{host: l.host, in: out, out: in, local: l.addr, remote: netAddr(h.name)}
	if !h.track(near) {
		far.shut()
		return nil, net.ErrClosed
	}
	err := error(syscall.ECONNREFUSED)
	if l.host.track(far) {
		select {
		case l.conns <- far:
			return near, nil
		case <-l.closed:
		case <-l.host.dead:
		case <-h.dead:
			err = net.ErrClosed
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	near.Close()
	far.Close()
	return nil, fmt.Errorf("dial %s: %w", l.addr, err)
}

// track notes a connection so that kill closes it; it closes it when that has been.
func (h *host) track(c *conn) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns == nil {
		c.shut()
		return false
	}
	h.conns[c] = true
	return true
}

type netAddr string

func (netAddr) Network() string  { return "memory" }
func (a netAddr) String() string { return string(a) }

type listener struct {
	host   *host
	addr   netAddr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *listener) over() bool {
	select {
	case <-l.closed:
	case <-l.host.dead:
	default:
		return false
	}
	return true
}

// Accept is a part of net.Listener, as are the others.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
	case <-l.host.dead:
	}
	return nil, net.ErrClosed
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *listener) Addr() net.Addr { return l.addr }
