package coordinator

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// gate keeps a member with an empty Raft state out of Raft until it is known that it has not forgotten anything, or until
// the cluster has taken its vote. A voter that has lost its disk must not vote or acknowledge entries under its old name:
// with its help, those who had been outvoted could commit something else than what was committed. Raft itself cannot tell
// it from a new one.
//
// It opens when this member takes part in forming the cluster, or when a leader that is confirmed by a majority of the
// others has let it in; the leader demotes it first if it has a vote. What is refused until then leaves no trace in the
// Raft state, so that it is still empty after a restart.
type gate struct {
	opened atomic.Bool
	heard  chan string // capacity 1: the address of a leader that was refused; one is enough
}

func newGate(open bool) *gate {
	g := &gate{heard: make(chan string, 1)}
	g.opened.Store(open)
	return g
}

func (g *gate) open()        { g.opened.Store(true) }
func (g *gate) isOpen() bool { return g.opened.Load() }

var errNotLetIn = errors.New("this member's Raft state is empty and no leader has let it in yet")

// formedLog is the last index of a candidate that has nothing but the configuration with which a cluster begins.
const formedLog = 1

// passes says whether a message may reach Raft.
func (g *gate) passes(cmd any) bool {
	if g.isOpen() {
		return true
	}
	switch q := cmd.(type) {
	case *raft.RequestVoteRequest:
		if q.LastLogIndex <= formedLog {
			g.open()
		}
	case *raft.RequestPreVoteRequest:
		if q.LastLogIndex <= formedLog {
			g.open()
		}
	case *raft.AppendEntriesRequest:
		select {
		case g.heard <- string(q.Addr):
		default:
		}
	}
	return g.isOpen()
}

// guard gives what of in may reach Raft, until stop is closed.
func (g *gate) guard(in <-chan raft.RPC, stop <-chan struct{}) <-chan raft.RPC {
	out := make(chan raft.RPC)
	go func() {
		for {
			select {
			case rpc := <-in:
				if !g.passes(rpc.Command) {
					refuse(rpc)
					continue
				}
				select {
				case out <- rpc:
				case <-stop:
					return
				}
			case <-stop:
				return
			}
		}
	}()
	return out
}

func refuse(rpc raft.RPC) {
	if rpc.Reader != nil { // a snapshot: what is not read would be taken for the next message
		io.Copy(io.Discard, rpc.Reader)
	}
	rpc.Respond(nil, errNotLetIn)
}
