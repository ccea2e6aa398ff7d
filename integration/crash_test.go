package integration

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator/membership"
	"chainmail/integration/member/types"
	"chainmail/integration/process"
	"chainmail/internal/api"
)

// look reads what a reader has taken.
func (c *cluster) look(key string) (r types.Read) {
	c.t.Helper()
	c.until(key+" can be read", func(ctx context.Context) (bool, string) {
		err := c.client.Ask(ctx, "reader", key, "look", true, nil, &r)
		return err == nil, fmt.Sprint(err)
	})
	return r
}

// whole says what is wrong with what a reader has taken: its batches follow each other from row 0 to its offset.
func whole(r types.Read) string {
	at := 0
	for _, b := range r.Batches {
		if b.From != at || b.To <= b.From {
			return fmt.Sprintf("after row %d come rows %d to %d", at, b.From, b.To)
		}
		at = b.To
	}
	if at != r.Offset {
		return fmt.Sprintf("%d rows are taken, the offset is %d", at, r.Offset)
	}
	return ""
}

// running says whether a key has an activation anywhere.
func (c *cluster) running(typ, key string) (yes bool, how string) {
	c.t.Helper()
	var es []chainmail.Explanation
	c.must(c.client.Do(patient(c.t), "GET", "/v1/copies/"+typ+"/"+key, nil, &es, true))
	for _, e := range es {
		how += fmt.Sprintf("%s: %s; ", e.Member, e.Activation)
		yes = yes || e.Activation != ""
	}
	return yes, how
}

// The owner of readers is killed: their bodies go on elsewhere within a second of its being taken for dead, each exactly
// after the rows that were committed. One that was stopped in order stays stopped.
func TestReadersOutliveTheirOwner(t *testing.T) {
	for _, store := range []string{chainmail.StoreMemory, chainmail.StoreBolt} {
		t.Run(store, func(t *testing.T) {
			c := beginOwn(t, 3, process.Settings{Store: store})
			_, victim := c.leader()
			var keys []string
			stopped := ""
			for i := 0; len(keys) < 12 || stopped == ""; i++ {
				key := fmt.Sprint("reader-", i)
				if c.locate("reader", key).Owner != victim.ID {
					continue
				}
				c.must(c.client.Ask(patient(t), "reader", key, "start", false, types.Order{Rows: 1 << 30, Batch: 7}, nil))
				if stopped == "" {
					stopped = key
					continue
				}
				keys = append(keys, key)
			}
			for _, key := range keys {
				c.until(key+" reads", func(context.Context) (bool, string) { r := c.look(key); return r.Offset > 0, fmt.Sprint(r.Offset) })
			}
			c.must(c.client.Ask(patient(t), "reader", stopped, "stop", false, nil, nil))
			c.until(stopped+" has stopped", func(context.Context) (bool, string) { yes, how := c.running("reader", stopped); return !yes, how })

			c.must(victim.Kill())
			c.client.SetEndpoints(c.endpoints())
			c.see("its death", func(p *membership.Placement) bool { m, _ := p.Member(victim.ID); return m.Down })
			detected := time.Now()
			var took time.Duration
			for _, key := range keys {
				c.until(key+" goes on", func(context.Context) (bool, string) { return len(c.takes(victim, key)) > 0, "" })
				at := c.takes(victim, key)[0].at
				took = max(took, at.Sub(detected))
			}
			if took > time.Second {
				t.Errorf("the last body went on %s after its owner was taken for dead", took)
			}
			again := 0
			for _, key := range keys {
				r := c.look(key)
				if what := whole(r); what != "" {
					t.Errorf("%s: %s", key, what)
				}
				own := len(r.Batches) // the victim's
				for i, b := range r.Batches {
					if b.Member != victim.ID {
						own = i
						break
					}
				}
				first := c.takes(victim, key)[0]
				if own == len(r.Batches) || own == 0 || first.from != r.Batches[own].From || first.from != r.Batches[own-1].To {
					t.Errorf("%s goes on at row %d; the last batch of %s is %+v", key, first.from, victim.ID, r.Batches[max(0, own-1)])
				}
				for _, line := range said(t, victim, " "+key+" takes") { // what was under way, and not committed, is taken again
					if strings.HasSuffix(line, fmt.Sprintf("takes %d to %d", first.from, first.from+7)) {
						again++
					}
				}
			}
			if yes, how := c.running("reader", stopped); yes || len(c.takes(victim, stopped)) > 0 {
				t.Errorf("%s was stopped in order and runs again: %s", stopped, how)
			}
			t.Logf("%d bodies went on within %s of the detection, %d batches were under way and taken again", len(keys), took.Round(time.Millisecond), again)
		})
	}
}

