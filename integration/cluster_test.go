package integration

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/examples/data"
	"chainmail/integration/load"
	"chainmail/integration/process"
	"chainmail/internal/api"
	"chainmail/internal/rows"
)

var raceBinary = flag.Bool("race-binary", false, "build the members with the race detector")

// binary is the program under test, built once; ownBinary builds one with actor types of its own.
var (
	binary    string
	ownBinary func() (string, error)
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "cluster-integration-")
		if err != nil {
			fmt.Println(err)
			return 1
		}
		defer os.RemoveAll(dir)
		binary = filepath.Join(dir, "cluster")
		args := []string{"build", "-o", binary}
		if *raceBinary {
			args = append(args, "-race")
		}
		build := exec.Command("go", append(args, "chainmail/cmd/cluster")...)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Printf("build: %v\n%s", err, out)
			return 1
		}
		args[2] = filepath.Join(dir, "member")
		ownBinary = sync.OnceValues(func() (string, error) {
			out, err := exec.Command("go", append(args, "chainmail/integration/member")...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("build: %w\n%s", err, out)
			}
			return args[2], err
		})
		return m.Run()
	}())
}

const patience = 30 * time.Second

// cluster is what a test runs: member processes, a client, and a load that is checked.
type cluster struct {
	t       *testing.T
	binary  string
	dir     string
	set     process.Settings
	members []*process.Member
	client  *api.Client
	load    *load.Load
	rows    []rows.Row
	place   func(i int) *process.Place // of the i-th member; nil: loopback
}

// beginOwn is begin with members that have the types of integration/member.
func beginOwn(t *testing.T, n int, set process.Settings) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("takes long; make integration runs it")
	}
	b, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	return beginWith(t, b, n, set, nil)
}

// begin starts n members that form a cluster.
func begin(t *testing.T, n int, set process.Settings) *cluster {
	t.Helper()
	return beginWith(t, binary, n, set, nil)
}

func beginWith(t *testing.T, binary string, n int, set process.Settings, place func(int) *process.Place) *cluster {
	t.Helper()
	if testing.Short() && t.Name() != "TestReplaceOne" {
		t.Skip("takes long; make integration runs it")
	}
	if set.Store == "" {
		set.Store = "none"
	}
	c := &cluster{t: t, binary: binary, dir: t.TempDir(), set: set, place: place}
	var addrs []string
	for range n {
		m := c.make()
		addrs = append(addrs, m.Cluster)
	}
	first := set
	first.Join, first.Expect = addrs, n
	if n%2 == 0 {
		first.Expect = n - 1
	}
	c.set.Join = addrs
	for i, m := range c.members {
		s := first
		if i >= first.Expect {
			s.Expect = 0
		}
		c.must(m.Configure(s))
		c.must(m.Start())
	}
	t.Cleanup(c.end)
	c.client = api.NewClient(c.endpoints(), "", nil)
	c.registered(ids(c.members)...)
	if n > first.Expect {
		c.must(c.apply(coordinator.ChangeRequest{Add: ids(c.members[first.Expect:])}))
	}
	c.ready(c.members...)
	return c
}

func (c *cluster) end() {
	if c.load != nil {
		c.load.Stop()
	}
	c.client.Close()
	for _, m := range c.members {
		if err := m.Stop(5 * time.Second); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			c.t.Logf("member %s said:\n%s", m.ID, m.Tail(3))
		}
	}
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// make makes a member that is not started.
func (c *cluster) make() *process.Member {
	c.t.Helper()
	set := c.set
	if c.place != nil {
		set.Place = c.place(len(c.members))
	}
	m, err := process.New(c.binary, c.dir, fmt.Sprintf("m%d", len(c.members)+1), set)
	c.must(err)
	c.members = append(c.members, m)
	return m
}

// join starts k members more and waits until they are registered.
func (c *cluster) join(k int) []*process.Member {
	c.t.Helper()
	var out []*process.Member
	for range k {
		m := c.make()
		c.must(m.Start())
		out = append(out, m)
	}
	c.registered(ids(out)...)
	return out
}

func ids(ms []*process.Member) (out []string) {
	for _, m := range ms {
		out = append(out, m.ID)
	}
	return out
}

func (c *cluster) endpoints() (out []string) {
	for _, m := range c.members {
		if m.Running() {
			out = append(out, m.HTTP)
		}
	}
	return out
}

// patient gives a context for what has to happen soon.
func patient(t *testing.T) context.Context {
	ctx, done := context.WithTimeout(context.Background(), patience)
	t.Cleanup(done)
	return ctx
}

// until waits until f says yes; why says what is seen instead.
func (c *cluster) until(what string, f func(ctx context.Context) (ok bool, why string)) {
	c.t.Helper()
	ctx := patient(c.t)
	for {
		q, done := context.WithTimeout(ctx, 2*time.Second)
		ok, why := f(q)
		done()
		if ok {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("not within %s: %s; %s", patience, what, why)
		}
	}
}

func (c *cluster) placement() membership.Placement {
	c.t.Helper()
	p, err := c.client.Placement(patient(c.t))
	c.must(err)
	return p
}

