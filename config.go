package chainmail

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail/actor"
	"chainmail/coordinator/membership"
	"chainmail/ring"
	"chainmail/transport"
)

// Config is what a Node is made with. The zero value of a field takes the default named there.
type Config struct {
	NodeID      string // default: the file node-id in DataDir, created once
	ClusterName string // default "default"; members of another one are refused
	DataDir     string // "": nothing is kept on disk
	BindAddr    string // host:port of the transport; default 127.0.0.1:8621
	Advertise   string // host or host:port that others dial; default: the bound address
	HTTPAddr    string // host:port that is announced for the HTTP API; this package does not serve it
	Zone        string // replicas prefer distinct zones
	Weight      int    // share of ranges; default 1
	Dev         bool   // one member that forms its own cluster, in memory, on a free port

	BootstrapExpect int      // form the cluster when so many members see each other; odd
	RetryJoin       []string // transport addresses, host:port, to find the cluster at
	RetryInterval   time.Duration
	NonVoter        bool

	Ring     ring.Params // first start of a cluster only; default 256 virtual nodes
	Replicas int         // likewise; default 3

	Types []actor.Registered // actor types that the application defines; the same ones on every member

	Membership Membership
	Raft       Raft
	Limits     Limits
	Transfer   membership.Limits // first start of a cluster only
	Store      string            // "memory", "bbolt" or "postgres"; default "bbolt" with a DataDir, else "memory"
	StoreDSN   string            // of a PostgreSQL database: a URL or key=value pairs, as for libpq
	TLS        TLS
	Network    Network      // default: TCP
	Logger     hclog.Logger // default: nothing is logged
	// BeforeGoing is called once when this member was removed from the ring and has handed everything over: stop taking
	// requests then. When it returns the cluster lets the member go, and its calls are not answered any more.
	BeforeGoing func(context.Context)

	digestOf func(*membership.Placement) uint64 // of a placement's rings; tests set another one
}

// Network is how a member listens and how it reaches the others: all that it sends goes through its connections. Addresses
// are host:port. Package chainmailtest has one in memory, whose faults tests make.
type Network interface {
	Listen(ctx context.Context, addr string) (net.Listener, error)
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// tcp is the default Network.
type tcp struct{}

func (tcp) Listen(ctx context.Context, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", addr)
}

func (tcp) Dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", addr)
}

// Membership holds the times of failure detection and leaving.
type Membership struct {
	DownAfter       time.Duration // default 3 s
	RemoveDownAfter time.Duration // default 5 min; negative: never
	MaxVoters       int           // default 5
}

// Raft holds the log's settings.
type Raft struct {
	Heartbeat         time.Duration // also the election timeout; default 2 s
	CommitTimeout     time.Duration // what was committed is known everywhere so soon; default 50 ms, less with fast heartbeats
	SnapshotThreshold uint64        // default 8192
	TrailingLogs      uint64        // default 10240; not below SnapshotThreshold
}

// Limits bound what one member holds for its callers.
type Limits struct {
	Held      int // messages that wait for their key; default 65536
	HeldBytes int // default 64 MiB
	Mailbox   int // for one key; default 1024
	State     int // bytes of one key, 24 more for each page (field, entry, block), and of a message; default 4 MiB, at most MaxMessage
}

// MaxMessage bounds the bytes of a message, of an answer, and of a key: they travel in one frame each, which holds the key, the method and who waits for the answer too. It holds on the member that has the key likewise.
const MaxMessage = transport.MaxPayload - 64<<10

// TLS names the files of a member's certificate. All empty: plain TCP.
type TLS struct {
	CAFile, CertFile, KeyFile string
	AnyRole                   bool // accept certificates of the CA without a role
}

// Names of the stores.
const (
	StoreMemory   = "memory"   // also "none"
	StoreBolt     = "bbolt"    // also "bolt": a file in DataDir
	StorePostgres = "postgres" // a schema of its own for each member in the database of StoreDSN
)

const (
	defaultBind = "127.0.0.1:8621"
	nodeIDFile  = "node-id"
)

