package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// control is one connection for requests to an address. Frames are encoded into a queue that one writer sends, so that
// a caller never waits for a connection that is stuck longer than its context allows.
type control struct {
	t    *Transport
	addr string
	up   chan struct{} // closed when the dial has ended; raw, conn and peer are set before
	over chan struct{} // closed when the connection has ended
	free chan struct{} // one element for each request on its way
	wake chan struct{} // capacity 1: there is something in the queue
	raw  net.Conn
	conn net.Conn
	peer Peer

	mu    sync.Mutex
	next  uint64
	wait  map[uint64]chan frame // capacity 1: one response each
	queue []byte
	used  time.Time // when the last request began or ended
	err   error     // why nothing can be sent any more
}

// errNotSent marks that a connection had ended before a request was queued: another one may be tried.
var errNotSent = errors.New("connection has ended")

// Request asks who listens at an address and waits for the response. An error of the handler there is a *RemoteError.
// After ErrUnreachable and ErrBusy nothing was sent; after other errors the request may have been carried out.
func (t *Transport) Request(ctx context.Context, addr string, kind uint8, payload []byte) ([]byte, Peer, error) {
	return t.request(ctx, addr, "", kind, payload)
}

// RequestMember is Request to a member by its id. Nothing is sent to another member that listens at its address.
func (t *Transport) RequestMember(ctx context.Context, member string, kind uint8, payload []byte) ([]byte, error) {
	addr, ok := t.cfg.Resolve(member)
	if !ok {
		return nil, fmt.Errorf("member %q: %w", member, ErrUnknownMember)
	}
	b, _, err := t.request(ctx, addr, member, kind, payload)
	return b, err
}

func (t *Transport) request(ctx context.Context, addr, member string, kind uint8, payload []byte) ([]byte, Peer, error) {
	if len(payload)+4 > maxControl {
		return nil, Peer{}, fmt.Errorf("request of %d bytes, at most %d: %w", len(payload), maxControl-4, ErrFrame)
	}
	for again := true; ; again = false {
		c, err := t.control(ctx, addr)
		if err != nil {
			return nil, Peer{}, err
		}
		if member != "" && c.peer.Member != member {
			return nil, c.peer, fmt.Errorf("wanted member %s at %s, %s answers: %w", member, addr, c.peer.Member, ErrWrongMember)
		}
		b, err := c.request(ctx, kind, payload)
		if again && errors.Is(err, errNotSent) {
			continue
		}
		return b, c.peer, err
	}
}

// control gives the connection to an address; all who ask at once wait for one dial.
func (t *Transport) control(ctx context.Context, addr string) (*control, error) {
	t.mu.Lock()
	c := t.controls[addr]
	if c == nil {
		if t.closed {
			t.mu.Unlock()
			return nil, ErrClosed
		}
		c = &control{t: t, addr: addr, up: make(chan struct{}), over: make(chan struct{}), free: make(chan struct{}, maxRequests),
			wake: make(chan struct{}, 1), wait: map[uint64]chan frame{}, used: time.Now()}
		t.controls[addr] = c
		t.wg.Add(1)
		go c.run()
	}
	t.mu.Unlock()
	select {
	case <-c.up:
	case <-ctx.Done():
		return nil, fmt.Errorf("%s at %s: %w: %w", ClassControl, addr, ErrUnreachable, context.Cause(ctx))
	}
	if c.conn == nil { // the dial failed: err is set before up is closed
		return nil, c.failure()
	}
	return c, nil
}

// run dials, reads until the connection ends, and tells who waits.
func (c *control) run() {
	defer c.t.wg.Done()
	defer close(c.over)
	conn, raw, h, err := c.t.dial(c.t.ctx, c.addr, ClassControl, "")
	if err != nil {
		if c.t.ctx.Err() != nil {
			err = ErrClosed
		}
		c.end(err)
		close(c.up)
		return
	}
	c.conn, c.raw, c.peer = conn, raw, Peer{h.id.Member, h.id.Incarnation, c.addr}
	close(c.up)
	c.t.wg.Add(1)
	go c.send()
	err = c.read()
	c.t.stats.lost(err)
	c.t.untrack(raw)
	c.end(fmt.Errorf("control connection to %s: %w", c.addr, err))
}

