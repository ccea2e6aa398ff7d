package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/integration/process"
)

const exitNoLeader, exitConflict, exitUsage, exitPreflight = 3, 5, 2, 7

// written puts keys and waits until every replica of each has its value.
func (c *cluster) written(n int) map[string]string {
	c.t.Helper()
	out := map[string]string{}
	for i := range n {
		key := fmt.Sprint("key-", i)
		for _, v := range []string{"first", "last"} {
			out[key] = fmt.Sprint(v, " value of ", key)
			_, err := c.client.Put(patient(c.t), key, []byte(out[key]))
			c.must(err)
		}
	}
	for key := range out {
		c.until(key+" is everywhere", func(ctx context.Context) (bool, string) {
			var es []chainmail.Explanation
			err := c.client.Do(ctx, "GET", "/v1/copies/kv/"+key, nil, &es, true)
			ok := err == nil && len(es) > 0
			for _, e := range es {
				ok = ok && e.Copy.Stamp == es[0].Copy.Stamp && !e.Copy.Stamp.IsZero()
			}
			return ok, fmt.Sprintf("%+v %v", es, err)
		})
	}
	return out
}

// holds checks that every key has its value and takes another.
func (c *cluster) holds(want map[string]string) {
	c.t.Helper()
	for key, v := range want {
		b, _, err := c.client.Get(patient(c.t), key)
		if err != nil || string(b) != v {
			c.t.Fatalf("%s is %q, %v; want %q", key, b, err, v)
		}
		if _, err := c.client.Put(patient(c.t), key, []byte(v+" and more")); err != nil {
			c.t.Fatalf("put %s: %v", key, err)
		}
		if b, _, err := c.client.Get(patient(c.t), key); err != nil || string(b) != v+" and more" {
			c.t.Fatalf("%s is %q after a write, %v", key, b, err)
		}
	}
}

// waits checks that a key is not served, and that it is said for whom it waits.
func (c *cluster) waits(key string, members ...string) {
	c.t.Helper()
	ctx, done := context.WithTimeout(context.Background(), time.Second)
	defer done()
	if b, _, err := c.client.Get(ctx, key); err == nil || errors.Is(err, chainmail.ErrNotFound) {
		c.t.Errorf("%s is served as %q, %v", key, b, err)
	}
	var es []chainmail.Explanation
	c.must(c.client.Do(patient(c.t), "GET", "/v1/copies/kv/"+key, nil, &es, true))
	for _, m := range members {
		found := false
		for _, e := range es {
			found = found || strings.Contains(e.Why, m)
		}
		if !found {
			c.t.Errorf("%s does not say that it waits for %s: %+v", key, m, es)
		}
	}
}

