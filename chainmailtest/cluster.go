package chainmailtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

// Options say what cluster New starts. The zero value of a field takes the default named there.
type Options struct {
	Members  int                // default 3
	Types    []actor.Registered // beside the built-in ones
	Replicas int                // copies of a key; default 3
	Durable  bool               // state is kept on disk; else it is gone when its member is killed
	// Heartbeat is the log's: a leader that is silent for so long is replaced. Default 200 ms, and 2 s in a synctest bubble,
	// where hours are to pass quickly. Members are taken for down after 1 s, and 3 s in a bubble.
	Heartbeat time.Duration
	// Config may change a member's configuration before each of its starts.
	Config func(i int, c *chainmail.Config)
}

const (
	firstVoters = 5 // the default of Membership.MaxVoters: further members join
	lookEvery   = 10 * time.Millisecond
)

// pace is how fast things go.
type pace struct {
	heartbeat, commit, downAfter time.Duration
	patience                     time.Duration // how long the Cluster waits for anything before it fails the test
}

// In a bubble the times are those of production, and what is committed is told more lazily: each message that is sent for
// the sake of time makes a virtual hour longer.
var (
	realPace   = pace{heartbeat: 200 * time.Millisecond, downAfter: time.Second, patience: 30 * time.Second}
	bubblePace = pace{heartbeat: 2 * time.Second, commit: 250 * time.Millisecond, downAfter: 3 * time.Second, patience: 5 * time.Minute}
)

// paceHere tells a synctest bubble by its clock, which begins in the year 2000.
func paceHere() pace {
	if time.Now().Year() < 2010 {
		return bubblePace
	}
	return realPace
}

// Cluster is a running cluster. Members have numbers, from 0 on; one that was removed keeps its number.
type Cluster struct {
	t    TB
	opts Options
	pace pace
	net  *network
	dir  string

	mu      sync.Mutex
	members []*member
	next    int // for Any
}

type member struct {
	id      string
	host    *host
	node    *chainmail.Node
	dead    bool
	removed bool
	going   bool // it is being let go
	paused  bool
}

func (m *member) works() bool { return !m.dead && !m.paused && !m.going }

// New starts a cluster in this process. When it returns all members serve; it is closed when the test ends.
func New(t TB, o Options) *Cluster {
	t.Helper()
	if o.Members == 0 {
		o.Members = 3
	}
	if o.Members < 0 || o.Replicas < 0 || o.Heartbeat < 0 {
		t.Fatalf("chainmailtest: Members is %d, Replicas %d, Heartbeat %s: none is below 0", o.Members, o.Replicas, o.Heartbeat)
	}
	c := &Cluster{t: t, opts: o, pace: paceHere(), net: newNetwork(), dir: t.TempDir()}
	if o.Heartbeat != 0 {
		c.pace.heartbeat = o.Heartbeat
	}
	t.Cleanup(c.close)
	voters := map[string]string{}
	for i := range min(o.Members, firstVoters) {
		m := c.start(i)
		voters[m.id] = m.node.Addr()
	}
	for _, m := range c.all() {
		if err := m.node.Coordinator().Bootstrap(voters, true); err != nil {
			t.Fatalf("chainmailtest: %v", err)
		}
	}
	for i := range len(voters) {
		c.ready(i)
	}
	if more := o.Members - len(voters); more > 0 {
		c.Add(more)
	}
	c.Settle()
	return c
}

func (c *Cluster) config(i int, h *host) chainmail.Config {
	cfg := chainmail.Config{
		NodeID: h.name, ClusterName: c.t.Name(), BindAddr: address(h.name), Network: h, DataDir: filepath.Join(c.dir, h.name), Store: chainmail.StoreMemory,
		Replicas: c.opts.Replicas, Types: c.opts.Types, Raft: chainmail.Raft{Heartbeat: c.pace.heartbeat, CommitTimeout: c.pace.commit},
		Membership: chainmail.Membership{DownAfter: c.pace.downAfter, RemoveDownAfter: -1},
	}
	if c.opts.Durable {
		cfg.Store = chainmail.StoreBolt
	}
	cfg.BeforeGoing = func(ctx context.Context) { c.letGo(ctx, i) }
	if c.opts.Config != nil {
		c.opts.Config(i, &cfg)
	}
	return cfg
}

