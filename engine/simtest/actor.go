package simtest

import (
	"encoding/binary"
	"time"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// The actors of the simulator are pure functions of a string:
//
//	list, act, box   a list of call numbers, 4 bytes each: append, get, and delete for a box; act has a body of its own
//	all, loc         lists, too: a write of all needs every replica, loc may be read locally
//	cnt              the number of adds, 8 bytes: add, get, delete
//	reg              the number of the last set, 4 bytes: set, get, delete
//
// "" is the state of a key that was never written or was deleted.

const (
	get    = "get"
	del    = "delete"
	app    = "append"
	add    = "add"
	set    = "set"
	refuse = "refuse" // the handler answers with an error
)

// statePage holds the state; others are ballast.
const statePage = "v"

// apply gives an actor's state after a call.
func apply(method string, id uint32, state string) string {
	switch method {
	case app:
		return state + string(binary.BigEndian.AppendUint32(nil, id))
	case set:
		return string(binary.BigEndian.AppendUint32(nil, id))
	case add:
		var n uint64
		if state != "" {
			n = binary.BigEndian.Uint64([]byte(state))
		}
		return string(binary.BigEndian.AppendUint64(nil, n+1))
	case del:
		return ""
	}
	return state
}

// refusedCode is what the handler of refuse answers with.
const refusedCode = 7

// forgottenCode answers a call that is made again and may have been run before.
const forgottenCode = 8

// execute runs a handler, once for a request id: with a window of so many requests.
func execute(e *core.Execute, window int) *core.Executed {
	if e.RequestID == "" {
		return handle(e)
	}
	done := &core.Executed{Activation: e.Activation, Seq: e.Seq}
	now := time.Unix(0, int64(e.Now))
	w := kinds.NewWindow(now, e.State, e.Stamp, window)
	if body, _, found := w.Find(e.State, e.RequestID); found {
		done.Body = body
		return done
	}
	if e.Tried > 0 && window > 0 && !w.Covers(now, e.Tried) {
		done.AppCode, done.Text = forgottenCode, "made again too late"
		return done
	}
	done = handle(e)
	if len(done.Changes) > 0 && e.Method != del {
		done.Changes = append(done.Changes, w.Add(now, e.State, e.RequestID, done.Body)...)
	}
	return done
}

// shown is the state of an activation of a type with local reads, as its runner knows it.
type shown struct {
	activation uint64
	state      string
	settled    bool // all of it is committed
}

// ran notes what a handler has made of the state. A state that may be refused is not shown.
func (h *host) ran(e *core.Execute, done *core.Executed) {
	if e.Key.Type != "loc" || h.s.o.Cluster.Limits.State > 0 {
		return
	}
	x := &shown{activation: e.Activation, state: string(e.State[statePage].Data)}
	for _, ch := range done.Changes {
		if ch.Name == statePage {
			x.state = string(ch.Data)
		}
	}
	h.shown[e.Key] = x
}

func (h *host) settled(e *core.Settled) {
	for _, x := range h.shown { // of one activation there is one
		if x.activation == e.Activation {
			x.settled = true
		}
	}
}

// handle runs a handler. The state is the page "v"; further pages come and go so that deltas have something to carry.
func handle(e *core.Execute) *core.Executed {
	done := &core.Executed{Activation: e.Activation, Seq: e.Seq}
	state := string(e.State[statePage].Data)
	switch e.Method {
	case core.TouchMethod:
		return done
	case core.IdleMethod:
		if done.Stop = e.Seq%3 == 0; done.Stop {
			done.Changes = []core.Change{{Name: core.ActivePage, Delete: true}}
		}
		return done
	case get:
		done.Body = []byte(state)
		return done
	case refuse:
		done.AppCode, done.Text = refusedCode, "as asked"
		return done
	case del:
		done.Changes = []core.Change{{Delete: true}}
		return done
	}
	id := binary.BigEndian.Uint32(e.Body) // what follows is ballast
	next := []byte(apply(e.Method, id, state))
	done.Body = next
	done.Changes = []core.Change{{Name: statePage, Data: next}, {Name: "a" + string(rune('0'+id%3)), Data: e.Body}, {Name: "z" + string(rune('0'+id%2)), Delete: true}}
	if id%5 == 0 {
		done.Changes = append(done.Changes, core.Change{Name: "z1", Data: e.Body})
	}
	return done
}