// Two of three members in memory are killed at once and come back empty. A person gives up what they had: the keys go on
// with what the third one holds, and later writes too.
func TestDeclareLost(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	want := c.written(20)
	survivor, _ := c.leader()
	var lost []*process.Member
	for _, m := range c.members {
		if m != survivor {
			lost = append(lost, m)
		}
	}
	a, b := lost[0], lost[1]
	expect(t, c, 1, "nothing of it is lost", "operator", "declare-lost", a.ID, "--why", "test", "--yes")
	expect(t, c, 1, "no member m9", "operator", "declare-lost", "m9", "--why", "test", "--yes")
	expect(t, c, exitUsage, "--why", "operator", "declare-lost", a.ID)
	for _, m := range lost {
		c.must(m.Signal(syscall.SIGKILL))
	}
	for _, m := range lost {
		c.must(m.Kill())
	}
	c.client.SetEndpoints(c.endpoints())
	expect(t, c, exitNoLeader, "no", "operator", "declare-lost", a.ID, b.ID, "--why", "test", "--yes", "--timeout", "3s")
	for _, m := range lost {
		c.must(m.Start())
	}
	c.client.SetEndpoints(c.endpoints())
	c.see("both are refilling", func(p *membership.Placement) bool {
		x, _ := p.Member(a.ID)
		y, _ := p.Member(b.ID)
		return x.Refilling && y.Refilling && !x.Down && !y.Down
	})
	for key := range want {
		c.waits(key, a.ID, b.ID)
		break
	}
	p := c.placement()
	expect(t, c, 1, b.ID, "operator", "declare-lost", a.ID, "--why", "test", "--yes") // the other one may have something
	expect(t, c, 1, survivor.ID, "operator", "declare-lost", a.ID, b.ID, survivor.ID, "--why", "test", "--yes")
	expect(t, c, exitConflict, "stale", "operator", "declare-lost", a.ID, b.ID, "--why", "test", "--yes", "--expect-version", "1")
	expect(t, c, exitUsage, "100.00 % of the circle, ~20 keys", "operator", "declare-lost", a.ID, b.ID, "--why", "test")
	var plan coordinator.LossPlan
	c.must(json.Unmarshal([]byte(expect(t, c, 0, "", "operator", "declare-lost", a.ID, b.ID, "--plan", "--format", "json")), &plan))
	if plan.Version != p.Version || len(plan.Members) != 2 || fmt.Sprint(plan.Others) != fmt.Sprint([]string{survivor.ID}) {
		t.Errorf("the plan at version %d is %+v", p.Version, plan)
	}
	if now := c.placement(); now.Version != p.Version || len(now.Lost) > 0 {
		t.Errorf("something was changed: %s, %+v", &now, now.Lost)
	}

	var l membership.Loss
	c.must(json.Unmarshal([]byte(expect(t, c, 0, "", "operator", "declare-lost", a.ID, b.ID, "--why", "the power went", "--by", "me", "--yes", "--format", "json")), &l))
	if l.Version != p.Version+1 || len(l.Bans) != 2 || l.Why != "the power went" || l.By != "me" {
		t.Errorf("the loss is %+v", l)
	}
	c.ready(c.members...)
	c.holds(want)
	expect(t, c, 0, "", "status")
	again, err := c.client.DeclareLost(patient(t), coordinator.LossRequest{Members: []string{b.ID, a.ID}, ExpectVersion: p.Version, By: "me", Why: "the power went"})
	if err != nil || again.Version != l.Version || len(c.placement().Lost) != 1 {
		t.Errorf("sent again it is %+v, %v", again, err)
	}
	expect(t, c, 1, "nothing of it is lost", "operator", "declare-lost", a.ID, b.ID, "--why", "the power went", "--yes")
}

// Two of five members are gone for good. They are given up and removed; one that comes back with its disk is refused, and
// taken with an empty one.
func TestDeclareLostAndRemove(t *testing.T) {
	c := begin(t, 5, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
	want := c.written(60)
	a, b := c.members[3], c.members[4]
	for _, m := range []*process.Member{a, b} {
		c.must(m.Kill())
	}
	c.client.SetEndpoints(c.endpoints())
	c.see("both are down", func(p *membership.Placement) bool {
		x, _ := p.Member(a.ID)
		y, _ := p.Member(b.ID)
		return x.Down && y.Down
	})
	expect(t, c, exitPreflight, "quorums", "change", "apply", "--remove", a.ID, "--remove", b.ID, "--yes")
	expect(t, c, 0, "change apply --remove "+a.ID, "operator", "declare-lost", a.ID, b.ID, "--why", "fire", "--yes")
	expect(t, c, 0, "given up before", "operator", "declare-lost", a.ID, b.ID, "--why", "fire", "--yes")
	c.must(a.Start())
	if err := a.Wait(patient(t)); err == nil || !strings.Contains(err.Error(), "empty data directory") {
		t.Errorf("a member that was given up comes back with what it had: %v", err)
	}
	expect(t, c, 0, "done", "change", "apply", "--remove", a.ID, "--remove", b.ID, "--yes")
	c.holds(want)
	c.must(a.Wipe())
	c.must(a.Start())
	c.registered(a.ID)
	c.must(c.apply(coordinator.ChangeRequest{Add: []string{a.ID}}))
	for key, v := range want {
		want[key] = v + " and more"
	}
	c.holds(want)
}
