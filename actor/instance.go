package actor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// instance is one activation of a key.
type instance struct {
	h      *Host
	d      *def
	key    core.Key
	ctx    context.Context // ends with the activation
	cancel context.CancelFunc

	clean    atomic.Bool // all that has run is committed
	mu       sync.Mutex  // held while a message runs
	over     bool
	st       *state // nil: to be loaded
	window   *kinds.Window
	awake    bool // OnActivate has been called on st
	turn     *Turn
	body     bool // Run was started
	bodyDone bool // and has returned nil

	timers  map[string]*timer
	remind  map[string]*timer
	streams map[string]*stream
	flowing string // the method of the stream that ran last

	running  atomic.Pointer[turnCtx] // of the message that runs, nil if none does
	workMu   sync.Mutex
	workCtx  context.Context // see work; nil until something needs it
	stopWork context.CancelFunc
}

// Methods of the package's own, beside those of the core.
const (
	doMethod     = "@do"     // body: the number of a job of this member's
	doneMethod   = "@done"   // Run has returned nil
	remindMethod = "@remind" // body: the name of a reminder
	nextMethod   = "@next"   // of a stream, see stream.go
	pushMethod   = "@push"
)

// run runs one message and gives what is to be committed and answered. The caller holds mu.
func (i *instance) run(e *core.Execute) *core.Executed {
	t := &Turn{i: i, path: e.Path}
	ctx := &turnCtx{Context: i.ctx, turn: t, deadline: time.Now().Add(time.Duration(e.Deadline - e.Now))}
	i.turn = t
	i.running.Store(ctx)
	defer func() { i.turn = nil; i.running.Store(nil); ctx.end(); t.end() }()
	if e.First {
		i.st = nil
	}
	first, err := i.wakeUp(ctx, t, e)
	if err != nil {
		return failed(e, i.coded(err))
	}
	x := i.message(ctx, t, e)
	x.Changes = append(first, x.Changes...)
	return i.mark(e, x)
}

// wakeUp loads the state if need be, and gives what OnActivate has changed.
func (i *instance) wakeUp(ctx context.Context, t *Turn, e *core.Execute) ([]core.Change, error) {
	if i.st != nil {
		i.st.on(e.State)
		return nil, nil
	}
	i.awake = false
	var st *state
	err := i.protected("load", func() (err error) { st, err = i.d.load(e.State); return err })
	if err != nil {
		return nil, fmt.Errorf("load %s at stamp %s: %w", e.Key, e.Stamp, err)
	}
	i.st = st
	st.bound(i.h.cfg.MaxState)
	for id := range i.streams { // they are on the state as it was
		i.dropStream(id)
	}
	i.window = kinds.NewWindow(time.Now(), e.State, e.Stamp, i.d.set.Window)
	for name := range i.remind { // those of a commit that was refused are not in the state
		i.disarm(i.remind, name)
	}
	i.armReminders(e.State)
	if i.d.onActivate == nil {
		return nil, nil
	}
	var out []core.Change
	err = i.protected("OnActivate", func() (err error) {
		if err = i.d.onActivate(ctx, st.ptr.Interface()); err == nil {
			out, err = st.take()
		}
		return err
	})
	if err != nil {
		i.st = nil
		return nil, err
	}
	i.awake = true
	return append(out, t.doLater()...), nil
}

func (i *instance) protected(what string, f func() error) (err error) {
	defer i.protect(what, &err)
	return f()
}

// message runs the handler of a message on the loaded state.
func (i *instance) message(ctx context.Context, t *Turn, e *core.Execute) *core.Executed {
	reads := e.Method == nextMethod || i.d.methods[e.Method] != nil && i.d.methods[e.Method].reads
	w := i.window
	if e.RequestID == "" || reads || i.d.set.Window < 0 {
		w = nil
	}
	if w == nil && !reads && e.Tried > 0 {
		return failed(e, &Error{CodeUnknown, fmt.Sprintf("%s is asked again %s after the first time, and its type keeps no request ids: whether it took effect then is not known", e.Key, e.Tried)})
	}
	if w != nil {
		if x := before(w, e); x != nil {
			return x
		}
	}
	var body []byte
	var changes []core.Change
	var err error
	answer := func() (err error) {
		if body, err = i.call(ctx, t, e); err == nil {
			err = i.h.fits(i.key, i.shown(e.Method), body)
		}
		return err
	}
	if reads {
		err = i.query(t, e.Method, answer)
	} else {
		err = i.protected(e.Method, func() (err error) {
			if err = answer(); err == nil {
				changes, err = i.st.take()
			}
			return err
		})
	}
	if err != nil {
		return i.failure(t, e, reads, err)
	}
	x := &core.Executed{Activation: e.Activation, Seq: e.Seq, Body: body}
	if reads {
		return x
	}
	x.Changes = append(changes, i.apply(t)...)
	x.Changes = noted(w, e, body, x.Changes)
	x.Stop, x.Reason = t.stop, t.reason
	return x
}

