package builtin

import (
	"context"
	"errors"
	"time"

	"chainmail/actor"
)

// QueueState is a queue: what waits, and what was taken and not yet acknowledged, by the numbers that Push gave.
type QueueState struct {
	Last    uint64
	Waiting actor.Map[uint64, Item]
	Taken   actor.Map[uint64, taken]
}

// Item is an element of a queue.
type Item struct {
	Data  string `json:"data"`
	Tries int    `json:"tries,omitempty"` // how often it was taken
}

type taken struct {
	Item  Item
	Until int64 // Unix time in milliseconds, on the owner's clock
}

// Delivery is an item that was taken: Ack it under ID within the time that was asked for, or it is given out again.
type Delivery struct {
	ID   uint64 `json:"id"`
	Item Item   `json:"item"`
}

// Take says how long the taker has to acknowledge, in milliseconds, and how many items it wants at most.
type Take struct {
	Within int64 `json:"within_ms"`
	Most   int   `json:"most"`
}

// Lengths counts the items of a queue.
type Lengths struct {
	Waiting int `json:"waiting"`
	Taken   int `json:"taken"`
}

// Errors of queues.
var (
	ErrNotTaken = errors.New("the item is not taken: it was acknowledged before, or given out again")
	ErrWithin   = errors.New("within_ms is 1 to 86,400,000 and most 1 to 1,000")
)

// Queues is the type queue, with its messages. Items are given out in the order in which they were pushed; those that were
// not acknowledged in time first, so that order is kept as far as possible. Each is given out until it is acknowledged.
var (
	Queues = actor.NewType("queue", actor.Options[QueueState]{Errors: map[uint16]error{1: ErrNotTaken, 2: ErrWithin}})

	// Push adds an item and gives its number.
	Push = actor.Handle(Queues, "push", func(_ context.Context, q *QueueState, it Item) (uint64, error) {
		q.Last++
		q.Waiting.Set(q.Last, Item{Data: it.Data})
		return q.Last, nil
	})
	// Pull takes items; none if nothing waits.
	Pull = actor.Handle(Queues, "take", func(_ context.Context, q *QueueState, t Take) ([]Delivery, error) {
		if t.Most == 0 {
			t.Most = 1
		}
		if t.Within < 1 || t.Within > 86_400_000 || t.Most < 1 || t.Most > 1000 {
			return nil, ErrWithin
		}
		now := time.Now().UnixMilli()
		q.giveBack(now)
		var out []Delivery
		for id, it := range q.Waiting.All() {
			if len(out) == t.Most {
				break
			}
			it.Tries++
			out = append(out, Delivery{id, it})
			q.Waiting.Delete(id)
			q.Taken.Set(id, taken{it, now + t.Within})
		}
		return out, nil
	})
	// Ack removes a taken item for good.
	Ack = actor.Handle(Queues, "ack", func(_ context.Context, q *QueueState, id uint64) (actor.None, error) {
		if !q.Taken.Delete(id) {
			return actor.None{}, ErrNotTaken
		}
		return actor.None{}, nil
	})
	// Nack gives a taken item back at once.
	Nack = actor.Handle(Queues, "nack", func(_ context.Context, q *QueueState, id uint64) (actor.None, error) {
		t, ok := q.Taken.Get(id)
		if !ok {
			return actor.None{}, ErrNotTaken
		}
		q.Taken.Delete(id)
		q.Waiting.Set(id, t.Item)
		return actor.None{}, nil
	})
	// Length counts the items.
	Length = actor.Query(Queues, "length", func(_ context.Context, q *QueueState, _ actor.None) (Lengths, error) {
		return Lengths{q.Waiting.Len(), q.Taken.Len()}, nil
	})
)

// giveBack puts the items whose time is up among those that wait.
func (q *QueueState) giveBack(now int64) {
	for id, t := range q.Taken.All() {
		if t.Until <= now {
			q.Taken.Delete(id)
			q.Waiting.Set(id, t.Item)
		}
	}
}
