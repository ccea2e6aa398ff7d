package simtest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"chainmail/engine/core"
)

// client calls random keys at random members, one call at a time.
type client struct{ s *Sim }

// callID names a call: the host's process and the core's number, which begins anew with each process.
type callID struct {
	host string
	run  int
	id   uint64
}

// op is one call of a client, with all its tries.
type op struct {
	id      uint32 // unique in the run: what a write leaves in the state
	key     core.Key
	method  string
	local   bool
	client  *client
	final   bool
	tries   int
	begin   int        // event in which it was made first
	limit   core.Time  // of this try
	least   int        // entries of a list that had been answered when it was made
	floor   core.Stamp // the newest stamp that had been answered then
	request string     // request id, "" for none
	first   core.Time  // when it was made first
}

func (o *op) reads() bool  { return o.method == get }
func (o *op) writes() bool { return o.method != get && o.method != refuse }

// loadAfterHeal is how long callers go on in the second phase.
const loadAfterHeal = 4 * time.Second

// maxTries is how often a call with an unknown outcome is made.
const maxTries = 4

func (c *client) next() {
	s := c.s
	s.after(s.exp(s.o.Load.Gap), func() {
		if s.calm && s.now > s.healed.Add(loadAfterHeal) {
			return // the last phase needs no more load
		}
		c.call()
	})
}

