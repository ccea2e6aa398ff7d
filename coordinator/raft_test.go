package coordinator

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

var (
	_ raft.ConfigurationStore = (*fsm)(nil) // else a quiet cluster cannot take a snapshot after a change of its servers
	_ raft.WithPreVote        = serialTransport{}
	_ raft.WithClose          = serialTransport{}
)

// rogue is a transport that sends what a leader would send.
func (c *cluster) rogue() *raft.NetworkTransport {
	h := c.net.host("rogue")
	t := raft.NewNetworkTransport(layer{h}, 1, testHeartbeat, io.Discard)
	c.t.Cleanup(func() { t.Close(); h.Close() })
	return t
}

func heartbeat(term uint64) *raft.AppendEntriesRequest {
	return &raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte("rogue"), Addr: []byte("rogue")}, Term: term}
}

// TestHeartbeatsWait holds that a heartbeat comes out where all other messages do, although Raft has set a handler for it.
func TestHeartbeatsWait(t *testing.T) {
	c := newCluster(t)
	h := c.net.host("target")
	target := raft.NewNetworkTransport(layer{h}, 1, testHeartbeat, io.Discard)
	defer target.Close()
	serialTransport{NetworkTransport: target}.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat took the fast path") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case rpc := <-target.Consumer():
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
		case <-time.After(patience):
			t.Error("no heartbeat came out")
		}
	}()
	var resp raft.AppendEntriesResponse
	if err := c.rogue().AppendEntries("target", "target", heartbeat(7), &resp); err != nil || !resp.Success {
		t.Errorf("heartbeat: %+v, %v", resp, err)
	}
	<-done
}

// TestNewTermBesideWrites sends a leader that writes all the time heartbeats of newer terms (hashicorp/raft#695). On the fast
// path the term would change under the loop that writes the log, and the old leader would write entries of a term that
// another leads.
func TestNewTermBesideWrites(t *testing.T) {
	c := founded(t, "a")
	a := c.members["a"]
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				b, err := membership.Encode(membership.Command{Limits: &membership.LimitsCommand{Limits: membership.Limits{Rate: int64(i<<20 + n)}}})
				if err != nil {
					t.Error(err)
					return
				}
				if a.raft.Apply(b, testHeartbeat).Error() != nil {
					a.sleep(c.ctx, time.Millisecond)
				}
			}
		})
	}
	rogue := c.rogue()
	stolen := map[uint64]bool{}
	for range 10 {
		c.leader()
		term := a.raft.CurrentTerm() + 5
		stolen[term] = true
		var resp raft.AppendEntriesResponse
		if err := rogue.AppendEntries("a", raft.ServerAddress(addrOf("a")), heartbeat(term), &resp); err != nil {
			t.Fatal(err)
		}
		if a.raft.CurrentTerm() < term {
			t.Fatalf("term is %d after a heartbeat of term %d", a.raft.CurrentTerm(), term)
		}
	}
	c.leader()
	close(stop)
	wg.Wait()
	last, err := a.stores.log.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= last; i++ {
		var l raft.Log
		if err := a.stores.log.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		if stolen[l.Term] {
			t.Fatalf("entry %d was written with term %d, in which another led", i, l.Term)
		}
	}
}

// TestSnapshotAfterServersChanged has a quiet member take snapshots, directly after its servers changed too.
func TestSnapshotAfterServersChanged(t *testing.T) {
	c := founded(t, "a")
	a := c.members["a"]
	if err := a.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if err := a.raft.AddNonvoter("x", "x.test:1", 0, 0).Error(); err != nil {
		t.Fatal(err)
	}
	if err := a.raft.Snapshot().Error(); err != nil {
		t.Errorf("snapshot after the servers changed: %v", err)
	}
	list, err := a.stores.snaps.List()
	if err != nil || len(list) == 0 || len(list[0].Configuration.Servers) != 2 {
		t.Errorf("newest snapshot %+v, %v", list, err)
	}
}

