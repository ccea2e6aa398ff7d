package chainmail

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail/actor"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine"
	"chainmail/engine/core"
	"chainmail/engine/kinds"
	"chainmail/engine/store"
	"chainmail/transport"
)

// Node is one running member.
//
//	goroutine   started by  ended by                   waited for by
//	follow      Start       Close                      Close
//	register    Start       Close                      Close
//	declare     Start       being done, or Close       Close
//	countPins   Start       Close                      Close
//	depart      follow      Close, or being let go     Close
//	guard       Start       Close, or a failure        Close
//	and those of transport, coordinator and engine     Close
type Node struct {
	cfg     Config
	id      string
	addr    string
	inc     uint64
	starts  []uint64 // numbers that starts of it have drawn, this one's last
	log     hclog.Logger
	ctx     context.Context
	stop    context.CancelFunc
	wg      sync.WaitGroup
	ready   chan struct{} // closed when the parts below are there
	started time.Time

	transport *transport.Transport
	coord     *coordinator.Coordinator
	engine    *engine.Engine
	store     store.Store // nil: copies are in memory only
	host      *actor.Host

	identity atomic.Pointer[transport.Identity]
	places   atomic.Pointer[map[string]string] // member -> address
	rings    atomic.Pointer[rings]             // of the placement that Locate was last asked at
	late     lateness
	events   events
	early    earlyAnswers
	bound    string // follow's: the cluster that the store is of

	declared   chan struct{} // closed when all members know the types' replica counts
	undeclared error         // set before declared is closed: another count is in use

	failed      chan struct{} // closed when this member cannot go on
	removed     chan struct{} // closed when the cluster has let this member go
	banned      error         // set before removed is closed: this incarnation was refused
	leaves      chan struct{} // Leave to follow: capacity 1, further ones say nothing new
	departing   atomic.Bool
	lastAsk     atomic.Int64 // engine time at which another member last sent a caller's message here
	removedOnce sync.Once
	closeOnce   sync.Once
	closeErr    error
}

// Start starts a member. It does not wait for the cluster: see Ready and WaitReady. ctx bounds the start alone.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	id, err := cfg.nodeID()
	if err != nil {
		return nil, err
	}
	n := &Node{cfg: cfg, id: id, log: cfg.Logger, ready: make(chan struct{}), failed: make(chan struct{}), removed: make(chan struct{}), leaves: make(chan struct{}, 1), declared: make(chan struct{}), started: time.Now()}
	n.ctx, n.stop = context.WithCancel(context.Background())
	n.events.init()
	n.identity.Store(&transport.Identity{Member: id})
	n.places.Store(&map[string]string{})
	if err := n.open(ctx); err != nil {
		n.Close()
		return nil, fmt.Errorf("start member %s: %w", id, err)
	}
	close(n.ready)
	n.wg.Go(n.follow)
	n.wg.Go(n.register)
	n.wg.Go(n.declare)
	n.wg.Go(n.countPins)
	n.wg.Go(n.guard)
	if cfg.Dev {
		if err := n.coord.Bootstrap(map[string]string{n.id: n.addr}, true); err != nil {
			n.Close()
			return nil, err
		}
		if err := n.WaitReady(ctx); err != nil {
			n.Close()
			return nil, err
		}
	}
	return n, nil
}

// open opens the parts in the order in which they need each other.
func (n *Node) open(ctx context.Context) error {
	start, err := n.openStore(ctx)
	if err != nil {
		return err
	}
	n.inc, n.starts = start.Incarnation, start.Starts
	if err := n.listen(ctx); err != nil {
		return err
	}
	if err := n.openCoordinator(); err != nil {
		return err
	}
	return n.openEngine(start)
}

func (n *Node) listen(ctx context.Context) error {
	l, err := n.cfg.Network.Listen(ctx, n.cfg.BindAddr)
	if err != nil {
		return err
	}
	if n.addr, err = n.cfg.advertised(l); err != nil {
		l.Close()
		return err
	}
	tc := transport.Config{Listener: l, Dial: n.cfg.Network.Dial, Advertise: n.addr, Handler: handler{n}, Logger: n.log,
		Identity: func() transport.Identity { return *n.identity.Load() },
		Diverged: handler{n}.diverged,
		Resolve:  func(m string) (string, bool) { a, ok := (*n.places.Load())[m]; return a, ok }}
	if n.cfg.TLS.CAFile != "" {
		roots, cert, err := n.cfg.TLS.Load()
		if err != nil {
			l.Close()
			return err
		}
		tc.TLS = &transport.TLS{Cluster: n.cfg.ClusterName, Roots: roots, Certificate: cert, AnyRole: n.cfg.TLS.AnyRole}
	}
	n.identity.Store(&transport.Identity{Member: n.id, Incarnation: n.inc})
	if n.transport, err = transport.New(tc); err != nil {
		l.Close()
	}
	return err
}

