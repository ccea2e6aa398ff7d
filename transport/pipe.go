package transport

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// pipe sends one lane's frames to one member, over one connection at a time. Frames are encoded straight into the
// queue; the writer takes the whole queue and writes it at once: what gathers while it writes goes out together. While it
// sleeps, a sender may write in its place (writeNow): of the two, and of senders, one writes at a time.
type pipe struct {
	t   *Transport
	key pipeKey

	mu     sync.Mutex
	queue  []byte
	spare  []byte
	sleep  bool      // the writer waits for wake; who sets it false sends that, or sets it true again
	away   time.Time // no dial before; what is sent until then is refused
	reason error
	heard  time.Time // the member opened a connection to this one
	addr   string    // of the connection there is
	raw    net.Conn  // that connection
	wake   chan struct{}

	direct  func(data []byte) int // see directTo; of the connection there is, if any
	lent    bool                  // a sender writes
	awaited bool                  // and the writer waits for its end
	rest    []byte                // what the socket did not take from a sender
}

// Send queues a one-way frame for a member and returns at once. An error means that it will not be delivered: ErrBusy, ErrTooBig,
// ErrUnknownMember, ErrUnreachable, ErrClosed. No error does not mean that it will be.
func (t *Transport) Send(to string, lane Lane, kind uint8, payload []byte) error {
	return t.SendFunc(to, lane, kind, false, func(dst []byte) []byte { return append(dst, payload...) })
}

// SendFunc is Send with a payload that add appends to the queue itself. alone says that no other frame is to follow soon: if
// nothing else is being sent there, the caller itself writes it, as far as the connection takes it at once.
func (t *Transport) SendFunc(to string, lane Lane, kind uint8, alone bool, add func(dst []byte) []byte) error {
	p, err := t.pipe(to, lane)
	if err != nil {
		return err
	}
	return p.send(kind, alone, add)
}

func (t *Transport) pipe(to string, lane Lane) (*pipe, error) {
	k := pipeKey{to, lane}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return nil, ErrClosed
	}
	p := t.pipes[k]
	if p == nil {
		if _, ok := t.cfg.Resolve(to); !ok {
			return nil, fmt.Errorf("member %q: %w", to, ErrUnknownMember)
		}
		p = &pipe{t: t, key: k, wake: make(chan struct{}, 1)}
		t.pipes[k] = p
		t.wg.Add(1)
		go p.run()
	}
	return p, nil
}

func (p *pipe) send(kind uint8, alone bool, add func(dst []byte) []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason != nil && time.Now().Before(p.away) {
		return p.reason
	}
	start := len(p.queue)
	if start > queueBytes {
		return fmt.Errorf("member %s, %s: %d bytes wait: %w", p.key.member, p.key.lane.class(), start, ErrBusy)
	}
	q := beginFrame(p.queue, kind, oneWay, 0)
	q = add(q)
	if len(q)-start-headerSize > maxFrame {
		return fmt.Errorf("frame of %d bytes for %s, at most %d: %w", len(q)-start-headerSize, p.key.member, maxFrame, ErrTooBig)
	}
	endFrame(q, start)
	p.queue = q
	p.t.stats.out(p.key.lane, len(q)-start-headerSize)
	switch {
	case !p.sleep:
	case alone && p.direct != nil && len(q) <= directBytes:
		p.sleep = false
		p.writeNow()
	default:
		p.sleep = false
		p.wake <- struct{}{} // capacity 1, and only who clears sleep sends
	}
	return nil
}

// Pressure is the number of bytes that wait for a member in a lane.
func (t *Transport) Pressure(to string, lane Lane) int {
	t.mu.Lock()
	p := t.pipes[pipeKey{to, lane}]
	t.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.rest) + len(p.queue)
}

// take waits for something to send, for time to ping, or for the end of the connection; the latter two give no data. It
// says whether the transport is closed. Time to ping goes first: a queue that never empties must not hold pings back.
func (p *pipe) take(tick <-chan time.Time, dead <-chan struct{}) (data []byte, closed bool) {
	select {
	case <-tick:
		return nil, false
	case <-dead: // what waits is for the next connection
		return nil, false
	default:
	}
	for {
		p.mu.Lock()
		if p.rest != nil {
			data, p.rest = p.rest, nil
			p.mu.Unlock()
			return data, false
		}
		if len(p.queue) > 0 {
			data = p.queue
			p.queue, p.spare = p.spare[:0], nil
			p.mu.Unlock()
			return data, false
		}
		p.sleep = true
		p.shrink()
		p.mu.Unlock()
		select {
		case <-p.wake:
			continue
		case <-tick:
		case <-dead:
		case <-p.t.ctx.Done():
			return nil, true
		}
		p.awake()
		return nil, false
	}
}

// awake takes back that the writer sleeps, and a wake that came meanwhile. A sender that writes is waited for: it waits for
// nothing itself.
func (p *pipe) awake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.sleep {
		p.awaited = p.lent
		p.mu.Unlock()
		<-p.wake
		p.mu.Lock()
	}
	p.sleep = false
}

// give returns a buffer for the next queue.
func (p *pipe) give(b []byte) {
	p.mu.Lock()
	p.spare = b[:0]
	p.mu.Unlock()
}

// shrink lets large buffers go when there is nothing to send. The caller holds mu.
func (p *pipe) shrink() {
	if cap(p.spare) > keepBytes {
		p.spare = nil
	}
	if cap(p.queue) > keepBytes {
		p.queue = nil
	}
}

