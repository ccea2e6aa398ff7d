package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// countedConn counts its writes, and can be told to fail.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// counted makes a member count the writes of the connections that it opens.
func counted(m *member) *atomic.Int64 {
	var writes atomic.Int64
	dial := m.cfg.Dial
	m.cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return countedConn{c, &writes}, nil
	}
	return &writes
}

func TestOrderIsKeptAndFramesAreCoalesced(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	writes := counted(a)
	const senders, each = 8, 5000
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				p := binary.BigEndian.AppendUint32([]byte{byte(s)}, uint32(i))
				if err := a.Send("b", Messages, 3, p); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "all frames arrive", func() bool { return len(b.heard()) == senders*each })
	var next [senders]uint32
	for _, f := range b.heard() {
		s, i := f.text[0], binary.BigEndian.Uint32([]byte(f.text[1:]))
		if i != next[s] {
			t.Fatalf("sender %d: frame %d, want %d", s, i, next[s])
		}
		next[s]++
		if f.kind != 3 || f.lane != Messages || f.from.Member != "a" || f.from.Incarnation != 7 {
			t.Fatalf("%+v", f)
		}
	}
	if w := writes.Load(); w > senders*each/4 {
		t.Errorf("%d writes for %d frames", w, senders*each)
	} else {
		t.Logf("%d writes for %d frames", w, senders*each)
	}
	out, in := a.Stats().Lanes["messages"], b.Stats().Lanes["messages"]
	if want := uint64(senders * each); out.FramesOut != want || in.FramesIn != want || out.BytesOut != want*25 || in.BytesIn != want*25 {
		t.Errorf("counted %+v out, %+v in", out, in)
	}
	if a.down() != 0 {
		t.Error("a loss was reported")
	}
}

