package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail/engine/core"
)

// Store makes copies durable. Apply may take long; it ends when ctx does.
type Store interface {
	Apply(ctx context.Context, puts []core.Put, view *core.View) error
}

// Runner runs handlers. Run gives the outcome if it is there at once, else it gives nil and calls done exactly once,
// later and from another goroutine.
type Runner interface {
	Run(e *core.Execute, done func(*core.Executed)) *core.Executed
	Ended(e *core.Ended)
}

// Config is what an Engine is made with.
type Config struct {
	Core   core.Config
	Saved  *core.Saved // what the store held
	Store  Store       // nil: state is in memory only
	Runner Runner
	// Send gives a message to another member; it does not block. now is the instant that deadlines count from.
	Send func(m core.Message, now core.Time)
	// Report tells the log; it is called from a goroutine of its own and may block until ctx ends.
	Report func(ctx context.Context, r core.Report) error
	// WantView asks for the newest placement of the local log; it does not block.
	WantView func()
	Logger   hclog.Logger
}

const (
	tickEvery = 10 * time.Millisecond
	// maxQueue bounds the messages that wait for the core: others' are dropped and sent again, callers are refused.
	maxQueue = 65536
	// maxEffects bounds what waits for the committer; the core waits until there is room.
	maxEffects    = 65536
	reportTimeout = 2 * time.Second
)

// Errors of the calls.
var (
	ErrClosed = errors.New("engine is closed")
	ErrStore  = errors.New("store failed")
	ErrFull   = errors.New("too much is waiting")
)

// Engine is a running core.
//
//	goroutine  started by        ended by  waited for by
//	loop       Start             Close     Close
//	committer  Start (a store)   Close     Close
//	reporter   Start             Close     Close
type Engine struct {
	cfg   Config
	log   hclog.Logger
	core  *core.Core // of who holds turn
	start time.Time
	ctx   context.Context
	stop  context.CancelFunc
	wg    sync.WaitGroup
	calls atomic.Uint64

	in      inbox
	commits committer
	reports reporter
	turn    sync.Mutex    // held by who steps the core
	local   []core.Input  // of who holds turn: what came of its own effects
	out     []core.Effect // likewise
	// What effects bring back goes through these; they are made once.
	toLocal, toInbox func(core.Input)
	executed         func(*core.Executed)

	mu      sync.Mutex
	waits   map[uint64]chan core.Result
	answers sync.Pool // of channels of calls that were answered: empty, and known to nobody else
	closed  bool

	failOnce sync.Once
	failed   chan struct{}
	failure  error
}

// Start makes the core and begins to run it. It answers others once a view lists its incarnation.
func Start(cfg Config) (*Engine, error) {
	if cfg.Runner == nil || cfg.Send == nil || cfg.Report == nil {
		return nil, errors.New("engine: a runner, a sender and a reporter are needed")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Core.Durable = cfg.Store != nil
	e := &Engine{cfg: cfg, log: cfg.Logger.Named("engine"), start: time.Now(), waits: map[uint64]chan core.Result{}, failed: make(chan struct{})}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.core = core.New(cfg.Core, e.Now(), cfg.Saved)
	e.toLocal = func(in core.Input) { e.local = append(e.local, in) }
	e.toInbox = func(in core.Input) { e.in.put(item{in: in}) }
	e.executed = func(x *core.Executed) {
		e.in.add(item{in: x})
		e.attend()
	}
	e.in.init()
	e.commits.init(e)
	e.reports.init(e)
	e.wg.Go(e.loop)
	e.wg.Go(e.reports.run)
	if cfg.Store != nil {
		e.wg.Go(e.commits.run)
	}
	return e, nil
}

// Now is the instant on the clock that the core and messages' deadlines use.
func (e *Engine) Now() core.Time { return core.Time(time.Since(e.start)) }

// Writes counts the writes to the store, and the time that they took.
func (e *Engine) Writes() (n uint64, took time.Duration) {
	return e.commits.writes.Load(), time.Duration(e.commits.took.Load())
}

// Failed is closed when the store has failed; Err then says how.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// Err is described at Failed.
func (e *Engine) Err() error {
	select {
	case <-e.failed:
		return e.failure
	default:
		return nil
	}
}

// Fail stops the engine as a failure of its store does.
func (e *Engine) Fail(err error) {
	e.failOnce.Do(func() {
		e.failure = fmt.Errorf("%w: %w", ErrStore, err)
		e.log.Error("store failed; this member stops", "member", e.cfg.Core.Self, "error", err)
		close(e.failed)
	})
	e.stop()
}

// Close stops all goroutines and answers the calls that are open: whether they took effect is not known.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.stop()
	e.wg.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, ch := range e.waits {
		ch <- core.Result{Code: core.CodeUnknownOutcome, Text: "member " + e.cfg.Core.Self + " is closing"}
		delete(e.waits, id)
	}
	return nil
}