// TestSnapshotReachesNewMember has a member join when the log's beginning is gone.
func TestSnapshotReachesNewMember(t *testing.T) {
	c := newCluster(t)
	short := func(cfg *Config) { cfg.SnapshotThreshold, cfg.TrailingLogs = 1, 1 }
	a := c.start("a", short)
	if err := a.Bootstrap(voters("a"), false); err != nil {
		t.Fatal(err)
	}
	c.placed("a")
	for i := range 20 {
		if err := a.SetLimits(c.ctx, membership.Limits{Rate: int64(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	if first, err := a.stores.log.FirstIndex(); err != nil || first < 10 {
		t.Fatalf("the log begins at %d, %v", first, err)
	}
	c.join("d")
	c.submit(c.members["d"], ChangeRequest{Add: []string{"d"}})
	c.placed("a", "d")
	if p := c.members["d"].Placement(); p.Limits.Rate != 20 {
		t.Errorf("limits of the new member: %+v", p.Limits)
	}
}

// TestRepairLog starts a member whose log has another term than the newest snapshot at the snapshot's index: Raft would
// take the same snapshot again and again (hashicorp/raft#697).
func TestRepairLog(t *testing.T) {
	dir := t.TempDir()
	c := newCluster(t)
	kept := func(cfg *Config) { cfg.DataDir = dir }
	a := c.start("a", kept)
	if err := a.Bootstrap(voters("a"), false); err != nil {
		t.Fatal(err)
	}
	c.placed("a")
	if err := a.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	list, err := a.stores.snaps.List()
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	snap := *list[0]
	if err := a.SetLimits(c.ctx, membership.Limits{Rate: 7}); err != nil {
		t.Fatal(err)
	}
	a.close()

	edit := func(f func(checkedStore)) {
		t.Helper()
		db, err := openBolt(filepath.Join(dir, raftFile))
		if err != nil {
			t.Fatal(err)
		}
		f(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a = c.start("a", kept) // a log that agrees is left alone
	c.eventually("the log is replayed", func() bool { return a.Placement().Limits.Rate == 7 })
	a.close()
	edit(func(db checkedStore) {
		var l raft.Log
		if err := db.GetLog(snap.Index, &l); err != nil {
			t.Fatal(err)
		}
		l.Term += 3
		if err := errors.Join(db.SetUint64([]byte("CurrentTerm"), l.Term), db.StoreLog(&l)); err != nil {
			t.Fatal(err)
		}
	})
	c.mu.Lock()
	clear(c.digests) // what follows the snapshot is another log now
	c.mu.Unlock()
	a = c.start("a", kept)
	c.placed("a")
	if rate := a.Placement().Limits.Rate; rate != 0 {
		t.Errorf("an entry behind the conflict came back: rate %d", rate)
	}
	var l raft.Log
	if err := a.stores.log.GetLog(snap.Index, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("the conflicting entry: %+v, %v", l, err)
	}
	if err := a.SetLimits(c.ctx, membership.Limits{Rate: 8}); err != nil {
		t.Errorf("the repaired member takes nothing: %v", err)
	}
}

func TestRepairLogUnits(t *testing.T) {
	t.Parallel()
	for name, x := range map[string]struct {
		from, to uint64 // entries of the log
		term     uint64 // of all entries
		snap     uint64 // index of the snapshot of term 2; 0: none
		left     uint64 // last index after the repair
	}{
		"no snapshot":               {1, 9, 2, 0, 9},
		"agrees":                    {1, 9, 2, 5, 9},
		"other term":                {1, 9, 3, 5, 0},
		"other term at the end":     {1, 5, 1, 5, 0},
		"log begins after":          {6, 9, 3, 5, 9},
		"log ends before":           {1, 4, 1, 5, 4},
		"empty":                     {1, 0, 0, 5, 0},
		"other term, cut beginning": {4, 9, 3, 5, 0},
	} {
		log, snaps := raft.NewInmemStore(), raft.NewInmemSnapshotStore()
		for i := x.from; i <= x.to; i++ {
			if err := log.StoreLog(&raft.Log{Index: i, Term: x.term}); err != nil {
				t.Fatal(err)
			}
		}
		if x.snap > 0 {
			sink, err := snaps.Create(1, x.snap, 2, raft.Configuration{}, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			sink.Close()
		}
		if err := repairLog(log, listed{snaps, x.snap > 0}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if last, err := log.LastIndex(); err != nil || last != x.left {
			t.Errorf("%s: the log ends at %d, not %d; %v", name, last, x.left, err)
		}
	}
}

// listed is a snapshot store that may have none: the one in memory always lists one.
type listed struct {
	raft.SnapshotStore
	any bool
}

func (l listed) List() ([]*raft.SnapshotMeta, error) {
	if !l.any {
		return nil, nil
	}
	return l.SnapshotStore.List()
}

// entry is a log entry with a new transfer rate.
func entry(t *testing.T, rate int64) *raft.Log {
	t.Helper()
	b, err := membership.Encode(membership.Command{Limits: &membership.LimitsCommand{Limits: membership.Limits{Rate: rate}}})
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Data: b}
}

func formedFSM(t *testing.T) *fsm {
	t.Helper()
	f := newFSM()
	f.set(&membership.Placement{ClusterID: "c1"})
	return f
}

func TestWatchIsLatestWins(t *testing.T) {
	t.Parallel()
	f := formedFSM(t)
	slow, gone := f.watch(), f.watch()
	gone.Close()
	gone.Close()
	for i := range int64(1000) { // nobody reads: this must not wait
		f.Apply(entry(t, i+1))
	}
	if p := <-slow.C(); p.Limits.Rate != 1000 {
		t.Errorf("the watcher gets rate %d, the newest is 1000", p.Limits.Rate)
	}
	select {
	case p := <-slow.C():
		t.Errorf("an older placement was kept: %s", p)
	default:
	}
	if f.Apply(entry(t, 1000)).(membership.Result).Code != membership.Unchanged {
		t.Error("the same limits are a change")
	}
	select {
	case p := <-slow.C():
		t.Errorf("told of nothing new: %s", p)
	default:
	}
	if p := <-f.watch().C(); p.Limits.Rate != 1000 {
		t.Errorf("a new watcher begins with rate %d", p.Limits.Rate)
	}
	if p := <-gone.C(); p.Limits.Rate != 0 {
		t.Errorf("a closed watcher was told of rate %d", p.Limits.Rate)
	}
}

// TestWatchersComeAndGo reads, opens and closes watchers while entries are applied: each sees revisions that only grow,
// and the last one.
func TestWatchersComeAndGo(t *testing.T) {
	t.Parallel()
	f := formedFSM(t)
	const last = 3000
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			w := f.watch()
			defer func() { w.Close() }()
			var rev uint64
			for n := 0; rev < last; n++ {
				p := <-w.C()
				if p.Revision < rev {
					t.Errorf("revision %d after %d", p.Revision, rev)
					return
				}
				if rev = p.Revision; n%10 == 9 {
					w.Close()
					w = f.watch()
				}
			}
		})
	}
	for i := range int64(last) {
		f.Apply(entry(t, i+1))
	}
	wg.Wait()
}

func TestUnreadableEntryStops(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("an entry that cannot be read was passed over")
		}
	}()
	newFSM().Apply(&raft.Log{Index: 7, Data: []byte{99}})
}

// sink keeps a snapshot.
type sink struct {
	bytes.Buffer
	fail, cancelled bool
}

func (s *sink) Write(b []byte) (int, error) {
	if s.fail {
		return 0, errors.New("disk is full")
	}
	return s.Buffer.Write(b)
}
func (*sink) ID() string      { return "test" }
func (*sink) Close() error    { return nil }
func (s *sink) Cancel() error { s.cancelled = true; return nil }

func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	f := formedFSM(t)
	f.Apply(entry(t, 5))
	snap, err := f.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	f.Apply(entry(t, 6)) // after the snapshot was taken, before it is written
	var s sink
	if err := snap.Persist(&s); err != nil {
		t.Fatal(err)
	}
	snap.Release()
	g := newFSM()
	w := g.watch()
	<-w.C()
	if err := g.Restore(io.NopCloser(bytes.NewReader(s.Bytes()))); err != nil {
		t.Fatal(err)
	}
	if p := <-w.C(); p.Limits.Rate != 5 {
		t.Errorf("restored rate %d", p.Limits.Rate)
	}
	if err := g.Restore(io.NopCloser(bytes.NewReader(s.Bytes()[:40]))); !errors.Is(err, membership.ErrShort) || g.p.Load().Limits.Rate != 5 {
		t.Errorf("half a snapshot: %v", err)
	}
	full := sink{fail: true}
	if err := snap.Persist(&full); err == nil || !full.cancelled {
		t.Errorf("a snapshot that cannot be written: %v, cancelled %v", err, full.cancelled)
	}
}