func (n *Node) openCoordinator() error {
	dir := ""
	if n.cfg.DataDir != "" {
		dir = filepath.Join(n.cfg.DataDir, "raft")
	}
	var err error
	n.coord, err = coordinator.Open(coordinator.Config{
		Self:    membership.Member{ID: n.id, Address: n.addr, HTTP: n.cfg.HTTPAddr, Zone: n.cfg.Zone, Weight: n.cfg.Weight, NonVoter: n.cfg.NonVoter},
		DataDir: dir, Streams: n.transport.RaftLayer(), Requests: requester{n.transport}, ClusterName: n.cfg.ClusterName, Rings: n.cfg.digestOf,
		BootstrapExpect: n.cfg.BootstrapExpect, RetryJoin: n.cfg.RetryJoin, RetryInterval: n.cfg.RetryInterval,
		MaxVoters: n.cfg.Membership.MaxVoters, DownAfter: n.cfg.Membership.DownAfter, RemoveDownAfter: max(n.cfg.Membership.RemoveDownAfter, 0),
		Ring: n.cfg.Ring, Replicas: n.cfg.Replicas, Limits: n.cfg.Transfer,
		Heartbeat: n.cfg.Raft.Heartbeat, CommitTimeout: n.cfg.Raft.CommitTimeout, SnapshotThreshold: n.cfg.Raft.SnapshotThreshold, TrailingLogs: n.cfg.Raft.TrailingLogs, Logger: n.log,
	})
	return err
}

// coreTypes is what the core knows of the types.
func (n *Node) coreTypes() map[string]core.TypeConfig {
	out := map[string]core.TypeConfig{kinds.KV: {Idle: idleAfter}, kinds.Counter: {Idle: idleAfter}}
	for _, t := range n.cfg.Types {
		s := actor.SettingsOf(t)
		out[actor.NameOf(t)] = core.TypeConfig{Idle: max(s.Idle, 0), Local: s.LocalReads, All: s.WriteAll, Mailbox: s.Mailbox, Pipeline: s.Pipeline}
	}
	return out
}

// idleAfter ends activations of the built-in types that nobody has asked for so long; the copies stay.
const idleAfter = 5 * time.Minute

func (n *Node) openEngine(start store.Start) error {
	var err error
	n.host, err = actor.NewHost(actor.HostConfig{Member: n.id, Types: n.cfg.Types, Plain: kinds.Builtin(), Asker: n, Logger: n.log.Named("actor"),
		MaxState: int64(cmp.Or(n.cfg.Limits.State, core.DefaultState)), MaxAnswer: MaxMessage})
	if err != nil {
		return err
	}
	for _, t := range n.cfg.Types {
		if actor.SettingsOf(t).Durable && n.store == nil {
			return fmt.Errorf("actor type %q is durable and member %s has store %q: choose %q or %q", actor.NameOf(t), n.id, StoreMemory, StoreBolt, StorePostgres)
		}
	}
	ec := engine.Config{
		Core: core.Config{Self: n.id, Incarnation: n.inc, Boot: start.Boot, Start: n.startNumber(), Types: n.coreTypes(),
			Limits: core.Limits{Held: n.cfg.Limits.Held, HeldBytes: n.cfg.Limits.HeldBytes, Mailbox: n.cfg.Limits.Mailbox, State: n.cfg.Limits.State}},
		Saved: start.Saved, Runner: n.host, Send: n.send, Report: n.report, WantView: n.wantView, Logger: n.log,
	}
	if n.store != nil {
		ec.Store = n.store
	}
	n.engine, err = engine.Start(ec)
	return err
}

// Close stops the member as it is, without leaving the cluster. It returns within 5 seconds and may be called twice.
func (n *Node) Close() error {
	n.closeOnce.Do(func() {
		n.stop()
		var errs []error
		if n.coord != nil {
			errs = append(errs, n.coord.Close())
		}
		if n.transport != nil {
			errs = append(errs, n.transport.Close())
		}
		n.wg.Wait()
		if n.engine != nil {
			errs = append(errs, n.engine.Close())
		}
		if n.host != nil {
			errs = append(errs, n.host.Close())
		}
		if n.store != nil {
			errs = append(errs, n.store.Close())
		}
		n.events.close()
		n.closeErr = errors.Join(errs...)
	})
	return n.closeErr
}

// ID, Addr and Incarnation say who this member is: Addr is what others dial.
func (n *Node) ID() string { return n.id }

// Addr is described at ID.
func (n *Node) Addr() string { return n.addr }

// Incarnation is described at ID.
func (n *Node) Incarnation() uint64 { return n.inc }

// Coordinator gives the member's part in the log: changes, placements, Raft's state.
func (n *Node) Coordinator() *coordinator.Coordinator { return n.coord }

// Removed is closed when this member was removed from the cluster and has handed over what it held. It can then be closed.
func (n *Node) Removed() <-chan struct{} { return n.removed }

// RemovedError says, once Removed is closed, that this member was not let go in order but refused as one that was removed
// before: ErrRemoved; nil otherwise.
func (n *Node) RemovedError() error { return n.banned }

// guard stops a member that must not go on.
func (n *Node) guard() {
	select {
	case <-n.engine.Failed():
		close(n.failed)
	case <-n.coord.Failed():
		close(n.failed)
		go n.Close() // it waits for this one. A wrong placement sends calls and copies to the wrong members
	case <-n.ctx.Done():
	}
}

// Failed is closed when this member cannot go on: its store has failed or is not its newest state, its memory is damaged, or its
// placement or rings are others than those of the other members. It must be closed. Err says why.
func (n *Node) Failed() <-chan struct{} { return n.failed }

// Err is described at Failed.
func (n *Node) Err() error {
	if err := n.engine.Err(); err != nil {
		return err
	}
	return n.coord.Err()
}