// start starts a member, the first time or again.
func (c *Cluster) start(i int) *member {
	c.t.Helper()
	name := fmt.Sprintf("m%d", i)
	h := c.net.host(name)
	node, err := chainmail.Start(c.t.Context(), c.config(i, h))
	if err != nil {
		c.t.Fatalf("chainmailtest: %v", err)
	}
	m := &member{id: name, host: h, node: node}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i < len(c.members) {
		m.paused = c.members[i].paused
		c.members[i] = m
	} else {
		c.members = append(c.members, m)
	}
	return m
}

// close ends all members as if they were killed: nobody is left to take anything over.
func (c *Cluster) close() {
	var wg sync.WaitGroup
	for _, m := range c.all() {
		m.host.kill()
	}
	for _, m := range c.all() {
		wg.Go(func() {
			if err := m.node.Close(); err != nil {
				c.t.Errorf("chainmailtest: close %s: %v", m.id, err)
			}
		})
	}
	wg.Wait()
}

// all gives the members as they are now.
func (c *Cluster) all() []member {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]member, len(c.members))
	for i, m := range c.members {
		out[i] = *m
	}
	return out
}

// Len is how many numbers there are.
func (c *Cluster) Len() int { return len(c.all()) }

// Node gives a member. After Kill its calls fail with chainmail.ErrClosed; after Restart there is another one.
func (c *Cluster) Node(i int) *chainmail.Node {
	c.t.Helper()
	c.known("Node", i)
	return c.all()[i].node
}

// known fails the test if a number is no member's, before anything is done with it or locked.
func (c *Cluster) known(what string, which ...int) {
	c.t.Helper()
	n := c.Len()
	for _, i := range which {
		if i < 0 || i >= n {
			c.t.Fatalf("chainmailtest: %s of member %d: there are members 0 to %d", what, i, n-1)
		}
	}
}

// Any gives a member that runs, another one each time.
func (c *Cluster) Any() *chainmail.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range c.members {
		c.next++
		if m := c.members[c.next%len(c.members)]; m.works() {
			return m.node
		}
	}
	panic("chainmailtest: no member runs")
}

// AskActor and TellActor send a message from Any: a Cluster can be asked like a Node.
func (c *Cluster) AskActor(ctx context.Context, call actor.Call) ([]byte, error) {
	return c.Any().AskActor(ctx, call)
}

// TellActor is described at AskActor.
func (c *Cluster) TellActor(ctx context.Context, call actor.Call) error {
	return c.Any().TellActor(ctx, call)
}

// Owner gives the number of the member that owns a key by the newest placement, -1 if none does.
func (c *Cluster) Owner(typ, key string) int {
	c.t.Helper()
	all := c.all()
	n := newest(all)
	if n == nil {
		return -1
	}
	loc, err := n.Locate(typ, key)
	if err != nil {
		c.t.Errorf("chainmailtest: %v", err)
	}
	for i, m := range all {
		if m.id == loc.Owner {
			return i
		}
	}
	return -1
}

// newest gives the member with the newest placement among those that run, nil if none does.
func newest(all []member) (best *chainmail.Node) {
	for _, m := range all {
		if m.works() && (best == nil || m.node.Coordinator().Placement().Revision > best.Coordinator().Placement().Revision) {
			best = m.node
		}
	}
	return best
}

// Add starts members and puts them on the ring. It returns their numbers when the change is done.
func (c *Cluster) Add(k int) []int { c.t.Helper(); return c.Change(k) }

// Remove takes members from the ring, and closes them once they have handed everything over. One that was killed can be
// removed too.
func (c *Cluster) Remove(which ...int) { c.t.Helper(); c.Change(0, which...) }

// Change adds members and removes others in one change, and waits until it is done. It returns the new ones' numbers.
func (c *Cluster) Change(add int, remove ...int) []int {
	c.t.Helper()
	c.known("Change", remove...)
	if add < 0 {
		c.t.Fatalf("chainmailtest: Change adds %d members", add)
	}
	q := coordinator.ChangeRequest{Key: coordinator.NewKey(), By: "chainmailtest"}
	var added []int
	for range add {
		i := c.Len()
		m := c.start(i)
		c.join(m)
		added = append(added, i)
		q.Add = append(q.Add, m.id)
	}
	for _, i := range remove {
		q.Remove = append(q.Remove, c.all()[i].id)
	}
	if len(q.Add)+len(q.Remove) == 0 {
		return nil
	}
	c.finish(c.submit(q))
	for _, i := range remove {
		c.retire(i)
	}
	c.ready(added...)
	return added
}

