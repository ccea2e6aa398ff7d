package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// tcpPair gives two ends of a bare TCP connection.
func tcpPair(b *testing.B) (x, y net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	ch := make(chan net.Conn, 1)
	go func() { c, _ := l.Accept(); ch <- c }()
	if x, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	y = <-ch
	b.Cleanup(func() { x.Close(); y.Close() })
	return x, y
}

const small = 64

// tcpPingPong gives the time of n round trips of 64 bytes over bare TCP.
func tcpPingPong(b *testing.B, n int) time.Duration {
	x, y := tcpPair(b)
	go io.Copy(y, y)
	p := make([]byte, small)
	trip := func() {
		if _, err := x.Write(p); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(x, p); err != nil {
			b.Fatal(err)
		}
	}
	trip()
	begin := time.Now()
	for range n {
		trip()
	}
	return time.Since(begin)
}

// pingPong measures trips, and the same number over bare TCP right after it.
func pingPong(b *testing.B, trip func()) {
	trip()
	b.ResetTimer()
	for range b.N {
		trip()
	}
	b.StopTimer()
	mine, bare := b.Elapsed(), tcpPingPong(b, b.N)
	b.ReportMetric(float64(bare.Nanoseconds())/float64(b.N), "tcp-ns/op")
	b.ReportMetric(float64(mine)/float64(bare), "x-tcp")
}

func BenchmarkPingPong(b *testing.B) {
	for _, mode := range []string{"plain", "TLS"} {
		ca := newAuthority(b)
		set := func(id string) func(*member, *Config) {
			if mode == "plain" {
				return func(*member, *Config) {}
			}
			return secured(ca.config(ca.issue("chainmail://prod/member/" + id)))
		}
		payload := make([]byte, small)
		b.Run("request/"+mode, func(b *testing.B) {
			n := loopback(b)
			n.start("b", &recorder{}, set("b"))
			a := n.start("a", &recorder{}, set("a"))
			ctx := context.Background()
			pingPong(b, func() {
				if _, err := a.RequestMember(ctx, "b", 1, payload); err != nil {
					b.Fatal(err)
				}
			})
		})
		b.Run("frames/"+mode, func(b *testing.B) {
			n := loopback(b)
			back := make(chan struct{}, 1)
			var there *member
			a := n.start("a", &recorder{onFrame: func(heard) { back <- struct{}{} }}, set("a"))
			there = n.start("b", &recorder{onFrame: func(h heard) { there.Send("a", Messages, 1, []byte(h.text)) }}, set("b"))
			pingPong(b, func() {
				if err := a.Send("b", Messages, 1, payload); err != nil {
					b.Fatal(err)
				}
				<-back
			})
		})
	}
}

// BenchmarkRequestsParallel is how many requests pass when many ask at once.
func BenchmarkRequestsParallel(b *testing.B) {
	n := loopback(b)
	n.start("b", &recorder{})
	a := n.start("a", &recorder{})
	payload := make([]byte, small)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := a.RequestMember(context.Background(), "b", 1, payload); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkFrames is how many messages of 64 bytes pass in one direction.
func BenchmarkFrames(b *testing.B) {
	n := loopback(b)
	all := make(chan struct{})
	var got atomic.Int64
	n.start("b", &recorder{onFrame: func(heard) {
		if got.Add(1) == int64(b.N) {
			close(all)
		}
	}})
	a := n.start("a", &recorder{})
	payload := make([]byte, small)
	for range b.N {
		sendOrWait(b, a, Messages, payload)
	}
	<-all
}

func sendOrWait(b *testing.B, a *member, lane Lane, payload []byte) {
	for {
		err := a.Send("b", lane, 1, payload)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrBusy) {
			b.Fatal(err)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// BenchmarkBulk is the throughput of the bulk lane in pages of 256 KiB, beside that of a bare TCP copy.
func BenchmarkBulk(b *testing.B) {
	const page = 256 << 10
	n := loopback(b)
	all := make(chan struct{})
	var got atomic.Int64
	// A recorder would copy every page.
	n.start("b", &recorder{}, func(_ *member, c *Config) {
		c.Handler = &dropper{count: func() {
			if got.Add(1) == int64(b.N) {
				close(all)
			}
		}}
	})
	a := n.start("a", &recorder{})
	p := make([]byte, page)
	b.SetBytes(page)
	b.ResetTimer()
	for range b.N {
		sendOrWait(b, a, Bulk, p)
	}
	<-all
	b.StopTimer()
	mine, bare := b.Elapsed(), tcpCopy(b, b.N, page)
	b.ReportMetric(float64(page)*float64(b.N)/1e6/bare.Seconds(), "tcp-MB/s")
	b.ReportMetric(float64(mine)/float64(bare), "x-tcp")
}

// dropper is a Handler that only counts.
type dropper struct {
	recorder
	count func()
}

func (d *dropper) OnFrame(Peer, Lane, uint8, []byte, bool) { d.count() }

// tcpCopy gives the time in which n pages pass over bare TCP.
func tcpCopy(b *testing.B, n, page int) time.Duration {
	x, y := tcpPair(b)
	var wg sync.WaitGroup
	defer wg.Wait()
	p := make([]byte, page)
	begin := time.Now()
	wg.Go(func() {
		for range n {
			if _, err := x.Write(p); err != nil {
				b.Error(err)
				return
			}
		}
	})
	q := make([]byte, page)
	for range n {
		if _, err := io.ReadFull(y, q); err != nil {
			b.Fatal(err)
		}
	}
	return time.Since(begin)
}
