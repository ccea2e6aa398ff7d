package coordinator

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "4") // they mostly wait for heartbeats
	goleak.VerifyTestMain(m)
}

const (
	testHeartbeat = 120 * time.Millisecond
	patience      = 15 * time.Second // for a condition; far more than any takes
)

// cluster is the members of one test. After every entry the placements of all are compared: the same revision has to have
// the same digest everywhere.
type cluster struct {
	t       *testing.T
	net     *network
	ctx     context.Context
	beat    time.Duration // of all members, unless a test sets another
	look    time.Duration // how often conditions are looked at
	patient time.Duration // how long they are waited for
	members map[string]*member

	mu      sync.Mutex
	digests map[string]uint64 // by cluster and revision
	forked  string
	mayFork bool // the test looks at forked itself
}

// member is a coordinator with what the engine does around it: it registers, and reports what it is waited for.
type member struct {
	*Coordinator
	c    *cluster
	id   string
	cfg  Config
	inc  uint64
	host *host
	stop context.CancelFunc
	wg   sync.WaitGroup
	once sync.Once

	mu     sync.Mutex
	silent bool          // reports nothing
	slow   time.Duration // how long it takes for what it reports
	began  time.Time     // when it began with what it is waited for
	at     membership.Report
}

func newCluster(t *testing.T) *cluster {
	t.Parallel()
	return makeCluster(t, testHeartbeat, 2*time.Millisecond, patience, 2*patience)
}

func makeCluster(t *testing.T, beat, look, patient, life time.Duration) *cluster {
	c := &cluster{t: t, net: newNetwork(), beat: beat, look: look, patient: patient, members: map[string]*member{}, digests: map[string]uint64{}}
	ctx, done := context.WithTimeout(context.Background(), life)
	c.ctx = ctx
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, m := range c.members {
			if err := m.Err(); err != nil && !c.mayFork {
				t.Error(err)
			}
			wg.Go(m.close)
		}
		wg.Wait()
		c.net.calls.Wait()
		done()
		if c.forked != "" && !c.mayFork {
			t.Error(c.forked)
		}
	})
	return c
}

func addrOf(id string) string { return id + ".test:1" }

func addrs(ids ...string) []string {
	var out []string
	for _, id := range ids {
		out = append(out, addrOf(id))
	}
	return out
}

func voters(ids ...string) map[string]string {
	out := map[string]string{}
	for _, id := range ids {
		out[id] = addrOf(id)
	}
	return out
}

// open starts a coordinator alone.
func (c *cluster) open(id string, set func(*Config)) (*Coordinator, *host, Config, error) {
	h := c.net.host(addrOf(id))
	cfg := Config{Self: membership.Member{ID: id, Address: addrOf(id), Weight: 1}, Streams: h, Requests: h, ClusterName: "test", Heartbeat: c.beat,
		DownAfter: 2 * c.beat, RetryInterval: c.beat, Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}}
	if testing.Verbose() {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Name: id, Level: hclog.Info})
	}
	if set != nil {
		set(&cfg)
	}
	coord, err := Open(cfg)
	if err != nil {
		h.Close()
		return nil, nil, cfg, err
	}
	h.serve(coord)
	return coord, h, cfg, nil
}

// start starts a member that takes part in everything.
func (c *cluster) start(id string, set func(*Config)) *member {
	c.t.Helper()
	coord, h, cfg, err := c.open(id, set)
	if err != nil {
		c.t.Fatalf("open %s: %v", id, err)
	}
	m := &member{Coordinator: coord, c: c, id: id, cfg: cfg, inc: 1, host: h}
	if old := c.members[id]; old != nil {
		m.inc = old.inc
	}
	c.members[id] = m
	c.run(m)
	return m
}

func (c *cluster) run(m *member) {
	ctx, stop := context.WithCancel(c.ctx)
	m.stop = stop
	m.wg.Go(func() { m.live(ctx) })
}

// founded starts a cluster with these members on the ring.
func founded(t *testing.T, ids ...string) *cluster {
	c := newCluster(t)
	for _, id := range ids {
		c.start(id, nil)
	}
	if err := c.members[ids[0]].Bootstrap(voters(ids...), false); err != nil {
		t.Fatal(err)
	}
	c.placed(ids...)
	return c
}

// join starts members that join what the first voter is part of.
func (c *cluster) join(ids ...string) {
	c.t.Helper()
	known := addrs(ids...)
	for id := range c.members {
		known = append(known, addrOf(id))
	}
	for _, id := range ids {
		c.start(id, func(cfg *Config) { cfg.RetryJoin = known })
	}
	c.eventually("members register", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { _, ok := c.leaderPlacement().Member(id); return !ok })
	})
}

