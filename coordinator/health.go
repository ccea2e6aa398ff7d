package coordinator

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// observeBuffer is how many of Raft's observations may wait; what does not fit is seen at the next heartbeat.
const observeBuffer = 256

// health knows which members do not answer the leader's heartbeats. Only Raft's own heartbeats count: there is no
// gossip, and what followers think of each other does not matter.
type health struct {
	c   *Coordinator
	obs *raft.Observer
	ch  chan raft.Observation
	end chan struct{}

	mu     sync.Mutex
	silent map[string]time.Time // not heard since
	ended  map[string]time.Time // when Raft ended what it sent to a member that was removed
	lost   time.Time            // when this member's last lead ended, and with it what was sent to all
	strays map[string]int       // failures since then of what had ended
}

// straysMost is how many heartbeats may fail after Raft has ended what sends them: the one under way, and one more.
const straysMost = 2

func (h *health) init(c *Coordinator) {
	h.c, h.silent, h.ended, h.strays = c, map[string]time.Time{}, map[string]time.Time{}, map[string]int{}
	h.ch, h.end = make(chan raft.Observation, observeBuffer), make(chan struct{})
	h.obs = raft.NewObserver(h.ch, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.FailedHeartbeatObservation, raft.ResumedHeartbeatObservation, raft.PeerObservation:
			return true
		}
		return false
	})
	c.raft.RegisterObserver(h.obs)
	c.wg.Go(h.run)
}

func (h *health) close() { h.c.raft.DeregisterObserver(h.obs) }

func (h *health) run() {
	for {
		select {
		case o := <-h.ch:
			h.take(o)
		case <-h.c.ctx.Done():
			return
		}
	}
}

func (h *health) take(o raft.Observation) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch d := o.Data.(type) {
	case raft.FailedHeartbeatObservation:
		if id := string(d.PeerID); !h.stray(id, d.LastContact) {
			if _, known := h.silent[id]; !known {
				h.silent[id] = time.Now()
			}
		}
	case raft.ResumedHeartbeatObservation:
		delete(h.silent, string(d.PeerID))
	case raft.PeerObservation:
		id := string(d.Peer.ID)
		delete(h.silent, id)
		if d.Removed {
			h.ended[id] = time.Now()
			delete(h.strays, id)
		}
	}
}

// stray says whether a failure is of heartbeats that ended before: they may have waited for a member that hung, and nothing
// would take back what they say, for those that are sent now are answered.
func (h *health) stray(id string, contact time.Time) bool {
	end := h.lost
	if t := h.ended[id]; t.After(end) {
		end = t
	}
	if contact.After(end) || h.strays[id] >= straysMost {
		return false
	}
	h.strays[id]++
	return true
}

// over notes that this member does not lead any more.
func (h *health) over() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = time.Now()
	clear(h.strays)
}

// fresh forgets everything: a new leader gives everybody time.
func (h *health) fresh() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.silent)
}

// heard gives a member that was silent time anew, because it registers: the heartbeats to one that was away are far apart, and
// it must not be taken for down again before it has had one. The log takes it for up when it is registered, and no earlier.
func (h *health) heard(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, silent := h.silent[id]; silent {
		h.silent[id] = time.Now()
	}
}

// down says whether a member has been silent for so long.
func (h *health) down(id string, d time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	since, ok := h.silent[id]
	return ok && time.Since(since) >= d
}
