package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"chainmail/engine/core"
	"chainmail/engine/store"
)

// ErrCrash is what a store that Stops answers from its last operation on.
var ErrCrash = errors.New("storetest: the process died")

// Stops is a store whose process dies at its Nth operation, counted from 0: before it, or after it and before its answer.
type Stops struct {
	store.Store
	N     int
	After bool
	done  int
}

func (s *Stops) step(f func() error) error {
	n := s.done
	s.done++
	if n < s.N {
		return f()
	}
	if n == s.N && s.After {
		if err := f(); err != nil {
			return err
		}
	}
	return ErrCrash
}

// Apply is an operation.
func (s *Stops) Apply(ctx context.Context, puts []core.Put, view *core.View) error {
	return s.step(func() error { return s.Store.Apply(ctx, puts, view) })
}

// Bind is an operation.
func (s *Stops) Bind(ctx context.Context, cluster string) error {
	return s.step(func() error { return s.Store.Bind(ctx, cluster) })
}

const crashOps = 12

// crashes: the process dies at every operation in turn. What was answered is there when the store is opened again, and
// what was not is there altogether or not at all.
func crashes(t *testing.T, fresh func(t *testing.T) Open) {
	for n := range crashOps {
		for _, after := range []bool{false, true} {
			open := fresh(t)
			inner, first := must(t, open)
			s := &Stops{Store: inner, N: n, After: after}
			answered, last := Model{}, uint64(0)
			r := rand.New(rand.NewPCG(uint64(n), 2))
			var puts []core.Put
			for i := uint64(1); ; i++ {
				puts = Puts(r, i)
				v := &core.View{Revision: i, Version: i}
				err := s.Apply(context.Background(), puts, v)
				if errors.Is(err, ErrCrash) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				last = i
				for _, p := range puts {
					answered.Apply(p)
				}
			}
			_, start := again(t, open, inner)
			want, view := answered, last
			if after {
				want, view = answered.clone(), last+1
				for _, p := range puts {
					want.Apply(p)
				}
			}
			if d := want.Diff(start.Saved); d != "" {
				t.Fatalf("died at operation %d (after it: %t): %s", n, after, d)
			}
			if v := start.Saved.View; view == 0 && v != nil || view > 0 && (v == nil || v.Revision != view) {
				t.Errorf("died at operation %d (after it: %t): view %+v, want %d", n, after, v, view)
			}
			if start.Boot <= first.Boot || start.Incarnation != first.Incarnation {
				t.Errorf("incarnation %x, boot %d after %x, %d", start.Incarnation, start.Boot, first.Incarnation, first.Boot)
			}
		}
	}
}