// taken is a batch that a body was about to take.
type taken struct {
	at   time.Time
	from int
}

// takes gives what bodies of a key took on members but one.
func (c *cluster) takes(but *process.Member, key string) (out []taken) {
	c.t.Helper()
	for _, m := range c.members {
		if m == but {
			continue
		}
		for _, line := range said(c.t, m, " "+key+" takes") {
			var ms int64
			var x taken
			var name string
			if _, err := fmt.Sscanf(line, "%d %s takes %d", &ms, &name, &x.from); err != nil {
				c.t.Fatalf("%q: %v", line, err)
			}
			x.at = time.UnixMilli(ms)
			out = append(out, x)
		}
	}
	return out
}

// rawPost posts mail under a request id, as a client does that sends it again later.
func (c *cluster) rawPost(key, id string, age time.Duration, m types.Mail) int {
	c.t.Helper()
	q, err := http.NewRequest("POST", "http://"+c.endpoints()[0]+api.ActorPath("ledger", key, "post"), bytes.NewBufferString(fmt.Sprintf(`{"from":%q,"seq":%d}`, m.From, m.Seq)))
	c.must(err)
	q.Header.Set("Idempotency-Key", id)
	if age > 0 {
		q.Header.Set("Idempotency-Age", age.String())
	}
	resp, err := http.DefaultClient.Do(q)
	c.must(err)
	resp.Body.Close()
	return resp.StatusCode
}

// All members are killed at once under load. On disk every acknowledged mail is there again, a request that took effect is
// remembered, a reminder comes, and a body goes on. In memory all begins anew.
func TestPowerCycleOfOwnTypes(t *testing.T) {
	for _, store := range []string{chainmail.StoreBolt, chainmail.StoreMemory} {
		t.Run(store, func(t *testing.T) {
			c := beginOwn(t, 3, process.Settings{Store: store})
			l := c.mail(6, c.endpoints())
			l.more(300)
			c.must(c.client.Ask(patient(t), "ledger", "bell", "remind", false, 500, nil))
			c.must(c.client.Ask(patient(t), "reader", "r", "start", false, types.Order{Rows: 1 << 30, Batch: 5}, nil))
			c.until("it reads", func(context.Context) (bool, string) { return c.look("r").Offset > 0, "" })
			first := time.Now()
			if code := c.rawPost("once", "the-id", 0, types.Mail{From: "x", Seq: 1}); code != 200 {
				t.Fatal(code)
			}
			if store == chainmail.StoreMemory {
				l.end() // what they ask from now on would be answered by a cluster that has forgotten all
			}
			for _, m := range c.members {
				c.must(m.Signal(syscall.SIGKILL))
			}
			before := len(c.takes(nil, "r"))
			for _, m := range c.members {
				c.must(m.Kill())
				c.must(m.Start())
			}
			c.ready(c.members...)
			if store == chainmail.StoreMemory {
				if log := c.ledger(sharedKey); len(log) > 0 {
					t.Errorf("%d mails are left", len(log))
				}
				if r := c.look("r"); r.Offset != 0 || len(c.takes(nil, "r")) > before {
					t.Errorf("a reader is left at %d", r.Offset)
				}
				return
			}
			l.more(300)
			l.check()
			if code := c.rawPost("once", "the-id", time.Since(first), types.Mail{From: "x", Seq: 1}); code != 200 && code != http.StatusGatewayTimeout {
				t.Errorf("a request that is sent again after the power was away gives %d", code)
			}
			if log := c.ledger("once"); len(log) != 1 {
				t.Errorf("a request under one id took effect %d times", len(log))
			}
			c.until("the reminder comes", func(ctx context.Context) (bool, string) {
				n := 0
				err := c.client.Ask(ctx, "ledger", "bell", "rang", true, nil, &n)
				return err == nil && n == 1, fmt.Sprint(n, err)
			})
			c.until("the body goes on", func(context.Context) (bool, string) { return len(c.takes(nil, "r")) > before, "" })
			if what := whole(c.look("r")); what != "" {
				t.Error(what)
			}
		})
	}
}