func (c *control) read() error {
	fr := newFrameReader(c.conn, maxControl)
	for {
		f, err := fr.next()
		if err != nil {
			return err
		}
		switch f.typ {
		case pong:
			continue
		case response, failure:
		default:
			return fmt.Errorf("frame of type %d: %w", f.typ, ErrFrame)
		}
		f.payload = append([]byte(nil), f.payload...)
		c.mu.Lock()
		ch := c.wait[f.correlation]
		delete(c.wait, f.correlation)
		c.used = time.Now()
		c.mu.Unlock()
		if ch != nil { // nil: its caller has given up
			ch <- f
		}
	}
}

// end takes the connection out of use.
func (c *control) end(err error) {
	c.t.mu.Lock()
	if c.t.controls[c.addr] == c {
		delete(c.t.controls, c.addr)
	}
	c.t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	for id, ch := range c.wait {
		close(ch)
		delete(c.wait, id)
	}
}

// retire takes a connection that nobody has used for a while out of use.
func (c *control) retire() bool {
	c.t.mu.Lock()
	defer c.t.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wait) > 0 || time.Since(c.used) < deadAfter {
		return false
	}
	delete(c.t.controls, c.addr)
	c.err = fmt.Errorf("control connection to %s was idle: %w", c.addr, ErrUnreachable)
	return true
}

// send writes what is queued, and pings.
func (c *control) send() {
	defer c.t.wg.Done()
	defer c.raw.Close() // the reader sees it and ends the rest
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	var spare []byte
	for {
		select {
		case <-c.wake:
		case <-tick.C:
			if c.retire() {
				return
			}
			c.push(frame{typ: ping})
		case <-c.over:
			return
		}
		c.mu.Lock()
		data := c.queue
		c.queue = spare[:0]
		c.mu.Unlock()
		if writeAll(c.conn, data) != nil {
			return
		}
		spare = nil
		if cap(data) <= maxControl {
			spare = data
		}
	}
}

func (c *control) push(f frame) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = appendFrame(c.queue, f)
	c.awake()
}

// awake wakes the writer. The caller holds mu.
func (c *control) awake() {
	select {
	case c.wake <- struct{}{}:
	default: // it will see this too
	}
}

func (c *control) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *control) request(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	select {
	case c.free <- struct{}{}:
		defer func() { <-c.free }()
	case <-c.over:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d requests to %s are on their way: %w: %w", maxRequests, c.addr, ErrBusy, context.Cause(ctx))
	}
	if ctx.Err() != nil { // both were there: select has chosen at random
		return nil, fmt.Errorf("request to %s is too late: %w: %w", c.addr, ErrBusy, context.Cause(ctx))
	}
	id, ch, err := c.ask(ctx, kind, payload)
	if err != nil {
		return nil, err
	}
	select {
	case f, ok := <-ch:
		if !ok {
			return nil, c.failure()
		}
		if f.typ == failure {
			return nil, parseFailure(f.payload)
		}
		return f.payload, nil
	case <-ctx.Done():
		c.mu.Lock()
		delete(c.wait, id)
		c.mu.Unlock()
		c.push(frame{typ: cancel, correlation: id})
		return nil, context.Cause(ctx)
	}
}

// ask queues a request.
func (c *control) ask(ctx context.Context, kind uint8, payload []byte) (uint64, chan frame, error) {
	var left time.Duration
	if d, ok := ctx.Deadline(); ok {
		left = max(time.Until(d), time.Millisecond)
	}
	ch := make(chan frame, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, fmt.Errorf("%w: %w: %w", ErrUnreachable, errNotSent, c.err)
	}
	if len(c.queue) > queueBytes {
		return 0, nil, fmt.Errorf("requests to %s: %d bytes wait: %w", c.addr, len(c.queue), ErrBusy)
	}
	c.next++
	c.wait[c.next] = ch
	c.used = time.Now()
	start := len(c.queue)
	c.queue = beginFrame(c.queue, kind, request, c.next)
	c.queue = appendRequest(c.queue, left, payload)
	endFrame(c.queue, start)
	c.awake()
	return c.next, ch, nil
}
