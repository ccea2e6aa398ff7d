package chainmail

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/ring"
)

// Kinds of the requests between nodes.
const (
	kindStatus  uint8 = 0x50 + iota // the answer is a MemberStatus
	kindList                        // a listRequest; the answer is a ListPage
	kindExplain                     // a core.Key; the answer is an Explanation
	kindCount                       // the answer is what the member holds, by type
)

// MemberStatus is one member as it sees itself.
type MemberStatus struct {
	membership.Member
	Reachable   bool          `json:"reachable"`
	Error       string        `json:"error,omitempty"` // why it is not
	Role        string        `json:"role"`            // voter, non-voter or none, in Raft
	Leader      bool          `json:"leader"`
	Version     uint64        `json:"version"`
	Revision    uint64        `json:"revision"`
	LogLag      uint64        `json:"log_lag"` // entries behind the member that was asked
	Applied     uint64        `json:"applied_index"`
	LastContact time.Duration `json:"last_contact_ns"`
	Copies      int           `json:"copies"`
	Activations int           `json:"activations"`
	Held        int           `json:"held"`
	Calls       int           `json:"calls"`   // of its own callers, not answered yet
	Orphans     int           `json:"orphans"` // copies that it need not hold and has not handed over yet
	Complete    bool          `json:"complete"`
	Filling     []Filling     `json:"filling,omitempty"`
	TakenKeys   uint64        `json:"taken_keys"` // states that came in from other members' copies
	BytesIn     uint64        `json:"bulk_bytes_in"`
	BytesOut    uint64        `json:"bulk_bytes_out"`
	Uptime      time.Duration `json:"uptime_ns"`
}

// Filling is what a member still fetches from others.
type Filling struct {
	What   string `json:"what"` // step or refill
	Done   bool   `json:"done"`
	Wanted int    `json:"wanted"` // states known to be missing
	Keys   int    `json:"keys"`   // states taken in so far
	Bytes  int    `json:"bytes"`
	// What is left, estimated from the share of the circle that the sources have answered for; -1 while nothing is known.
	KeysLeft  int          `json:"keys_left"`
	BytesLeft int          `json:"bytes_left"`
	Sources   []FillSource `json:"sources"`
}

// FillSource is a member that another one fetches from.
type FillSource struct {
	Member    string        `json:"member"`
	Share     float64       `json:"share"` // of the circle that it has answered for
	Done      bool          `json:"done"`
	Why       string        `json:"why,omitempty"`        // why it gives nothing now
	LastError string        `json:"last_error,omitempty"` // also when it has answered since
	ErrorAge  time.Duration `json:"last_error_age_ns,omitempty"`
}

// self gives this member's own status.
func (n *Node) self(ctx context.Context) (MemberStatus, error) {
	st := n.coord.Status()
	m, _ := n.coord.Placement().Member(n.id)
	m.ID, m.Address = n.id, n.addr
	out := MemberStatus{Member: m, Reachable: true, Leader: st.State == "leader", Version: st.Version, Revision: st.Revision, Applied: st.Applied, LastContact: st.LastContact, Uptime: time.Since(n.started)}
	err := n.engine.Do(ctx, func(c *core.Core) {
		s := c.Stats()
		out.Copies, out.Activations, out.Held, out.Calls = s.Copies, s.Activations, s.Held, s.Calls
		out.Orphans, out.Complete, out.TakenKeys = s.Orphans, s.Complete, s.Taken
		step, refill := c.Progress()
		for _, f := range []struct {
			what string
			p    core.FillProgress
		}{{"step", step}, {"refill", refill}} {
			if f.p.Active && len(f.p.Sources) > 0 { // who gains nothing fills nothing
				out.Filling = append(out.Filling, filling(f.what, f.p))
			}
		}
	})
	bulk := n.transport.Stats().Lanes["bulk"]
	out.BytesIn, out.BytesOut = bulk.BytesIn, bulk.BytesOut
	return out, err
}

func filling(what string, p core.FillProgress) Filling {
	f := Filling{What: what, Done: p.Done, Wanted: p.Wanted, Keys: p.Keys, Bytes: p.Bytes, Sources: []FillSource{}, KeysLeft: -1, BytesLeft: -1}
	for _, x := range p.Sources {
		f.Sources = append(f.Sources, FillSource(x))
	}
	if share := p.Share(); share > 0 {
		f.KeysLeft = int(float64(p.Keys)*(1-share)/share) + p.Wanted
		f.BytesLeft = int(float64(p.Bytes) * (1 - share) / share)
	}
	return f
}

// fanTimeout is how long members have to answer when all are asked.
const fanTimeout = time.Second

