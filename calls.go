package chainmail

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"chainmail/actor"
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

// Repeated says that a message was first sent under its request id so long ago, and may have taken effect: if its key may have
// forgotten it since, it is not run, and its outcome stays unknown.
func Repeated(since time.Duration) CallOption { return func(c *engine.Call) { c.Tried = since } }

// AskActor gives a message to its actor: it is what typed methods of package actor call. The error is a *CallError, or
// ErrClosed.
func (n *Node) AskActor(ctx context.Context, c actor.Call) ([]byte, error) {
	k := core.Key{Type: c.Type, Name: c.Key}
	path, err := actor.Path(ctx, k)
	if err != nil {
		return nil, &CallError{Class: ErrRejected, Type: c.Type, Key: c.Key, Method: cmp.Or(c.Shown, c.Method), Text: err.Error()}
	}
	ec := engine.Call{Key: k, Method: c.Method, Shown: c.Shown, Body: c.Body, RequestID: c.RequestID, Tried: c.Tried, Path: path, ReadLocal: c.Local}
	if c.Once && ec.RequestID == "" {
		ec.RequestID = newRequestID()
	}
	if !c.Once && !c.Reads {
		r, err := n.ask(ctx, ec)
		return r.Body, err
	}
	r, err := n.untilKnown(ctx, ec, c.Reads, c.Further)
	return r.Body, err
}

// untilKnown repeats a call while its outcome is unknown. A read whose time ends is ErrUnavailable: it changed nothing. That
// a later attempt was not run says nothing of the ones before, nor a part of a message of further ones: the outcome of the
// message stays unknown.
func (n *Node) untilKnown(ctx context.Context, c engine.Call, reads, further bool) (core.Result, error) {
	began, maybe := time.Now().Add(-c.Tried), !reads && (c.Tried > 0 || further)
	why := "repeated: "
	if further {
		why = "parts before this one were taken: "
	}
	for {
		r, err := n.ask(ctx, c)
		if err == nil {
			return r, nil
		}
		var call *CallError
		errors.As(err, &call)
		if call == nil || call.Class != ErrUnknownOutcome || call.AppCode == actor.CodeUnknown {
			if maybe && (call == nil || call.AppCode == 0) { // it was not run
				err = &CallError{Class: ErrUnknownOutcome, Type: c.Key.Type, Key: c.Key.Name, Method: cmp.Or(c.Shown, c.Method), Version: r.Version, Text: why + err.Error()}
			}
			return r, err
		}
		maybe = !reads
		if _, bound := ctx.Deadline(); !bound { // the first attempt had the default
			var done context.CancelFunc
			ctx, done = context.WithDeadline(ctx, began.Add(engine.DefaultTimeout))
			defer done()
		}
		if ctx.Err() != nil {
			if reads {
				call.Class = ErrUnavailable
			}
			return r, call
		}
		c.Tried = time.Since(began)
	}
}

// TellActor gives a message to its actor and does not wait. It is delivered at most once. The error is a *CallError, or
// ErrClosed: that it was not sent.
func (n *Node) TellActor(ctx context.Context, c actor.Call) error {
	ec := engine.Call{Key: core.Key{Type: c.Type, Name: c.Key}, Method: c.Method, Shown: c.Shown, Body: c.Body, RequestID: c.RequestID}
	if err := n.refused(ec); err != nil {
		return err
	}
	switch declared, err := n.typeDeclared(c.Type); {
	case ctx.Err() != nil:
		return n.notSent(ErrUnavailable, ec, "not sent: %v", ctx.Err())
	case !n.host.Knows(c.Type): // no answer would say so
		return n.notSent(ErrRejected, ec, "actor type %q is not known on member %s; register it there", c.Type, n.id)
	case err != nil:
		return n.notSent(ErrUnavailable, ec, "%v", err)
	case !declared:
		return n.notSent(ErrUnavailable, ec, "not sent: the replica count of type %s is not in the placement yet", c.Type)
	}
	err := n.engine.Tell(ctx, ec)
	switch {
	case errors.Is(err, engine.ErrFull):
		return n.notSent(ErrOverloaded, ec, "%v", err)
	case err != nil:
		return ErrClosed
	}
	return nil
}

func newRequestID() string {
	var b [16]byte
	rand.Read(b[:])
	return string(b[:])
}

func (n *Node) notSent(class error, c engine.Call, format string, args ...any) error {
	return &CallError{Class: class, Type: c.Key.Type, Key: c.Key.Name, Method: cmp.Or(c.Shown, c.Method), Version: n.coord.Placement().Version, Text: fmt.Sprintf(format, args...)}
}

// refused says why a message is not sent, nil if nothing speaks against it: the same on every member, so that it is not
// found out on the way.
func (n *Node) refused(c engine.Call) error {
	bad := func(format string, args ...any) error { return n.notSent(ErrRejected, c, format, args...) }
	most := MaxMessage
	if !strings.HasPrefix(c.Method, "@") { // the parts of a stream have bounds of their own
		most = min(most, cmp.Or(n.cfg.Limits.State, core.DefaultState))
	}
	size := len(c.Body) + len(c.Method) + len(c.Key.Type)
	to := core.PinnedTo(c.Key)
	switch name := len(c.Key.Name); {
	case name == 0 || name > core.DefaultName:
		return bad("key of type %q has %d bytes; 1 to %d are allowed", c.Key.Type, name, core.DefaultName)
	case size > most:
		return bad("a message of %d bytes; at most %d are allowed", size, most)
	case len(c.RequestID) > kinds.MaxRequestID:
		return bad("a request id of %d bytes; at most %d are allowed", len(c.RequestID), kinds.MaxRequestID)
	case n.pinnedType(c.Key.Type) && (to == "" || to == c.Key.Name):
		return bad("keys of a pinned type are written key@member")
	}
	return nil
}

