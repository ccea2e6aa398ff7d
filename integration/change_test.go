package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/integration/load"
	"chainmail/integration/process"
	"chainmail/internal/api"
)

// slow makes transfers so slow that a change stays in the stage copy.
func (c *cluster) slow() {
	c.t.Helper()
	c.limit(membership.Limits{Rate: 1024, MaxConcurrent: 1})
}

func (c *cluster) limit(l membership.Limits) {
	c.t.Helper()
	c.must(c.client.Do(patient(c.t), "PUT", "/v1/limits", l, nil, true))
}

// Rows for changes that stay in the stage copy: more bytes than a limited member takes at once.
const manyRows = 8000

// planned checks what callers of a planned change may see: no error, and short pauses.
func (c *cluster) planned(f func()) {
	c.t.Helper()
	w := c.load.Open("planned")
	f()
	c.load.Shut()
	p := load.PausesOf(w)
	c.t.Logf("longest pauses of keys: p50 %.1f ms, p99 %.1f ms, max %.1f ms", p.P50, p.P99, p.Max)
	c.more(300)
	c.check(false)
}

func TestGrowAndShrink(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	c.importRows(1000)
	c.start()
	joined := c.join(2)
	first := c.members[0]
	c.planned(func() {
		c.must(c.apply(coordinator.ChangeRequest{Add: ids(joined)}))
		c.ready(joined...)
		c.more(300)
		c.must(c.apply(coordinator.ChangeRequest{Remove: []string{first.ID, joined[1].ID}}))
		c.gone(first, joined[1])
	})
}

func TestReplaceOne(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(1000)
	c.start()
	d := c.join(1)[0]
	plan, err := c.client.Plan(patient(t), coordinator.ChangeRequest{Add: []string{d.ID}, Remove: []string{"m1"}})
	c.must(err)
	if len(plan.Steps) != 2 || plan.Steps[0].Step != "+m4" || plan.Steps[1].Step != "-m1" || !plan.OK() {
		t.Errorf("plan: %+v", plan)
	}
	keys := 0
	for _, m := range plan.Steps[0].Moves {
		keys += m.Keys // m4 takes the place of one of three replicas of 3 in 4 keys, of 1,200
	}
	if keys < 600 || keys > 1200 {
		t.Errorf("about %d keys are planned to move: %+v", keys, plan.Steps[0])
	}
	c.planned(func() {
		c.must(c.apply(coordinator.ChangeRequest{Add: []string{d.ID}, Remove: []string{"m1"}}))
		c.gone(c.members[0])
	})
}

func TestFiveJoinAtOnce(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	c.importRows(500)
	c.start()
	five := c.join(5)
	c.planned(func() {
		c.must(c.apply(coordinator.ChangeRequest{Add: ids(five)}))
		c.ready(five...)
	})
}

func TestLeaveOnSIGTERM(t *testing.T) {
	for _, store := range []string{"none", "bolt"} {
		t.Run(store, func(t *testing.T) {
			c := begin(t, 4, process.Settings{Store: store})
			c.importRows(500)
			c.start()
			c.planned(func() {
				c.must(c.members[3].Signal(syscall.SIGTERM))
				c.gone(c.members[3])
				c.see("m4 is not listed", func(p *membership.Placement) bool { _, ok := p.Member("m4"); return !ok })
			})
		})
	}
}

func TestLastMemberCannotLeave(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	var p *api.Problem
	if err := c.client.Do(patient(t), "POST", "/v1/leave", nil, nil, false); !errors.As(err, &p) || p.Code != "last-member" {
		t.Errorf("leave gives %v", err)
	}
	c.must(c.members[0].Signal(syscall.SIGTERM))
	c.must(c.members[0].Wait(patient(t))) // it only stops
}

func TestAbortInCopy(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(manyRows)
	c.slow()
	c.start()
	d := c.join(1)
	ch := c.submit(coordinator.ChangeRequest{Add: ids(d)})
	c.stage(membership.StageCopy)
	c.more(300)
	c.refusedBeside(ch.ID)
	c.until("the progress says what is left", func(ctx context.Context) (bool, string) {
		p, err := c.client.Progress(ctx, ch.ID)
		if err != nil || len(p.Filling) != 1 || len(p.Filling[0].Filling) != 1 || len(p.Waiting) == 0 {
			return false, fmt.Sprintf("%+v waits %v: %v", p.Filling, p.Waiting, err)
		}
		f := p.Filling[0].Filling[0]
		return p.Filling[0].ID == d[0].ID && f.Keys > 0 && f.Bytes > 0 && f.KeysLeft > 0 && f.BytesLeft > 0 && len(f.Sources) == 3, fmt.Sprintf("%+v", f)
	})
	c.abort(ch.ID)
	c.more(300)
	c.limit(membership.Limits{})
	c.planned(func() { c.must(c.apply(coordinator.ChangeRequest{Add: ids(d)})) }) // and again, to the end
}