// Members asks every member of the placement for its status. One that does not answer within a second is listed as the
// log has it, not reachable.
func (n *Node) Members(ctx context.Context) []MemberStatus {
	ctx, done := context.WithTimeout(ctx, fanTimeout)
	defer done()
	p := n.coord.Placement()
	servers := n.coord.Status()
	out := make([]MemberStatus, len(p.Members))
	var wg sync.WaitGroup
	for i, m := range p.Members {
		wg.Go(func() {
			s := MemberStatus{Member: m}
			b, err := n.request(ctx, m.ID, kindStatus, nil)
			if err == nil {
				err = json.Unmarshal(b, &s)
			}
			if err != nil {
				s = MemberStatus{Member: m, Error: err.Error()}
			}
			s.Member = m
			s.LogLag = servers.Applied - min(servers.Applied, s.Applied)
			s.Role = "none"
			for _, x := range servers.Servers {
				if x.ID == m.ID {
					s.Role = map[bool]string{true: "voter", false: "non-voter"}[x.Voter]
					s.Leader = x.Leader
				}
			}
			out[i] = s
		})
	}
	wg.Wait()
	return out
}

// request asks a member, this one included.
func (n *Node) request(ctx context.Context, member string, kind uint8, payload []byte) ([]byte, error) {
	if member == n.id {
		return n.handleRequest(ctx, kind, payload)
	}
	b, err := n.transport.RequestMember(ctx, member, kind, payload)
	return b, decoded(err)
}