// ask makes one call.
func (n *Node) ask(ctx context.Context, c engine.Call) (core.Result, error) {
	if err := ctx.Err(); err != nil { // an actor here would answer all the same
		return core.Result{}, n.notSent(ErrUnavailable, c, "not sent: %v", err)
	}
	if err := n.refused(c); err != nil {
		return core.Result{}, err
	}
	if err := n.typeReady(ctx, c.Key.Type); err != nil {
		return core.Result{}, n.notSent(ErrUnavailable, c, "%v", err)
	}
	r, err := n.engine.Ask(ctx, c)
	if err != nil {
		return r, ErrClosed
	}
	return r, callError(c.Key, cmp.Or(c.Shown, c.Method), r)
}

// Ask gives a message to the actor of a type and key, wherever it is, and waits for its answer: at most until ctx ends, or
// 5 seconds if it has no deadline. The error is a *CallError, or ErrClosed.
func (n *Node) Ask(ctx context.Context, typ, key, method string, body []byte, opts ...CallOption) (Answer, error) {
	c, err := n.call(ctx, typ, key, method, body, opts)
	if err != nil {
		return Answer{}, err
	}
	r, err := n.ask(ctx, c)
	return answerOf(r, err)
}

// Read is Ask for a method that changes nothing: it is asked again while the outcome is unknown, and if time ends it is
// ErrUnavailable.
func (n *Node) Read(ctx context.Context, typ, key, method string, body []byte, opts ...CallOption) (Answer, error) {
	return n.repeat(ctx, true, typ, key, method, body, opts)
}

// Once is Ask with a request id: the message is sent again while the outcome is unknown, and takes effect once.
func (n *Node) Once(ctx context.Context, typ, key, method string, body []byte, opts ...CallOption) (Answer, error) {
	return n.repeat(ctx, false, typ, key, method, body, opts)
}

func (n *Node) repeat(ctx context.Context, reads bool, typ, key, method string, body []byte, opts []CallOption) (Answer, error) {
	c, err := n.call(ctx, typ, key, method, body, opts)
	if err != nil {
		return Answer{}, err
	}
	if !reads && c.RequestID == "" {
		c.RequestID = newRequestID()
	}
	return answerOf(n.untilKnown(ctx, c, reads, false))
}

func (n *Node) call(ctx context.Context, typ, key, method string, body []byte, opts []CallOption) (engine.Call, error) {
	c := engine.Call{Key: core.Key{Type: typ, Name: key}, Method: method, Body: body}
	for _, o := range opts {
		o(&c)
	}
	bad := func(format string, args ...any) (engine.Call, error) {
		return c, &CallError{Class: ErrRejected, Type: typ, Key: key, Method: method, Text: fmt.Sprintf(format, args...)}
	}
	if strings.HasPrefix(method, "@") {
		return bad("methods that begin with @ are the engine's own")
	}
	var err error
	if c.Path, err = actor.Path(ctx, c.Key); err != nil {
		return bad("%v", err)
	}
	return c, nil
}

func answerOf(r core.Result, err error) (Answer, error) {
	a := Answer{Body: r.Body, Version: r.Version}
	if err == nil {
		a.Stamp = kinds.StampString(r.Stamp)
	}
	return a, err
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
	a, err := k.n.Once(ctx, kinds.KV, key, kinds.Put, value, opts...)
	return a.Stamp, err
}

// CompareAndSwap sets a value if the present one has the expected stamp, "" for no value; ErrStampMismatch otherwise.
func (k KV) CompareAndSwap(ctx context.Context, key, expect string, value []byte, opts ...CallOption) (stamp string, err error) {
	a, err := k.n.Once(ctx, kinds.KV, key, kinds.CAS, kinds.AppendCAS(nil, expect, value), opts...)
	return a.Stamp, err
}

// Delete removes a value and says whether there was one.
func (k KV) Delete(ctx context.Context, key string, opts ...CallOption) (bool, error) {
	a, err := k.n.Once(ctx, kinds.KV, key, kinds.Delete, nil, opts...)
	return err == nil && len(a.Body) == 1 && a.Body[0] == 1, err
}

// Counter is the built-in type counter: a signed sum.
type Counter struct{ n *Node }

// Counter gives the client of the built-in type.
func (n *Node) Counter() Counter { return Counter{n} }

// Add adds to a counter, which begins at 0, and gives the new sum.
func (c Counter) Add(ctx context.Context, key string, delta int64, opts ...CallOption) (int64, error) {
	a, err := c.n.Once(ctx, kinds.Counter, key, kinds.Add, kinds.AppendInt(nil, delta), opts...)
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
