package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// control is one connection for requests to an address.
type control struct {
	t    *Transport
	addr string
	raw  net.Conn
	conn net.Conn
	peer Peer

	wmu  sync.Mutex // one frame is written at a time
	mu   sync.Mutex
	next uint64
	wait map[uint64]chan frame // capacity 1: one response each
	err  error
}

// Request asks who listens at an address and waits for the response. An error of the handler there is a *RemoteError.
// After ErrUnreachable nothing was sent; after other errors the request may have been carried out.
func (t *Transport) Request(ctx context.Context, addr string, kind uint8, payload []byte) ([]byte, Peer, error) {
	c, err := t.control(ctx, addr)
	if err != nil {
		return nil, Peer{}, err
	}
	b, err := c.request(ctx, kind, payload)
	return b, c.peer, err
}

// RequestMember is Request to a member by its id.
func (t *Transport) RequestMember(ctx context.Context, member string, kind uint8, payload []byte) ([]byte, error) {
	addr, ok := t.cfg.Resolve(member)
	if !ok {
		return nil, fmt.Errorf("member %q: %w", member, ErrUnknownMember)
	}
	b, peer, err := t.Request(ctx, addr, kind, payload)
	if err == nil && peer.Member != member {
		return nil, fmt.Errorf("wanted member %s at %s, %s answered: %w", member, addr, peer.Member, ErrWrongMember)
	}
	return b, err
}

func (t *Transport) control(ctx context.Context, addr string) (*control, error) {
	t.mu.Lock()
	c := t.controls[addr]
	t.mu.Unlock()
	if c != nil {
		return c, nil
	}
	conn, raw, h, err := t.dial(ctx, addr, ClassControl, "")
	if err != nil {
		return nil, err
	}
	c = &control{t: t, addr: addr, raw: raw, conn: conn, peer: Peer{h.id.Member, h.id.Incarnation, addr}, wait: map[uint64]chan frame{}}
	t.mu.Lock()
	other := t.controls[addr]
	if t.closed || other != nil {
		t.mu.Unlock()
		t.untrack(raw)
		if other != nil {
			return other, nil
		}
		return nil, ErrClosed
	}
	t.controls[addr] = c
	t.wg.Add(1)
	t.mu.Unlock()
	go c.read()
	return c, nil
}

func (c *control) read() {
	defer c.t.wg.Done()
	fr := newFrameReader(c.conn, maxControl)
	var err error
	for {
		c.conn.SetReadDeadline(time.Now().Add(deadAfter))
		var f frame
		if f, err = fr.next(); err != nil {
			var ne net.Error
			if errors.As(err, &ne) && ne.Timeout() && c.idle() { // nobody waits: the connection is simply old
				err = ErrUnreachable
			}
			break
		}
		f.payload = append([]byte(nil), f.payload...)
		c.mu.Lock()
		ch := c.wait[f.correlation]
		delete(c.wait, f.correlation)
		c.mu.Unlock()
		if ch != nil {
			ch <- f
		}
	}
	c.t.mu.Lock()
	if c.t.controls[c.addr] == c {
		delete(c.t.controls, c.addr)
	}
	c.t.mu.Unlock()
	c.t.untrack(c.raw)
	c.mu.Lock()
	c.err = fmt.Errorf("control connection to %s: %w", c.addr, err)
	for id, ch := range c.wait {
		close(ch)
		delete(c.wait, id)
	}
	c.mu.Unlock()
}

func (c *control) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wait) == 0
}

func (c *control) write(f frame) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := c.conn.Write(appendFrame(nil, f))
	if err != nil {
		c.raw.Close()
	}
	return err
}