func (c *cluster) refusedBeside(running string) {
	c.t.Helper()
	_, err := c.client.Submit(patient(c.t), coordinator.ChangeRequest{Remove: []string{"m2"}})
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != "change-running" || p.Change != running {
		c.t.Errorf("a second change gives %v", err)
	}
}

func (c *cluster) abort(id string) {
	c.t.Helper()
	c.must(c.client.Steer(patient(c.t), id, "abort"))
	if p := c.ended(id); p.Outcome != membership.Aborted {
		c.t.Errorf("change %s is %s", id, p.Outcome)
	}
	if p := c.placement(); len(p.Base) != 3 || p.Stage != membership.StageStable {
		c.t.Errorf("after the abort: %s", &p)
	}
}

// stalled submits a change that adds a member which is stopped before it can fill: the change stays in switch.
func (c *cluster) stalled() (id string, joiner *process.Member) {
	c.t.Helper()
	joiner = c.join(1)[0]
	c.must(joiner.Signal(syscall.SIGSTOP))
	c.client.SetEndpoints(c.httpOf(c.members[:3]))
	ch := c.submit(coordinator.ChangeRequest{Add: []string{joiner.ID}})
	c.stage(membership.StageSwitch)
	return ch.ID, joiner
}

func (c *cluster) httpOf(ms []*process.Member) (out []string) {
	for _, m := range ms {
		out = append(out, m.HTTP)
	}
	return out
}

func TestAbortInSwitch(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(500)
	c.start()
	id, joiner := c.stalled()
	// Progress says who is waited for, and that it is down.
	p, err := c.client.Progress(patient(t), id)
	c.must(err)
	if len(p.Waiting) == 0 || p.Waiting[0].Member != joiner.ID || !p.Waiting[0].Down || p.Step != "+"+joiner.ID || p.Stage != "switch" {
		t.Errorf("progress: %+v", p)
	}
	c.more(300)
	c.abort(id)
	c.must(joiner.Signal(syscall.SIGCONT))
	c.more(300)
	c.see("the joiner is up", func(p *membership.Placement) bool { m, _ := p.Member(joiner.ID); return !m.Down })
	c.must(c.apply(coordinator.ChangeRequest{Add: []string{joiner.ID}}))
	c.check(true)
}

func TestRetargetWhenJoinerDies(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(500)
	c.start()
	id, dead := c.stalled()
	other := c.join(1)[0]
	c.must(dead.Kill())
	ch := c.submit(coordinator.ChangeRequest{Remove: []string{dead.ID}, Add: []string{other.ID}, Retarget: true})
	if p := c.ended(id); p.Outcome != membership.Retargeted {
		t.Errorf("the first change is %s", p.Outcome)
	}
	if p := c.ended(ch.ID); p.Outcome != membership.Done {
		t.Errorf("the second change is %s", p.Outcome)
	}
	if p := c.placement(); !membership.In(p.Base, other.ID) || membership.In(p.Base, dead.ID) {
		t.Errorf("ring is %s", &p)
	}
	c.check(true)
}

func TestPauseAndResume(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(manyRows)
	c.slow()
	c.start()
	d := c.join(1)
	ch := c.submit(coordinator.ChangeRequest{Add: ids(d)})
	c.must(c.client.Steer(patient(t), ch.ID, "pause"))
	c.limit(membership.Limits{})
	c.until("only the pause keeps the change", func(ctx context.Context) (bool, string) {
		p, err := c.client.Progress(ctx, ch.ID)
		return err == nil && p.Paused && p.Stage == "copy" && len(p.Waiting) == 0, fmt.Sprint(p, p.Waiting, err)
	})
	c.more(300)
	if p := c.placement(); p.Stage != membership.StageCopy {
		t.Errorf("a paused change is at %s", &p)
	}
	c.planned(func() {
		c.must(c.client.Steer(patient(t), ch.ID, "resume"))
		c.ended(ch.ID)
	})
}

