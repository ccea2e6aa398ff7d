package builtin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"chainmail/actor"
)

// LockState is a lock: a lease with a fencing token.
type LockState struct {
	Holder string
	Token  uint64 // of the last lease; each lease has a higher one
	Until  int64  // Unix time in milliseconds, on the owner's clock
}

// Want asks for a lease, or for more of the one that the holder has.
type Want struct {
	Holder string `json:"holder"`
	TTL    int64  `json:"ttl_ms"`
}

// Lease is a lock that is held. Give Token to whatever the lock guards, and let that refuse tokens below one it has seen: a
// holder may not notice in time that its lease has run out.
type Lease struct {
	Holder string `json:"holder"`
	Token  uint64 `json:"token"`
	Left   int64  `json:"left_ms"`
}

// Errors of locks.
var (
	ErrHeld   = errors.New("lock is held")
	ErrNoHold = errors.New("lock is not held by this holder under this token")
	ErrTTL    = errors.New("a lease lasts 1 ms to 24 h and has a holder")
)

// maxLease keeps a mistyped time from locking everybody out for good.
const maxLease = 24 * time.Hour

// Locks is the type lock, with its messages.
var (
	Locks = actor.NewType("lock", actor.Options[LockState]{Errors: map[uint16]error{1: ErrHeld, 2: ErrNoHold, 3: ErrTTL}})

	// Acquire takes the lock, or ErrHeld. Who holds it already gets the same token for the new time.
	Acquire = actor.Handle(Locks, "acquire", func(_ context.Context, l *LockState, w Want) (Lease, error) {
		now := time.Now()
		if w.Holder == "" || w.TTL < 1 || w.TTL > maxLease.Milliseconds() {
			return Lease{}, ErrTTL
		}
		if left := l.left(now); left > 0 && l.Holder != w.Holder {
			return Lease{}, fmt.Errorf("%w by %s for %d ms more", ErrHeld, l.Holder, left)
		} else if left <= 0 {
			l.Token++
		}
		l.Holder, l.Until = w.Holder, now.UnixMilli()+w.TTL
		return l.lease(now), nil
	})
	// Release gives the lock back. ErrNoHold if the lease has run out and somebody else has, or had, the lock since.
	Release = actor.Handle(Locks, "release", func(_ context.Context, l *LockState, h Lease) (actor.None, error) {
		if l.Holder != h.Holder || l.Token != h.Token {
			return actor.None{}, ErrNoHold
		}
		l.Holder, l.Until = "", 0
		return actor.None{}, nil
	})
	// Holder tells who holds the lock; a Lease without a Holder if nobody does.
	Holder = actor.Query(Locks, "holder", func(_ context.Context, l *LockState, _ actor.None) (Lease, error) {
		return l.lease(time.Now()), nil
	})
)

func (l *LockState) left(now time.Time) int64 { return l.Until - now.UnixMilli() }

func (l *LockState) lease(now time.Time) Lease {
	if l.left(now) <= 0 {
		return Lease{Token: l.Token}
	}
	return Lease{l.Holder, l.Token, l.left(now)}
}
