package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// Coordinator is one member's part in the log.
//
//	goroutine           started by  ended by              waited for by
//	Raft's own          Open        Close                 Close
//	leader loop         Open        Close                 Close
//	join loop           Open        Close, or success     Close
//	gate                Open        Close                 nobody: it ends at once
//	observations        Open        Close                 Close
//	comparison          Open        Close, or a failure   Close
type Coordinator struct {
	cfg    Config
	log    hclog.Logger
	fsm    *fsm
	stores *stores
	raft   *raft.Raft
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup

	netTransport *raft.NetworkTransport
	gate         *gate
	ended        chan struct{} // closed when Raft has stopped, or was not started
	hadState     bool
	nudge        chan struct{}
	health       health
	votes        votes
	alone        alone
	notReady     uint64 // the leader loop's: revision that waits for reports

	formMu sync.Mutex               // one bootstrap at a time
	sees   atomic.Pointer[[]string] // who was there at the last look for a cluster
	askMu  sync.Mutex               // held when ctx ends
	asking sync.WaitGroup           // those who wait for an answer of Raft

	suspect  chan uint64 // capacity 1: a revision at which another member has another placement
	failOnce sync.Once
	failed   chan struct{}
	failure  error // set before failed is closed

	closeOnce sync.Once
	closeErr  error
}

// Open starts the member's Raft node, with what its data directory holds. If it has no state it waits to be
// bootstrapped or to join.
func Open(cfg Config) (*Coordinator, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Coordinator{cfg: cfg, log: cfg.Logger.Named("coordinator"), fsm: newFSM(), nudge: make(chan struct{}, 1),
		ended: make(chan struct{}), suspect: make(chan uint64, 1), failed: make(chan struct{})}
	c.ctx, c.stop = context.WithCancel(context.Background())
	var err error
	if c.stores, err = openStores(cfg.DataDir, cfg.Self.ID, c.log); err != nil {
		return nil, err
	}
	if err := c.startRaft(); err != nil {
		close(c.ended)
		if c.netTransport != nil {
			c.netTransport.Close()
		}
		c.stores.close.Close()
		return nil, err
	}
	c.health.init(c)
	c.wg.Go(c.lead)
	c.wg.Go(c.compare)
	if !c.hadState {
		c.wg.Go(c.findCluster)
	}
	return c, nil
}

// How long Raft may take to answer and to stop. With half a heartbeat to hand the leadership over, Close stays below 5
// seconds with the default heartbeat.
const (
	answerLimit   = 1800 * time.Millisecond
	shutdownLimit = 2 * time.Second
)

// Close stops everything. It returns within 5 seconds whatever the state of the others.
func (c *Coordinator) Close() error {
	c.closeOnce.Do(func() {
		if c.raft.State() == raft.Leader {
			c.handLeadershipOver()
		}
		c.lastAnswers()
		f := c.raft.Shutdown()
		c.netTransport.Close()
		c.cfg.Streams.Close()
		done := make(chan error, 1)
		go func() { done <- f.Error() }()
		select {
		case c.closeErr = <-done:
		case <-time.After(shutdownLimit):
			c.log.Warn("raft did not stop in time", "member", c.cfg.Self.ID)
		}
		close(c.ended)
		c.health.close()
		c.wg.Wait()
		if err := c.stores.close.Close(); c.closeErr == nil {
			c.closeErr = err
		}
	})
	return c.closeErr
}

// handLeadershipOver gives another voter a short time to take over, so that the others need not wait for a timeout.
func (c *Coordinator) handLeadershipOver() {
	if c.otherVoters() == 0 {
		return
	}
	done := make(chan struct{})
	go func() { c.TransferLeadership(); close(done) }()
	select {
	case <-done:
	case <-time.After(c.cfg.Heartbeat / 2):
	}
}

func (c *Coordinator) servers() []raft.Server {
	f := c.raft.GetConfiguration()
	if f.Error() != nil {
		return nil
	}
	return f.Configuration().Servers
}

func (c *Coordinator) otherVoters() int {
	n := 0
	for _, s := range c.servers() {
		if s.Suffrage == raft.Voter && string(s.ID) != c.cfg.Self.ID {
			n++
		}
	}
	return n
}

// Placement is the newest placement that this member has applied; before the cluster is formed it is empty. It must not
// be changed.
func (c *Coordinator) Placement() *membership.Placement { return c.fsm.p.Load() }

// Watch gives placements as they change, beginning with the present one.
func (c *Coordinator) Watch() *Watcher { return c.fsm.watch() }

// Server is one server of the Raft group.
type Server struct {
	ID      string `json:"id"`
	Address string `json:"address"`
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
}

// Status is the state of this member's Raft node.
type Status struct {
	Member      string        `json:"member"`
	ClusterName string        `json:"cluster_name"`
	ClusterID   string        `json:"cluster_id"`
	State       string        `json:"state"` // follower, candidate, leader, shutdown
	LeaderID    string        `json:"leader_id"`
	LeaderAddr  string        `json:"leader_address"`
	LastIndex   uint64        `json:"last_index"`
	Applied     uint64        `json:"applied_index"`
	Term        uint64        `json:"term"`
	HasState    bool          `json:"has_state"`
	LastContact time.Duration `json:"last_contact_ns"` // since the leader was heard; 0 on the leader
	Servers     []Server      `json:"servers"`
	Version     uint64        `json:"version"`
	Revision    uint64        `json:"revision"`
	Expects     int           `json:"bootstrap_expect"`
	Sees        []string      `json:"sees,omitempty"` // those who expect as many first members, while no cluster is found
}

// Status gives the present state.
func (c *Coordinator) Status() Status {
	addr, id := c.raft.LeaderWithID()
	p := c.Placement()
	s := Status{Member: c.cfg.Self.ID, ClusterName: c.cfg.ClusterName, ClusterID: p.ClusterID, State: stateName(c.raft.State()), LeaderID: string(id), LeaderAddr: string(addr),
		LastIndex: c.raft.LastIndex(), Applied: c.raft.AppliedIndex(), Term: c.raft.CurrentTerm(), HasState: c.raft.LastIndex() > 0, Version: p.Version, Revision: p.Revision, Expects: c.cfg.BootstrapExpect}
	if sees := c.sees.Load(); sees != nil && !s.HasState {
		s.Sees = *sees
	}
	if last := c.raft.LastContact(); !last.IsZero() && s.State != "leader" {
		s.LastContact = time.Since(last)
	}
	for _, v := range c.servers() {
		s.Servers = append(s.Servers, Server{string(v.ID), string(v.Address), v.Suffrage == raft.Voter, v.ID == id})
	}
	return s
}

func stateName(s raft.RaftState) string {
	return map[raft.RaftState]string{raft.Follower: "follower", raft.Candidate: "candidate", raft.Leader: "leader", raft.Shutdown: "shutdown"}[s]
}

// IsLeader says whether this member leads.
func (c *Coordinator) IsLeader() bool { return c.raft.State() == raft.Leader }

// Led says whether this member knows of a leader, or is it.
func (c *Coordinator) Led() bool {
	addr, _ := c.raft.LeaderWithID()
	return addr != ""
}

// TransferLeadership gives the leadership to another voter.
func (c *Coordinator) TransferLeadership() error {
	if !c.IsLeader() {
		return ErrNotLeader
	}
	return c.ask(func() error { return c.raft.LeadershipTransfer().Error() })
}