// see waits for a placement.
func (c *cluster) see(what string, f func(p *membership.Placement) bool) {
	c.t.Helper()
	c.until(what, func(ctx context.Context) (bool, string) {
		p, err := c.client.Placement(ctx)
		return err == nil && f(&p), fmt.Sprint(p.String(), err)
	})
}

func (c *cluster) registered(ids ...string) {
	c.t.Helper()
	c.see(fmt.Sprint(ids, " are registered"), func(p *membership.Placement) bool {
		return !slices.ContainsFunc(ids, func(id string) bool { m, ok := p.Member(id); return !ok || m.Incarnation == 0 })
	})
}

// ready waits until members serve and hold their ranges.
func (c *cluster) ready(ms ...*process.Member) {
	c.t.Helper()
	for _, m := range ms {
		cl := api.NewClient([]string{m.HTTP}, "", nil)
		c.until(m.ID+" is ready", func(ctx context.Context) (bool, string) {
			s, err := cl.Status(ctx)
			return err == nil && s.Ready && len(s.Refilling)+len(s.Down) == 0, fmt.Sprintf("%+v %v", s, err)
		})
		cl.Close()
	}
}

// importRows puts k of the navaids.
func (c *cluster) importRows(k int) {
	c.t.Helper()
	all, err := rows.Read(bytes.NewReader(data.Navaids), "navaids.csv", "id")
	c.must(err)
	c.rows = all[:k]
	n, err := rows.Import(patient(c.t), c.client, c.rows, func(int) {})
	if err != nil || n != k {
		c.t.Fatalf("%d rows imported: %v", n, err)
	}
}

// start starts the load and waits until it runs.
func (c *cluster) start() {
	c.t.Helper()
	c.load = load.Start(load.Config{Endpoints: c.endpoints(), Counters: 200, Rows: c.rows, Writers: 4, Readers: 4, Pace: time.Millisecond, Seed: 1})
	c.more(500)
}

// more waits for n further answers.
func (c *cluster) more(n int64) {
	c.t.Helper()
	want := c.load.Ops() + n
	c.until("the load goes on", func(context.Context) (bool, string) {
		return c.load.Ops() >= want, fmt.Sprintf("%d requests, %d errors", c.load.Ops(), c.load.Errors())
	})
}

// check stops the load and checks everything that was asked. errors says whether callers may have seen some.
func (c *cluster) check(errors bool) load.Report {
	c.t.Helper()
	l := c.load
	c.load = nil
	l.Stop()
	r, err := l.Verify(patient(c.t), c.endpoints())
	c.must(err)
	if r.Lost > 0 || r.WrongReads > 0 || r.Unanswered > 0 || r.Acknowledged == 0 || r.Verified != len(c.rows) {
		c.t.Errorf("%+v", r)
	}
	if len(r.Errors) > 0 && !errors {
		c.t.Errorf("callers saw errors: %v %v", r.Errors, r.Examples)
	}
	c.t.Logf("%d writes and %d reads, errors %v", r.Acknowledged, r.Reads, r.Errors)
	return r
}

// submit starts a change.
func (c *cluster) submit(q coordinator.ChangeRequest) membership.Change {
	c.t.Helper()
	ch, err := c.client.Submit(patient(c.t), q)
	c.must(err)
	return ch
}

// ended waits for the end of a change and gives it.
func (c *cluster) ended(id string) chainmail.ChangeProgress {
	c.t.Helper()
	var p chainmail.ChangeProgress
	c.until("change "+id+" ends", func(ctx context.Context) (bool, string) {
		var err error
		p, err = c.client.Progress(ctx, id)
		return err == nil && p.Outcome != membership.Running, fmt.Sprint(p, p.Waiting, err)
	})
	return p
}

// apply submits a change and waits until it is done.
func (c *cluster) apply(q coordinator.ChangeRequest) error {
	c.t.Helper()
	p := c.ended(c.submit(q).ID)
	if p.Outcome != membership.Done {
		return fmt.Errorf("change %s is %s", p.ID, p.Outcome)
	}
	return nil
}

// gone waits until removed members' processes have ended by themselves.
func (c *cluster) gone(ms ...*process.Member) {
	c.t.Helper()
	for _, m := range ms {
		c.must(m.Wait(patient(c.t)))
	}
	c.client.SetEndpoints(c.endpoints())
}

// stage waits until the active step is in a stage.
func (c *cluster) stage(s membership.Stage) {
	c.t.Helper()
	c.see("stage "+s.String(), func(p *membership.Placement) bool { return p.Stage == s })
}

// leader gives the member that leads, and one of the others.
func (c *cluster) leader() (leader, other *process.Member) {
	c.t.Helper()
	c.until("a leader is known", func(ctx context.Context) (bool, string) {
		s, err := c.client.Status(ctx)
		for _, m := range c.members {
			switch {
			case !m.Running():
			case m.ID == s.Leader:
				leader = m
			case membership.In(c.placement().Base, m.ID):
				other = m
			}
		}
		return leader != nil, fmt.Sprint(s.Leader, err)
	})
	return leader, other
}
