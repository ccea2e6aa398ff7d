package actor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Options say how the keys of a type are kept and run. The zero value of a field takes the default named there.
type Options[S any] struct {
	Replicas int // copies of a key; default: the cluster's. It cannot be changed once the type is in use
	// Pinned keys have one copy, on the member that they name: "key@member". They never move: while that member is away they
	// wait, and when it leaves for good, or restarts without a store, they are lost. Replicas is not used then.
	Pinned     bool
	WriteAll   bool // a write needs every replica, not a majority: any dead one blocks it until it is removed
	LocalReads bool // queries are answered by the owner alone: they may be stale while two members take themselves for it
	// Idle ends an activation without messages for so long; default 5 min, and never with a Run; negative: never. One that is
	// set ends a Run that goes on, and takes back the mark that starts it elsewhere: it runs again when the key is asked.
	Idle     time.Duration
	Mailbox  int   // messages that wait for one key; default: the member's limit
	Pipeline int   // messages of a key that may have run before their commit is done, 1: each waits for the one before; default 512
	Window   int   // request ids that a key remembers, with answers up to 64 KiB; those of the last 7 s up to 256 times as many. Default 32, negative: none
	Codec    Codec // of messages and pages; default MsgPack
	// Durable says that the keys have to outlive a loss of all members: a member without a store does not start with the type.
	Durable bool
	// Inline says that no handler waits for anything: no Ask, no I/O, no lock. They run where the engine is stepped, on its
	// own goroutine or on that of whoever gives it a message, which saves two switches.
	Inline bool
	// Errors are the errors that handlers return and callers compare with errors.Is, by a code that stays theirs.
	Errors map[uint16]error
	// OnFailure says what becomes of the state when a handler returns an error or panics.
	OnFailure Failure

	// OnActivate is called before the first message of an activation; what it changes is committed with that message. If
	// it returns an error, the message fails with it and the next one tries again. It is called again whenever the state is
	// built anew: with Reset, after Delete, and when a change was refused because it was too big.
	OnActivate func(ctx context.Context, state *S) error
	// OnDeactivate is called when an activation has ended: moved, fenced (another member took over), idle, stopped (by
	// Turn.Stop or OnFailure), closing. What it changes is not kept.
	OnDeactivate func(ctx context.Context, state *S, reason string)
	// Run is work of the actor's own, beside its messages, from activation until it returns or ctx ends: because the
	// activation did, or the time that its member had to leave. While it has not returned nil the key is marked as active: it
	// is started again wherever its owner is. Only an Idle that is set ends it before that, and the mark too. If it returns an
	// error or panics it is run again after a pause that grows.
	Run func(ctx context.Context, self *Self[S]) error
}

// Failure is what becomes of the state when a handler fails.
type Failure uint8

const (
	// Undo takes back what the handler changed in the pages. Fields that are no pages stay.
	Undo Failure = iota
	// Reset builds the state anew from what was committed, and calls OnActivate again.
	Reset
	// Keep commits what the handler changed before it failed.
	Keep
	// Stop ends the activation; the next message starts another one.
	Stop
)

// Type is an actor type with states S.
type Type[S any] struct{ d *def }

// Registered is any Type; chainmail.Config lists them.
type Registered interface{ definition() *def }

func (t *Type[S]) definition() *def {
	if t == nil {
		return nil
	}
	return t.d
}

// Name gives the type's name on the wire.
func (t *Type[S]) Name() string { return t.d.name }

// def is a type without its type parameter.
type def struct {
	name    string
	set     Settings
	codec   Codec
	errors  map[uint16]error
	codes   []uint16 // of errors, sorted
	failure Failure
	inline  bool
	plan    []field
	methods map[string]*methodDef
	err     error // the first mistake in its definition

	newState     func() reflect.Value // a *S
	onActivate   func(ctx context.Context, state any) error
	onDeactivate func(ctx context.Context, state any, reason string)
	run          func(ctx context.Context, i *instance) error
}

