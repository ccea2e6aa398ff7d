package chainmail

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"chainmail/actor"
)

type point struct{ N int64 }

// points is a type whose queries need no replica: what is measured is the way there and back.
func points(inline bool) (t *actor.Type[point], get *actor.Method[actor.None, int64], add *actor.Method[int64, int64]) {
	t = actor.NewType("point", actor.Options[point]{Inline: inline, LocalReads: true})
	get = actor.Query(t, "get", func(_ context.Context, p *point, _ actor.None) (int64, error) { return p.N, nil })
	add = actor.Handle(t, "add", func(_ context.Context, p *point, n int64) (int64, error) { p.N += n; return p.N, nil })
	return t, get, add
}

// BenchmarkLocalAsk is an ask of an actor that this member owns.
func BenchmarkLocalAsk(b *testing.B) {
	for _, inline := range []bool{true, false} {
		typ, get, add := points(inline)
		n, err := Start(b.Context(), Config{Dev: true, Types: []actor.Registered{typ}})
		if err != nil {
			b.Fatal(err)
		}
		defer n.Close()
		name := map[bool]string{true: "inline", false: "goroutine"}[inline]
		b.Run(name+"/query", func(b *testing.B) {
			measure(b, func() error { _, err := get.Ask(b.Context(), n, "p", actor.None{}); return err })
		})
		b.Run(name+"/handle", func(b *testing.B) {
			measure(b, func() error { _, err := add.Ask(b.Context(), n, "p", 1); return err })
		})
	}
}

// measure reports the median beside the mean.
func measure(b *testing.B, f func() error) {
	b.ReportAllocs()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	b.ReportMetric(float64(median(took)), "ns/median")
}

// BenchmarkRemoteAsk is an ask of an actor that another member owns, beside a ping-pong of 64 bytes over bare TCP.
func BenchmarkRemoteAsk(b *testing.B) {
	typ, get, _ := points(true)
	nodes := cluster(b, 3, func(c *Config) { c.Types = []actor.Registered{typ} })
	key := ""
	for i := range 1000 {
		key = fmt.Sprint("p", i)
		if e, err := nodes[0].Explain(b.Context(), "point", key); err == nil && e[0].Owner != nodes[0].ID() {
			break
		}
	}
	ping, done := pingPong(b)
	defer done()
	var mine, bare []time.Duration
	b.ReportAllocs()
	for b.Loop() { // in turns, so that both see the same machine
		began := time.Now()
		if _, err := get.Ask(b.Context(), nodes[0], key, actor.None{}); err != nil {
			b.Fatal(err)
		}
		between := time.Now()
		ping()
		mine, bare = append(mine, between.Sub(began)), append(bare, time.Since(between))
	}
	b.ReportMetric(float64(median(mine)), "ns/median")
	b.ReportMetric(float64(median(mine))/float64(median(bare)), "x-of-bare-tcp")
}

func median(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)/2]
}

// pingPong gives a function that sends 64 bytes over TCP and waits for them to come back.
func pingPong(b *testing.B) (trip func(), done func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		c, err := l.Accept()
		if err == nil {
			io.Copy(c, struct{ io.Reader }{c}) // no splice: what a program does that looks at the bytes
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 64)
	return func() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}, func() { c.Close(); l.Close() }
}