func (p *pipe) run() {
	defer p.t.wg.Done()
	fails := 0
	for {
		data, closed := p.take(nil, nil)
		if closed {
			return
		}
		conn, raw, addr, err := p.connectSoon()
		if err == nil {
			begin := time.Now()
			err = p.pump(conn, raw, addr, data)
			p.t.untrack(raw)
			if time.Since(begin) > dialMost {
				fails = -1 // it had worked: the first attempt after it comes at once
			}
		}
		if p.t.ctx.Err() != nil {
			return
		}
		fails++
		p.failed(err, fails)
	}
}

// hears lets what is sent to a member go out at once: it opened a connection, so it is there, whatever the attempts to reach
// it have come to. Otherwise the answers to one that was away would be refused until the next attempt is due.
func (t *Transport) hears(member string) {
	for lane := range lanes {
		t.mu.Lock()
		p := t.pipes[pipeKey{member, lane}]
		t.mu.Unlock()
		if p != nil {
			p.mu.Lock()
			p.heard, p.away, p.reason = time.Now(), time.Time{}, nil
			p.mu.Unlock()
		}
	}
}

// isBack says that the member was heard of just now: an attempt that failed, or a connection that ended, was one to its
// earlier run. The caller holds mu.
func (p *pipe) isBack() bool { return time.Since(p.heard) < dialSoon }

// connectSoon tries for a while, so that what is sent while a member starts is not lost.
func (p *pipe) connectSoon() (conn, raw net.Conn, addr string, err error) {
	begin, wait := time.Now(), dialFirst/4
	for {
		conn, raw, addr, err = p.connect()
		p.mu.Lock()
		away := p.reason != nil // it has been failing for longer
		back := p.isBack()
		p.mu.Unlock()
		if err == nil || p.t.ctx.Err() != nil || !back && (away || permanent(err) || time.Since(begin) > dialSoon) {
			return conn, raw, addr, err
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, dialFirst*4)
		case <-p.t.ctx.Done():
		}
	}
}

func (p *pipe) connect() (conn, raw net.Conn, addr string, err error) {
	addr, ok := p.t.cfg.Resolve(p.key.member)
	if !ok {
		return nil, nil, "", fmt.Errorf("member %q: %w", p.key.member, ErrUnknownMember)
	}
	conn, raw, _, err = p.t.dial(p.t.ctx, addr, p.key.lane.class(), p.key.member)
	return conn, raw, addr, err
}

// Readdress ends connections to addresses that are no longer those of their members: Config.Resolve gives others now. The
// process that was there may live on, and answer pings; what is sent next goes to the new address.
func (t *Transport) Readdress() {
	t.mu.Lock()
	pipes := slices.Collect(maps.Values(t.pipes))
	t.mu.Unlock()
	for _, p := range pipes {
		p.mu.Lock()
		if addr, ok := t.cfg.Resolve(p.key.member); ok && p.raw != nil && addr != p.addr {
			p.raw.Close()
		}
		p.mu.Unlock()
	}
}

// failed drops what is queued: its senders have to send again, or to give up. For a member that is just back it waits.
func (p *pipe) failed(err error, fails int) {
	var wait time.Duration
	if fails > 0 {
		wait = min(dialFirst<<min(fails-1, 10), dialMost)
	}
	if permanent(err) {
		wait = dialRefused
	}
	p.mu.Lock()
	if !p.isBack() {
		p.queue = p.queue[:0]
		p.away = time.Now().Add(wait/2 + rand.N(wait/2+1))
		p.reason = fmt.Errorf("member %s, %s: %w", p.key.member, p.key.lane.class(), err)
		if !errors.Is(err, ErrUnreachable) && !permanent(err) {
			p.reason = fmt.Errorf("member %s, %s: %w: %w", p.key.member, p.key.lane.class(), ErrUnreachable, err)
		}
	}
	p.mu.Unlock()
	p.t.stats.reconnect()
	p.t.log.Debug("connection failed", "peer", p.key.member, "lane", p.key.lane.class().String(), "attempt", fails, "error", err)
	if p.key.lane == Messages {
		p.t.cfg.Handler.OnPeerDown(p.key.member)
	}
}

// pump writes the queue to a connection until it fails.
func (p *pipe) pump(conn, raw net.Conn, addr string, data []byte) error {
	p.mu.Lock()
	p.reason = nil
	p.direct, p.addr, p.raw = directTo(conn), addr, raw
	now, ok := p.t.cfg.Resolve(p.key.member)
	moved := ok && now != addr // meanwhile: Readdress has not seen this connection
	p.mu.Unlock()
	if moved {
		raw.Close()
	}
	var lost error // set before dead is closed
	dead := make(chan struct{})
	p.t.wg.Add(1)
	go func() {
		defer p.t.wg.Done()
		defer close(dead)
		lost = readPongs(conn)
		raw.Close()
	}()
	defer func() {
		p.mu.Lock()
		p.direct, p.rest, p.raw = nil, nil, nil
		p.mu.Unlock()
		raw.Close()
		<-dead
	}()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		if err := writeAll(conn, data); err != nil {
			return err
		}
		p.give(data)
		var closed bool
		if data, closed = p.take(tick.C, dead); closed {
			return ErrClosed
		}
		select {
		case <-dead:
			return lost
		default:
		}
		if data == nil {
			data = appendFrame(p.takeRest(), frame{typ: ping})
		}
	}
}

// readPongs reads what the other side of a one-way connection may send: pongs.
func readPongs(conn net.Conn) error {
	fr := newFrameReader(conn, 0)
	for {
		f, err := fr.next()
		if err != nil {
			return err
		}
		if f.typ != pong {
			return ErrFrame
		}
	}
}
