package config

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail"
	"chainmail/actor/builtin"
	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// Agent is a configuration that an agent can be started with.
type Agent struct {
	Node             chainmail.Config // without a logger
	HTTPBind         string           // host:port
	LogLevel         hclog.Level
	LogJSON          bool
	LeaveOnTerminate bool
	LeaveTimeout     time.Duration
	Prometheus       bool
	TokenFile        string
}

const heartbeat = 2 * time.Second

// Agent parses the values and refuses what contradicts itself.
func (f *File) Agent() (Agent, error) {
	p := parser{}
	a := Agent{
		Node: chainmail.Config{
			Types:  builtin.Types(),
			NodeID: f.NodeID, ClusterName: f.ClusterName, DataDir: f.DataDir, Zone: f.Zone, Weight: f.Weight,
			BindAddr: net.JoinHostPort(f.BindAddr, strconv.Itoa(f.Ports.Cluster)), Advertise: f.Advertise,
			BootstrapExpect: f.Server.BootstrapExpect, RetryJoin: f.Server.RetryJoin, NonVoter: f.Server.NonVoter,
			RetryInterval: p.duration("server.retry_interval", f.Server.RetryInterval),
			Ring:          ring.Params{Hash: ring.HashV1, VNodes: f.Ring.VNodes}, Replicas: f.Ring.Replicas,
			Membership: chainmail.Membership{
				DownAfter:       p.duration("membership.down_after", f.Membership.DownAfter),
				RemoveDownAfter: p.duration("membership.remove_down_after", f.Membership.RemoveDownAfter),
				MaxVoters:       f.Membership.MaxVoters,
			},
			Raft: chainmail.Raft{Heartbeat: time.Duration(f.Raft.PerformanceMultiplier * float64(heartbeat)),
				SnapshotThreshold: f.Raft.SnapshotThreshold, TrailingLogs: f.Raft.TrailingLogs},
			Limits: chainmail.Limits{Held: f.Limits.HeldMessages, HeldBytes: int(p.size("limits.held_bytes", f.Limits.HeldBytes)),
				Mailbox: f.Limits.Mailbox, State: int(p.size("limits.max_message", f.Limits.MaxMessage))},
			Transfer: membership.Limits{Rate: p.size("transfer.rate_limit", f.Transfer.RateLimit), MaxConcurrent: f.Transfer.MaxConcurrent},
			Store:    f.Store.Backend, StoreDSN: f.Store.DSN,
			TLS: chainmail.TLS{CAFile: f.TLS.CAFile, CertFile: f.TLS.CertFile, KeyFile: f.TLS.KeyFile, AnyRole: !f.TLS.VerifyRole},
		},
		HTTPBind: net.JoinHostPort(f.httpHost(), strconv.Itoa(f.Ports.HTTP)), LogLevel: hclog.LevelFromString(f.LogLevel), LogJSON: f.LogJSON,
		LeaveOnTerminate: f.Membership.LeaveOnTerminate, LeaveTimeout: p.duration("membership.leave_timeout", f.Membership.LeaveTimeout),
		Prometheus: f.Telemetry.Prometheus, TokenFile: f.ACL.TokenFile,
	}
	if a.Node.Membership.RemoveDownAfter == 0 {
		a.Node.Membership.RemoveDownAfter = -1
	}
	if p.err != nil {
		return a, p.err
	}
	if err := f.check(a); err != nil {
		return a, err
	}
	return a, a.Node.Check()
}

// httpHost keeps the API on loopback unless callers are authenticated.
func (f *File) httpHost() string {
	if f.TLS.CAFile != "" || f.ACL.TokenFile != "" {
		return f.BindAddr
	}
	return "127.0.0.1"
}

const (
	minMultiplier, maxMultiplier = 0.05, 10
	maxMessageLimit              = chainmail.MaxMessage // a copy of one key has to fit into one message
)