// anyUp draws a member that runs, nil if none does.
func (s *Sim) anyUp() *host {
	var up []*host
	for _, h := range s.hosts {
		if h.up() && s.now >= h.awake {
			up = append(up, h)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[s.rand.IntN(len(up))]
}

func (c *client) call() {
	s := c.s
	h := s.anyUp()
	if h == nil {
		c.next()
		return
	}
	hist := s.checks.pick(s.rand.IntN(s.o.Load.Keys))
	o := &op{key: hist.key, method: s.method(hist.key.Type), client: c}
	if s.o.Load.Looks > 0 {
		if b := s.blindUp(); b != nil && s.chance(s.o.Load.Looks) {
			h = b
		}
		if s.now < h.blind { // a write that is held up there would hold up what follows it
			o.method = get
		}
	}
	o.local = o.reads() && hist.grows && s.chance(localShare(hist.key.Type))
	if o.local && s.readHere(h, o) {
		c.next()
		return
	}
	s.invoke(h, o, s.o.Load.Limit)
}

func localShare(typ string) float64 {
	if typ == "loc" {
		return 0.5
	}
	return 0.1
}

// readHere answers a local read from what the runner of a member shows, if it does.
func (s *Sim) readHere(h *host, o *op) bool {
	x := h.shown[o.key]
	if x == nil || !x.settled {
		return false
	}
	s.reach("local-read")
	s.checks.made(o)
	s.checks.answered(o, core.Result{Body: []byte(x.state)})
	return true
}

// blindUp gives a member that runs and is told of no placement, nil if there is none.
func (s *Sim) blindUp() *host {
	for _, h := range s.hosts {
		if h.up() && s.now >= h.awake && s.now < h.blind {
			return h
		}
	}
	return nil
}

// method draws what is called.
func (s *Sim) method(typ string) string {
	switch x := s.rand.Float64(); {
	case x < 0.4:
		return get
	case x < 0.42:
		return refuse
	case x < 0.42+s.o.Load.Deletes && !grows(typ):
		return del
	}
	switch typ {
	case "cnt":
		return add
	case "reg":
		return set
	}
	return app
}

// invoke makes a call, or makes one again.
func (s *Sim) invoke(h *host, o *op, limit time.Duration) {
	o.tries++
	if o.tries == 1 {
		s.made++
		o.id, o.begin = s.made, s.Events
		o.first = s.now
		if o.writes() && s.chance(s.o.Load.Repeats) {
			o.request = fmt.Sprint("r", o.id)
		}
		s.checks.made(o)
	}
	o.limit = s.now.Add(limit)
	h.calls++
	id := callID{h.id, h.run, h.calls}
	s.calls[id] = o
	var body []byte
	if o.writes() {
		body = binary.BigEndian.AppendUint32(make([]byte, 0, 4+s.o.Load.Body), o.id)
		if n := s.o.Load.Body; n > 0 {
			body = body[:4+int(o.id*2654435761)%n]
		}
	}
	s.trace.add(s.now, "call#%d at %s: %s %s, the process's %d", o.id, h.id, o.method, o.key, id.id)
	h.step(&core.Call{ID: id.id, Key: o.key, Method: o.method, Body: body, RequestID: o.request, Tried: time.Duration(s.now - o.first), ReadLocal: o.local, Deadline: o.limit})
	s.after(limit+2*tickEvery+time.Millisecond, func() { s.overdue(h, id, 0) })
}

// overdueLooks is how often a call that is late is looked at while the disk is busy: syncs are short, answers wait for one
// that is under way and the next.
const overdueLooks = 8

// overdue looks at a call whose deadline and two ticks have passed. A process that pauses, that has not had two ticks since
// it paused, or whose disk is busy cannot answer; it is looked at again.
func (s *Sim) overdue(h *host, id callID, looks int) {
	o, open := s.calls[id]
	if !open || h.run != id.run {
		return
	}
	switch {
	case s.now <= h.awake.Add(2*tickEvery) || len(h.queue) > 0 || timeLeft(s.now, h.synced) > s.o.Disk.Fsync:
		looks = 0
	case !h.syncing || looks >= overdueLooks:
		s.fail("call #%d of %s at %s was not answered by its deadline", o.id, o.key, h.id)
		return
	}
	s.after(max(s.o.Disk.Fsync, 2*tickEvery), func() { s.overdue(h, id, looks+1) })
}

// replied takes a call's answer.
func (s *Sim) replied(h *host, r *core.Reply) {
	id := callID{h.id, h.run, r.ID}
	o, ok := s.calls[id]
	if !ok {
		s.fail("call %d at %s was answered twice, or never made", r.ID, h.id)
		return
	}
	delete(s.calls, id)
	s.trace.add(s.now, "answer to #%d: %s %s %s len %d", o.id, r.Result.Code, r.Result.Text, r.Result.Stamp, len(r.Result.Body))
	switch {
	case r.Result.Code == core.CodeApp && r.Result.AppCode == forgottenCode, o.tries > 1 && certainlyNot(r.Result.Code):
		r.Result.Code = core.CodeUnknownOutcome // an earlier try may have taken effect
		s.over(o, r.Result)
		return
	}
	if r.Result.Code == core.CodeUnknownOutcome && o.request != "" && o.tries < maxTries {
		if again := s.anyUp(); again != nil {
			s.after(s.between(0, 50*time.Millisecond), func() {
				if again.up() {
					s.invoke(again, o, s.o.Load.Limit)
					return
				}
				s.over(o, r.Result)
			})
			return
		}
	}
	s.over(o, r.Result)
}

// over ends a call of a client.
func (s *Sim) over(o *op, r core.Result) {
	switch r.Code {
	case core.CodeOverloaded:
		s.reach("overload")
	case core.CodeRejected:
		s.reach("too-large")
	}
	s.checks.answered(o, r)
	if o.final && r.Code != core.CodeOK {
		s.fail("last read of %s: %s %s", o.key, r.Code, r.Text)
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
			s.over(o, core.Result{Code: core.CodeUnknownOutcome, Text: "the process died"})
		}
	}
}

func sortedCalls(m map[callID]*op) []callID {
	out := make([]callID, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b callID) int {
		return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.run, b.run), cmp.Compare(a.id, b.id))
	})
	return out
}

// lastReads reads each key once more when all is quiet, one after the other.
func (s *Sim) lastReads() {
	for i, h := range s.checks.all() {
		s.after(time.Duration(i)*lastGap, func() {
			s.invoke(s.anyUp(), &op{key: h.key, method: get, final: true}, lastLimit)
			s.toRead--
		})
		s.toRead++
	}
}
