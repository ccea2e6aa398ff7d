package chainmailtest

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection.
type conn struct {
	host          *host
	in, out       *line
	local, remote netAddr
}

// Read is a part of net.Conn, as are the others.
func (c *conn) Read(b []byte) (int, error)  { return c.in.read(b) }
func (c *conn) Write(b []byte) (int, error) { return c.out.write(b) }
func (c *conn) LocalAddr() net.Addr         { return c.local }
func (c *conn) RemoteAddr() net.Addr        { return c.remote }

func (c *conn) Close() error {
	c.host.mu.Lock()
	delete(c.host.conns, c)
	c.host.mu.Unlock()
	c.shut()
	return nil
}

func (c *conn) shut() {
	c.out.finish()
	c.in.leave()
}

func (c *conn) SetDeadline(t time.Time) error {
	c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.in.until(&c.in.readEnd, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.out.until(&c.out.writeEnd, t); return nil }

// lineBytes is what one direction of a connection holds: a writer that is further ahead of the reader waits.
const lineBytes = 256 << 10

// line is one direction of a connection.
type line struct {
	n    *network
	way  way
	back *line

	mu       sync.Mutex
	open     bool
	delay    time.Duration
	parts    []part
	size     int
	finished bool // the writer has closed it
	left     bool // the reader has
	readEnd  time.Time
	writeEnd time.Time
	changed  chan struct{} // nil while nobody waits
}

// part is what one Write has sent; no data: the end.
type part struct {
	due  time.Time // zero: at once
	data []byte
}

// pair makes both directions of a connection.
func (n *network) pair(a, b string) (there, back *line) {
	n.mu.Lock()
	defer n.mu.Unlock()
	there, back = &line{n: n, way: way{a, b}}, &line{n: n, way: way{b, a}}
	there.back, back.back = back, there
	for _, l := range []*line{there, back} {
		l.open, l.delay = n.open(l.way), n.delay[l.way]
		n.lines[l] = true
	}
	return there, back
}

// do changes the line and wakes all who wait on it.
func (l *line) do(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.wake()
}

// wake wakes all who wait. The caller holds mu.
func (l *line) wake() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *line) until(end *time.Time, t time.Time) { l.do(func() { *end = t }) }
func (l *line) isOpen() bool                      { l.mu.Lock(); defer l.mu.Unlock(); return l.open }

// set is told that the way has changed. Who writes the other way may hear now that nobody reads.
func (l *line) set(open bool, delay time.Duration) {
	l.do(func() { l.open, l.delay = open, delay })
	l.back.do(func() {})
}

// finish is the writer's Close: the reader sees the end after all that was written.
func (l *line) finish() {
	l.do(func() {
		if !l.finished {
			l.finished = true
			l.parts = append(l.parts, part{due: l.due()})
		}
	})
}

// leave is the reader's Close.
func (l *line) leave() {
	l.do(func() { l.left, l.parts = true, nil })
	l.n.mu.Lock()
	delete(l.n.lines, l)
	l.n.mu.Unlock()
}

// due gives when what is sent now arrives: never before what was sent earlier. The caller holds mu.
func (l *line) due() (at time.Time) {
	if l.delay > 0 {
		at = time.Now().Add(l.delay)
	}
	if k := len(l.parts); k > 0 && l.parts[k-1].due.After(at) {
		at = l.parts[k-1].due
	}
	return at
}

func past(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (l *line) read(b []byte) (int, error) {
	for {
		l.mu.Lock()
		end := l.readEnd
		switch {
		case l.left:
			l.mu.Unlock()
			return 0, net.ErrClosed
		case past(end):
			l.mu.Unlock()
			return 0, os.ErrDeadlineExceeded
		case l.open && len(l.parts) > 0 && (l.parts[0].due.IsZero() || past(l.parts[0].due)):
			defer l.mu.Unlock()
			return l.take(b)
		case l.open && len(l.parts) > 0 && (end.IsZero() || l.parts[0].due.Before(end)):
			end = l.parts[0].due
		}
		l.wait(end)
	}
}

// take gives what has arrived. The caller holds mu.
func (l *line) take(b []byte) (int, error) {
	p := &l.parts[0]
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	k := copy(b, p.data)
	p.data = p.data[k:]
	if l.size >= lineBytes {
		l.wake()
	}
	l.size -= k
	if len(p.data) == 0 {
		l.parts = l.parts[1:]
	}
	return k, nil
}

func (l *line) write(b []byte) (n int, err error) {
	for len(b) > 0 {
		heard := l.back.isOpen() // that the reader has closed is told the other way
		l.mu.Lock()
		switch {
		case l.finished:
			l.mu.Unlock()
			return n, net.ErrClosed
		case l.left && heard:
			l.mu.Unlock()
			return n, syscall.EPIPE
		case past(l.writeEnd):
			l.mu.Unlock()
			return n, os.ErrDeadlineExceeded
		case l.size >= lineBytes:
			l.wait(l.writeEnd)
			continue
		}
		k := min(len(b), lineBytes-l.size)
		l.parts = append(l.parts, part{l.due(), append([]byte(nil), b[:k]...)})
		l.size += k
		l.wake()
		l.mu.Unlock()
		n, b = n+k, b[k:]
	}
	return n, nil
}

// wait waits for a change, or until end if that is not zero. The caller holds mu; it is given up.
func (l *line) wait(end time.Time) {
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	changed := l.changed
	l.mu.Unlock()
	if end.IsZero() {
		<-changed
		return
	}
	t := time.NewTimer(time.Until(end))
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	}
}
