package chainmail

import (
	"context"
	"errors"
	"time"

	"chainmail/engine"
	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// Answer is what an actor answered.
type Answer struct {
	Body    []byte
	Stamp   string // of the state that the answer shows, as version.number.sequence@member
	Version uint64 // of the placement
}

// CallOption changes one call.
type CallOption func(*engine.Call)

// ReadLocal lets a read be answered from the owner's state without asking its replicas. It may be stale while two
// activations overlap.
func ReadLocal() CallOption { return func(c *engine.Call) { c.ReadLocal = true } }

// RequestID names a message, so that the same one sent again can be recognised.
func RequestID(id string) CallOption { return func(c *engine.Call) { c.RequestID = id } }

// Ask gives a message to the actor of a type and key, wherever it is, and waits for its answer: at most until ctx ends, or
// 5 seconds if it has no deadline. The error is a *CallError, or ErrClosed.
func (n *Node) Ask(ctx context.Context, typ, key, method string, body []byte, opts ...CallOption) (Answer, error) {
	k := core.Key{Type: typ, Name: key}
	c := engine.Call{Key: k, Method: method, Body: body}
	for _, o := range opts {
		o(&c)
	}
	r, err := n.engine.Ask(ctx, c)
	if err != nil {
		return Answer{}, ErrClosed
	}
	if err := callError(k, method, r); err != nil {
		return Answer{Body: r.Body, Version: r.Version}, err
	}
	return Answer{Body: r.Body, Stamp: kinds.StampString(r.Stamp), Version: r.Version}, nil
}

// Read is Ask for a method that changes nothing: it is asked again while the outcome is unknown, and if time ends it is
// ErrUnavailable.
func (n *Node) Read(ctx context.Context, typ, key, method string, body []byte, opts ...CallOption) (Answer, error) {
	ctx, done := bounded(ctx)
	defer done()
	for {
		a, err := n.Ask(ctx, typ, key, method, body, opts...)
		var call *CallError
		if !errors.As(err, &call) || call.Class != ErrUnknownOutcome {
			return a, err
		}
		if ctx.Err() != nil {
			call.Class = ErrUnavailable
			return a, call
		}
	}
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, engine.DefaultTimeout)
}

// KV is the built-in type kv: a value under a key.
type KV struct{ n *Node }

// KV gives the client of the built-in type.
func (n *Node) KV() KV { return KV{n} }

// Get gives a value and the stamp of the write that made it; ErrNotFound if there is none.
func (k KV) Get(ctx context.Context, key string, opts ...CallOption) (value []byte, stamp string, err error) {
	a, err := k.n.Read(ctx, kinds.KV, key, kinds.Get, nil, opts...)
	if err != nil {
		return nil, "", err
	}
	stamp, value, err = kinds.ParseValue(a.Body)
	return value, stamp, err
}

// Put sets a value of at most 1 MiB and gives its stamp.
func (k KV) Put(ctx context.Context, key string, value []byte, opts ...CallOption) (stamp string, err error) {
	a, err := k.n.Ask(ctx, kinds.KV, key, kinds.Put, value, opts...)
	return a.Stamp, err
}

// CompareAndSwap sets a value if the present one has the expected stamp, "" for no value; ErrStampMismatch otherwise.
func (k KV) CompareAndSwap(ctx context.Context, key, expect string, value []byte, opts ...CallOption) (stamp string, err error) {
	a, err := k.n.Ask(ctx, kinds.KV, key, kinds.CAS, kinds.AppendCAS(nil, expect, value), opts...)
	return a.Stamp, err
}

// Delete removes a value and says whether there was one.
func (k KV) Delete(ctx context.Context, key string, opts ...CallOption) (bool, error) {
	a, err := k.n.Ask(ctx, kinds.KV, key, kinds.Delete, nil, opts...)
	return err == nil && len(a.Body) == 1 && a.Body[0] == 1, err
}

// Counter is the built-in type counter: a signed sum.
type Counter struct{ n *Node }

// Counter gives the client of the built-in type.
func (n *Node) Counter() Counter { return Counter{n} }

// Add adds to a counter, which begins at 0, and gives the new sum.
func (c Counter) Add(ctx context.Context, key string, delta int64, opts ...CallOption) (int64, error) {
	a, err := c.n.Ask(ctx, kinds.Counter, key, kinds.Add, kinds.AppendInt(nil, delta), opts...)
	if err != nil {
		return 0, err
	}
	return kinds.ParseInt(a.Body)
}

// Get gives the sum.
func (c Counter) Get(ctx context.Context, key string, opts ...CallOption) (int64, error) {
	a, err := c.n.Read(ctx, kinds.Counter, key, kinds.Get, nil, opts...)
	if err != nil {
		return 0, err
	}
	return kinds.ParseInt(a.Body)
}

// WaitReady waits until this member serves: it knows a leader, is registered, and holds its ranges.
func (n *Node) WaitReady(ctx context.Context) error {
	for {
		waits := ""
		for _, c := range n.Ready(ctx) {
			if !c.OK {
				waits = c.Name + ": " + c.Why
			}
		}
		if waits == "" {
			return nil
		}
		select {
		case <-time.After(lookEvery):
		case <-n.ctx.Done():
			return ErrClosed
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New(waits))
		}
	}
}
