package simtest

import (
	"encoding/binary"
	"fmt"
	"time"

	"chainmail/engine/core"
)

// client calls random keys at random members, one call at a time.
type client struct {
	s    *Sim
	n    int
	busy bool
}

// callID names a call: the host's process and the core's number.
type callID struct {
	host string
	run  int
	id   uint64
}

// op is one call under way.
type op struct {
	id     uint32 // unique in the run: what an append puts into the list
	key    core.Key
	read   bool
	local  bool
	delete bool
	least  int // the longest list that was answered before this call began
	gen    int
	begin  core.Time
	limit  core.Time
	client *client
	final  bool
}

func (c *client) next() {
	s := c.s
	s.after(s.exp(s.o.CallGap), func() {
		if s.calm && s.now.Add(0) > s.healed.Add(10*time.Second) {
			return // the last phase needs no more load
		}
		c.call()
	})
}

func (c *client) call() {
	s := c.s
	var up []*host
	for _, h := range s.hosts {
		if h.up() && s.now >= h.awake {
			up = append(up, h)
		}
	}
	if len(up) == 0 {
		c.next()
		return
	}
	k := core.Key{Type: "list", Name: fmt.Sprint("k", s.rand.IntN(s.o.Keys))}
	o := &op{key: k, read: s.chance(0.4), client: c}
	o.local = o.read && s.chance(0.1)
	s.invoke(up[s.rand.IntN(len(up))], o, callLimit)
}

func (s *Sim) invoke(h *host, o *op, limit time.Duration) {
	s.callSeq++
	o.id = s.callSeq
	o.begin, o.limit = s.now, s.now.Add(limit)
	hist := s.history(o.key)
	o.least = len(hist.longest)
	if !o.read {
		hist.attempts++
	}
	id := callID{h.id, h.run, uint64(o.id)}
	s.calls[id] = o
	method, body := "append", binary.BigEndian.AppendUint32(nil, o.id)
	if o.read {
		method, body = "get", nil
	}
	s.trace.add(s.now, "call#%d at %s: %s %s", o.id, h.id, method, o.key)
	h.step(&core.Call{ID: uint64(o.id), Key: o.key, Method: method, Body: body, ReadLocal: o.local, Deadline: o.limit})
	s.after(limit+2*tickEvery+time.Millisecond, func() {
		if _, open := s.calls[id]; open && h.up() && h.run == id.run && s.now >= h.awake && len(h.queue) == 0 && !h.syncing {
			s.fail("call #%d of %s at %s was not answered by its deadline", o.id, o.key, h.id)
		}
	})
}

// execute is the actor: a list to which calls append their number.
func execute(e *core.Execute) *core.Executed {
	list := e.State["v"].Data
	done := &core.Executed{Activation: e.Activation, Seq: e.Seq}
	if e.Method == "append" {
		next := append(append([]byte{}, list...), e.Body...)
		done.Changes = []core.Change{{Name: "v", Data: next}, {Name: "n", Data: e.Body}}
		list = next
	}
	done.Body = list
	return done
}

// replied takes a call's answer.
func (s *Sim) replied(h *host, r *core.Reply) {
	id := callID{h.id, h.run, r.ID}
	o, ok := s.calls[id]
	if !ok {
		s.fail("call #%d at %s was answered twice, or never made", r.ID, h.id)
		return
	}
	delete(s.calls, id)
	s.trace.add(s.now, "answer to #%d: %s %s %s len %d", o.id, r.Result.Code, r.Result.Text, r.Result.Stamp, len(r.Result.Body)/4)
	s.history(o.key).answered(s, o, r.Result)
	if o.final && r.Result.Code != core.CodeOK {
		s.fail("last read of %s: %s %s", o.key, r.Result.Code, r.Result.Text)
	}
	if o.client != nil {
		o.client.next()
	}
}

// dropCalls forgets the calls of a process that died: their callers died with it, or cannot know.
func (s *Sim) dropCalls(h *host) {
	for _, id := range sortedCalls(s.calls) {
		if id.host == h.id {
			o := s.calls[id]
			delete(s.calls, id)
			if !o.read {
				s.history(o.key).unknown(o)
			}
			if o.client != nil {
				o.client.next()
			}
		}
	}
}