// A member that is told to go finishes what it runs, and what begins meanwhile is answered by others. What does not end
// within the budget is named, and its context ends.
func TestDrain(t *testing.T) {
	const budget = "membership {\n  down_after = \"1500ms\"\n  leave_timeout = \"4s\"\n}\n"
	t.Run("finishes", func(t *testing.T) {
		c := beginOwn(t, 4, process.Settings{Extra: budget})
		m := c.members[3]
		key := c.ownedKey("ledger", m)
		answered := make(chan error, 1)
		member := ""
		rest := api.NewClient(c.httpOf(c.members[:3]), "", nil)
		defer rest.Close()
		go func() { answered <- rest.Ask(patient(t), "ledger", key, "work", false, 1000, &member) }()
		c.until("it works", func(context.Context) (bool, string) { return len(said(t, m, "work of "+key)) > 0, "" })
		c.must(m.Signal(syscall.SIGTERM))
		l := c.mail(4, c.httpOf(c.members[:3]))
		if err := <-answered; err != nil || member != m.ID {
			t.Errorf("what ran was answered by %q: %v", member, err)
		}
		c.gone(m)
		l.more(50)
		l.check()
		if len(l.failed()) > 0 {
			t.Errorf("asks failed: %v", l.failed())
		}
		if log := c.ledger(key); len(log) != 1 {
			t.Errorf("the work was done %d times", len(log))
		}
	})
	t.Run("names what is left", func(t *testing.T) {
		c := beginOwn(t, 4, process.Settings{Extra: budget})
		m := c.members[3]
		key := c.ownedKey("ledger", m)
		rest := api.NewClient(c.httpOf(c.members[:3]), "", nil)
		ctx, done := context.WithTimeout(context.Background(), 8*time.Second)
		var asking sync.WaitGroup
		defer func() { done(); asking.Wait(); rest.Close() }()
		asking.Go(func() { rest.Ask(ctx, "ledger", key, "block", false, nil, nil) })
		c.until("it blocks", func(context.Context) (bool, string) { return len(said(t, m, "block of "+key+" begins")) > 0, "" })
		began := time.Now()
		c.must(m.Signal(syscall.SIGTERM))
		err := m.Wait(patient(t))
		if err == nil || !strings.Contains(err.Error(), "ledger/"+key+" (runs block)") || !strings.Contains(err.Error(), "deadline exceeded") {
			t.Errorf("it ends with %v", err)
		}
		if d := time.Since(began); d < 3*time.Second || d > 10*time.Second {
			t.Errorf("it went after %s, the budget is 4s", d)
		}
		if ends := said(t, m, "block of "+key+" ends: context canceled"); len(ends) != 1 {
			t.Errorf("the handler's context: %v", ends)
		}
	})
}

// Garbage on every port of every member does nothing to own actors that are asked meanwhile.
func TestGarbageBesideOwnTypes(t *testing.T) {
	c := beginOwn(t, 3, process.Settings{})
	l := c.mail(6, c.endpoints())
	noise := bytes.Repeat([]byte{0, 1, 2, 0xff, 'G', 'E', 'T', ' ', 0x80}, 2000)
	for i := range 40 {
		for _, m := range c.members {
			for _, addr := range []string{m.Cluster, m.HTTP} {
				conn, err := net.DialTimeout("tcp", addr, time.Second)
				c.must(err)
				defer conn.Close()
				conn.Write(noise[i%9 : i%9+1+i*400])
			}
		}
	}
	l.more(600)
	l.check()
	if len(l.failed()) > 0 {
		t.Errorf("asks failed: %v", l.failed())
	}
}

// The owner of a key is stopped for half as long again as it takes to be taken for dead, and goes on: what it was asked before
// and during that time takes effect once, and it does not answer reads from what it remembers.
func TestStoppedOwnerOfOwnTypes(t *testing.T) {
	c := beginOwn(t, 3, process.Settings{})
	_, m := c.leader()
	var rest []string
	for _, x := range c.members {
		if x != m {
			rest = append(rest, x.HTTP)
		}
	}
	key := c.ownedKey("ledger", m)
	l := c.mail(6, rest)
	late := api.NewClient([]string{m.HTTP}, "", nil)
	defer late.Close()
	c.client.SetEndpoints(rest)
	posted := 0
	for round := range 3 {
		l.more(100)
		c.must(m.Signal(syscall.SIGSTOP))
		c.see(m.ID+" is down", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return x.Down })
		for range 3 {
			c.must(c.client.Ask(patient(t), "ledger", key, "post", false, types.Mail{From: "me", Seq: posted}, nil))
			posted++
		}
		// A read waits in the stopped member's socket: it is the first thing that it sees.
		got := make(chan string, 1)
		go func() {
			var log []types.Mail
			err := late.Ask(patient(t), "ledger", key, "read", true, nil, &log)
			got <- fmt.Sprint(len(log), " ", err)
		}()
		select {
		case <-time.After(750 * time.Millisecond): // the fault itself: half of down_after more
		case <-t.Context().Done():
		}
		c.must(m.Signal(syscall.SIGCONT))
		if s := <-got; s != fmt.Sprint(posted, " <nil>") {
			t.Errorf("round %d: the stopped owner reads %s, %d are acknowledged", round, s, posted)
		}
		c.see(m.ID+" is up", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return !x.Down })
		c.ready(c.members...)
	}
	l.check()
	c.t.Log(l.failed())
}
