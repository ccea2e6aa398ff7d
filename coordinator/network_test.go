package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

var errCut = errors.New("no way there")

// network joins the members of a test, in memory. Addresses are host names of its own.
type network struct {
	mu    sync.Mutex
	hosts map[string]*host
	cut   map[string]bool // hosts that nobody reaches and that reach nobody
	mute  bool            // dialling who is not there takes as long as it may, as if packets were lost
	// lose drops the answer to a request that was carried out. It is called under mu.
	lose  func(from, to string, kind uint8) bool
	calls sync.WaitGroup
}

func newNetwork() *network {
	return &network{hosts: map[string]*host{}, cut: map[string]bool{}}
}

// isolate cuts a host off, with all its connections.
func (n *network) isolate(addr string) {
	n.mu.Lock()
	n.cut[addr] = true
	var conns []net.Conn
	for _, h := range n.hosts {
		for c, peer := range h.conns {
			if h.addr == addr || peer == addr {
				conns = append(conns, c)
			}
		}
	}
	n.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
}

func (n *network) setMute() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = true
}

func (n *network) isMute() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mute
}

func (n *network) heal(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, addr)
}

func (n *network) loseAnswers(f func(from, to string, kind uint8) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = f
}

// way gives the host at an address.
func (n *network) way(from, to string) (*host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := n.hosts[to]
	if h == nil || n.cut[from] || n.cut[to] {
		return nil, fmt.Errorf("%s to %s: %w", from, to, errCut)
	}
	return h, nil
}

// host is a member's place on the network: its StreamLayer and its Requester.
type host struct {
	n      *network
	addr   string
	accept chan net.Conn
	closed chan struct{}
	once   sync.Once
	conns  map[net.Conn]string // to whom; guarded by n.mu
	coord  *Coordinator        // guarded by n.mu
}

func (n *network) host(addr string) *host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &host{n: n, addr: addr, accept: make(chan net.Conn), closed: make(chan struct{}), conns: map[net.Conn]string{}}
	n.hosts[addr] = h
	return h
}

func (h *host) serve(c *Coordinator) {
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.coord = c
}

type address string

func (address) Network() string  { return "test" }
func (a address) String() string { return string(a) }

func (h *host) Addr() net.Addr { return address(h.addr) }

func (h *host) Accept() (net.Conn, error) {
	select {
	case c := <-h.accept:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

// conn is one end of a connection; it is tracked until it is closed.
type conn struct {
	net.Conn
	h *host
}

func (c *conn) Close() error {
	c.h.n.mu.Lock()
	delete(c.h.conns, c)
	c.h.n.mu.Unlock()
	return c.Conn.Close()
}

func (h *host) track(c net.Conn, peer string) *conn {
	t := &conn{c, h}
	h.n.mu.Lock()
	defer h.n.mu.Unlock()
	h.conns[t] = peer
	return t
}

func (h *host) Dial(addr string, timeout time.Duration) (net.Conn, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	to, err := h.n.way(h.addr, addr)
	if err != nil {
		if h.n.isMute() {
			select {
			case <-t.C:
			case <-h.closed:
			}
		}
		return nil, err
	}
	mine, theirs := net.Pipe()
	near, far := h.track(mine, addr), to.track(theirs, h.addr)
	if _, err := h.n.way(h.addr, addr); err != nil { // cut before they were tracked
		near.Close()
		far.Close()
		return nil, err
	}
	select {
	case to.accept <- far:
		return near, nil
	case <-to.closed:
		err = net.ErrClosed
	case <-h.closed:
		err = net.ErrClosed
	case <-t.C:
		err = context.DeadlineExceeded
	}
	near.Close()
	far.Close()
	return nil, err
}

// Close ends the host: nobody reaches it any more and its connections are closed.
func (h *host) Close() error {
	h.once.Do(func() {
		close(h.closed)
		h.n.mu.Lock()
		if h.n.hosts[h.addr] == h {
			delete(h.n.hosts, h.addr)
		}
		var conns []net.Conn
		for c := range h.conns {
			conns = append(conns, c)
		}
		h.n.mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	return nil
}

// Request asks as the transport does: errors arrive as their code and text.
func (h *host) Request(ctx context.Context, addr string, kind uint8, payload []byte) ([]byte, error) {
	to, err := h.n.way(h.addr, addr)
	if err != nil {
		return nil, err
	}
	h.n.mu.Lock()
	coord := to.coord
	h.n.mu.Unlock()
	if coord == nil {
		return nil, fmt.Errorf("%s is not ready: %w", addr, errCut)
	}
	type answer struct {
		b   []byte
		err error
	}
	done := make(chan answer, 1)
	h.n.calls.Go(func() {
		b, err := coord.HandleRequest(context.WithoutCancel(ctx), kind, payload)
		done <- answer{b, err}
	})
	select {
	case a := <-done:
		h.n.mu.Lock()
		lost := h.n.lose != nil && h.n.lose(h.addr, addr, kind)
		h.n.mu.Unlock()
		if lost {
			return nil, fmt.Errorf("answer of %s is lost: %w", addr, errCut)
		}
		if a.err == nil {
			return a.b, nil
		}
		if known := ErrorOf(ErrorCode(a.err)); known != nil {
			return nil, fmt.Errorf("%s: %w", a.err.Error(), known)
		}
		return nil, errors.New(a.err.Error())
	case <-to.closed:
		return nil, fmt.Errorf("%s is gone: %w", addr, errCut)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
