package coordinator

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// serialTransport keeps heartbeats off Raft's fast path. There they are answered outside the main loop, and a leader of
// an old term can then write with the new leader's term (hashicorp/raft#695): two state machines part.
type serialTransport struct {
	*raft.NetworkTransport
	rpcs <-chan raft.RPC // those that the gate lets through; nil: all
}

// Consumer gives what other members send.
func (t serialTransport) Consumer() <-chan raft.RPC {
	if t.rpcs != nil {
		return t.rpcs
	}
	return t.NetworkTransport.Consumer()
}

// SetHeartbeatHandler drops the handler: heartbeats go the way of all other messages.
func (serialTransport) SetHeartbeatHandler(func(raft.RPC)) {}

// layer adapts a StreamLayer to Raft's address type.
type layer struct{ StreamLayer }

func (l layer) Dial(addr raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return l.StreamLayer.Dial(string(addr), timeout)
}

const (
	maxPool        = 3
	formedFile     = "formed" // present once this member has been part of a cluster
	rpcTimeoutMost = 5 * time.Second
)

// startRaft starts Raft on the stores.
func (c *Coordinator) startRaft() error {
	cfg := raft.DefaultConfig()
	cfg.LocalID = raft.ServerID(c.cfg.Self.ID)
	cfg.HeartbeatTimeout, cfg.ElectionTimeout, cfg.LeaderLeaseTimeout = c.cfg.Heartbeat, c.cfg.Heartbeat, c.cfg.Lease
	cfg.CommitTimeout = c.cfg.CommitTimeout
	cfg.SnapshotThreshold, cfg.TrailingLogs = c.cfg.SnapshotThreshold, c.cfg.TrailingLogs
	cfg.ShutdownOnRemove = false
	cfg.NoLegacyTelemetry = true
	cfg.Logger = c.log.Named("raft")
	c.netTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: layer{c.cfg.Streams}, MaxPool: maxPool, Timeout: min(c.cfg.Heartbeat, rpcTimeoutMost), Logger: cfg.Logger, MsgpackUseNewTimeFormat: true,
	})
	has, err := raft.HasExistingState(c.stores.log, c.stores.stable, c.stores.snaps)
	if err != nil {
		return err
	}
	if !has && c.formedBefore() {
		return fmt.Errorf("member %s, data directory %s: %w; give it a new id and an empty directory, and let it join", c.cfg.Self.ID, c.cfg.DataDir, ErrWiped)
	}
	c.gate = newGate(has)
	serial := serialTransport{NetworkTransport: c.netTransport}
	if !has {
		serial.rpcs = c.gate.guard(c.netTransport.Consumer(), c.ended)
	}
	var carrier raft.Transport = serial
	if c.cfg.carry != nil {
		carrier = c.cfg.carry(c.netTransport)
	}
	r, err := raft.NewRaft(cfg, c.fsm, c.stores.log, c.stores.stable, c.stores.snaps, carrier)
	if err != nil {
		return err
	}
	c.raft, c.hadState = r, has
	return nil
}

func (c *Coordinator) formedBefore() bool {
	if c.cfg.DataDir == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(c.cfg.DataDir, formedFile))
	return err == nil
}

// noteFormed leaves the mark that this member has been part of a cluster: if its Raft state is then missing, it must
// not form a second one or vote again.
func (c *Coordinator) noteFormed(p *membership.Placement) error {
	if c.cfg.DataDir == "" || p.ClusterID == "" || c.formedBefore() {
		return nil
	}
	return os.WriteFile(filepath.Join(c.cfg.DataDir, formedFile), []byte(p.ClusterID+"\n"), 0o600)
}
