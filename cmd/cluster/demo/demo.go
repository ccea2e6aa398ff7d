// Package demo shows on one machine what the cluster is for: members are processes of this binary; they are added and
// removed, killed and restarted while others write and read; at the end every key is read back.
package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
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

// Options are what the demo is run with.
type Options struct {
	Binary   string
	Members  int
	Input    string // CSV file; "" is the embedded one
	Key      string // its key column
	Duration time.Duration
	Store    string
	Keep     bool      // keep the directory with configurations and logs
	Talk     io.Writer // progress
	TTY      bool
}

const (
	counters     = 2000
	workers      = 8
	pace         = 2 * time.Millisecond
	startLimit   = 20 * time.Second
	changeLimit  = 40 * time.Second
	stopPatience = 5 * time.Second
)

// ErrInput: the input cannot be read; nothing was started.
var ErrInput = errors.New("input")

// demo is one run.
type demo struct {
	opt     Options
	dir     string
	rows    []rows.Row
	all     []*process.Member // every one that was made
	live    []*process.Member // those that are meant to run
	client  *api.Client
	load    atomic.Pointer[load.Load] // nil before it runs; others show its progress
	verdict Verdict
	windows []*load.Window
	began   time.Time
	plan    []phase
	phase   atomic.Pointer[running]
	moved   moved
}

// Run runs the demo. The verdict is complete only without an error.
func Run(ctx context.Context, opt Options) (Verdict, error) {
	d := &demo{opt: opt, began: time.Now()}
	d.verdict.Errors, d.verdict.Changes = map[string]int64{}, []ChangeResult{}
	if err := d.input(); err != nil {
		return d.verdict, fmt.Errorf("%w: %w", ErrInput, err)
	}
	var err error
	if d.dir, err = os.MkdirTemp("", "cluster-demo-"); err != nil {
		return d.verdict, err
	}
	defer d.cleanUp()
	progress, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { d.show(progress) })
	wg.Go(func() { d.watchBytes(progress) })
	err = d.run(ctx)
	stop()
	wg.Wait()
	if l := d.load.Load(); l != nil {
		l.Stop()
	}
	d.verdict.Seconds = time.Since(d.began).Seconds()
	if err != nil {
		return d.verdict, d.explained(err)
	}
	d.verdict.judge(len(d.rows))
	return d.verdict, nil
}

// explained adds where the logs are, and keeps them.
func (d *demo) explained(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	d.opt.Keep = true
	return fmt.Errorf("%s: %w; the members' logs are in %s", d.phase.Load().name, err, d.dir)
}

func (d *demo) cleanUp() {
	var wg sync.WaitGroup
	for _, m := range d.all {
		wg.Go(func() { m.Stop(stopPatience) })
	}
	wg.Wait()
	if d.client != nil {
		d.client.Close()
	}
	if d.opt.Keep {
		fmt.Fprintf(d.opt.Talk, "configurations and logs: %s\n", d.dir)
		return
	}
	os.RemoveAll(d.dir)
}

func (d *demo) input() error {
	src, name := io.Reader(bytes.NewReader(data.Navaids)), "navaids.csv"
	if d.opt.Input != "" {
		f, err := os.Open(d.opt.Input)
		if err != nil {
			return err
		}
		defer f.Close()
		src, name = f, filepath.Base(d.opt.Input)
	}
	var err error
	d.rows, err = rows.Read(src, name, d.opt.Key)
	return err
}

