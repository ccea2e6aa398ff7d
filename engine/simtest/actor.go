package simtest

import (
	"encoding/binary"

	"chainmail/engine/core"
)

// The actors of the simulator are pure functions of a string:
//
//	list, act, box   a list of call numbers, 4 bytes each: append, get, and delete for a box; act has a body of its own
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

// execute runs a handler. The state is the page "v"; further pages come and go so that deltas have something to carry.
func execute(e *core.Execute) *core.Executed {
	done := &core.Executed{Activation: e.Activation, Seq: e.Seq}
	state := string(e.State["v"].Data)
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
	id := binary.BigEndian.Uint32(e.Body)
	next := []byte(apply(e.Method, id, state))
	done.Body = next
	done.Changes = []core.Change{{Name: "v", Data: next}, {Name: "a" + string(rune('0'+id%3)), Data: e.Body}, {Name: "z" + string(rune('0'+id%2)), Delete: true}}
	if id%5 == 0 {
		done.Changes = append(done.Changes, core.Change{Name: "z1", Data: e.Body})
	}
	return done
}