// live registers the member and reports what the placement waits for, and notes the digests.
func (m *member) live(ctx context.Context) {
	w := m.Watch()
	defer w.Close()
	again := time.NewTicker(m.c.beat / 2)
	defer again.Stop()
	for {
		select {
		case p := <-w.C():
			m.c.note(m.id, p)
		case <-again.C:
		case <-ctx.Done():
			return
		}
		p := m.Placement()
		try, done := context.WithTimeout(ctx, 5*m.c.beat)
		if self, ok := p.Member(m.id); p.ClusterID != "" && (!ok || self.Incarnation != m.incarnation()) {
			m.Register(try, m.incarnation(), []uint64{1})
		}
		if what := m.waitedFor(p); what != 0 {
			m.Report(try, []membership.Report{{Member: m.id, Incarnation: m.incarnation(), Step: p.Step, What: what}})
		}
		done()
	}
}

func (m *member) setSilent(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = on
}

// setIncarnation has the member go on as another incarnation.
func (m *member) setIncarnation(inc uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inc = inc
}

func (m *member) incarnation() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.inc
}

func (m *member) setSlow(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = d
}

func (m *member) waitedFor(p *membership.Placement) membership.What {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.silent {
		return 0
	}
	for _, w := range membership.Waiting(p) {
		if w.Member != m.id {
			continue
		}
		if at := (membership.Report{Step: p.Step, What: w.What}); m.at != at {
			m.at, m.began = at, time.Now()
		}
		if time.Since(m.began) >= m.slow {
			return w.What
		}
	}
	return 0
}

// kill ends a member without a word to the others: its network is cut first.
func (m *member) kill() {
	m.c.net.isolate(addrOf(m.id))
	m.close()
	m.c.net.heal(addrOf(m.id))
}

func (m *member) close() {
	m.once.Do(func() {
		m.stop()
		m.Close()
		m.wg.Wait()
	})
}

// note compares the placement with what others had at that revision.
func (c *cluster) note(id string, p *membership.Placement) {
	k := fmt.Sprintf("%s/%d", p.ClusterID, p.Revision)
	d := membership.Digest(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.digests[k]; ok && old != d {
		c.forked = fmt.Sprintf("member %s has another placement at revision %s: %s", id, k, p)
	}
	c.digests[k] = d
}

// eventually waits for a condition.
func (c *cluster) eventually(what string, ok func() bool) {
	c.t.Helper()
	end := time.Now().Add(c.patient)
	tick := time.NewTicker(c.look)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(end) {
			for id, m := range c.members {
				s := m.Status()
				c.t.Logf("%s: %s, leader %q, servers %v, %s", id, s.State, s.LeaderID, s.Servers, m.Placement())
			}
			c.t.Fatalf("%s: not within %s", what, c.patient)
		}
		<-tick.C
	}
}

// leader gives the member that leads, once there is one.
func (c *cluster) leader() *member {
	c.t.Helper()
	var out *member
	c.eventually("a leader", func() bool {
		for _, m := range c.members {
			if m.IsLeader() && m.confirm() == nil {
				out = m
				return true
			}
		}
		return false
	})
	return out
}

func (c *cluster) leaderPlacement() *membership.Placement { return c.leader().Placement() }

// follower gives a member that follows.
func (c *cluster) follower() *member {
	l := c.leader()
	for _, m := range c.members {
		if m != l {
			return m
		}
	}
	c.t.Fatal("no follower")
	return nil
}

// placed waits until all members have a stable placement of these ones.
func (c *cluster) placed(ids ...string) {
	c.t.Helper()
	slices.Sort(ids)
	c.eventually(fmt.Sprintf("placement of %v", ids), func() bool {
		for _, m := range c.members {
			p := m.Placement()
			var have []string
			for _, b := range p.Base {
				have = append(have, b.ID)
			}
			if p.Stage != membership.StageStable || p.Running != nil || !slices.Equal(have, ids) {
				return false
			}
		}
		return true
	})
}

func (c *cluster) submit(m *member, q ChangeRequest) membership.Change {
	c.t.Helper()
	ch, err := m.Submit(c.ctx, q)
	if err != nil {
		c.t.Fatalf("submit %+v on %s: %v", q, m.id, err)
	}
	return ch
}

// votes gives the voters by the leader's word, sorted.
func (c *cluster) votes() []string {
	var out []string
	for _, s := range c.leader().Status().Servers {
		if s.Voter {
			out = append(out, s.ID)
		}
	}
	slices.Sort(out)
	return out
}

// forget takes a member out of the test: it has been killed and does not come back.
func (c *cluster) forget(id string) { delete(c.members, id) }