// complete fills in defaults and refuses what contradicts itself.
func (c *Config) complete() error {
	if c.digestOf == nil {
		c.digestOf = new(ringDigests).of
	}
	if c.Dev {
		if c.DataDir != "" || len(c.RetryJoin) > 0 || c.BootstrapExpect > 0 {
			return errors.New("config: dev runs one member in memory; leave data_dir, retry_join and bootstrap_expect out")
		}
		if c.BindAddr == "" {
			c.BindAddr = "127.0.0.1:0"
		}
		if c.Raft.Heartbeat == 0 {
			c.Raft.Heartbeat = 100 * time.Millisecond
		}
	}
	def := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	def(&c.ClusterName, "default")
	def(&c.BindAddr, defaultBind)
	if c.Store == "" {
		c.Store = StoreMemory
		if c.DataDir != "" {
			c.Store = StoreBolt
		}
	}
	if name := storeName(c.Store); name != "" {
		c.Store = name
	}
	if c.Weight == 0 {
		c.Weight = 1
	}
	if c.Membership.RemoveDownAfter == 0 {
		c.Membership.RemoveDownAfter = 5 * time.Minute
	}
	if c.Network == nil {
		c.Network = tcp{}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c.Check()
}

// Check refuses settings that contradict themselves, before anything is started.
func (c *Config) Check() error {
	bad := func(format string, args ...any) error { return fmt.Errorf("config: "+format, args...) }
	switch {
	case c.Store != "" && storeName(c.Store) == "":
		return bad("store %q is not known; use %q, %q or %q", c.Store, StoreMemory, StoreBolt, StorePostgres)
	case (storeName(c.Store) == StoreBolt || c.Store == StorePostgres) && c.DataDir == "":
		return bad("store %q needs a data_dir: the log of the cluster is kept there", c.Store)
	case (c.Store == StorePostgres) != (c.StoreDSN != ""):
		return bad("store %q and a dsn need each other", StorePostgres)
	case c.BootstrapExpect < 0 || c.BootstrapExpect > 0 && c.BootstrapExpect%2 == 0:
		return bad("bootstrap_expect is %d; use an odd number of voters, or 0", c.BootstrapExpect)
	case c.BootstrapExpect > 1 && len(c.RetryJoin) == 0:
		return bad("bootstrap_expect is %d but retry_join is empty: the members would never see each other", c.BootstrapExpect)
	case c.Raft.TrailingLogs != 0 && c.Raft.TrailingLogs < c.Raft.SnapshotThreshold:
		return bad("trailing_logs %d is below snapshot_threshold %d", c.Raft.TrailingLogs, c.Raft.SnapshotThreshold)
	case c.Weight < 1 || c.Weight > ring.MaxWeight:
		return bad("weight is %d; 1 to %d are allowed", c.Weight, ring.MaxWeight)
	case c.Replicas < 0 || c.Replicas > ring.MaxReplicas:
		return bad("replicas is %d; 1 to %d are allowed", c.Replicas, ring.MaxReplicas)
	case min(c.Limits.Held, c.Limits.HeldBytes, c.Limits.Mailbox, c.Limits.State) < 0:
		return bad("limits are held %d, held bytes %d, mailbox %d, state %d: none is below 0", c.Limits.Held, c.Limits.HeldBytes, c.Limits.Mailbox, c.Limits.State)
	case c.Limits.State > MaxMessage:
		return bad("the limit of a state is %d bytes; at most %d are allowed: all of it has to fit one message between members", c.Limits.State, MaxMessage)
	case c.Membership.RemoveDownAfter > 0 && c.Membership.RemoveDownAfter < c.Membership.DownAfter:
		return bad("remove_down_after %s is below down_after %s", c.Membership.RemoveDownAfter, c.Membership.DownAfter)
	}
	for _, a := range c.RetryJoin {
		host, port, err := net.SplitHostPort(a)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || host == "" || n == 0 {
			return bad("retry_join has %q; write host:port", a)
		}
	}
	for _, t := range c.Types {
		if err := actor.Check(t); err != nil {
			return err
		}
	}
	if n := c.TLS; (n.CAFile == "") != (n.CertFile == "") || (n.CertFile == "") != (n.KeyFile == "") {
		return bad("tls needs ca_file, cert_file and key_file together")
	}
	return nil
}

// storeName gives the name of a store for all its names, "" for none of them.
func storeName(s string) string {
	switch s {
	case StoreMemory, "none":
		return StoreMemory
	case StoreBolt, "bolt":
		return StoreBolt
	case StorePostgres:
		return s
	}
	return ""
}

// nodeID reads or creates the member's id.
func (c *Config) nodeID() (string, error) {
	if c.NodeID != "" {
		if strings.ContainsAny(c.NodeID, "/\x00 \t\n") || len(c.NodeID) > 64 {
			return "", fmt.Errorf("config: node_id %q: at most 64 bytes without blanks and slashes are allowed", c.NodeID)
		}
		return c.NodeID, nil
	}
	var b [6]byte
	rand.Read(b[:])
	id := "n-" + hex.EncodeToString(b[:])
	if c.DataDir == "" {
		return id, nil
	}
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(c.DataDir, nodeIDFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, os.ErrExist) {
		old, err := os.ReadFile(path)
		return strings.TrimSpace(string(old)), err
	}
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(id + "\n")
	return id, errors.Join(err, f.Sync(), f.Close())
}

// advertised gives the address that others dial.
func (c *Config) advertised(l net.Listener) (string, error) {
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	adv := c.Advertise
	if adv == "" {
		host, _, err := net.SplitHostPort(c.BindAddr)
		if err != nil {
			return "", err
		}
		if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
			if host, err = os.Hostname(); err != nil {
				return "", err
			}
		}
		adv = host
	}
	if host, _, err := net.SplitHostPort(adv); err == nil {
		adv = host
		_, port, _ = net.SplitHostPort(c.Advertise)
	}
	if ip := net.ParseIP(adv); ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("config: advertise %s is a wildcard: name an address that others can dial", adv)
	}
	return net.JoinHostPort(adv, port), nil
}

// Load reads the certificate files: the CA's, and a function that reads the member's again at each handshake, so that
// renewed ones are used.
func (t TLS) Load() (roots *x509.CertPool, cert func() (*tls.Certificate, error), err error) {
	pem, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, nil, err
	}
	roots = x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("config: %s holds no certificate", t.CAFile)
	}
	cert = func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		return &c, err
	}
	_, err = cert()
	return roots, cert, err
}
