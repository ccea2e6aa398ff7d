package actor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// Host runs the actors of one member: it is the engine's Runner. Handlers of one key run one after the other; those of a
// type that is not Inline in goroutines of their own, and so is a message to an Inline actor that is being read.
//
//	goroutine     started by          ended by                   waited for by
//	a handler     Run                 its return                 Close
//	a body        first message       its activation's end       Close
//	a timer's     the timer           its message's answer       Close
//	an idle       the next stream     its message's answer       Close
//	stream's end
//	OnDeactivate  Ended               its return                 Close
type Host struct {
	cfg   HostConfig
	types map[string]*def
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup

	mu      sync.RWMutex
	closed  bool
	acts    map[uint64]*instance
	byKey   map[core.Key]*instance   // of types with LocalReads
	plain   map[uint64]*kinds.Window // of activations of the built-in types
	jobs    map[uint64]*job          // what bodies wait to have done in their actor's turn
	lastJob uint64
}

// HostConfig is what a Host is made with.
type HostConfig struct {
	Member string
	Types  []Registered
	Plain  map[string]kinds.Handler // built-in types: pure functions
	Asker  Asker                    // calls that actors make go there
	Logger hclog.Logger

	MaxState  int64 // bytes that the state of a key may take; 0: not known
	MaxAnswer int   // bytes that an answer may have; 0: not known
}

// plainWindow is the window of the built-in types.
const plainWindow = 8

// NewHost makes a Host; it refuses types that are wrong or there twice.
func NewHost(cfg HostConfig) (*Host, error) {
	h := &Host{cfg: cfg, types: map[string]*def{}, acts: map[uint64]*instance{}, byKey: map[core.Key]*instance{}, plain: map[uint64]*kinds.Window{}, jobs: map[uint64]*job{}}
	if h.cfg.Logger == nil {
		h.cfg.Logger = hclog.NewNullLogger()
	}
	for _, t := range cfg.Types {
		if err := Check(t); err != nil {
			return nil, err
		}
		d := t.definition()
		if h.types[d.name] != nil || cfg.Plain[d.name] != nil {
			return nil, fmt.Errorf("actor type %q is there twice; give one another name", d.name)
		}
		h.types[d.name] = d
	}
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h, nil
}

// Knows says whether a type is known here.
func (h *Host) Knows(typ string) bool { return h.types[typ] != nil || h.cfg.Plain[typ] != nil }

// Run runs one message.
func (h *Host) Run(e *core.Execute, done func(*core.Executed)) *core.Executed {
	d := h.types[e.Key.Type]
	if d == nil {
		return h.runPlain(e)
	}
	i := h.instance(d, e)
	if i == nil {
		return failed(e, &Error{CodeFailed, "member " + h.cfg.Member + " is closing"})
	}
	i.clean.Store(false)
	if d.inline && i.mu.TryLock() { // else it is being read: the core does not wait for that
		defer i.mu.Unlock()
		return i.run(e)
	}
	h.wg.Go(func() { i.runApart(e, done) })
	return nil
}

// runApart runs a message in a goroutine of its own. One that the handler ends, as a test's FailNow does, is answered too.
func (i *instance) runApart(e *core.Execute, done func(*core.Executed)) {
	var x *core.Executed
	defer func() {
		if x == nil {
			i.mu.Lock()
			i.st = nil // what the handler has changed is undone
			x = failed(e, &Error{CodePanic, fmt.Sprintf("%s of %s ended its goroutine", i.shown(e.Method), e.Key)})
			i.mu.Unlock()
		}
		done(x)
	}()
	i.mu.Lock()
	defer i.mu.Unlock()
	x = i.run(e)
}

// instance gives an activation's instance, nil once the Host is closed.
func (h *Host) instance(d *def, e *core.Execute) *instance {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil
	}
	i := h.acts[e.Activation]
	if i == nil {
		i = &instance{h: h, d: d, key: e.Key}
		i.ctx, i.cancel = context.WithCancel(context.WithValue(h.ctx, instanceKey{}, i))
		h.acts[e.Activation] = i
		if d.set.LocalReads {
			h.byKey[e.Key] = i
		}
	}
	return i
}

// Ended ends an activation's instance: its context is cancelled, and OnDeactivate called once its handler has returned.
func (h *Host) Ended(e *core.Ended) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.plain, e.Activation)
	i := h.acts[e.Activation]
	if i == nil {
		return
	}
	delete(h.acts, e.Activation)
	if h.byKey[i.key] == i {
		delete(h.byKey, i.key)
	}
	i.cancel()
	if !h.closed {
		h.wg.Go(func() { i.end(e.Reason) })
	}
}

// Interrupt ends the contexts of the handlers and bodies that run now. Messages that come later are run as ever; what an
// interrupted handler returns is taken as it is.
func (h *Host) Interrupt() {
	h.mu.Lock()
	acts := slices.Collect(maps.Values(h.acts))
	h.mu.Unlock()
	for _, i := range acts {
		i.interrupt()
	}
}

// closeWait is how long Close waits for handlers that do not heed their contexts.
const closeWait = 2 * time.Second

