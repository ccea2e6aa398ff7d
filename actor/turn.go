package actor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"chainmail/engine/core"
)

// Turn is the run of one message by its actor. Handlers get it with Current.
type Turn struct {
	i    *instance
	path []core.Key // the keys that wait for its answer

	mu     sync.Mutex // a handler's goroutines may outlive it
	reads  bool       // a query's: it must ask for nothing
	over   bool       // the handler has returned: it is too late to ask
	misuse error      // what a query has asked for all the same
	stop   bool
	reason string // of stop
	gone   bool
	later  []func() []core.Change // what a handler asked for, done if it succeeds
}

type (
	turnKey     struct{}
	instanceKey struct{}
)

// Current gives the turn that a handler runs in, from its context; nil elsewhere.
func Current(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}

// Node gives the member that a handler runs on, to ask other actors with; nil outside of a handler and of Run.
func Node(ctx context.Context) Asker {
	if i, _ := ctx.Value(instanceKey{}).(*instance); i != nil {
		return i.h.cfg.Asker
	}
	return nil
}

// Type, Key and Member say which actor this is and where it runs.
func (t *Turn) Type() string { return t.i.key.Type }

// Key is described at Type.
func (t *Turn) Key() string { return t.i.key.Name }

// Member is described at Type.
func (t *Turn) Member() string { return t.i.h.cfg.Member }

// Delete removes the key's state when the handler succeeds, its timers and reminders, and the requests that it
// remembers (see AskOnce): it is as if it had never been used. A query that asks for it fails.
func (t *Turn) Delete() { t.must("Delete", func() { t.gone = true }) }

// stopped is the reason of an end that a handler has asked for.
const stopped = "stopped"

// Stop ends the activation when the handler succeeds and what it changed is committed; the next message starts another one.
// A body that runs is not started again until then. A query that asks for it fails.
func (t *Turn) Stop() { t.must("Stop", func() { t.stop, t.reason = true, stopped }) }

// ask notes what a handler asks for, if it is one that may and has not returned.
func (t *Turn) ask(what string, f func()) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
		return fmt.Errorf("%s of %s: the handler whose context it is has returned", what, t.i.key)
	case t.reads:
		return fmt.Errorf("%s of %s by a query, which changes nothing: make it a Handle", what, t.i.key)
	}
	f()
	return nil
}

// must is ask where no error can be given: the query fails in its place. When the handler has returned nobody is left to
// tell.
func (t *Turn) must(what string, f func()) {
	err := t.ask(what, f)
	if err == nil {
		return
	}
	t.mu.Lock()
	over := t.over
	if t.misuse == nil {
		t.misuse = err
	}
	t.mu.Unlock()
	if over {
		t.i.h.cfg.Logger.Warn("call without effect", "key", t.i.key.String(), "error", err)
	}
}

func (t *Turn) thenLater(f func() []core.Change) func() {
	return func() { t.later = append(t.later, f) }
}

// end is called when the handler has returned.
func (t *Turn) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// query begins and ends the part of the turn in which nothing may be asked for, and says what was.
func (t *Turn) query(on bool) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reads = on
	if t.misuse != nil {
		return &Error{CodeFailed, t.misuse.Error()}
	}
	return nil
}

// apply does what a handler has asked for, and gives the changes for it.
func (i *instance) apply(t *Turn) []core.Change {
	t.end()
	if t.gone {
		i.st, i.awake = nil, false
		for _, in := range []map[string]*timer{i.timers, i.remind} {
			for name := range in {
				i.disarm(in, name)
			}
		}
		return []core.Change{{Delete: true}}
	}
	return t.doLater()
}

func (t *Turn) doLater() (out []core.Change) {
	t.mu.Lock()
	later := t.later
	t.later = nil
	t.mu.Unlock()
	for _, f := range later {
		out = append(out, f()...)
	}
	return out
}

// maxPath bounds a chain of actors that wait for each other.
const maxPath = 32

// Path gives the keys that wait for what a handler asks now, its own last; it is an error to ask one of them, or anything
// from an Inline handler: the answer could never come. Outside of handlers it is empty.
func Path(ctx context.Context, to core.Key) ([]core.Key, error) {
	t := Current(ctx)
	if t == nil {
		return nil, nil
	}
	path := append(slices.Clone(t.path), t.i.key)
	switch {
	case t.i.d.inline:
		return nil, fmt.Errorf("a handler of type %s asks %s, and is registered as Inline: Inline handlers do not wait", t.Type(), to)
	case slices.Contains(path, to):
		return nil, fmt.Errorf("ask cycle: %s asks %s, which waits for it (%v); use Tell, or answer first", t.i.key, to, path)
	case len(path) > maxPath:
		return nil, fmt.Errorf("%d actors wait for each other already: %s asks %s", len(path), t.i.key, to)
	}
	return path, nil
}