// run is the story.
func (d *demo) run(ctx context.Context) error {
	n := d.opt.Members
	first, second, third := "m1", "m2", "m3"
	steps := []struct {
		phase
		do func(ctx context.Context) error
	}{
		{phase{"start members", 3}, func(ctx context.Context) error { return d.start(ctx, n) }},
		{phase{"import rows", 3}, d.importRows},
		{phase{"load", 2}, func(ctx context.Context) error { return d.startLoad(ctx) }},
		{phase{"add two members and remove one", 8}, func(ctx context.Context) error { return d.replace(ctx, first) }},
		{phase{"kill " + second + " and restart it", 6}, func(ctx context.Context) error { return d.crash(ctx, second) }},
		{phase{"remove " + third + ", which is dead", 6}, func(ctx context.Context) error { return d.removeDead(ctx, third) }},
		{phase{"m" + fmt.Sprint(n+1) + " leaves on SIGTERM", 4}, func(ctx context.Context) error { return d.leave(ctx, fmt.Sprintf("m%d", n+1)) }},
		{phase{"go on", 1}, d.goOn},
		{phase{"read everything back", 4}, d.verify},
	}
	d.plan = make([]phase, 0, len(steps))
	for _, s := range steps {
		d.plan = append(d.plan, s.phase)
	}
	for i, s := range steps {
		d.enter(i)
		if err := s.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start starts the first members and forms the cluster of them.
func (d *demo) start(ctx context.Context, n int) error {
	voters := map[string]string{}
	for i := range n {
		m, err := process.New(d.opt.Binary, d.dir, fmt.Sprintf("m%d", i+1), process.Settings{Store: d.opt.Store})
		if err != nil {
			return err
		}
		d.all, d.live = append(d.all, m), append(d.live, m)
		voters[m.ID] = m.Cluster
		if err := m.Start(); err != nil {
			return err
		}
	}
	d.client = api.NewClient(d.endpoints(), "", nil)
	ctx, done := context.WithTimeout(ctx, startLimit)
	defer done()
	if err := d.client.Do(ctx, http.MethodPost, "/v1/bootstrap", api.BootstrapRequest{Voters: voters, IfNeeded: true}, nil, true); err != nil {
		return err
	}
	for _, m := range d.all {
		if err := d.ready(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) endpoints() (out []string) {
	for _, m := range d.live {
		out = append(out, m.HTTP)
	}
	return out
}

const lookEvery = 30 * time.Millisecond

// until asks again and again until f says yes, or ctx ends.
func until(ctx context.Context, what string, f func() bool) error {
	for !f() {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		}
	}
	return nil
}

// ready waits until a member serves and holds its ranges.
func (d *demo) ready(ctx context.Context, m *process.Member) error {
	c := api.NewClient([]string{m.HTTP}, "", nil)
	defer c.Close()
	return until(ctx, m.ID+" is ready", func() bool {
		q, done := context.WithTimeout(ctx, time.Second)
		defer done()
		s, err := c.Status(q)
		return err == nil && s.Ready && len(s.Refilling)+len(s.Down) == 0
	})
}

func (d *demo) importRows(ctx context.Context) error {
	n, err := rows.Import(ctx, d.client, d.rows, func(int) {})
	d.verdict.Imported = n
	return err
}

func (d *demo) startLoad(ctx context.Context) error {
	d.load.Store(load.Start(load.Config{Endpoints: d.endpoints(), Counters: counters, Rows: d.rows, Writers: workers, Readers: workers, Pace: pace, Seed: 1}))
	return d.warm(ctx)
}

// warm waits until a good number of requests was answered.
func (d *demo) warm(ctx context.Context) error {
	want := d.load.Load().Ops() + 2000
	ctx, done := context.WithTimeout(ctx, startLimit)
	defer done()
	return until(ctx, "requests are answered", func() bool { return d.load.Load().Ops() >= want })
}

// replace adds two members and removes one in one change.
func (d *demo) replace(ctx context.Context, gone string) error {
	var add []string
	for range 2 {
		m, err := process.New(d.opt.Binary, d.dir, fmt.Sprintf("m%d", len(d.all)+1), process.Settings{Store: d.opt.Store, Join: clusterAddrs(d.live)})
		if err != nil {
			return err
		}
		d.all, d.live = append(d.all, m), append(d.live, m)
		add = append(add, m.ID)
		if err := m.Start(); err != nil {
			return err
		}
	}
	if err := d.registered(ctx, add); err != nil {
		return err
	}
	err := d.change(ctx, "replace", true, coordinator.ChangeRequest{Add: add, Remove: []string{gone}, By: "demo"})
	if err != nil {
		return err
	}
	return d.ended(ctx, gone)
}

func clusterAddrs(ms []*process.Member) (out []string) {
	for _, m := range ms {
		out = append(out, m.Cluster)
	}
	return out
}

func (d *demo) registered(ctx context.Context, ids []string) error {
	ctx, done := context.WithTimeout(ctx, startLimit)
	defer done()
	return until(ctx, fmt.Sprintf("%v are registered", ids), func() bool {
		p, err := d.client.Placement(ctx)
		for _, id := range ids {
			if m, ok := p.Member(id); !ok || m.Incarnation == 0 {
				return false
			}
		}
		return err == nil
	})
}

// change submits a change and waits until it has ended. A planned one's pauses are counted.
func (d *demo) change(ctx context.Context, kind string, planned bool, q coordinator.ChangeRequest) error {
	ctx, done := context.WithTimeout(ctx, changeLimit)
	defer done()
	if planned {
		d.windows = append(d.windows, d.load.Load().Open(kind))
		defer d.load.Load().Shut()
	}
	before := d.moved.sum()
	ch, err := d.client.Submit(ctx, q)
	if err != nil {
		return err
	}
	return d.follow(ctx, kind, ch.ID, before)
}

// follow waits for the end of a change and notes it.
func (d *demo) follow(ctx context.Context, kind, id string, before [2]uint64) error {
	err := until(ctx, "change "+id+" ends", func() bool {
		p, err := d.client.Progress(ctx, id)
		if err != nil {
			return false
		}
		d.phase.Load().note.Store(progressNote(p))
		if p.Outcome == membership.Running {
			return false
		}
		d.verdict.Changes = append(d.verdict.Changes, ChangeResult{ID: p.ID, Kind: kind, Outcome: p.Outcome.String(),
			Seconds: float64(p.EndedAt-p.StartedAt) / 1000})
		return true
	})
	if err != nil {
		return err
	}
	last := &d.verdict.Changes[len(d.verdict.Changes)-1]
	d.sampleMoved(ctx)
	after := d.moved.sum()
	last.Keys, last.Bytes = after[0]-before[0], after[1]-before[1]
	if last.Outcome != "done" {
		return fmt.Errorf("change %s is %s", id, last.Outcome)
	}
	return nil
}

func progressNote(p chainmail.ChangeProgress) string {
	s := fmt.Sprintf("step %d of %d %s %s", p.StepDone+1, p.Steps, p.Step, p.Stage)
	if len(p.Waiting) > 0 {
		s += ", waits for " + p.Waiting[0].Member
	}
	return s
}

// ended waits until a removed member's process has ended by itself, without an error.
func (d *demo) ended(ctx context.Context, id string) error {
	m := d.member(id)
	d.live = slices.DeleteFunc(slices.Clone(d.live), func(x *process.Member) bool { return x == m })
	d.client.SetEndpoints(d.endpoints())
	ctx, done := context.WithTimeout(ctx, changeLimit)
	defer done()
	return m.Wait(ctx)
}

func (d *demo) member(id string) *process.Member {
	for _, m := range d.all {
		if m.ID == id {
			return m
		}
	}
	panic("no member " + id)
}

// crash kills a member and starts it again. In memory it has lost everything and fills from the others.
func (d *demo) crash(ctx context.Context, id string) error {
	m := d.member(id)
	before, began := d.moved.sum(), time.Now()
	if err := m.Kill(); err != nil {
		return err
	}
	d.moved.lost(id)
	if err := d.warm(ctx); err != nil {
		return err
	}
	if err := m.Start(); err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, changeLimit)
	defer done()
	if err := d.ready(ctx, m); err != nil {
		return err
	}
	d.sampleMoved(ctx)
	after := d.moved.sum()
	d.verdict.Changes = append(d.verdict.Changes, ChangeResult{Kind: "restart", Outcome: "done", Seconds: time.Since(began).Seconds(), Keys: after[0] - before[0], Bytes: after[1] - before[1]})
	return nil
}

// removeDead kills a member for good and removes it once it is seen to be down.
func (d *demo) removeDead(ctx context.Context, id string) error {
	m := d.member(id)
	if err := m.Kill(); err != nil {
		return err
	}
	d.moved.lost(id)
	d.live = slices.DeleteFunc(slices.Clone(d.live), func(x *process.Member) bool { return x == m })
	d.client.SetEndpoints(d.endpoints())
	q, done := context.WithTimeout(ctx, startLimit)
	defer done()
	err := until(q, id+" is seen to be down", func() bool {
		p, err := d.client.Placement(q)
		x, ok := p.Member(id)
		return err == nil && ok && x.Down
	})
	if err != nil {
		return err
	}
	return d.change(ctx, "remove dead", false, coordinator.ChangeRequest{Remove: []string{id}, By: "demo"})
}

// leave tells a member to go with SIGTERM: it submits the change itself, hands over and ends.
func (d *demo) leave(ctx context.Context, id string) error {
	before := d.moved.sum()
	m := d.member(id)
	d.windows = append(d.windows, d.load.Load().Open("leave"))
	defer d.load.Load().Shut()
	if err := m.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := d.ended(ctx, id); err != nil {
		return err
	}
	ctx, done := context.WithTimeout(ctx, changeLimit)
	defer done()
	p, err := d.client.Placement(ctx)
	if err != nil {
		return err
	}
	for _, h := range slices.Backward(p.History) {
		if slices.Contains(h.Remove, id) {
			return d.follow(ctx, "leave", h.ID, before)
		}
	}
	return fmt.Errorf("member %s ended without a change that removes it", id)
}

// goOn keeps the load up until the asked duration is over.
func (d *demo) goOn(ctx context.Context) error {
	if err := d.warm(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(time.Until(d.began.Add(d.opt.Duration))):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *demo) verify(ctx context.Context) error {
	d.load.Load().Stop()
	ctx, done := context.WithTimeout(ctx, changeLimit)
	defer done()
	r, err := d.load.Load().Verify(ctx, d.endpoints())
	if err != nil {
		return err
	}
	for _, m := range d.live {
		d.verdict.Members = append(d.verdict.Members, m.ID)
	}
	d.verdict.Report, d.verdict.Pause = r, load.PausesOf(d.windows...)
	return nil
}