// Close cancels all contexts and waits for what runs. A handler that does not return is left behind and logged.
func (h *Host) Close() error {
	h.mu.Lock()
	h.closed = true
	var left []*instance
	for _, i := range h.acts {
		left = append(left, i)
	}
	h.mu.Unlock()
	h.stop()
	gone := make(chan struct{})
	go func() {
		for _, i := range left {
			i.end("closing")
		}
		h.wg.Wait()
		close(gone)
	}()
	select {
	case <-gone:
		return nil
	case <-time.After(closeWait):
		return fmt.Errorf("member %s: handlers did not return within %s of their contexts' end", h.cfg.Member, closeWait)
	}
}

// runPlain runs a message of a built-in type.
func (h *Host) runPlain(e *core.Execute) (x *core.Executed) {
	defer func() {
		if p := recover(); p != nil {
			x = failed(e, &Error{CodePanic, fmt.Sprintf("handler of %s panicked on %q: %v", e.Key, e.Method, p)})
		}
	}()
	f := h.cfg.Plain[e.Key.Type]
	if f == nil {
		return failed(e, &Error{CodeNoMethod, fmt.Sprintf("actor type %q is not known on member %s; register it there", e.Key.Type, h.cfg.Member)})
	}
	w, x := h.repeated(e)
	if x != nil {
		return x
	}
	body, changes, err := f(e.State, e.Method, e.Body)
	if err != nil {
		return failed(e, err)
	}
	if deletes(changes) {
		h.mu.Lock()
		delete(h.plain, e.Activation)
		h.mu.Unlock()
	}
	return &core.Executed{Activation: e.Activation, Seq: e.Seq, Body: body, Changes: noted(w, e, body, changes)}
}

// fits refuses an answer that could not be sent, before anything is committed: also to a caller on this member, since
// callers need not know where the key is.
func (h *Host) fits(k core.Key, method string, body []byte) error {
	if most := h.cfg.MaxAnswer; most > 0 && len(body) > most {
		return &Error{CodeFailed, fmt.Sprintf("the answer of %s of %s has %d bytes; at most %d are allowed: give it in parts, or as a Stream", method, k, len(body), most)}
	}
	return nil
}

// repeated gives the outcome of a built-in type's message that was run before; else the window to note it in, if any.
func (h *Host) repeated(e *core.Execute) (*kinds.Window, *core.Executed) {
	if e.RequestID == "" {
		return nil, nil
	}
	h.mu.Lock()
	w := h.plain[e.Activation]
	if w == nil || e.First {
		w = kinds.NewWindow(time.Now(), e.State, e.Stamp, plainWindow)
		h.plain[e.Activation] = w
	}
	h.mu.Unlock()
	return w, before(w, e)
}

// before gives the outcome of a message that was run before, nil if it was not. One that may have been run, and was
// dropped from the window since, is not run again.
func before(w *kinds.Window, e *core.Execute) *core.Executed {
	body, found := w.FindOf(e.State, e.RequestID, e.Method)
	switch {
	case found == kinds.Missing && e.Tried > 0 && !w.Covers(time.Now(), e.Tried):
		return failed(e, &Error{CodeUnknown, fmt.Sprintf("request %q of %s was first made %s ago; whether it took effect then is not known any more: the window of requests is too small", e.RequestID, e.Key, e.Tried)})
	case found == kinds.Missing:
		return nil
	case found == kinds.Another:
		return failed(e, &Error{CodeReused, fmt.Sprintf("request %q of %s is not run: a message for another method than %s was, under that id; use an id of its own for each message", e.RequestID, e.Key, e.Method)})
	case found == kinds.TooLong:
		// Not CodeFailed: what a failed handler has changed is undone, and this is committed.
		return failed(e, &Error{CodeUnknown, fmt.Sprintf("request %q of %s took effect the first time; its answer was longer than the %d bytes that are kept for a repeat: read what it changed", e.RequestID, e.Key, kinds.MaxKept)})
	}
	return &core.Executed{Activation: e.Activation, Seq: e.Seq, Body: bytes.Clone(body)} // the page's, and the answer is the caller's
}

// noted adds to a message's changes that it was run. One that deletes the key leaves no trace, and one that changes
// nothing may be run again.
func noted(w *kinds.Window, e *core.Execute, body []byte, changes []core.Change) []core.Change {
	if w == nil || len(changes) == 0 || deletes(changes) {
		return changes
	}
	return append(changes, w.AddOf(time.Now(), e.State, e.RequestID, e.Method, body)...)
}

func deletes(changes []core.Change) bool {
	for _, c := range changes {
		if c.Delete && c.Name == "" {
			return true
		}
	}
	return false
}

// maxErrorText bounds the text of an error on the wire.
const maxErrorText = 2 << 10

func failed(e *core.Execute, err error) *core.Executed {
	x := &core.Executed{Activation: e.Activation, Seq: e.Seq, AppCode: CodeFailed, Text: err.Error()}
	var own *Error
	var plain *kinds.AppError
	switch {
	case errors.As(err, &own):
		x.AppCode = own.Code
	case errors.As(err, &plain):
		x.AppCode = plain.Code
	}
	x.Text = x.Text[:min(len(x.Text), maxErrorText)]
	return x
}

// protect turns a panic into an error.
func (i *instance) protect(what string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	if own, ok := p.(*Error); ok { // a page that cannot be read or written
		*err = own
		return
	}
	i.h.cfg.Logger.Error("handler panicked", "member", i.h.cfg.Member, "key", i.key.String(), "error", p, "stack", string(debug.Stack()))
	*err = &Error{CodePanic, fmt.Sprintf("%s of %s panicked: %v", i.shown(what), i.key, p)}
}
