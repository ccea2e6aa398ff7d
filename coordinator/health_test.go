package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// TestStrayFailures: heartbeats to a member that hung fail after it was removed, or after the lead has changed. They say
// nothing about the member that has taken its place.
func TestStrayFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health{silent: map[string]time.Time{}, ended: map[string]time.Time{}, strays: map[string]int{}}
		before := time.Now()
		failed := func(contact time.Time) {
			h.take(raft.Observation{Data: raft.FailedHeartbeatObservation{PeerID: "d", LastContact: contact}})
			time.Sleep(time.Second)
		}
		peer := func(removed bool) {
			time.Sleep(time.Second)
			h.take(raft.Observation{Data: raft.PeerObservation{Peer: raft.Server{ID: "d"}, Removed: removed}})
			time.Sleep(time.Second)
		}
		down := func(want bool, when string) {
			t.Helper()
			if h.down("d", time.Millisecond) != want {
				t.Errorf("down is %t %s", !want, when)
			}
		}
		failed(before)
		down(true, "when it is silent")
		peer(true)
		down(false, "when it was removed")
		failed(before)
		down(false, "after a heartbeat from before the removal has failed")
		peer(false)
		failed(before)
		down(false, "after such a one has failed when it is a peer again")
		failed(time.Now().Add(-time.Second))
		down(true, "after one of those that are sent now has failed")
		h.over()
		h.fresh()
		time.Sleep(time.Second)
		failed(before)
		down(false, "after one of the last lead has failed")
		failed(before)
		failed(before)
		down(true, "when they go on failing, whatever was heard last")
	})
}
