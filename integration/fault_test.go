package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/integration/process"
	"chainmail/internal/api"
	"chainmail/internal/pgtest"
)

// Each member in turn is killed and comes back: in memory it fills again, on disk it has what it had.
func TestRestartEachInTurn(t *testing.T) {
	for _, store := range []string{chainmail.StoreMemory, chainmail.StoreBolt, chainmail.StorePostgres} {
		t.Run(store, func(t *testing.T) {
			set := process.Settings{Store: store}
			if store == chainmail.StorePostgres && !testing.Short() {
				set.DSN = pgtest.Start(t).DSN()
			}
			c := begin(t, 3, set)
			c.importRows(500)
			c.start()
			for _, m := range c.members {
				c.must(m.Kill())
				c.more(300)
				c.must(m.Start())
				c.ready(c.members...)
				c.more(200)
			}
			c.check(true)
		})
	}
}

// Each member in turn, all of them voters, loses its whole disk and comes back under its name: its vote is taken before it
// takes part again, and it has one again when it has caught up.
func TestWipeEachInTurn(t *testing.T) {
	c := begin(t, 3, process.Settings{Store: "bolt"})
	c.importRows(500)
	c.start()
	for _, m := range c.members {
		c.must(m.Kill())
		c.must(m.Wipe())
		c.more(300)
		c.must(m.Start())
		c.ready(c.members...)
		c.until(m.ID+" has a vote again", func(context.Context) (bool, string) {
			votes := 0
			for _, s := range c.raft() {
				if s.Voter {
					votes++
				}
			}
			return votes == 3, fmt.Sprint(c.raft())
		})
		c.more(200)
		told := 0
		for _, x := range c.members {
			b, err := os.ReadFile(x.Log())
			c.must(err)
			told += strings.Count(string(b), "a voter comes back without its log: it is demoted: member="+m.ID)
		}
		if told == 0 {
			t.Errorf("%s came back without its log, and no leader has demoted it", m.ID)
		}
	}
	c.check(true)
}

// All members at once lose their power: with a store on disk every acknowledged write is there again.
func TestPowerCycleOfAll(t *testing.T) {
	powerCycle(t, process.Settings{Store: chainmail.StoreBolt}, func() {})
}

// Likewise with a store in a database, whose server dies with the members.
func TestPowerCycleWithDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; make integration runs it")
	}
	srv := pgtest.Start(t)
	powerCycle(t, process.Settings{Store: chainmail.StorePostgres, DSN: srv.DSN()}, func() {
		if err := errors.Join(srv.Stop(syscall.SIGQUIT), srv.Run()); err != nil {
			t.Fatal(err)
		}
	})
}

func powerCycle(t *testing.T, set process.Settings, between func()) {
	c := begin(t, 3, set)
	c.importRows(500)
	c.start()
	c.more(500)
	for _, m := range c.members {
		c.must(m.Signal(syscall.SIGKILL))
	}
	c.load.Stop()
	between()
	for _, m := range c.members {
		c.must(m.Kill())
		c.must(m.Start())
	}
	c.ready(c.members...)
	c.check(true)
}

// The server of the database dies under a load, and is away for longer than a member that does not answer would be taken
// for down. No member fails for it, and what they had acknowledged is there.
func TestDatabaseDies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; make integration runs it")
	}
	srv := pgtest.Start(t)
	c := begin(t, 3, process.Settings{Store: chainmail.StorePostgres, DSN: srv.DSN()})
	c.importRows(500)
	c.start()
	c.more(500)
	if err := srv.Stop(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	select {
	case <-time.After(3 * time.Second): // the fault itself
	case <-t.Context().Done():
	}
	if err := srv.Run(); err != nil {
		t.Fatal(err)
	}
	c.more(500)
	c.ready(c.members...)
	c.check(true)
}

// The leader of the log dies in each stage of a change; the change goes on without it.
func TestLeaderKilledInEveryStage(t *testing.T) {
	for _, stage := range []membership.Stage{membership.StageCopy, membership.StageSwitch} {
		t.Run(stage.String(), func(t *testing.T) {
			c := begin(t, 5, process.Settings{})
			c.importRows(manyRows)
			c.start()
			var d *process.Member
			var id string
			if stage == membership.StageCopy {
				c.slow()
				d = c.join(1)[0]
				id = c.submit(coordinator.ChangeRequest{Add: []string{d.ID}}).ID
				c.stage(stage)
			} else {
				id, d = c.stalled()
			}
			leader, _ := c.leader()
			c.must(leader.Kill())
			c.client.SetEndpoints(c.endpointsBut(d))
			c.must(d.Signal(syscall.SIGCONT))
			c.limit(membership.Limits{})
			if p := c.ended(id); p.Outcome != membership.Done {
				t.Errorf("the change is %s", p.Outcome)
			}
			c.must(leader.Start())
			c.ready(c.members...)
			c.check(true)
		})
	}
}

func (c *cluster) endpointsBut(m *process.Member) (out []string) {
	for _, e := range c.endpoints() {
		if e != m.HTTP {
			out = append(out, e)
		}
	}
	return out
}