func (c *control) request(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	if len(payload)+4 > maxControl {
		return nil, fmt.Errorf("request of %d bytes, at most %d: %w", len(payload), maxControl-4, ErrFrame)
	}
	left := uint32(0)
	if d, ok := ctx.Deadline(); ok {
		left = uint32(min(max(time.Until(d).Milliseconds(), 1), 1<<31))
	}
	ch := make(chan frame, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, c.err)
	}
	c.next++
	id := c.next
	c.wait[id] = ch
	c.mu.Unlock()
	body := append(binary.BigEndian.AppendUint32(nil, left), payload...)
	if err := c.write(frame{kind: kind, typ: request, correlation: id, payload: body}); err != nil {
		return nil, err
	}
	select {
	case f, ok := <-ch:
		if !ok {
			c.mu.Lock()
			defer c.mu.Unlock()
			return nil, c.err
		}
		if f.typ == failure {
			if len(f.payload) < 2 {
				return nil, fmt.Errorf("error response of %d bytes: %w", len(f.payload), ErrFrame)
			}
			return nil, &RemoteError{binary.BigEndian.Uint16(f.payload), string(f.payload[2:])}
		}
		return f.payload, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.wait, id)
		c.mu.Unlock()
		c.write(frame{typ: cancel, correlation: id})
		return nil, context.Cause(ctx)
	}
}

// serveControl answers the requests of one connection, each in its own goroutine.
func (t *Transport) serveControl(conn net.Conn, peer Peer) {
	ctx, done := context.WithCancel(t.ctx)
	defer done()
	s := &controlServer{t: t, conn: conn, peer: peer, running: map[uint64]context.CancelFunc{}, free: make(chan struct{}, maxRequests)}
	fr := newFrameReader(conn, maxControl)
	for {
		conn.SetReadDeadline(time.Now().Add(24 * time.Hour)) // control connections may be silent; Close ends them
		f, err := fr.next()
		if err != nil {
			t.stats.lost(err)
			return
		}
		switch {
		case f.typ == request && len(f.payload) >= 4:
			select {
			case s.free <- struct{}{}:
			case <-ctx.Done():
				return
			}
			s.begin(ctx, f)
		case f.typ == cancel:
			s.cancel(f.correlation)
		default:
			t.stats.lost(ErrFrame)
			return
		}
	}
}

type controlServer struct {
	t    *Transport
	conn net.Conn
	peer Peer
	free chan struct{}
	wmu  sync.Mutex

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

func (s *controlServer) begin(ctx context.Context, f frame) {
	var done context.CancelFunc
	if left := binary.BigEndian.Uint32(f.payload); left > 0 {
		ctx, done = context.WithTimeout(ctx, time.Duration(left)*time.Millisecond)
	} else {
		ctx, done = context.WithCancel(ctx)
	}
	payload := append([]byte(nil), f.payload[4:]...)
	s.mu.Lock()
	s.running[f.correlation] = done
	s.mu.Unlock()
	s.t.wg.Add(1)
	go func() {
		defer s.t.wg.Done()
		defer func() { <-s.free }()
		b, err := s.handle(ctx, f.kind, payload)
		s.cancel(f.correlation)
		r := frame{kind: f.kind, typ: response, correlation: f.correlation, payload: b}
		if err == nil && len(b) > maxControl {
			err = fmt.Errorf("response of %d bytes: %w", len(b), ErrFrame)
		}
		if err != nil {
			text := err.Error()
			r.typ = failure
			r.payload = append(binary.BigEndian.AppendUint16(nil, s.t.cfg.Handler.ErrorCode(err)), text[:min(len(text), 16<<10)]...)
		}
		s.wmu.Lock()
		defer s.wmu.Unlock()
		s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		s.conn.Write(appendFrame(nil, r))
	}()
}

func (s *controlServer) handle(ctx context.Context, kind uint8, payload []byte) (b []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.t.log.Error("panic in a request", "peer", s.peer.Member, "error", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return s.t.cfg.Handler.OnRequest(ctx, s.peer, kind, payload)
}

func (s *controlServer) cancel(id uint64) {
	s.mu.Lock()
	done := s.running[id]
	delete(s.running, id)
	s.mu.Unlock()
	if done != nil {
		done()
	}
}
