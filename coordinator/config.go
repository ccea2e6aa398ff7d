package coordinator

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// StreamLayer carries Raft's connections. It tracks and closes them all when it is closed.
type StreamLayer interface {
	Accept() (net.Conn, error)
	Close() error
	Addr() net.Addr
	Dial(addr string, timeout time.Duration) (net.Conn, error)
}

// Requester asks the member at an address. An error that the other side's HandleRequest returned has to match the one
// here under errors.Is (ErrorCode and ErrorOf).
type Requester interface {
	Request(ctx context.Context, addr string, kind uint8, payload []byte) ([]byte, error)
}

// Config is what a Coordinator is made with. Zero durations and counts take the defaults.
type Config struct {
	Self        membership.Member // without incarnation: Register tells it
	DataDir     string            // "": everything in memory, for one process or tests
	Streams     StreamLayer
	Requests    Requester
	ClusterName string // joining another one is refused
	// Rings is the digest of a placement's rings, as this member makes them; nil: 0.
	Rings func(*membership.Placement) uint64

	BootstrapExpect int      // form the cluster when so many members see each other; odd; 0: no
	RetryJoin       []string // addresses to find a cluster at
	RetryInterval   time.Duration
	MaxVoters       int
	DownAfter       time.Duration
	RemoveDownAfter time.Duration // 0: never

	Ring     ring.Params // these three: for the first start only
	Replicas int
	Limits   membership.Limits

	Heartbeat         time.Duration // also the election timeout; default 2 s
	Lease             time.Duration // default 3/4 of Heartbeat
	CommitTimeout     time.Duration // default 50 ms, at most 1/10 of Heartbeat
	SnapshotThreshold uint64
	TrailingLogs      uint64
	Logger            hclog.Logger

	carry func(*raft.NetworkTransport) raft.Transport // for tests: another way for Raft's messages
}

const (
	defaultHeartbeat = 2 * time.Second
	defaultCommit    = 50 * time.Millisecond
	defaultDownAfter = 3 * time.Second
	defaultRetry     = 5 * time.Second
	defaultMaxVoters = 5
	defaultSnapshot  = 8192
	defaultTrailing  = 10240
)

func (c *Config) complete() error {
	if c.Self.ID == "" || c.Self.Address == "" || c.Streams == nil || c.Requests == nil {
		return errors.New("coordinator: a member id, an address, streams and requests are needed")
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.Heartbeat, defaultHeartbeat)
	set(&c.Lease, c.Heartbeat*3/4)
	set(&c.CommitTimeout, min(defaultCommit, c.Heartbeat/10))
	set(&c.DownAfter, defaultDownAfter)
	set(&c.RetryInterval, defaultRetry)
	if c.MaxVoters == 0 {
		c.MaxVoters = defaultMaxVoters
	}
	if c.SnapshotThreshold == 0 {
		c.SnapshotThreshold = defaultSnapshot
	}
	if c.TrailingLogs == 0 {
		c.TrailingLogs = defaultTrailing
	}
	if c.Self.Weight == 0 {
		c.Self.Weight = 1
	}
	if c.Replicas == 0 {
		c.Replicas = 3
	}
	if c.Ring == (ring.Params{}) {
		c.Ring = ring.Params{Hash: ring.HashV1, VNodes: 256}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	// A follower that needs a snapshot while the leader has dropped the logs behind it can livelock (hashicorp/raft#697).
	if c.TrailingLogs < c.SnapshotThreshold {
		return errors.New("coordinator: trailing_logs must not be below snapshot_threshold")
	}
	return nil
}
