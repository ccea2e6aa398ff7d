package coordinator

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

// fsm applies the log's entries. Who watches is told the newest placement; nobody can hold the log up.
type fsm struct {
	p atomic.Pointer[membership.Placement]

	mu       sync.Mutex
	watchers map[*Watcher]struct{}
}

func newFSM() *fsm {
	f := &fsm{watchers: map[*Watcher]struct{}{}}
	f.p.Store(&membership.Placement{})
	return f
}

// Apply takes one committed entry. One that cannot be decoded stops the process: members that skip different entries
// would place keys differently.
func (f *fsm) Apply(l *raft.Log) any {
	c, err := membership.Decode(l.Data)
	if err != nil {
		panic(fmt.Sprintf("coordinator: log entry %d of term %d: %v", l.Index, l.Term, err))
	}
	next, r := membership.Apply(*f.p.Load(), c)
	if r.Code == membership.OK {
		f.set(&next)
	}
	return r
}

func (f *fsm) set(p *membership.Placement) {
	f.p.Store(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watchers {
		w.give(p)
	}
}

// StoreConfiguration makes this a raft.ConfigurationStore: without it a quiet cluster cannot take a snapshot after a
// change of its servers.
func (f *fsm) StoreConfiguration(uint64, raft.Configuration) {}

func (f *fsm) Snapshot() (raft.FSMSnapshot, error) { return snapshot{f.p.Load()}, nil }

func (f *fsm) Restore(r io.ReadCloser) error {
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	p, err := membership.Restore(b)
	if err != nil {
		return err
	}
	f.set(p)
	return nil
}

type snapshot struct{ p *membership.Placement }

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	b, err := membership.Snapshot(s.p)
	if err == nil {
		_, err = sink.Write(b)
	}
	if err != nil {
		sink.Cancel()
		return err
	}
	return sink.Close()
}

func (snapshot) Release() {}

// Watcher gives the newest placement. What nobody has taken yet is replaced by what is newer.
type Watcher struct {
	f *fsm
	c chan *membership.Placement // capacity 1
}

// C gives placements until Close.
func (w *Watcher) C() <-chan *membership.Placement { return w.c }

// Close ends the watch.
func (w *Watcher) Close() {
	w.f.mu.Lock()
	delete(w.f.watchers, w)
	w.f.mu.Unlock()
}

// give never blocks: it is called under the fsm's lock, so that nobody else fills the channel.
func (w *Watcher) give(p *membership.Placement) {
	select {
	case <-w.c:
	default:
	}
	w.c <- p
}

func (f *fsm) watch() *Watcher {
	w := &Watcher{f: f, c: make(chan *membership.Placement, 1)}
	f.mu.Lock()
	f.watchers[w] = struct{}{}
	w.give(f.p.Load())
	f.mu.Unlock()
	return w
}