// Self is the actor that a Run belongs to.
type Self[S any] struct{ i *instance }

// Key gives the actor's key.
func (s *Self[S]) Key() string { return s.i.key.Name }

// Node gives the member that it runs on, to ask other actors with.
func (s *Self[S]) Node() Asker { return s.i.h.cfg.Asker }

// Do runs f in the actor's turn, as a handler is run, and returns when what it changed is committed. An error of f undoes
// it and is returned. f may not run at all: when the activation has ended, ctx does.
func (s *Self[S]) Do(ctx context.Context, f func(ctx context.Context, state *S) error) error {
	return s.i.h.inTurn(ctx, s.i, func(ctx context.Context, state any) error { return f(ctx, state.(*S)) })
}

// job is a function that waits for its actor's turn.
type job struct {
	i   *instance
	f   func(ctx context.Context, state any) error
	err error // of f, once the actor has run it. Host.mu guards it: who asked may have given up
}

// doShown is what errors call a Self.Do.
const doShown = "Do"

func (h *Host) inTurn(ctx context.Context, i *instance, f func(context.Context, any) error) error {
	j := &job{i: i, f: f}
	h.mu.Lock()
	h.lastJob++
	id := h.lastJob
	h.jobs[id] = j
	h.mu.Unlock()
	_, err := h.cfg.Asker.AskActor(ctx, Call{Type: i.key.Type, Key: i.key.Name, Method: doMethod, Shown: doShown, Body: binary.BigEndian.AppendUint64(nil, id)})
	h.mu.Lock()
	delete(h.jobs, id)
	own := j.err
	h.mu.Unlock()
	if c := coded(nil); errors.As(err, &c) && c.HandlerCode() != 0 && own != nil {
		return own
	}
	return err
}

// do runs a job in its actor's turn. One of another activation is not run: its body has been told to end.
func (h *Host) do(ctx context.Context, i *instance, body []byte, state any) error {
	var j *job
	if len(body) == 8 {
		h.mu.Lock()
		j = h.jobs[binary.BigEndian.Uint64(body)]
		h.mu.Unlock()
	}
	if j == nil || j.i != i {
		return &Error{CodeGone, fmt.Sprintf("the activation of %s has ended", i.key)}
	}
	err := j.f(ctx, state)
	h.mu.Lock()
	j.err = err
	h.mu.Unlock()
	return err
}

const (
	bodyPauseFirst = 100 * time.Millisecond
	bodyPauseMost  = 30 * time.Second
)

// runBody runs the actor's Run until it returns nil or the activation ends. One that was interrupted is run again after the
// longest pause if its member is still there: whether it returned because it was told to, nobody can say.
func (i *instance) runBody() {
	for pause := bodyPauseFirst; ; pause = min(2*pause, bodyPauseMost) {
		began, ctx := time.Now(), i.work()
		err := i.protected("Run", func() error { return i.d.run(ctx, i) })
		switch {
		case i.ctx.Err() != nil:
			return
		case ctx.Err() != nil:
			pause, err = bodyPauseMost, ctx.Err()
		case err == nil:
			i.own(doneMethod, nil)
			return
		case time.Since(began) > bodyPauseMost:
			pause = bodyPauseFirst
		}
		i.h.cfg.Logger.Warn("body failed and is run again", "key", i.key.String(), "error", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-i.ctx.Done():
			return
		}
	}
}

const ownTimeout = 30 * time.Second

// own gives the actor a message of the package's own, again until it is answered or the activation has ended.
func (i *instance) own(method string, body []byte) {
	for i.ctx.Err() == nil {
		ctx, done := context.WithTimeout(i.ctx, ownTimeout)
		_, err := i.h.cfg.Asker.AskActor(ctx, Call{Type: i.key.Type, Key: i.key.Name, Method: method, Body: body})
		done()
		if c := coded(nil); err == nil || errors.As(err, &c) && c.HandlerCode() != 0 {
			return
		}
	}
}
