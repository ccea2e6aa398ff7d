package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestThousandConcurrentRequests(t *testing.T) {
	n := loopback(t)
	var most, now atomic.Int64
	b := n.start("b", &recorder{onRequest: func(_ context.Context, from Peer, kind uint8, p []byte) ([]byte, error) {
		k := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); k > m && !most.CompareAndSwap(m, k); m = most.Load() {
		}
		if p[3]%3 == 0 { // so that responses overtake each other
			time.Sleep(time.Millisecond)
		}
		return append([]byte(from.Member), p...), nil
	}})
	a := n.start("a", &recorder{})
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			p := binary.BigEndian.AppendUint32(nil, uint32(i))
			got, err := a.RequestMember(ctx5(t), "b", uint8(i), p)
			if err != nil || string(got) != "a"+string(p) {
				t.Errorf("request %d was answered %q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if open := a.Stats().Open; open != 1 {
		t.Errorf("%d connections for requests to one address", open)
	}
	if m := most.Load(); m > maxRequests || m < 2 {
		t.Errorf("%d requests at once, at most %d", m, maxRequests)
	}
	_, peer, err := a.Request(ctx5(t), b.addr, 1, []byte("1234"))
	if want := (Peer{"b", 7, b.addr}); err != nil || peer != want {
		t.Errorf("peer is %+v, %v; want %+v", peer, err, want)
	}
}

// waits is a handler that waits for the end of its context and tells what that was.
func waits() (*recorder, chan error, chan time.Duration) {
	ended, left := make(chan error, 2000), make(chan time.Duration, 2000)
	return &recorder{onRequest: func(ctx context.Context, _ Peer, kind uint8, p []byte) ([]byte, error) {
		if kind == 0 {
			return p, nil
		}
		d, ok := ctx.Deadline()
		if !ok {
			left <- 0
		} else {
			left <- time.Until(d)
		}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}}, ended, left
}

func TestDeadlineCrossesTheWire(t *testing.T) {
	n := loopback(t)
	r, ended, left := waits()
	n.start("b", r)
	a := n.start("a", &recorder{})
	ctx, done := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer done()
	begin := time.Now()
	_, err := a.RequestMember(ctx, "b", 1, nil)
	if !errors.Is(err, context.DeadlineExceeded) {
		var re *RemoteError // the handler's own deadline may come first
		if !errors.As(err, &re) {
			t.Errorf("caller: %v", err)
		}
	}
	if d := time.Since(begin); d > 2*time.Second {
		t.Errorf("took %s", d)
	}
	if l := <-left; l <= 0 || l > 200*time.Millisecond {
		t.Errorf("handler had %s left", l)
	}
	if err := <-ended; err == nil {
		t.Error("handler's context did not end")
	}
}

func TestCancelCrossesTheWire(t *testing.T) {
	n := loopback(t)
	r, ended, left := waits()
	n.start("b", r)
	a := n.start("a", &recorder{})
	// More than may be on their way at once: those that wait must be cancelled, too.
	ctx, done := context.WithCancelCause(context.Background())
	why := errors.New("changed its mind")
	const calls = 3 * maxRequests
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := a.RequestMember(ctx, "b", 1, nil)
			errs <- err
		}()
	}
	for range maxRequests {
		if l := <-left; l != 0 {
			t.Fatalf("a deadline of %s from nowhere", l)
		}
	}
	done(why)
	notSent := 0
	for range calls {
		if err := <-errs; !errors.Is(err, why) {
			t.Fatalf("caller: %v", err)
		} else if errors.Is(err, ErrBusy) || errors.Is(err, ErrUnreachable) {
			notSent++
		}
	}
	if notSent != calls-maxRequests {
		t.Errorf("%d callers heard that nothing was sent, want %d", notSent, calls-maxRequests)
	}
	for range maxRequests {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("handler: %v", err)
		}
	}
	if _, err := a.RequestMember(ctx5(t), "b", 0, []byte("x")); err != nil {
		t.Errorf("after all: %v", err)
	}
}

// The handler's context ends with the connection on which the request came.
func TestHandlersEndWithTheConnection(t *testing.T) {
	n := loopback(t)
	r, ended, left := waits()
	b := n.start("b", r)
	c := n.shake(b.addr, ClassControl, "x")
	c.Write(appendFrame(nil, frame{kind: 1, typ: request, correlation: 1, payload: appendRequest(nil, 0, nil)}))
	<-left
	c.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	eventually(t, "the connection is let go", func() bool { return b.Stats().Open == 0 })
}

