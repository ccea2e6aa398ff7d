package chainmail_test

import (
	"context"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
)

type point struct{ N int64 }

// BenchmarkLocalAsk is an ask of an actor that this member owns.
func BenchmarkLocalAsk(b *testing.B) {
	for _, inline := range []bool{true, false} {
		typ := actor.NewType("point", actor.Options[point]{Inline: inline, LocalReads: true})
		get := actor.Query(typ, "get", func(_ context.Context, p *point, _ actor.None) (int64, error) { return p.N, nil })
		add := actor.Handle(typ, "add", func(_ context.Context, p *point, n int64) (int64, error) { p.N += n; return p.N, nil })
		ctx, done := context.WithTimeout(context.Background(), time.Minute)
		defer done()
		n, err := chainmail.Start(ctx, chainmail.Config{Dev: true, Types: []actor.Registered{typ}})
		if err != nil {
			b.Fatal(err)
		}
		defer n.Close()
		name := map[bool]string{true: "inline", false: "goroutine"}[inline]
		b.Run(name+"/query", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := get.Ask(ctx, n, "p", actor.None{}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"/handle", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := add.Ask(ctx, n, "p", 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