func TestIdempotencyKeyAndExpectedVersion(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	d := c.join(1)
	ctx := patient(t)
	var p *api.Problem
	q := coordinator.ChangeRequest{Add: ids(d), ExpectVersion: 1}
	if _, err := c.client.Submit(ctx, q); !errors.As(err, &p) || p.Code != "stale" {
		t.Errorf("an old expected version gives %v", err)
	}
	q = coordinator.ChangeRequest{Add: ids(d), Key: "k1", ExpectVersion: c.placement().Version}
	first := c.submit(q)
	again := c.submit(q)
	if first.ID == "" || again.ID != first.ID {
		t.Errorf("the same key gave %s and %s", first.ID, again.ID)
	}
	if _, err := c.client.Submit(ctx, coordinator.ChangeRequest{Remove: []string{"m1"}, Key: "k1"}); !errors.As(err, &p) || p.Code != "key-reused" || p.Change != first.ID {
		t.Errorf("the key with another body gives %v", err)
	}
	c.ended(first.ID)
	for _, bad := range []coordinator.ChangeRequest{{Add: []string{"nobody"}}, {Remove: []string{"nobody"}}} {
		if _, err := c.client.Submit(ctx, bad); !errors.As(err, &p) || p.Code != "unknown-member" || !strings.Contains(p.Detail, "nobody") {
			t.Errorf("an unknown member gives %v", err)
		}
	}
	if _, err := c.client.Submit(ctx, coordinator.ChangeRequest{Remove: []string{"m1", "m2", "m3", "m4"}}); !errors.As(err, &p) || p.Code != "invalid" {
		t.Errorf("removing everybody gives %v", err)
	}
	list := api.ChangeList{}
	c.must(c.client.Do(ctx, "GET", "/v1/changes", nil, &list, true))
	if len(list.Changes) < 2 || list.Changes[0].ID != first.ID || list.Changes[0].Outcome != membership.Done || list.Changes[0].EndedAt < list.Changes[0].StartedAt {
		t.Errorf("history: %+v", list)
	}
}

// A removed member that comes back with what it had is refused; with nothing it is new.
func TestRemovedMemberComesBack(t *testing.T) {
	c := begin(t, 4, process.Settings{Store: "bolt"})
	m := c.members[3]
	c.must(c.apply(coordinator.ChangeRequest{Remove: []string{m.ID}}))
	c.gone(m)
	c.see("m4 is forgotten", func(p *membership.Placement) bool { _, ok := p.Member("m4"); return !ok })
	c.must(m.Start())
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if err := m.Wait(ctx); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("a removed member with its old data: %v", err)
	}
	c.must(m.Wipe())
	c.must(m.Start())
	c.registered("m4")
	c.must(c.apply(coordinator.ChangeRequest{Add: []string{"m4"}}))
	c.ready(m)
}

// A member that is removed while it is stopped learns of that when it goes on, though nobody may tell it anything any more: it is
// refused, or it is in time to be let go.
func TestRemovedWhileStopped(t *testing.T) {
	c := begin(t, 4, process.Settings{})
	c.importRows(300)
	c.start()
	ended := func(m *process.Member) {
		ctx, done := context.WithTimeout(context.Background(), patience)
		defer done()
		err := m.Wait(ctx)
		if ctx.Err() != nil || err != nil && !strings.Contains(err.Error(), "removed") || err == nil && !strings.Contains(m.Tail(20), "removed from the cluster") {
			t.Errorf("%s, which was removed while it was stopped: %v; it said:\n%s", m.ID, err, m.Tail(20))
		}
	}
	_, m := c.leader()
	c.must(m.Signal(syscall.SIGSTOP))
	c.must(c.apply(coordinator.ChangeRequest{Remove: []string{m.ID}}))
	c.more(300)
	c.must(m.Signal(syscall.SIGCONT))
	ended(m)
	l := c.load
	c.load = nil
	l.Stop()
	r, err := l.Verify(patient(t), c.httpOf(slices.DeleteFunc(slices.Clone(c.members), func(x *process.Member) bool { return x == m })))
	c.must(err)
	if r.Lost > 0 || r.WrongReads > 0 || r.Acknowledged == 0 { // a stopped member does not answer its own callers
		t.Errorf("%+v", r)
	}
}
