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
// later and from another goroutine. All else waits for Run, and it may be a caller's goroutine that runs it.
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
	// Send gives a message to another member; it does not block. now is the instant that deadlines count from. alone says
	// that no other message is to follow at once.
	Send func(m core.Message, now core.Time, alone bool)
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
	ErrMemory = errors.New("memory is damaged")
)

// Engine is a running core.
//
//	goroutine  started by        ended by  waited for by
//	loop       Start             Close     Close
//	watch      Start             Close     Close
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
	calls calls

	in      inbox
	commits committer
	reports reporter

	turn  sync.Mutex    // held by who steps the core; never waited for but by the loop and Close
	local []core.Input  // of who holds turn: what came of its own effects
	out   []core.Effect // likewise
	alone bool          // likewise: what is sent is not part of more
	// What effects bring back goes through these; they are made once.
	toLocal, toInbox func(core.Input)
	executed         func(*core.Executed)

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
	e := &Engine{cfg: cfg, log: cfg.Logger.Named("engine"), start: time.Now(), failed: make(chan struct{})}
	e.ctx, e.stop = context.WithCancel(context.Background())
	e.core = core.New(cfg.Core, e.Now(), cfg.Saved)
	e.toLocal = func(in core.Input) { e.local = append(e.local, in) }
	e.toInbox = func(in core.Input) { e.later(item{in: in}) }
	e.executed = func(x *core.Executed) { e.later(item{in: x}) }
	e.calls.open = map[uint64]openCall{}
	e.in.init()
	e.commits.init(e)
	e.reports.init(e)
	e.wg.Go(e.loop)
	e.wg.Go(e.watch)
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

// Failed is closed when this member must not go on, as when its store has failed; Err then says how.
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

// Fail stops the engine.
func (e *Engine) Fail(err error) {
	e.failOnce.Do(func() {
		e.failure = err
		e.log.Error("this member stops", "member", e.cfg.Core.Self, "error", err)
		e.stop()
		close(e.failed)
	})
}

// Close stops all goroutines and answers the calls that are open: whether they took effect is not known.
func (e *Engine) Close() error {
	e.stop()
	e.wg.Wait()
	e.turn.Lock() // who steps the core now does so for the last time
	defer e.turn.Unlock()
	return nil
}

// SetView gives the core a placement of the local log. Older ones are ignored. lead says that this member leads the log.
func (e *Engine) SetView(v *core.View, lead bool) {
	if v != nil {
		e.later(item{in: &core.ViewChanged{View: v, Lead: lead}})
	}
}

// Deliver gives the core a message of another member. Under overload it is dropped; its sender sends it again. more says
// that another one is to follow at once. See attend for what the caller may not hold.
func (e *Engine) Deliver(m core.Message, more bool) bool {
	if !e.in.offer(item{in: &core.Recv{Msg: m}}) {
		return false
	}
	e.attend(!more)
	return true
}

// PeerLost tells that messages to a member may be lost.
func (e *Engine) PeerLost(member string) { e.later(item{in: &core.PeerLost{Member: member}}) }

// Drain asks that nothing new is started here.
func (e *Engine) Drain() { e.later(item{in: &core.Drain{}}) }

// Do runs f between two steps of the core, for queries. It fails when ctx or the engine ends first; f is not run then.
func (e *Engine) Do(ctx context.Context, f func(*core.Core)) error {
	done := make(chan struct{})
	var taken atomic.Bool // by the core to run it, or by who gives up
	e.later(item{do: func(c *core.Core) {
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
	case *core.Corrupt:
		e.Fail(fmt.Errorf("%w: a page of the %s of %s, stamp %s, does not match its checksum on member %s: test its memory before you start it again", ErrMemory, x.What, x.Key, x.Stamp, e.cfg.Core.Self))
	case *core.Note:
		e.log.Debug(x.What, "key", x.Key.String(), "peer", x.Peer, "error", x.Text)
	default:
		if e.cfg.Store != nil {
			e.commits.add(x)
			return
		}
		e.release(x, e.toLocal, e.alone)
	}
}

// release carries out an effect once all before it is durable.
func (e *Engine) release(x core.Effect, self func(core.Input), alone bool) {
	switch x := x.(type) {
	case *core.Send:
		if x.Msg.To == e.cfg.Core.Self {
			self(&core.Recv{Msg: x.Msg})
			return
		}
		now := e.Now()
		x.Msg.Sent = core.Time(e.start.UnixNano()) + now
		e.cfg.Send(x.Msg, now, alone)
	case *core.Reply:
		e.calls.answer(x.ID, x.Result)
	case *core.Report:
		e.reports.put(*x)
	}
}