// SetView gives the core a placement. Older ones are ignored.
func (e *Engine) SetView(v *core.View) {
	if v != nil {
		e.in.put(item{in: &core.ViewChanged{View: v}})
	}
}

// Deliver gives the core a message of another member. Under overload it is dropped; its sender sends it again.
func (e *Engine) Deliver(m core.Message) bool {
	if !e.in.room(item{in: &core.Recv{Msg: m}}) {
		return false
	}
	e.attend()
	return true
}

// PeerLost tells that messages to a member may be lost.
func (e *Engine) PeerLost(member string) { e.in.put(item{in: &core.PeerLost{Member: member}}) }

// Drain asks that nothing new is started here.
func (e *Engine) Drain() { e.in.put(item{in: &core.Drain{}}) }

// Do runs f on the core's goroutine, for queries. It fails when ctx or the engine ends first; f is not run then.
func (e *Engine) Do(ctx context.Context, f func(*core.Core)) error {
	done := make(chan struct{})
	var taken atomic.Bool // by the core to run it, or by who gives up
	e.in.put(item{do: func(c *core.Core) {
		if taken.CompareAndSwap(false, true) {
			f(c)
			close(done)
		}
	}})
	err := ErrClosed
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-e.ctx.Done():
	}
	if taken.CompareAndSwap(false, true) {
		return err
	}
	<-done
	return nil
}

// Call is what Ask sends. Its Body must not be changed afterwards: the message may be waiting still when Ask has given up.
type Call struct {
	Key       core.Key
	Method    string
	Body      []byte
	RequestID string
	Tried     time.Duration // as in core.Call
	Path      []core.Key    // likewise
	ReadLocal bool
}

// DefaultTimeout is the deadline of a call whose context has none.
const DefaultTimeout = 5 * time.Second

// Ask gives a message to its actor, wherever it is, and waits for the answer. When ctx ends first the outcome is unknown.
// A member that has too many messages waiting refuses it at once.
func (e *Engine) Ask(ctx context.Context, c Call) (core.Result, error) {
	ctx, done := bounded(ctx)
	defer done()
	deadline := e.deadline(ctx)
	id := e.calls.Add(1)
	ch, _ := e.answers.Get().(chan core.Result)
	if ch == nil {
		ch = make(chan core.Result, 1)
	}
	e.mu.Lock()
	if e.closed || e.ctx.Err() != nil {
		e.mu.Unlock()
		return core.Result{}, ErrClosed
	}
	e.waits[id] = ch
	e.mu.Unlock()
	if !e.in.room(c.input(id, deadline)) {
		e.forget(id)
		return core.Result{Code: core.CodeOverloaded, Text: fmt.Sprintf("member %s has %d messages waiting", e.cfg.Core.Self, maxQueue)}, nil
	}
	e.attend()
	select {
	case r := <-ch:
		e.answers.Put(ch)
		return r, nil
	case <-ctx.Done():
		// The core answers at the deadline; its answer says more than ctx.Err does.
		select {
		case r := <-ch:
			return r, nil
		case <-time.After(2 * tickEvery):
		}
		return e.giveUp(id, ch, "the caller gave up: "+ctx.Err().Error()), nil
	case <-e.ctx.Done():
		return e.giveUp(id, ch, "member "+e.cfg.Core.Self+" is closing"), nil
	}
}

// giveUp ends a call without its answer, but for one that has just been taken from the open calls and is on its way.
func (e *Engine) giveUp(id uint64, ch chan core.Result, why string) core.Result {
	if e.forget(id) == nil {
		return <-ch
	}
	return core.Result{Code: core.CodeUnknownOutcome, Text: why}
}

// bounded gives a call without a deadline the default one: a core that waits for its disk cannot keep it.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, DefaultTimeout)
}