func TestErrorsCrossTheWire(t *testing.T) {
	n := loopback(t)
	stale, gone := errors.New("stale view"), errors.New("gone")
	codes := map[error]uint16{stale: 77, gone: 0xfffe}
	var give error
	n.start("b", &recorder{codes: codes, onRequest: func(context.Context, Peer, uint8, []byte) ([]byte, error) { return []byte("not this"), give }})
	a := n.start("a", &recorder{})
	for want, code := range codes {
		give = fmt.Errorf("member b, version 9: %w", want)
		got, err := a.RequestMember(ctx5(t), "b", 1, nil)
		var re *RemoteError
		if got != nil || !errors.As(err, &re) || re.Code != code || re.Text != give.Error() {
			t.Errorf("%v came back as %q, %v", give, got, err)
		}
		wrapped := fmt.Errorf("ask b: %w", err)
		if !errors.Is(wrapped, &RemoteError{Code: code}) || errors.Is(wrapped, &RemoteError{Code: code + 1}) {
			t.Errorf("errors.Is goes wrong for %v", wrapped)
		}
	}
	give = errors.New(strings.Repeat("x", 2*maxControl))
	var re *RemoteError
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); !errors.As(err, &re) || len(re.Text) != maxFailure {
		t.Error("a long text is not cut")
	}
}

func TestSizesOfRequestsAndResponses(t *testing.T) {
	n := loopback(t)
	n.start("b", &recorder{onRequest: func(_ context.Context, _ Peer, kind uint8, p []byte) ([]byte, error) {
		return make([]byte, maxControl+int(kind)), nil
	}})
	a := n.start("a", &recorder{})
	if _, err := a.RequestMember(ctx5(t), "b", 0, make([]byte, maxControl-3)); !errors.Is(err, ErrFrame) {
		t.Errorf("request too large: %v", err)
	}
	if b, err := a.RequestMember(ctx5(t), "b", 0, make([]byte, maxControl-4)); err != nil || len(b) != maxControl {
		t.Errorf("largest request and response: %d bytes, %v", len(b), err)
	}
	var re *RemoteError
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); !errors.As(err, &re) {
		t.Errorf("response too large: %v", err)
	}
}

func TestPanicInOnRequest(t *testing.T) {
	n := loopback(t)
	n.start("b", &recorder{onRequest: func(_ context.Context, _ Peer, kind uint8, p []byte) ([]byte, error) {
		if kind == 1 {
			panic("boom")
		}
		return p, nil
	}})
	a := n.start("a", &recorder{})
	var re *RemoteError
	if _, err := a.RequestMember(ctx5(t), "b", 1, nil); !errors.As(err, &re) || !strings.Contains(re.Text, "boom") {
		t.Errorf("%v", err)
	}
	if b, err := a.RequestMember(ctx5(t), "b", 0, []byte("x")); err != nil || string(b) != "x" {
		t.Errorf("after it: %q, %v", b, err)
	}
}

// A member that starts again at the same address is found by the next request; those that waited fail.
func TestRequestsAcrossARestart(t *testing.T) {
	n := loopback(t)
	r, _, left := waits()
	b := n.start("b", r)
	a := n.start("a", &recorder{})
	failed := make(chan error, 1)
	go func() { _, err := a.RequestMember(ctx5(t), "b", 1, nil); failed <- err }()
	<-left
	closeSoon(t, b.Transport)
	if err := <-failed; err == nil || errors.Is(err, ErrUnreachable) {
		t.Errorf("a request that may have been carried out: %v", err)
	}
	// The handler's last words may come before the end of the connection is seen.
	eventually(t, "nobody listens", func() bool { _, _, err := a.Request(ctx5(t), b.addr, 0, nil); return errors.Is(err, ErrUnreachable) })
	n.start("b", &recorder{})
	if got, err := a.RequestMember(ctx5(t), "b", 0, []byte("x")); err != nil || string(got) != "x" {
		t.Errorf("after the restart: %q, %v", got, err)
	}
}

