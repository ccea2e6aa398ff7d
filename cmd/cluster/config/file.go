// Package config reads the configuration of an agent: a file, or the files of a directory, in HCL. A key that is not
// known, or a value of the wrong kind, is an error with file and line. What contradicts itself is refused with the reason.
package config

// File is a configuration as it is written. Durations and sizes are strings there; Agent parses them.
type File struct {
	NodeID      string `hcl:"node_id,optional" doc:"default: data_dir/node-id, created once"`
	ClusterName string `hcl:"cluster_name,optional" doc:"members of another name are refused"`
	DataDir     string `hcl:"data_dir,optional"`
	LogLevel    string `hcl:"log_level,optional" doc:"trace, debug, info, warn, error or off"`
	LogJSON     bool   `hcl:"log_json,optional"`
	BindAddr    string `hcl:"bind_addr,optional" doc:"of the cluster port; HTTP binds to loopback unless tls or acl is set"`
	Advertise   string `hcl:"advertise,optional" doc:"host name or IP that others dial; default: the host name"`
	Zone        string `hcl:"zone,optional" doc:"replicas prefer distinct zones"`
	Weight      int    `hcl:"weight,optional" doc:"share of ranges"`

	Ports      *Ports      `hcl:"ports,block"`
	Server     *Server     `hcl:"server,block"`
	Raft       *Raft       `hcl:"raft,block"`
	Ring       *Ring       `hcl:"ring,block" doc:"first start of a cluster only; cluster state then"`
	Membership *Membership `hcl:"membership,block"`
	Transfer   *Transfer   `hcl:"transfer,block" doc:"first start of a cluster, and again on SIGHUP: limits are cluster state"`
	Store      *Store      `hcl:"store,block"`
	TLS        *TLS        `hcl:"tls,block" doc:"all three files or none; they are read again at each handshake"`
	ACL        *ACL        `hcl:"acl,block"`
	Telemetry  *Telemetry  `hcl:"telemetry,block"`
	Limits     *Limits     `hcl:"limits,block"`
}

// Ports are the two ports of an agent; 0 takes a free one.
type Ports struct {
	HTTP    int `hcl:"http,optional"`
	Cluster int `hcl:"cluster,optional"`
}

// Server says how the agent finds its cluster.
type Server struct {
	BootstrapExpect int      `hcl:"bootstrap_expect,optional" doc:"form the cluster when so many members see each other; odd; 0: never"`
	RetryJoin       []string `hcl:"retry_join,optional" doc:"host:port of cluster ports"`
	RetryInterval   string   `hcl:"retry_interval,optional"`
	NonVoter        bool     `hcl:"non_voter,optional" doc:"never gets a vote in Raft"`
}

// Raft holds the log's settings.
type Raft struct {
	SnapshotThreshold     uint64  `hcl:"snapshot_threshold,optional" doc:"log entries"`
	TrailingLogs          uint64  `hcl:"trailing_logs,optional" doc:"not below snapshot_threshold"`
	PerformanceMultiplier float64 `hcl:"performance_multiplier,optional" doc:"times 2 s is the heartbeat and election timeout; 0.05 to 10"`
}

// Ring is the shape of the ring.
type Ring struct {
	VNodes   int `hcl:"vnodes,optional" doc:"tokens of a member of weight 1"`
	Replicas int `hcl:"replicas,optional"`
}

// Membership holds the times of failure detection and leaving.
type Membership struct {
	DownAfter        string `hcl:"down_after,optional"`
	RemoveDownAfter  string `hcl:"remove_down_after,optional" doc:"a change removes who is down so long; \"0\": never"`
	MaxVoters        int    `hcl:"max_voters,optional"`
	LeaveOnTerminate bool   `hcl:"leave_on_terminate,optional" doc:"SIGTERM leaves the cluster; without it the process only stops"`
	LeaveTimeout     string `hcl:"leave_timeout,optional"`
}

// Transfer bounds what moves into one member.
type Transfer struct {
	RateLimit     string `hcl:"rate_limit,optional" doc:"bytes a second, as 64MiB; \"0\": no limit"`
	MaxConcurrent int    `hcl:"max_concurrent,optional"`
}

// Store says where copies are kept.
type Store struct {
	Backend string `hcl:"backend,optional" doc:"memory, bbolt (a file in data_dir), or postgres"`
	DSN     string `hcl:"dsn,optional" doc:"of postgres: a URL or key=value pairs; a password is better left to PGPASSFILE"`
}

// TLS names the certificate files.
type TLS struct {
	CAFile     string `hcl:"ca_file,optional"`
	CertFile   string `hcl:"cert_file,optional"`
	KeyFile    string `hcl:"key_file,optional"`
	VerifyRole bool   `hcl:"verify_role,optional" doc:"peers need the role member in their certificate"`
}

// ACL names the token file of the HTTP API.
type ACL struct {
	TokenFile string `hcl:"token_file,optional" doc:"lines of: read TOKEN, operate TOKEN"`
}

// Telemetry says what is measured for whom.
type Telemetry struct {
	Prometheus bool `hcl:"prometheus,optional" doc:"serve /metrics"`
}

// Limits bound what an agent holds for its callers.
type Limits struct {
	MaxMessage   string `hcl:"max_message,optional" doc:"bytes of one key's state, and of a message; at most 8 MiB less 64 KiB"`
	HeldMessages int    `hcl:"held_messages,optional"`
	HeldBytes    string `hcl:"held_bytes,optional"`
	Mailbox      int    `hcl:"mailbox,optional" doc:"messages that wait for one key"`
}

// Default gives the configuration of an empty file.
func Default() *File {
	return &File{
		ClusterName: "default", DataDir: "/var/lib/cluster", LogLevel: "info", BindAddr: "0.0.0.0", Weight: 1,
		Ports:      &Ports{HTTP: 8620, Cluster: 8621},
		Server:     &Server{RetryJoin: []string{}, RetryInterval: "5s"},
		Raft:       &Raft{SnapshotThreshold: 8192, TrailingLogs: 10240, PerformanceMultiplier: 1},
		Ring:       &Ring{VNodes: 256, Replicas: 3},
		Membership: &Membership{DownAfter: "3s", RemoveDownAfter: "5m", MaxVoters: 5, LeaveOnTerminate: true, LeaveTimeout: "30s"},
		Transfer:   &Transfer{RateLimit: "0", MaxConcurrent: 4},
		Store:      &Store{Backend: "bbolt"},
		TLS:        &TLS{VerifyRole: true},
		ACL:        &ACL{},
		Telemetry:  &Telemetry{Prometheus: true},
		Limits:     &Limits{MaxMessage: "4MiB", HeldMessages: 65536, HeldBytes: "64MiB", Mailbox: 1024},
	}
}
