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

// A request's payload is the time that is left of its deadline, 0 for none, and what the handler gets.
func appendRequest(dst []byte, left time.Duration, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(min(left.Milliseconds(), 1<<31)))
	return append(dst, payload...)
}

func parseRequest(b []byte) (left time.Duration, payload []byte, err error) {
	if len(b) < 4 {
		return 0, nil, fmt.Errorf("request of %d bytes: %w", len(b), ErrFrame)
	}
	return time.Duration(binary.BigEndian.Uint32(b)) * time.Millisecond, b[4:], nil
}

// maxFailure limits the text of an error response.
const maxFailure = 16 << 10

func appendFailure(dst []byte, code uint16, text string) []byte {
	return append(binary.BigEndian.AppendUint16(dst, code), text[:min(len(text), maxFailure)]...)
}

// parseFailure gives a *RemoteError, or ErrFrame.
func parseFailure(b []byte) error {
	if len(b) < 2 {
		return fmt.Errorf("error response of %d bytes: %w", len(b), ErrFrame)
	}
	return &RemoteError{binary.BigEndian.Uint16(b), string(b[2:])}
}

// controlServer answers the requests of one connection, each in its own goroutine.
type controlServer struct {
	t    *Transport
	conn net.Conn
	raw  net.Conn // closed after a write that failed: half a frame may be out
	peer Peer
	wmu  sync.Mutex // one frame is written at a time

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

func (t *Transport) serveControl(conn, raw net.Conn, peer Peer) {
	ctx, done := context.WithCancel(t.ctx)
	defer done()
	s := &controlServer{t: t, conn: conn, raw: raw, peer: peer, running: map[uint64]context.CancelFunc{}}
	fr := newFrameReader(conn, maxControl)
	for {
		f, err := fr.next()
		if err == nil {
			err = s.take(ctx, f)
		}
		if err != nil {
			t.stats.lost(err)
			return
		}
	}
}

func (s *controlServer) take(ctx context.Context, f frame) error {
	switch f.typ {
	case request:
		return s.begin(ctx, f)
	case cancel:
		s.cancel(f.correlation)
		return nil
	case ping:
		return s.write(frame{typ: pong})
	}
	return fmt.Errorf("frame of type %d: %w", f.typ, ErrFrame)
}

// begin starts a request. One too many is answered with ErrBusy: the reader must go on, for cancels and pings.
func (s *controlServer) begin(ctx context.Context, f frame) error {
	left, payload, err := parseRequest(f.payload)
	if err != nil {
		return err
	}
	ctx, done := within(ctx, left)
	if err := s.enter(f.correlation, done); err != nil {
		done()
		if errors.Is(err, ErrBusy) {
			return s.write(s.failed(f, err))
		}
		return err
	}
	payload = append([]byte(nil), payload...)
	s.t.wg.Add(1)
	go func() {
		defer s.t.wg.Done()
		r := s.answer(ctx, frame{kind: f.kind, correlation: f.correlation, payload: payload})
		s.leave(f.correlation)
		s.write(r)
	}()
	return nil
}

func within(ctx context.Context, left time.Duration) (context.Context, context.CancelFunc) {
	if left == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, left)
}

func (s *controlServer) enter(id uint64, done context.CancelFunc) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.running[id]; ok {
		return fmt.Errorf("request %d is being answered already: %w", id, ErrFrame)
	}
	if len(s.running) >= maxServed {
		return fmt.Errorf("%d requests of member %s are being answered already: %w", maxServed, s.peer.Member, ErrBusy)
	}
	s.running[id] = done
	return nil
}

func (s *controlServer) answer(ctx context.Context, f frame) frame {
	b, err := s.handle(ctx, f.kind, f.payload)
	if err == nil && len(b) > maxControl {
		err = fmt.Errorf("response of %d bytes: %w", len(b), ErrFrame)
	}
	if err != nil {
		return s.failed(f, err)
	}
	return frame{kind: f.kind, typ: response, correlation: f.correlation, payload: b}
}

func (s *controlServer) failed(f frame, err error) frame {
	return frame{kind: f.kind, typ: failure, correlation: f.correlation, payload: appendFailure(nil, s.t.cfg.Handler.ErrorCode(err), err.Error())}
}

func (s *controlServer) write(f frame) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	err := writeAll(s.conn, appendFrame(nil, f))
	if err != nil {
		s.raw.Close()
	}
	return err
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

// cancel ends the context of a request; its handler still has to return.
func (s *controlServer) cancel(id uint64) {
	s.mu.Lock()
	done := s.running[id]
	s.mu.Unlock()
	if done != nil {
		done()
	}
}

// leave forgets a request that was answered.
func (s *controlServer) leave(id uint64) {
	s.cancel(id)
	s.mu.Lock()
	delete(s.running, id)
	s.mu.Unlock()
}