func (n *Node) handleRequest(ctx context.Context, kind uint8, payload []byte) ([]byte, error) {
	switch kind {
	case kindStatus:
		s, err := n.self(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(s)
	case kindList:
		var q listRequest
		if err := json.Unmarshal(payload, &q); err != nil {
			return nil, err
		}
		p, err := n.listHere(ctx, q)
		if err != nil {
			return nil, err
		}
		return json.Marshal(p)
	case kindExplain:
		var k core.Key
		if err := json.Unmarshal(payload, &k); err != nil {
			return nil, err
		}
		var e core.Explanation
		if err := n.engine.Do(ctx, func(c *core.Core) { e = c.Explain(k) }); err != nil {
			return nil, err
		}
		return json.Marshal(Explanation{n.id, e})
	case kindCount:
		counts, err := n.countHere(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(counts)
	}
	return nil, fmt.Errorf("node request of kind %d is not known", kind)
}

// Explanation is what a member knows of a key, and what the key waits for there.
type Explanation struct {
	Member string `json:"member"`
	core.Explanation
}

// Explain asks every member of a key's replica sets what it knows of it: the owner's Why says why it is unavailable.
func (n *Node) Explain(ctx context.Context, typ, key string) ([]Explanation, error) {
	k := core.Key{Type: typ, Name: key}
	payload, err := json.Marshal(k)
	if err != nil {
		return nil, err
	}
	here, err := n.request(ctx, n.id, kindExplain, payload)
	if err != nil {
		return nil, err
	}
	var e Explanation
	if err := json.Unmarshal(here, &e); err != nil {
		return nil, err
	}
	ctx, done := context.WithTimeout(ctx, fanTimeout)
	defer done()
	ids := slices.Concat(e.Base, e.Next, []string{e.Owner})
	slices.Sort(ids)
	var out []Explanation
	for _, id := range slices.Compact(ids) {
		if id == "" {
			continue
		}
		x := Explanation{Member: id}
		b, err := n.request(ctx, id, kindExplain, payload)
		if err == nil {
			err = json.Unmarshal(b, &x)
		}
		if err != nil {
			x.Key, x.Owner, x.Base, x.Next, x.Version, x.Why = k, e.Owner, e.Base, e.Next, e.Version, "not reachable: "+err.Error()
		}
		out = append(out, x)
	}
	return out, nil
}

type listRequest struct {
	Type, Prefix, After string
	Limit               int
}

// Item is one key in a listing.
type Item struct {
	Key    string            `json:"key"`
	Member string            `json:"member"` // its owner
	Pages  map[string][]byte `json:"pages"`
}

// ListPage is a part of what a member owns, by key; More says that there is more after the last.
type ListPage struct {
	Items []Item `json:"items"`
	More  bool   `json:"more"`
}

// listBytes keeps a page below what one response may have, base64 included.
const listBytes = 512 << 10

func (n *Node) listHere(ctx context.Context, q listRequest) (ListPage, error) {
	var out ListPage
	err := n.engine.Do(ctx, func(c *core.Core) {
		infos := c.Copies(q.Type, q.Prefix, q.After, q.Limit+1, true)
		bytes := 0
		for i, x := range infos {
			if i >= q.Limit || bytes > listBytes {
				out.More = true
				return
			}
			it := Item{Key: x.Key.Name, Member: n.id, Pages: map[string][]byte{}}
			for _, p := range x.Pages {
				it.Pages[p.Name] = p.Data
				bytes += len(p.Data)
			}
			bytes += len(it.Key) + 64
			out.Items = append(out.Items, it)
		}
	})
	return out, err
}

// List gives one member's page of the keys of a type that it owns, with the names after after. The states are the
// member's own copies: as of now, but without a quorum's word.
func (n *Node) List(ctx context.Context, member, typ, prefix, after string, limit int) (ListPage, error) {
	payload, err := json.Marshal(listRequest{typ, prefix, after, limit})
	if err != nil {
		return ListPage{}, err
	}
	b, err := n.request(ctx, member, kindList, payload)
	if err != nil {
		return ListPage{}, fmt.Errorf("list %s of member %s: %w", typ, member, err)
	}
	var p ListPage
	return p, json.Unmarshal(b, &p)
}

// Location says where a key is.
type Location struct {
	Type        string   `json:"type"`
	Key         string   `json:"key"`
	Version     uint64   `json:"version"`
	Stage       string   `json:"stage"`
	Token       string   `json:"token"`
	Range       string   `json:"range"`
	Owner       string   `json:"owner"`
	Destination string   `json:"destination"`
	Replicas    []string `json:"replicas"`
	Next        []string `json:"next_replicas"`
	Target      []string `json:"target_replicas"` // when the running change has ended
}

// Locate computes where a key is by this member's placement.
func (n *Node) Locate(typ, key string) (Location, error) {
	p := n.coord.Placement()
	if p.ClusterID == "" {
		return Location{}, fmt.Errorf("locate %s/%s: %w", typ, key, coordinator.ErrNoLeader)
	}
	tok := ring.KeyToken(p.Ring.Hash, typ, key)
	count := p.Replicas[""]
	if c, ok := p.Replicas[typ]; ok {
		count = c
	}
	loc := Location{Type: typ, Key: key, Version: p.Version, Stage: p.Stage.String(), Token: fmt.Sprintf("%016x", uint64(tok))}
	rs, err := n.ringsOf(p)
	if err != nil {
		return Location{}, err
	}
	loc.Range = rs.base.Arc(tok).String()
	loc.Replicas, loc.Next, loc.Target = slices.Clone(rs.base.Replicas(tok, count)), slices.Clone(rs.next.Replicas(tok, count)), slices.Clone(rs.target.Replicas(tok, count))
	loc.Owner, loc.Destination = firstUp(p, loc.Replicas), firstUp(p, loc.Next)
	return loc, nil
}

// rings are those of one placement. They take a millisecond to make, and many keys are located by each.
type rings struct {
	of                 *membership.Placement
	base, next, target *ring.Ring
}

func (n *Node) ringsOf(p *membership.Placement) (*rings, error) {
	if r := n.rings.Load(); r != nil && r.of == p {
		return r, nil
	}
	r := &rings{of: p}
	var errs [3]error
	r.base, errs[0] = ring.New(p.Ring, p.Base)
	r.next, errs[1] = ring.New(p.Ring, p.Next)
	r.target, errs[2] = ring.New(p.Ring, p.Target)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	n.rings.Store(r)
	return r, nil
}

func firstUp(p *membership.Placement, set []string) string {
	for _, id := range set {
		if m, ok := p.Member(id); ok && !m.Down && !m.Refilling {
			return id
		}
	}
	return ""
}

// Check is one condition of being ready.
type Check struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"`
}

// Ready gives the conditions under which this member serves.
func (n *Node) Ready(ctx context.Context) []Check {
	p := n.coord.Placement()
	st := n.coord.Status()
	s, err := n.statsAt(ctx, p.Version)
	m, listed := p.Member(n.id)
	check := func(name string, ok bool, why string) Check {
		if ok {
			why = ""
		}
		return Check{name, ok, why}
	}
	placed := membership.In(p.Base, n.id)
	return []Check{
		check("cluster", p.ClusterID != "", "no cluster is known; bootstrap one or join"),
		check("leader", st.LeaderID != "", cmp.Or(n.coord.Alone(), "no leader is known")),
		check("registered", listed && n.is(m) && s.Registered, "the log does not list this incarnation and start yet"),
		check("engine", err == nil && s.Version >= p.Version, fmt.Sprintf("the engine is at version %d of %d", s.Version, p.Version)),
		// The log's word counts, not this member's own: until the others know that it has filled, no other may go.
		check("filled", err == nil && (s.Complete && !m.Refilling || !placed) && (placed || len(p.Base) > 0), "this member is filling its ranges, or the ring is empty"),
		check("up", !m.Down, "the log still lists this member as down"),
	}
}

// lagAllowed is how far the engine may be behind the log before the member says so: every step of a change comes to the log
// first, and a load balancer that asks in between must not hear of it.
const lagAllowed = time.Second

// statsAt gives the engine's state at a version of the placement, or what it has come to in the time that is allowed.
func (n *Node) statsAt(ctx context.Context, version uint64) (core.Stats, error) {
	for began := time.Now(); ; {
		s, err := n.stats(ctx)
		if err != nil || s.Version >= version || time.Since(began) > lagAllowed {
			return s, err
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return s, ctx.Err()
		}
	}
}
