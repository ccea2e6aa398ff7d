package coordinator

import (
	"fmt"
	"io"
	"slices"
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
	recent   []*membership.Placement // the newest last; what others are at may be older than the newest
}

// keepRecent is how many placements are kept to compare with other members', which are elsewhere in the log.
const keepRecent = 64

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
	// From a snapshot, revisions begin anew somewhere.
	if i := slices.IndexFunc(f.recent, func(o *membership.Placement) bool { return o.Revision >= p.Revision }); i >= 0 {
		f.recent = f.recent[:i]
	}
	f.recent = append(f.recent, p)
	if len(f.recent) > keepRecent {
		f.recent = slices.Delete(f.recent, 0, len(f.recent)-keepRecent)
	}
	for w := range f.watchers {
		w.give(p)
	}
}

// at gives the placement of a revision, the newest one if that is older, and nil if it is not kept any more.
func (f *fsm) at(revision uint64) *membership.Placement {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range slices.Backward(f.recent) {
		if p.Revision <= revision {
			if newest := f.recent[len(f.recent)-1]; p.Revision == revision || p == newest {
				return p
			}
			return nil
		}
	}
	return nil
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