// The voters of the log are gone: keys whose owner and quorum are left are read and written as before.
func TestWithoutVoters(t *testing.T) {
	c := begin(t, 1, process.Settings{Extra: "membership {\n  down_after = \"1500ms\"\n  max_voters = 1\n}\n"})
	c.must(c.apply(coordinator.ChangeRequest{Add: ids(c.join(3))}))
	c.ready(c.members...)
	c.importRows(200)
	s, err := c.client.Status(patient(t))
	c.must(err)
	var voter *process.Member
	for _, m := range c.members {
		if m.ID == s.Leader {
			voter = m
		}
	}
	var reachable []string
	for _, r := range c.rows {
		l := c.locate("kv", r.Key)
		if l.Owner != voter.ID {
			reachable = append(reachable, r.Key)
		}
	}
	for _, srv := range c.raft() {
		if srv.Voter && srv.ID != voter.ID {
			t.Fatalf("there are more voters than one: %+v", c.raft())
		}
	}
	c.must(voter.Signal(syscall.SIGSTOP))
	defer voter.Signal(syscall.SIGCONT)
	c.client.SetEndpoints(c.endpointsBut(voter))
	for i, key := range reachable {
		ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
		if _, err := c.client.Put(ctx, key, []byte(fmt.Sprint(i))); err != nil {
			t.Fatalf("put %s without a voter: %v", key, err)
		}
		if b, _, err := c.client.Get(ctx, key); err != nil || string(b) != fmt.Sprint(i) {
			t.Fatalf("get %s without a voter: %s %v", key, b, err)
		}
		done()
	}
	t.Logf("%d keys written and read without a voter", len(reachable))
}

func (c *cluster) locate(typ, key string) (l chainmail.Location) {
	c.t.Helper()
	c.must(c.client.Do(patient(c.t), "GET", "/v1/ring/locate?type="+typ+"&key="+key, nil, &l, true))
	return l
}

func (c *cluster) raft() []coordinator.Server {
	c.t.Helper()
	var s coordinator.Status
	c.must(c.client.Do(patient(c.t), "GET", "/v1/operator/raft", nil, &s, true))
	return s.Servers
}

// Two of three old replicas cannot be reached while a member gains their ranges: a read there waits and fails with an
// error that says what is missing. It never says that there is nothing.
func TestGainedRangeIsNeverServedEmpty(t *testing.T) {
	c := begin(t, 5, process.Settings{})
	c.importRows(300)
	joiner := c.join(1)[0]
	leader, _ := c.leader()
	c.must(joiner.Signal(syscall.SIGSTOP)) // so that it has filled nothing when the step is in switch
	c.client.SetEndpoints([]string{leader.HTTP})
	c.submit(coordinator.ChangeRequest{Add: []string{joiner.ID}})
	c.stage(membership.StageSwitch)
	var stopped []*process.Member // the quorum of the log stays
	for _, m := range c.members[:5] {
		if m != leader && len(stopped) < 2 {
			stopped = append(stopped, m)
			c.must(m.Signal(syscall.SIGSTOP))
		}
	}
	c.must(joiner.Signal(syscall.SIGCONT))
	asked, named := 0, 0
	for _, r := range c.rows {
		l := c.locate("kv", r.Key)
		out := 0
		for _, id := range l.Replicas {
			if id == stopped[0].ID || id == stopped[1].ID {
				out++
			}
		}
		gained := !slices.Contains(l.Replicas, joiner.ID) && slices.Contains(l.Next, joiner.ID)
		if out < 2 || !gained {
			continue
		}
		asked++
		text := c.refusedEmpty(joiner, r.Key)
		if strings.Contains(text, stopped[0].ID+" (no answer)") && strings.Contains(text, stopped[1].ID+" (no answer)") {
			named++ // the others name an owner that is asked itself, and did not say in time whom it waits for
		}
		if asked >= 3 && named > 0 || asked == 10 {
			break
		}
	}
	if asked == 0 {
		t.Fatal("no key lost two replicas in a gained range: nothing was tried")
	}
	if named == 0 {
		t.Errorf("none of %d errors names %s and %s", asked, stopped[0].ID, stopped[1].ID)
	}
	for _, m := range stopped {
		c.must(m.Signal(syscall.SIGCONT))
	}
	c.client.SetEndpoints(c.endpoints())
	for _, r := range c.rows {
		if b, _, err := c.client.Get(patient(t), r.Key); err != nil || string(b) != string(r.Value) {
			t.Fatalf("after the heal %s is %.40q, %v", r.Key, b, err)
		}
	}
}

func (c *cluster) refusedEmpty(joiner *process.Member, key string) (text string) {
	c.t.Helper()
	cl := api.NewClient([]string{joiner.HTTP}, "", nil)
	defer cl.Close()
	ctx, done := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer done()
	began := time.Now()
	_, _, err := cl.Get(ctx, key)
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != "unavailable" && !p.UnknownOutcome || !strings.Contains(p.Detail, key) || !strings.Contains(p.Detail, "step +"+joiner.ID) {
		c.t.Errorf("get %s with one of three replicas gives %v", key, err)
		return ""
	}
	if d := time.Since(began); d < time.Second {
		c.t.Errorf("get %s did not wait: %s", key, d)
	}
	c.t.Logf("%v", err)
	return p.Detail
}

// A member that was stopped for long comes back with its old view and serves nothing stale.
func TestStoppedOwnerComesBack(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(300)
	c.start()
	_, m := c.leader()
	for range 3 {
		c.must(m.Signal(syscall.SIGSTOP))
		c.see(m.ID+" is down", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return x.Down })
		c.more(300)
		c.must(m.Signal(syscall.SIGCONT))
		c.see(m.ID+" is up", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return !x.Down })
		c.more(300)
	}
	l := c.load
	c.load = nil
	l.Stop()
	r, err := l.Verify(patient(t), c.endpoints())
	c.must(err)
	// A stopped member does not answer its own callers; that is no silence of the cluster.
	if r.Lost > 0 || r.WrongReads > 0 || r.Acknowledged == 0 {
		t.Errorf("%+v", r)
	}
	t.Logf("%d writes and %d reads, errors %v", r.Acknowledged, r.Reads, r.Errors)
}