// What breaks a rule of requests closes the connection.
func TestControlRefusesOtherFrames(t *testing.T) {
	n := loopback(t)
	r, _, _ := waits()
	b := n.start("b", r)
	ask := appendFrame(nil, frame{kind: 1, typ: request, correlation: 1, payload: appendRequest(nil, 0, nil)})
	bad := [][]byte{
		appendFrame(nil, frame{kind: 1}),
		appendFrame(nil, frame{typ: response}),
		appendFrame(nil, frame{typ: request, payload: []byte{1, 2, 3}}),
		append(ask, ask...), // the same correlation twice at once
		appendFrame(nil, frame{typ: request, payload: make([]byte, maxControl+1)}),
	}
	for i, w := range bad {
		c := n.shake(b.addr, ClassControl, "x")
		c.Write(w)
		if _, err := io.ReadAll(c); isTimeout(err) {
			t.Errorf("case %d: connection stays open", i)
		}
	}
	eventually(t, "bad frames are counted", func() bool { return b.Stats().BadFrames == uint64(len(bad)) })
	c := n.shake(b.addr, ClassControl, "x")
	c.Write(appendFrame(appendFrame(nil, frame{typ: cancel, correlation: 99}), frame{typ: ping}))
	if f, err := newFrameReader(c, 0).next(); err != nil || f.typ != pong {
		t.Errorf("a cancel of nothing and a ping: %+v, %v", f, err)
	}
}

// A peer that sends more requests than the limit hears ErrBusy for each, and its cancels are still read.
func TestTooManyRequests(t *testing.T) {
	n := loopback(t)
	r, ended, left := waits()
	r.codes = map[error]uint16{ErrBusy: 55}
	b := n.start("b", r)
	c := n.shake(b.addr, ClassControl, "x")
	ask := func(id uint64) {
		c.Write(appendFrame(nil, frame{kind: 1, typ: request, correlation: id, payload: appendRequest(nil, 0, nil)}))
	}
	for i := range maxServed {
		ask(uint64(i))
	}
	for range maxServed {
		<-left
	}
	ask(maxServed)
	fr := newFrameReader(c, maxControl)
	f, err := fr.next()
	if err != nil || f.correlation != maxServed || !errors.Is(parseFailure(f.payload), &RemoteError{Code: 55}) {
		t.Fatalf("%+v, %v", f, err)
	}
	c.Write(appendFrame(nil, frame{typ: cancel, correlation: 3}))
	<-ended
	if f, err = fr.next(); err != nil || f.typ != failure || f.correlation != 3 {
		t.Fatalf("%+v, %v", f, err)
	}
}

// The other side may answer what nobody asked, or ask back: the first is ignored, the second ends the connection.
func TestAnswersThatNobodyAwaits(t *testing.T) {
	n := loopback(t)
	a := n.start("a", &recorder{})
	hi := hello{1, 1, ClassControl, ident("b")}.append(nil)
	odd := appendFrame(hi, frame{typ: response, correlation: 1 << 40})
	addr := n.fake(appendFrame(odd, frame{typ: pong}), false)
	ctx, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer done()
	if _, _, err := a.Request(ctx, addr, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stray response: %v", err)
	}
	addr = n.fake(appendFrame(hi, frame{typ: request, payload: make([]byte, 4)}), false)
	if _, _, err := a.Request(ctx5(t), addr, 1, nil); !errors.Is(err, ErrFrame) {
		t.Errorf("request from the listener: %v", err)
	}
}

// A peer that accepts and says nothing, or takes nothing, holds a caller no longer than the caller's context.
func TestCallerIsNotHeldByAStuckPeer(t *testing.T) {
	n := loopback(t)
	a := n.start("a", &recorder{})
	silent := n.listen("silent") // the kernel accepts
	defer silent.Close()
	deaf := n.fake(hello{1, 1, ClassControl, ident("b")}.append(nil), true)
	for name, f := range map[string]func(context.Context) error{
		"silent": func(ctx context.Context) error {
			_, _, err := a.Request(ctx, silent.Addr().String(), 1, nil)
			return err
		},
		"deaf": func(ctx context.Context) error {
			_, _, err := a.Request(ctx, deaf, 1, make([]byte, maxControl-4))
			return err
		},
	} {
		var wg sync.WaitGroup
		var busy atomic.Int32
		for range 40 {
			wg.Go(func() {
				ctx, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
				defer done()
				begin := time.Now()
				err := f(ctx)
				if d := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrBusy) || d > 2*time.Second {
					t.Errorf("%s: %s, %v", name, d, err)
				} else if errors.Is(err, ErrBusy) {
					busy.Add(1)
				}
			})
		}
		wg.Wait()
		if bounded := busy.Load() > 0; bounded != (name == "deaf") {
			t.Errorf("%s: %d of 40 MiB were refused", name, busy.Load())
		}
	}
}
