package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"chainmail/coordinator/membership"
)

// The same log gives the same placement everywhere, unless memory, a disk or the program is broken; then a member places
// keys differently than the others, and neither side is told. So each member compares the digest of its placement with
// the leader's, at the same revision. Where they differ, both count who has which, and who is in the minority stops.

// compareEvery is how often a member compares: every 5 seconds with the default heartbeat.
func (c *Coordinator) compareEvery() time.Duration { return c.cfg.Heartbeat * 5 / 2 }

// digestRequest asks for a member's digest at a revision.
type digestRequest struct {
	Member    string `json:"member"`
	ClusterID string `json:"cluster_id"`
	Revision  uint64 `json:"revision"`
	Digest    uint64 `json:"digest"` // the asking member's, of the placement and its rings
	Counting  bool   `json:"counting,omitempty"`
}

// digestAnswer is a member's digest at the revision it was asked for or, if it has not come so far yet, at its newest one.
type digestAnswer struct {
	Member   string `json:"member"`
	Known    bool   `json:"known"` // false: too old, or of another cluster
	Version  uint64 `json:"version"`
	Revision uint64 `json:"revision"`
	Digest   uint64 `json:"digest"`
}

// digestHere gives this member's digest at a revision or, if that is not reached yet, at the newest one.
func (c *Coordinator) digestHere(revision uint64) digestAnswer {
	out := digestAnswer{Member: c.cfg.Self.ID}
	if p := c.fsm.at(revision); p != nil {
		out.Known, out.Version, out.Revision, out.Digest = true, p.Version, p.Revision, membership.Digest(p)
		if c.cfg.Rings != nil {
			out.Digest = out.Digest*31 + c.cfg.Rings(p)
		}
	}
	return out
}

// answerDigest answers another member. A difference is looked into here too: this member may be the odd one.
func (c *Coordinator) answerDigest(q digestRequest) digestAnswer {
	if q.ClusterID != c.Placement().ClusterID {
		return digestAnswer{Member: c.cfg.Self.ID}
	}
	a := c.digestHere(q.Revision)
	if a.Known && a.Revision == q.Revision && a.Digest != q.Digest && !q.Counting { // whoever counts knows already
		c.lookInto(q.Revision)
	}
	return a
}

func (c *Coordinator) lookInto(revision uint64) {
	select {
	case c.suspect <- revision:
	default: // one is being looked into
	}
}

// Suspect says that another member was seen to have another ring: if this one is the odd one it stops soon.
func (c *Coordinator) Suspect() { c.lookInto(c.Placement().Revision) }

// compare is a loop: it compares with the leader from time to time, and counts when somebody has found a difference.
func (c *Coordinator) compare() {
	tick := time.NewTicker(c.compareEvery())
	defer tick.Stop()
	for {
		revision := uint64(0) // at which there is a difference
		select {
		case <-c.ctx.Done():
			return
		case revision = <-c.suspect:
		case <-tick.C:
			revision = c.compareWithLeader()
		}
		if revision == 0 {
			continue
		}
		if err := c.countDigests(revision); err != nil {
			c.fail(err)
			return
		}
	}
}

// compareWithLeader gives a revision at which the leader's placement is another than this member's, 0 if none is known.
func (c *Coordinator) compareWithLeader() uint64 {
	leader, _ := c.raft.LeaderWithID()
	if leader == "" || string(leader) == c.cfg.Self.Address || c.Placement().ClusterID == "" {
		return 0
	}
	mine := c.digestHere(c.Placement().Revision)
	theirs, err := c.askDigest(string(leader), mine, false)
	if err != nil || !theirs.Known {
		return 0
	}
	if theirs.Revision != mine.Revision {
		mine = c.digestHere(theirs.Revision)
	}
	if !mine.Known || mine.Revision != theirs.Revision || mine.Digest == theirs.Digest {
		return 0
	}
	return mine.Revision
}

func (c *Coordinator) askDigest(addr string, mine digestAnswer, counting bool) (a digestAnswer, err error) {
	q, err := json.Marshal(digestRequest{mine.Member, c.Placement().ClusterID, mine.Revision, mine.Digest, counting})
	if err != nil {
		return a, err
	}
	ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
	defer done()
	b, err := c.cfg.Requests.Request(ctx, addr, KindDigest, q)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	return a, err
}

// countDigests asks everybody for the digest at a revision. It is ErrDiverged if this member is the odd one.
func (c *Coordinator) countDigests(revision uint64) error {
	mine := c.digestHere(revision)
	if !mine.Known || mine.Revision != revision {
		return nil
	}
	servers := c.servers()
	have := map[string]uint64{mine.Member: mine.Digest}
	for _, s := range servers {
		if string(s.ID) == mine.Member {
			continue
		}
		if a, err := c.askDigest(string(s.Address), mine, true); err == nil && a.Known && a.Revision == revision && a.Member == string(s.ID) {
			have[a.Member] = a.Digest
		}
	}
	_, leader := c.raft.LeaderWithID()
	v := judge(mine.Member, string(leader), len(servers), have)
	text := fmt.Sprintf("member %s has digest %016x of placement version %d and its rings, revision %d; %s", mine.Member, mine.Digest, mine.Version, revision, v.text)
	if !v.odd {
		c.log.Error("members have different placements or rings", "member", mine.Member, "version", mine.Version, "error", text)
		return nil
	}
	return fmt.Errorf("%s: %w; this member stops. Restart it once; if it stops again, remove it from the ring with a change, keep its data directory for a report, and let it join under another id with an empty one", text, ErrDiverged)
}

// verdict says whether a member has to stop, and who has which digest.
type verdict struct {
	odd  bool
	text string
}

// judge decides by the digests that are known of n members. A member stops if more than half of all have another one, in
// common; of two halves, and of two members, the leader's is right.
func judge(self, leader string, n int, have map[string]uint64) verdict {
	who := map[uint64][]string{}
	for m, d := range have {
		who[d] = append(who[d], m)
	}
	var out verdict
	var parts []string
	for d, members := range who {
		slices.Sort(members)
		if d == have[self] {
			continue
		}
		parts = append(parts, fmt.Sprintf("%016x is what %s %s", d, strings.Join(members, ", "), map[bool]string{true: "has", false: "have"}[len(members) == 1]))
		if 2*len(members) > n || 2*len(members) == n && slices.Contains(members, leader) {
			out.odd = true
		}
	}
	slices.Sort(parts)
	out.text = strings.Join(parts, "; ")
	if missing := n - len(have); missing > 0 {
		out.text += fmt.Sprintf("; %d of %d members gave none", missing, n)
	}
	return out
}

// fail stops this member for good: it must not lead, vote or tell anybody where keys are.
func (c *Coordinator) fail(err error) {
	c.failOnce.Do(func() {
		c.failure = err
		c.log.Error("this member stops", "member", c.cfg.Self.ID, "error", err)
		close(c.failed)
		go c.Close() // it waits for the loop that calls this
	})
}

// Failed is closed when this member has found that it cannot go on; it stops by itself then. Err says why.
func (c *Coordinator) Failed() <-chan struct{} { return c.failed }

// Err is described at Failed.
func (c *Coordinator) Err() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// Corrupt changes this member's placement behind the log's back. It is for tests of what is done about that.
func (c *Coordinator) Corrupt(f func(*membership.Placement)) {
	p := *c.Placement()
	f(&p)
	c.fsm.set(&p)
}