// query runs a handler that must change nothing.
func (i *instance) query(t *Turn, method string, f func() error) error {
	t.query(true)
	i.st.freeze(true)
	err := i.protected(method, f)
	i.st.freeze(false)
	if asked := t.query(false); err == nil {
		err = asked
	}
	if name := i.st.spoiled(); err == nil && name != "" {
		err = &Error{CodeFailed, fmt.Sprintf("query %s of type %s changes %s; make it a Handle", i.shown(method), i.d.name, name)}
	}
	return err
}

// call finds what a message is for.
func (i *instance) call(ctx context.Context, t *Turn, e *core.Execute) ([]byte, error) {
	state := i.st.ptr.Interface()
	switch e.Method {
	case core.TouchMethod:
		return nil, nil
	case core.IdleMethod:
		t.stop = i.mayIdle()
		return nil, nil
	case doneMethod:
		i.bodyDone = true
		t.stop = len(i.remind) == 0
		return nil, nil
	case doMethod:
		return nil, i.h.do(ctx, i, e.Body, state)
	case remindMethod:
		return i.reminded(ctx, t, e)
	case nextMethod:
		return i.streamNext(e.Body)
	case pushMethod:
		return i.streamPush(ctx, state, e.Body)
	}
	m := i.d.methods[e.Method]
	switch {
	case m == nil || m.take != nil:
		return nil, &Error{CodeNoMethod, fmt.Sprintf("type %s has no method %q; it has %s", i.d.name, e.Method, strings.Join(i.d.names(), ", "))}
	case m.open != nil:
		return i.streamOpen(e.Method, m, state, e.Body)
	}
	return m.call(ctx, state, e.Body)
}

// mayIdle says whether an activation that nobody asks may end although it is marked: not while a reminder is to come.
func (i *instance) mayIdle() bool { return len(i.remind) == 0 }

// shown is what errors call a method: a message of the package's own goes by what it is for.
func (i *instance) shown(method string) string {
	switch {
	case (method == nextMethod || method == pushMethod) && i.flowing != "":
		return i.flowing
	case method == doMethod:
		return doShown
	}
	return method
}

// coded gives an error the code under which it travels.
func (i *instance) coded(err error) error {
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	return &Error{i.d.codeOf(err), err.Error()}
}

// failure undoes, keeps or drops what a failed handler has changed. What a query has changed is never kept.
func (i *instance) failure(t *Turn, e *core.Execute, reads bool, err error) *core.Executed {
	x := failed(e, i.coded(err))
	if i.d.failure == Keep && !reads {
		var changes []core.Change
		if i.protected(e.Method, func() (err error) { changes, err = i.st.take(); return err }) == nil {
			x.Changes = append(changes, i.apply(t)...)
			return x
		}
	}
	if i.d.failure == Stop {
		x.Stop, x.Reason = true, stopped
	}
	if i.d.failure == Reset || i.protected("undo", func() error { return i.st.undo() }) != nil {
		i.st = nil // load it anew, and say then what is wrong with it
	}
	return x
}

// mark keeps ActivePage there as long as the actor has work of its own, and starts Run.
func (i *instance) mark(e *core.Execute, x *core.Executed) *core.Executed {
	if deletes(x.Changes) {
		return x
	}
	_, marked := e.State[core.ActivePage]
	want := i.d.run != nil && !i.bodyDone && (!x.Stop || x.AppCode != 0) || len(i.remind) > 0
	if want != marked {
		x.Changes = append(x.Changes, core.Change{Name: core.ActivePage, Delete: !want})
	}
	if i.d.run != nil && !i.body && i.st != nil && !x.Stop && !i.over {
		i.body = true
		i.h.wg.Go(i.runBody)
	}
	return x
}

// work gives the context of what outlasts a message: the body and the streams. It ends with the activation, or before that
// with interrupt; what begins later gets another one.
func (i *instance) work() context.Context {
	i.workMu.Lock()
	defer i.workMu.Unlock()
	if i.workCtx == nil {
		i.workCtx, i.stopWork = context.WithCancel(i.ctx)
	}
	return i.workCtx
}

// interrupt ends the contexts of what runs now, and of nothing else.
func (i *instance) interrupt() {
	if ctx := i.running.Load(); ctx != nil {
		ctx.end()
	}
	i.workMu.Lock()
	defer i.workMu.Unlock()
	if i.workCtx != nil {
		i.stopWork()
		i.workCtx = nil
	}
}

// end is called once when the activation has ended.
func (i *instance) end(reason string) {
	i.cancel()
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.over {
		return
	}
	i.over = true
	for _, m := range []map[string]*timer{i.timers, i.remind} {
		for _, t := range m {
			t.stop()
		}
	}
	for id := range i.streams {
		i.dropStream(id)
	}
	if f := i.d.onDeactivate; f != nil && i.st != nil && i.awake == (i.d.onActivate != nil) {
		if err := i.protected("OnDeactivate", func() error { f(i.ctx, i.st.ptr.Interface(), reason); return nil }); err != nil {
			i.h.cfg.Logger.Warn("deactivation failed", "key", i.key.String(), "error", err)
		}
	}
}
