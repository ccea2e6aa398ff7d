package coordinator

import (
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// tap carries a member's messages of Raft and drops what the test wants lost.
type tap struct {
	*raft.NetworkTransport
	fast bool // heartbeats take Raft's fast path

	mu   sync.Mutex
	lose func(to raft.ServerAddress, req any) bool
}

func (t *tap) set(lose func(to raft.ServerAddress, req any) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lose = lose
}

func (t *tap) way(to raft.ServerAddress, req any) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lose != nil && t.lose(to, req) {
		return fmt.Errorf("%T to %s: %w", req, to, errCut)
	}
	return nil
}

func (t *tap) SetHeartbeatHandler(f func(raft.RPC)) {
	if t.fast {
		t.NetworkTransport.SetHeartbeatHandler(f)
	} else {
		serialTransport{NetworkTransport: t.NetworkTransport}.SetHeartbeatHandler(f)
	}
}

func (t *tap) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (t *tap) AppendEntries(id raft.ServerID, to raft.ServerAddress, req *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := t.way(to, req); err != nil {
		return err
	}
	return t.NetworkTransport.AppendEntries(id, to, req, resp)
}

func (t *tap) RequestVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := t.way(to, req); err != nil {
		return err
	}
	return t.NetworkTransport.RequestVote(id, to, req, resp)
}

func (t *tap) RequestPreVote(id raft.ServerID, to raft.ServerAddress, req *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := t.way(to, req); err != nil {
		return err
	}
	return t.NetworkTransport.RequestPreVote(id, to, req, resp)
}

// isHeartbeat is how Raft's transport tells heartbeats from other messages.
func isHeartbeat(req any) bool {
	a, ok := req.(*raft.AppendEntriesRequest)
	return ok && a.Term != 0 && a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// loopback is a StreamLayer over TCP. Names stand for addresses that are looked up at each dial.
type loopback struct {
	net.Listener
	name  string
	names *sync.Map // name -> address

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func (l *loopback) Addr() net.Addr { return address(l.name) }

func (l *loopback) keep(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		c.Close()
		return nil, net.ErrClosed
	}
	l.conns = append(l.conns, c)
	return c, nil
}

func (l *loopback) Accept() (net.Conn, error) { return l.keep(l.Listener.Accept()) }

func (l *loopback) Dial(name string, timeout time.Duration) (net.Conn, error) {
	addr, ok := l.names.Load(name)
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, errCut)
	}
	return l.keep(net.DialTimeout("tcp", addr.(string), timeout))
}

func (l *loopback) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.conns {
		c.Close()
	}
	return l.Listener.Close()
}

// deposed is a cluster over loopback whose leader is deposed in the order of hashicorp/raft#695.
type deposed struct {
	*cluster
	taps map[string]*tap
}

func newDeposed(t *testing.T, fast bool) *deposed {
	d := &deposed{newCluster(t), map[string]*tap{}}
	d.mayFork = fast
	var names sync.Map
	for _, id := range []string{"a", "b", "c"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		names.Store(addrOf(id), l.Addr().String())
		d.start(id, func(cfg *Config) {
			cfg.Heartbeat = 5 * testHeartbeat // the deposed leader's lease must outlast what the test does
			cfg.Streams = &loopback{Listener: l, name: addrOf(id), names: &names}
			cfg.carry = func(nt *raft.NetworkTransport) raft.Transport {
				d.taps[id] = &tap{NetworkTransport: nt, fast: fast}
				return d.taps[id]
			}
		})
	}
	if err := d.members["a"].Bootstrap(voters("a", "b", "c"), false); err != nil {
		t.Fatal(err)
	}
	d.placed("a", "b", "c")
	return d
}

// depose has another member lead without the leader's knowledge, tells the leader so by a heartbeat alone, and gives it a
// command. It says whether the command is in the old leader's log with the new leader's term.
//
// In the field: the leader has given up to hand the leadership over, and its TimeoutNow arrives late. The other one then
// is elected by the third, while the old leader's lease lasts. Its request for a vote and its first entries to the old
// leader are still under way when its heartbeat, on a connection of its own, gets there.
func (d *deposed) depose(rate int64) (old, next *member, written bool) {
	d.t.Helper()
	old = d.leader()
	for _, m := range d.members {
		if m != old {
			next = m
		}
	}
	was := old.raft.CurrentTerm()
	to := raft.ServerAddress(addrOf(old.id))
	for id, t := range d.taps {
		t.set(func(target raft.ServerAddress, req any) bool {
			return id == old.id || target == to && !(id == next.id && isHeartbeat(req))
		})
	}
	defer func() {
		for _, t := range d.taps {
			t.set(nil)
		}
	}()
	var resp raft.TimeoutNowResponse
	late := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(old.id), Addr: []byte(addrOf(old.id))}}
	if err := d.taps[old.id].TimeoutNow(raft.ServerID(next.id), raft.ServerAddress(addrOf(next.id)), late, &resp); err != nil {
		d.t.Fatal(err)
	}
	d.eventually("the old leader has heard of the new one", func() bool { return old.raft.CurrentTerm() > was })
	term := old.raft.CurrentTerm()
	err := old.raft.Apply(entry(d.t, rate).Data, 0).Error()
	last, lerr := old.stores.log.LastIndex()
	if err == nil || lerr != nil {
		d.t.Fatalf("a leader that cannot reach anybody has committed (%v), or its log cannot be read: %v", err, lerr)
	}
	var l raft.Log
	written = old.stores.log.GetLog(last, &l) == nil && l.Term == term && l.Type == raft.LogCommand
	return old, next, written
}

// settle brings a last command to all, and gives whether their states are the same then.
func (d *deposed) settle(rate int64) bool {
	d.t.Helper()
	if err := d.leader().SetLimits(d.ctx, membership.Limits{Rate: rate}); err != nil {
		d.t.Fatal(err)
	}
	last := d.leader().raft.LastIndex()
	d.eventually("all have applied it", func() bool {
		for _, m := range d.members {
			if m.raft.AppliedIndex() < last || m.Placement().Limits.Rate != rate {
				return false
			}
		}
		return true
	})
	digests := map[uint64]bool{}
	for _, m := range d.members {
		digests[membership.Digest(m.Placement())] = true
	}
	return len(digests) == 1
}

const deposeRounds = 5

// TestDeposedLeader deposes leaders in the order of hashicorp/raft#695, over the real network transport: what they are
// told then is not written, and all state machines stay the same.
func TestDeposedLeader(t *testing.T) {
	d := newDeposed(t, false)
	for i := range int64(deposeRounds) {
		if old, next, written := d.depose(1000 + i); written {
			t.Fatalf("%s wrote a command with the term in which %s leads", old.id, next.id)
		}
		if !d.settle(2000 + i) {
			t.Fatal("the state machines differ")
		}
	}
}

// TestFastPathForks shows what serialTransport is for: with heartbeats on the fast path the same order makes the state
// machines differ. When this test fails, Raft has been mended, and serialTransport may go.
func TestFastPathForks(t *testing.T) {
	d := newDeposed(t, true)
	for i := range int64(deposeRounds) {
		// The old leader may notice in time, by its lease.
		if _, _, written := d.depose(1000 + i); written {
			if d.settle(2000 + i) {
				t.Error("a command was written with another leader's term, and yet the state machines are the same")
			}
			return
		}
		d.settle(2000 + i)
	}
	t.Errorf("no deposed leader wrote anything in %d rounds", deposeRounds)
}
