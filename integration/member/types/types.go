// Package types has the actor types of the members that the tests run.
package types

import (
	"context"
	"fmt"
	"os"
	"time"

	"chainmail/actor"
)

// All gives the types.
func All() []actor.Registered { return []actor.Registered{ledgers, readers} }

// Mail is what a sender writes into a ledger: its own numbers, in order.
type Mail struct {
	From string `json:"from"`
	Seq  int    `json:"seq"`
}

// ledger logs mail in the order in which it took effect.
type ledger struct {
	Log  actor.List[Mail]
	Rang int // reminders
}

var ledgers = actor.NewType("ledger", actor.Options[ledger]{OnActivate: func(ctx context.Context, _ *ledger) error {
	fmt.Fprintf(os.Stderr, "ledger %s is activated\n", actor.Current(ctx).Key())
	return nil
}})

func init() {
	actor.Handle(ledgers, "post", func(_ context.Context, s *ledger, m Mail) (int, error) {
		s.Log.Append(m)
		return s.Log.Len(), nil
	})
	actor.Query(ledgers, "read", func(_ context.Context, s *ledger, _ actor.None) (out []Mail, _ error) {
		for _, m := range s.Log.All() {
			out = append(out, m)
		}
		return out, nil
	})
	ring := actor.Handle(ledgers, "ring", func(_ context.Context, s *ledger, _ actor.None) (int, error) { s.Rang++; return s.Rang, nil })
	actor.Handle(ledgers, "remind", func(ctx context.Context, _ *ledger, ms int) (actor.None, error) {
		return actor.None{}, actor.Remind(ctx, "ring", time.Now().Add(time.Duration(ms)*time.Millisecond), 0, ring, actor.None{})
	})
	actor.Query(ledgers, "rang", func(_ context.Context, s *ledger, _ actor.None) (int, error) { return s.Rang, nil })
	// block runs until its context ends, and says so where the member's log is.
	actor.Handle(ledgers, "block", func(ctx context.Context, s *ledger, _ actor.None) (actor.None, error) {
		fmt.Fprintf(os.Stderr, "block of %s begins\n", actor.Current(ctx).Key())
		<-ctx.Done()
		fmt.Fprintf(os.Stderr, "block of %s ends: %v\n", actor.Current(ctx).Key(), ctx.Err())
		return actor.None{}, ctx.Err()
	})
	// work takes so many milliseconds, whatever its context says.
	actor.Handle(ledgers, "work", func(ctx context.Context, s *ledger, ms int) (string, error) {
		fmt.Fprintf(os.Stderr, "work of %s begins\n", actor.Current(ctx).Key())
		time.Sleep(time.Duration(ms) * time.Millisecond)
		s.Log.Append(Mail{From: "work", Seq: ms})
		return actor.Current(ctx).Member(), nil
	})
}

// Batch is a range of rows, and the member that took it.
type Batch struct {
	From   int    `json:"from"`
	To     int    `json:"to"`
	Member string `json:"member"`
}

// Read is what a reader has taken.
type Read struct {
	Offset  int     `json:"offset"`
	Batches []Batch `json:"batches"`
	Done    bool    `json:"done"`
}

// reader takes rows of a stream that begins at 0, in batches: the offset and what was taken change in one commit.
type reader struct {
	Offset, Rows, Batch int
	Batches             actor.List[Batch]
	Off                 bool // it was stopped in order
}

// Order starts a reader.
type Order struct {
	Rows  int `json:"rows"`
	Batch int `json:"batch"`
}

var readers = actor.NewType("reader", actor.Options[reader]{Run: take})

func init() {
	actor.Handle(readers, "start", func(_ context.Context, s *reader, o Order) (actor.None, error) {
		s.Rows, s.Batch, s.Off = o.Rows, o.Batch, false
		return actor.None{}, nil
	})
	actor.Handle(readers, "stop", func(_ context.Context, s *reader, _ actor.None) (actor.None, error) {
		s.Off = true
		return actor.None{}, nil
	})
	actor.Query(readers, "look", func(_ context.Context, s *reader, _ actor.None) (Read, error) {
		r := Read{Offset: s.Offset, Done: s.Offset >= s.Rows}
		for _, b := range s.Batches.All() {
			r.Batches = append(r.Batches, b)
		}
		return r, nil
	})
}

// take is the body. It says in the member's log what it is about to take before it does.
func take(ctx context.Context, self *actor.Self[reader]) error {
	for {
		var next Batch
		end := false
		if err := self.Do(ctx, func(ctx context.Context, s *reader) error {
			next = Batch{s.Offset, min(s.Offset+s.Batch, s.Rows), actor.Current(ctx).Member()}
			end = s.Off || s.Offset >= s.Rows
			return nil
		}); err != nil {
			return err
		}
		if end {
			return nil
		}
		fmt.Fprintf(os.Stderr, "%d %s takes %d to %d\n", time.Now().UnixMilli(), self.Key(), next.From, next.To)
		if err := self.Do(ctx, func(_ context.Context, s *reader) error {
			if s.Offset != next.From {
				return fmt.Errorf("the offset is %d, not %d: two bodies run", s.Offset, next.From)
			}
			s.Offset = next.To
			s.Batches.Append(next)
			return nil
		}); err != nil {
			return err
		}
	}
}