func TestLanesAreToldApart(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	for l := Messages; l < lanes; l++ {
		if err := a.SendFunc("b", l, uint8(l), false, func(dst []byte) []byte { return append(dst, l.class().String()...) }); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three frames arrive", func() bool { return len(b.heard()) == 3 })
	for _, f := range b.heard() {
		if f.text != f.lane.class().String() || f.kind != uint8(f.lane) {
			t.Errorf("%+v", f)
		}
	}
}

func TestSendFails(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	if err := a.Send("nobody", Messages, 1, nil); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("to nobody: %v", err)
	}
	if err := a.Send("b", Bulk, 1, make([]byte, maxFrame+1)); !errors.Is(err, ErrFrame) {
		t.Errorf("too large: %v", err)
	}
	if err := a.Send("b", Bulk, 1, make([]byte, maxFrame)); err != nil {
		t.Errorf("as large as may be: %v", err)
	}
	eventually(t, "the largest frame arrives", func() bool { return len(b.heard()) == 1 && len(b.heard()[0].text) == maxFrame })
	a.Close()
	if err := a.Send("b", Messages, 1, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestPeerDownAndReconnect(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	a.Send("b", Messages, 1, []byte("first"))
	eventually(t, "the first frame arrives", func() bool { return len(b.heard()) == 1 })
	closeSoon(t, b.Transport)
	eventually(t, "the loss is reported without a send", func() bool { return a.down() == 1 })
	eventually(t, "sends are refused while nobody listens", func() bool { return errors.Is(a.Send("b", Messages, 1, nil), ErrUnreachable) })

	c := n.start("b", &recorder{})
	eventually(t, "the next one is found", func() bool { a.Send("b", Messages, 1, []byte("second")); return len(c.heard()) > 0 })
	if a.Stats().Reconnects == 0 {
		t.Error("no reconnect was counted")
	}
	downs := a.down()
	for range 100 {
		if err := a.Send("b", Messages, 1, []byte("third")); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "later frames arrive", func() bool { h := c.heard(); return h[len(h)-1].text == "third" })
	if a.down() != downs {
		t.Error("a loss was reported on a connection that works")
	}
}

// The loss of another lane is not one of messages.
func TestPeerDownIsForMessages(t *testing.T) {
	n := loopback(t)
	a, b := n.start("a", &recorder{}), n.start("b", &recorder{})
	a.Send("b", Bulk, 1, []byte("x"))
	eventually(t, "the frame arrives", func() bool { return len(b.heard()) == 1 })
	closeSoon(t, b.Transport)
	eventually(t, "the loss is counted", func() bool { return a.Stats().Reconnects > 0 })
	if a.down() != 0 {
		t.Error("a loss of bulk was reported")
	}
}

// Frames that a broken connection left in the receiver's buffers must not be handled beside those of the next one.
func TestOrderIsKeptAcrossConnections(t *testing.T) {
	n := loopback(t)
	hold, held := make(chan struct{}), make(chan struct{})
	var mu sync.Mutex
	var got []string
	b := n.start("b", &recorder{onFrame: func(h heard) {
		if h.text == "hold" {
			close(held)
			<-hold
		}
		mu.Lock()
		got = append(got, h.text)
		mu.Unlock()
	}})
	write := func(c net.Conn, texts ...string) {
		var wire []byte
		for _, s := range texts {
			wire = appendFrame(wire, frame{payload: []byte(s)})
		}
		if _, err := c.Write(wire); err != nil {
			t.Error(err)
		}
	}
	first := n.shake(b.addr, ClassMessages, "x")
	write(first, "hold", "old 1", "old 2")
	<-held
	first.Close()
	second := n.shake(b.addr, ClassMessages, "x")
	write(second, "new 1", "new 2")
	other := n.shake(b.addr, ClassMessages, "y")
	write(other, "other")
	seen := func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
	eventually(t, "other members go on", func() bool { return len(seen()) > 0 })
	if s := seen(); !slices.Equal(s, []string{"other"}) {
		t.Errorf("handled beside the old connection: %v", s)
	}
	close(hold)
	eventually(t, "the new frames arrive", func() bool { return slices.Contains(seen(), "new 2") })
	if s := seen(); slices.Index(s, "new 1") < slices.Index(s, "old 2") || slices.Index(s, "new 1") < slices.Index(s, "hold") {
		t.Errorf("order is %v", s)
	}
}

// What may not come on a lane closes its connection, and no other.
func TestLanesRefuseOtherFrames(t *testing.T) {
	n := loopback(t)
	b := n.start("b", &recorder{})
	good := n.shake(b.addr, ClassMessages, "good")
	flipped := appendFrame(nil, frame{payload: []byte("x")})
	flipped[headerSize] ^= 1
	huge := appendFrame(nil, frame{})
	binary.BigEndian.PutUint32(huge[4:], 1<<32-1)
	bad := [][]byte{appendFrame(nil, frame{typ: request, payload: make([]byte, 4)}), appendFrame(nil, frame{typ: pong}), flipped, huge, bytes.Repeat([]byte{0xff}, 100)}
	for i, w := range bad {
		c := n.shake(b.addr, ClassMessages, fmt.Sprint("bad", i))
		c.Write(w)
		if _, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%x: connection stays open: %v", w[:min(len(w), 40)], err)
		}
	}
	eventually(t, "bad frames are counted", func() bool { return b.Stats().BadFrames == uint64(len(bad)) })
	good.Write(appendFrame(nil, frame{payload: []byte("still here")}))
	eventually(t, "the good connection goes on", func() bool { return len(b.heard()) == 1 })
	good.Write(appendFrame(nil, frame{typ: ping}))
	if f, err := newFrameReader(good, 0).next(); err != nil || f.typ != pong {
		t.Errorf("ping was answered with %+v, %v", f, err)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// A handler that panics costs its connection only.
func TestPanicInOnFrame(t *testing.T) {
	n := loopback(t)
	var got atomic.Int32
	n.start("b", &recorder{onFrame: func(h heard) {
		if h.text == "boom" {
			panic("boom")
		}
		got.Add(1)
	}})
	a := n.start("a", &recorder{})
	a.Send("b", Messages, 1, []byte("boom"))
	eventually(t, "the loss is reported", func() bool { return a.down() == 1 })
	eventually(t, "the member goes on", func() bool { a.Send("b", Messages, 1, []byte("fine")); return got.Load() > 0 })
}

// fillBulk fills the lane to a receiver that does not read until a sender hears ErrBusy for good.
func fillBulk(t *testing.T, a *member) {
	t.Helper()
	page := make([]byte, 1<<20)
	for refused := 0; refused < 20; {
		if err := a.Send("b", Bulk, 1, page); errors.Is(err, ErrBusy) {
			refused++
			time.Sleep(time.Millisecond) // the writer may still find room in the socket
		} else if err != nil {
			t.Fatal(err)
		}
		if a.Pressure("b", Bulk) <= queueBytes {
			refused = 0
		}
	}
}

func TestBulkDoesNotDelayTheOthers(t *testing.T) {
	n := loopback(t)
	stuck := make(chan struct{})
	var got atomic.Int64
	arrived := make(chan time.Time, 1)
	n.start("b", &recorder{onFrame: func(h heard) {
		if h.lane == Bulk {
			<-stuck
			return
		}
		got.Add(1)
		arrived <- time.Now()
	}})
	defer close(stuck)
	a := n.start("a", &recorder{})
	before := heap()
	fillBulk(t, a)
	if grown := heap() - before; grown > 4*queueBytes {
		t.Errorf("a member that does not read costs %d MiB", grown>>20)
	} else {
		t.Logf("a member that does not read costs %d MiB, %d MiB of them queued", grown>>20, a.Pressure("b", Bulk)>>20)
	}
	var waits, asks []time.Duration
	for range 500 {
		begin := time.Now()
		if err := a.Send("b", Messages, 1, []byte("now")); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, (<-arrived).Sub(begin))
		begin = time.Now()
		if _, err := a.RequestMember(ctx5(t), "b", 1, nil); err != nil {
			t.Fatal(err)
		}
		asks = append(asks, time.Since(begin))
	}
	if err := a.Send("b", Replication, 1, nil); err != nil {
		t.Fatal(err)
	}
	<-arrived
	slices.Sort(waits)
	slices.Sort(asks)
	t.Logf("with bulk stuck: message %s (99 %%: %s), request %s (99 %%: %s)", waits[250], waits[495], asks[250], asks[495])
	if waits[250] > 20*time.Millisecond || asks[250] > 20*time.Millisecond {
		t.Error("bulk delays the others")
	}
	if err := a.Send("b", Bulk, 1, make([]byte, 1<<20)); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "bulk") {
		t.Errorf("bulk is not full any more: %v", err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// A receiver that is slow but reads gets everything, in order, and its sender never holds more than the bound.
func TestSlowReceiverGetsAll(t *testing.T) {
	n := loopback(t)
	var got atomic.Int64
	n.start("b", &recorder{onFrame: func(h heard) {
		if int64(binary.BigEndian.Uint32([]byte(h.text))) != got.Load() {
			t.Errorf("frame %d came as number %d", binary.BigEndian.Uint32([]byte(h.text)), got.Load())
		}
		got.Add(1)
		time.Sleep(100 * time.Microsecond)
	}})
	a := n.start("a", &recorder{})
	const frames, size = 1000, 32 << 10
	busy := 0
	for i := range frames {
		page := append(binary.BigEndian.AppendUint32(nil, uint32(i)), make([]byte, size)...)
		eventually(t, "there is room again", func() bool {
			err := a.Send("b", Bulk, 1, page)
			if err != nil && !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
			if err != nil {
				busy++
			}
			return err == nil
		})
		if p := a.Pressure("b", Bulk); p > queueBytes+size+headerSize+4 {
			t.Fatalf("%d bytes wait", p)
		}
	}
	eventually(t, "all frames arrive", func() bool { return got.Load() == frames })
	t.Logf("refused %d times", busy)
}