// Settings are what the engine has to know of a type.
type Settings struct {
	Replicas, Mailbox, Pipeline, Window   int
	Pinned, WriteAll, LocalReads, Durable bool
	Idle                                  time.Duration
}

const (
	defaultIdle   = 5 * time.Minute
	defaultWindow = 32
	maxTypeName   = 64
)

// NewType defines an actor type under a name that stays the same as long as there is state of it. Mistakes are told by
// Check, and so when a node is started with it.
func NewType[S any](name string, o Options[S]) *Type[S] {
	d := &def{
		name: name, codec: owned(o.Codec), errors: o.Errors, failure: o.OnFailure, inline: o.Inline, methods: map[string]*methodDef{},
		set:      Settings{o.Replicas, o.Mailbox, o.Pipeline, o.Window, o.Pinned, o.WriteAll, o.LocalReads, o.Durable, o.Idle},
		newState: func() reflect.Value { return reflect.New(reflect.TypeFor[S]()) },
	}
	if d.set.Window == 0 {
		d.set.Window = defaultWindow
	}
	if d.set.Idle == 0 && o.Run == nil {
		d.set.Idle = defaultIdle
	}
	if f := o.OnActivate; f != nil {
		d.onActivate = func(ctx context.Context, s any) error { return f(ctx, s.(*S)) }
	}
	if f := o.OnDeactivate; f != nil {
		d.onDeactivate = func(ctx context.Context, s any, reason string) { f(ctx, s.(*S), reason) }
	}
	if f := o.Run; f != nil {
		d.run = func(ctx context.Context, i *instance) error { return f(ctx, &Self[S]{i}) }
	}
	switch plan, err := d.planOf(reflect.TypeFor[S]()); {
	case name == "" || len(name) > maxTypeName || strings.ContainsAny(name, "/@ \t\n"):
		d.fail("a name has 1 to %d bytes, without blanks, / and @", maxTypeName)
	case err != nil:
		d.fail("%w", err)
	case min(o.Replicas, o.Mailbox, o.Pipeline) < 0:
		d.fail("Replicas is %d, Mailbox %d, Pipeline %d: none is below 0", o.Replicas, o.Mailbox, o.Pipeline)
	case o.Inline && o.Run != nil:
		d.fail("Inline handlers do not wait, Run does: leave one out")
	case o.Pinned && o.Replicas > 1:
		d.fail("pinned keys have one copy, not %d", o.Replicas)
	case o.OnFailure > Stop:
		d.fail("OnFailure is %d: it is Undo, Reset, Keep or Stop", o.OnFailure)
	default:
		d.plan = plan
	}
	d.checkErrors()
	return &Type[S]{d}
}

// checkErrors sees that each error of Options.Errors has a code of its own, that fits beside those of this package.
func (d *def) checkErrors() {
	d.codes = slices.Sorted(maps.Keys(d.errors))
	for i, code := range d.codes {
		e := d.errors[code]
		switch {
		case e == nil:
			d.fail("error %d is nil", code)
		case code > math.MaxUint16-firstCode:
			d.fail("error %d (%v): codes are at most %d", code, e, math.MaxUint16-firstCode)
		}
		for _, o := range d.codes[:i] {
			if e != nil && reflect.TypeOf(e).Comparable() && d.errors[o] == e {
				d.fail("errors %d and %d are both %q", o, code, e)
			}
		}
	}
}

func (d *def) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("actor type %q: "+format, append([]any{d.name}, args...)...)
	}
}

// Check gives the first mistake in a type's definition, nil if there is none.
func Check(t Registered) error {
	if t == nil || t.definition() == nil {
		return errors.New("an actor type is nil: it was not made by NewType, or not yet")
	}
	return t.definition().err
}

// NameOf gives a type's name.
func NameOf(t Registered) string { return t.definition().name }

// SettingsOf gives what the engine has to know of a type.
func SettingsOf(t Registered) Settings { return t.definition().set }