// check refuses what is wrong by itself or beside another key; chainmail.Config.Check does the rest.
func (f *File) check(a Agent) error {
	m := f.Raft.PerformanceMultiplier
	switch {
	case a.LogLevel == hclog.NoLevel:
		return fmt.Errorf("log_level %q is not known; use trace, debug, info, warn, error or off", f.LogLevel)
	case m < minMultiplier || m > maxMultiplier:
		return fmt.Errorf("raft.performance_multiplier is %v; %v to %v are allowed", m, minMultiplier, maxMultiplier)
	case f.Ports.HTTP < 0 || f.Ports.HTTP > 65535 || f.Ports.Cluster < 0 || f.Ports.Cluster > 65535:
		return fmt.Errorf("ports.http is %d and ports.cluster %d; 0 to 65535 are allowed", f.Ports.HTTP, f.Ports.Cluster)
	case f.Ports.HTTP != 0 && f.Ports.HTTP == f.Ports.Cluster:
		return fmt.Errorf("ports.http and ports.cluster are both %d; they need to differ", f.Ports.HTTP)
	case f.Ring.VNodes < 1 || f.Ring.VNodes > ring.MaxVNodes:
		return fmt.Errorf("ring.vnodes is %d; 1 to %d are allowed", f.Ring.VNodes, ring.MaxVNodes)
	case f.Ring.Replicas < 1:
		return fmt.Errorf("ring.replicas is %d; 1 to %d are allowed", f.Ring.Replicas, ring.MaxReplicas)
	case f.Membership.MaxVoters < 1:
		return fmt.Errorf("membership.max_voters is %d; at least 1 is needed", f.Membership.MaxVoters)
	case f.Limits.HeldMessages < 1 || f.Limits.Mailbox < 1:
		return fmt.Errorf("limits.held_messages is %d and limits.mailbox %d; both need at least 1", f.Limits.HeldMessages, f.Limits.Mailbox)
	case a.Node.Limits.State < 1<<10 || a.Node.Limits.State > maxMessageLimit:
		return fmt.Errorf("limits.max_message is %s; 1KiB to %d bytes are allowed", f.Limits.MaxMessage, maxMessageLimit)
	case a.Node.Membership.DownAfter < a.Node.Raft.Heartbeat:
		return fmt.Errorf("membership.down_after %s is shorter than the heartbeat timeout %s: healthy members would be marked down", a.Node.Membership.DownAfter, a.Node.Raft.Heartbeat)
	case a.Node.RetryInterval <= 0:
		return fmt.Errorf("server.retry_interval is %s; it has to be above 0", f.Server.RetryInterval)
	case f.Membership.LeaveOnTerminate && a.LeaveTimeout <= 0:
		return fmt.Errorf("membership.leave_timeout is %s; with leave_on_terminate it has to be above 0", f.Membership.LeaveTimeout)
	}
	return f.checkAddresses()
}

func (f *File) checkAddresses() error {
	wild := func(host string) bool { ip := net.ParseIP(host); return ip != nil && ip.IsUnspecified() }
	self := f.Advertise
	if host, _, err := net.SplitHostPort(self); err == nil {
		self = host
	}
	if wild(self) {
		return fmt.Errorf("advertise %s is a wildcard: name an address that others can dial", f.Advertise)
	}
	if self == "" && !wild(f.BindAddr) {
		self = f.BindAddr
	} else if self == "" {
		self, _ = os.Hostname()
	}
	others := 0
	for _, a := range f.Server.RetryJoin {
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("server.retry_join has %q: %w; write host:port", a, err)
		}
		if a != net.JoinHostPort(self, strconv.Itoa(f.Ports.Cluster)) {
			others++
		}
	}
	if len(f.Server.RetryJoin) > 0 && others == 0 && f.Server.BootstrapExpect != 1 {
		return fmt.Errorf("server.retry_join holds only this member (%s): name others", f.Server.RetryJoin[0])
	}
	return nil
}

// parser keeps the first error.
type parser struct{ err error }

func (p *parser) duration(key, text string) time.Duration {
	if text == "0" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if (err != nil || d < 0) && p.err == nil {
		p.err = fmt.Errorf("%s is %q; write a duration as 5s, 100ms or 2m", key, text)
	}
	return d
}

func (p *parser) size(key, text string) int64 {
	n, err := ParseSize(text)
	if err != nil && p.err == nil {
		p.err = fmt.Errorf("%s: %w", key, err)
	}
	return n
}

var units = []struct {
	name string
	size int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1}}

// ParseSize reads a number of bytes, as 64MiB, 1.5GB or 4096.
func ParseSize(text string) (int64, error) {
	for _, u := range units {
		num, ok := strings.CutSuffix(strings.TrimSpace(text), u.name)
		if !ok {
			continue
		}
		x, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
		if err != nil || x < 0 || x*float64(u.size) >= 1<<62 {
			break
		}
		return int64(x * float64(u.size)), nil
	}
	return 0, fmt.Errorf("%q is not a size; write 64MiB, 1GB or a number of bytes", text)
}

// FormatSize is the way back from ParseSize, to one decimal.
func FormatSize(n int64) string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; n >= u.size {
			return strings.Replace(fmt.Sprintf("%.1f%s", float64(n)/float64(u.size), u.name), ".0", "", 1)
		}
	}
	return fmt.Sprintf("%dB", n)
}