// join makes a member follow the log, and waits until the log lists it.
func (c *Cluster) join(m *member) {
	c.t.Helper()
	var addrs []string
	for _, x := range c.all() {
		if x.works() && x.id != m.id {
			addrs = append(addrs, x.node.Addr())
		}
	}
	c.until("member "+m.id+" is listed", func(ctx context.Context) error {
		if x, ok := m.node.Coordinator().Placement().Member(m.id); ok && x.Incarnation == m.node.Incarnation() {
			return nil
		}
		if !m.node.Coordinator().Status().HasState {
			if err := m.node.Coordinator().Join(ctx, addrs); err != nil {
				return err
			}
		}
		return errors.New("it is not registered yet")
	})
}

// submit starts a change at a member that reaches the leader.
func (c *Cluster) submit(q coordinator.ChangeRequest) (id string) {
	c.t.Helper()
	c.until(fmt.Sprintf("change +%v -%v is taken", q.Add, q.Remove), func(ctx context.Context) (err error) {
		for _, m := range c.all() {
			if !m.works() {
				continue
			}
			ctx, done := context.WithTimeout(ctx, 5*c.pace.heartbeat)
			ch, e := m.node.Coordinator().Submit(ctx, q) // the key makes it one change, however often it is sent
			done()
			if e == nil {
				id = ch.ID
				return nil
			}
			err = e
			var r *coordinator.Refusal
			if errors.As(e, &r) && r.Code != membership.ErrRunning {
				c.t.Fatalf("chainmailtest: %v", e)
			}
		}
		return err
	})
	return id
}

// finish waits for the end of a change.
func (c *Cluster) finish(id string) {
	c.t.Helper()
	c.until("change "+id+" is done", func(ctx context.Context) error {
		n := newest(c.all())
		if n == nil {
			return errors.New("no member runs")
		}
		p := n.Coordinator().Placement()
		for _, h := range p.History {
			if h.ID == id && h.Outcome != membership.Done {
				c.t.Fatalf("chainmailtest: change %s: %s", id, h.Outcome)
			} else if h.ID == id {
				return nil
			}
		}
		return fmt.Errorf("placement %s waits for %v", p, membership.Waiting(p))
	})
}

// letGo keeps Any from giving a member that was removed, and waits until those who have it are answered.
func (c *Cluster) letGo(ctx context.Context, i int) {
	c.mu.Lock()
	m := c.members[i]
	m.going = true
	c.mu.Unlock()
	for open := 1; open > 0; {
		select {
		case <-time.After(lookEvery): // who has just been given it is about to ask
		case <-ctx.Done():
			return
		}
		open = 0
		for _, s := range m.node.Members(ctx) {
			if s.ID == m.id {
				open = s.Calls
			}
		}
	}
}

// retire closes a member that was removed, once it is let go.
func (c *Cluster) retire(i int) {
	c.t.Helper()
	if m := c.all()[i]; !m.dead && !m.paused {
		c.until("member "+m.id+" is let go", func(context.Context) error {
			select {
			case <-m.node.Removed():
				return nil
			default:
				return errors.New("it still hands over")
			}
		})
	}
	c.stop(i)
	c.mu.Lock()
	c.members[i].removed = true
	c.mu.Unlock()
}

// ready waits until members serve.
func (c *Cluster) ready(which ...int) {
	c.t.Helper()
	for _, i := range which {
		ctx, done := context.WithTimeout(context.Background(), c.pace.patience)
		err := c.Node(i).WaitReady(ctx)
		done()
		if err != nil {
			c.t.Fatalf("chainmailtest: member %d is not ready: %v", i, err)
		}
	}
}

// until repeats f until it succeeds; it fails the test when that takes too long.
func (c *Cluster) until(what string, f func(ctx context.Context) error) {
	c.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), c.pace.patience)
	defer done()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			c.t.Fatalf("chainmailtest: not in %s: %s: %v", c.pace.patience, what, err)
		}
	}
}