func (c *Call) input(id uint64, deadline core.Time) item {
	return item{in: &core.Call{ID: id, Key: c.Key, Method: c.Method, Body: c.Body, RequestID: c.RequestID, Tried: c.Tried, Path: c.Path, ReadLocal: c.ReadLocal, Deadline: deadline}}
}

// Tell gives a message to its actor, wherever it is, and does not wait: nobody learns what becomes of it. ctx bounds
// nothing but its deadline at the actor.
func (e *Engine) Tell(ctx context.Context, c Call) error {
	if e.ctx.Err() != nil {
		return ErrClosed
	}
	if !e.in.offer(c.input(e.calls.Add(1), e.deadline(ctx))) {
		return fmt.Errorf("member %s has %d inputs waiting: %w", e.cfg.Core.Self, maxQueue, ErrFull)
	}
	return nil
}

func (e *Engine) deadline(ctx context.Context) core.Time {
	if d, ok := ctx.Deadline(); ok {
		return e.Now().Add(time.Until(d))
	}
	return e.Now().Add(DefaultTimeout)
}

func (e *Engine) forget(id uint64) chan core.Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch := e.waits[id]
	delete(e.waits, id)
	return ch
}

func (e *Engine) reply(r *core.Reply) {
	if ch := e.forget(r.ID); ch != nil {
		ch <- r.Result
	}
}

func (e *Engine) loop() {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for {
		ticked := false
		select {
		case <-e.in.wake:
		case <-tick.C:
			ticked = true
		case <-e.ctx.Done():
			return
		}
		e.turn.Lock()
		e.work(e.in.take())
		if ticked {
			e.work([]item{{in: &core.Tick{}}})
		}
		e.turn.Unlock()
	}
}

func (e *Engine) attend() {
	if !e.help() {
		e.in.poke()
	}
}

// help does what waits, in the goroutine of who put it: most messages find the core idle, and a switch to the loop takes
// longer than the work. It takes what is there once, so that nobody is kept.
func (e *Engine) help() bool {
	if !e.turn.TryLock() {
		return false
	}
	defer e.turn.Unlock()
	if e.ctx.Err() == nil {
		e.work(e.in.take())
	}
	return true
}

// work steps the core. The caller holds turn.
func (e *Engine) work(batch []item) {
	for _, it := range batch {
		if it.do != nil {
			it.do(e.core)
			continue
		}
		e.step(it.in)
		for i := 0; i < len(e.local); i++ { // it grows meanwhile
			e.step(e.local[i])
		}
		clear(e.local)
		e.local = e.local[:0]
	}
	e.commits.flush()
}

func (e *Engine) step(in core.Input) {
	e.out = e.core.Step(e.Now(), in, e.out[:0])
	for _, x := range e.out {
		e.carryOut(x)
	}
	clear(e.out)
}

// carryOut does what need not wait for the disk, and hands the rest to the committer, in order.
func (e *Engine) carryOut(x core.Effect) {
	switch x := x.(type) {
	case *core.Execute:
		if done := e.cfg.Runner.Run(x, e.executed); done != nil {
			e.local = append(e.local, done)
		}
	case *core.Settled:
		if r, ok := e.cfg.Runner.(interface{ Settled(*core.Settled) }); ok {
			r.Settled(x)
		}
	case *core.Ended:
		e.cfg.Runner.Ended(x)
	case *core.WantView:
		if e.cfg.WantView != nil {
			e.cfg.WantView()
		}
	case *core.Note:
		e.log.Debug(x.What, "key", x.Key.String(), "peer", x.Peer, "error", x.Text)
	default:
		if e.cfg.Store != nil {
			e.commits.add(x)
			return
		}
		e.release(x, e.toLocal)
	}
}

// release carries out an effect once all before it is durable.
func (e *Engine) release(x core.Effect, self func(core.Input)) {
	switch x := x.(type) {
	case *core.Send:
		if x.Msg.To == e.cfg.Core.Self {
			self(&core.Recv{Msg: x.Msg})
			return
		}
		now := e.Now()
		x.Msg.Sent = core.Time(e.start.UnixNano()) + now
		e.cfg.Send(x.Msg, now)
	case *core.Reply:
		e.reply(x)
	case *core.Report:
		e.reports.put(*x)
	}
}
