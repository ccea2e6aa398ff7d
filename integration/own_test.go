package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/integration/member/types"
	"chainmail/integration/process"
	"chainmail/internal/api"
)

// mailers post their numbers into ledgers, one after the other, each to a ledger of its own and to one that all share.
type mailers struct {
	c    *cluster
	all  []*mailer
	stop chan struct{}
	wg   sync.WaitGroup
	sent atomic.Int64
}

type mailer struct {
	client *api.Client
	name   string
	acked  map[string][]int // by key
	maybe  map[string]map[int]bool
	errs   []error
}

// sharedKey is the ledger of all.
const sharedKey = "shared"

// mail starts mailers. They know all members, and begin with different ones.
func (c *cluster) mail(many int, endpoints []string) *mailers {
	l := &mailers{c: c, stop: make(chan struct{})}
	for i := range many {
		k := i % len(endpoints)
		m := &mailer{name: fmt.Sprint("s", i), acked: map[string][]int{}, maybe: map[string]map[int]bool{},
			client: api.NewClient(append(append([]string(nil), endpoints[k:]...), endpoints[:k]...), "", nil)}
		l.all = append(l.all, m)
		l.wg.Go(func() {
			for seq := 0; ; seq++ {
				select {
				case <-l.stop:
					return
				case <-time.After(time.Millisecond): // its pace
				}
				m.post(m.name, seq)
				m.post(sharedKey, seq)
				l.sent.Add(2)
			}
		})
	}
	c.t.Cleanup(l.end)
	return l
}

func (m *mailer) post(key string, seq int) {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	defer done()
	err := m.client.Ask(ctx, "ledger", key, "post", false, types.Mail{From: m.name, Seq: seq}, nil)
	switch {
	case err == nil:
		m.acked[key] = append(m.acked[key], seq)
		return
	case errors.Is(err, chainmail.ErrUnknownOutcome):
		if m.maybe[key] == nil {
			m.maybe[key] = map[int]bool{}
		}
		m.maybe[key][seq] = true
	}
	m.errs = append(m.errs, fmt.Errorf("%s %s %d: %w", time.Now().Format("15:04:05.000"), key, seq, err))
}

// more waits for so many further answers.
func (l *mailers) more(n int64) {
	l.c.t.Helper()
	want := l.sent.Load() + n
	l.c.until("mail goes on", func(context.Context) (bool, string) { return l.sent.Load() >= want, fmt.Sprint(l.sent.Load()) })
}

func (l *mailers) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.wg.Wait()
	for _, m := range l.all {
		m.client.Close()
	}
}

// failed gives the errors that mailers have seen.
func (l *mailers) failed() (out []error) {
	for _, m := range l.all {
		out = append(out, m.errs...)
	}
	return out
}

// check ends the mailers and holds the ledgers to what they were answered: what was acknowledged is there once and in the
// sender's order, what was refused is not there.
func (l *mailers) check() {
	t := l.c.t
	t.Helper()
	l.end()
	logs := map[string][]types.Mail{sharedKey: l.c.ledger(sharedKey)}
	acked, maybe := 0, 0
	for _, m := range l.all {
		logs[m.name] = l.c.ledger(m.name)
		for _, key := range []string{m.name, sharedKey} {
			times, last := map[int]int{}, -1
			for _, x := range logs[key] {
				if x.From != m.name {
					continue
				}
				if times[x.Seq]++; x.Seq <= last {
					t.Errorf("%s: %d of %s is logged after %d", key, x.Seq, m.name, last)
				}
				last = x.Seq
			}
			acked, maybe = acked+len(m.acked[key]), maybe+len(m.maybe[key])
			for _, seq := range m.acked[key] {
				if times[seq] != 1 {
					t.Errorf("%s: %d of %s was acknowledged and is logged %d times", key, seq, m.name, times[seq])
				}
				delete(times, seq)
			}
			for seq, n := range times {
				if !m.maybe[key][seq] || n > 1 {
					t.Errorf("%s: %d of %s is logged %d times and was not acknowledged, unknown %t", key, seq, m.name, n, m.maybe[key][seq])
				}
			}
		}
	}
	t.Logf("%d mails acknowledged, %d of unknown outcome, %d errors", acked, maybe, len(l.failed()))
}

// ledger reads a ledger from any member.
func (c *cluster) ledger(key string) (out []types.Mail) {
	c.t.Helper()
	c.must(c.client.Ask(patient(c.t), "ledger", key, "read", true, nil, &out))
	return out
}

// ownedKey gives a key of a type that a member owns.
func (c *cluster) ownedKey(typ string, m *process.Member) string {
	c.t.Helper()
	for i := range 1000 {
		if key := fmt.Sprint("key-", i); c.locate(typ, key).Owner == m.ID {
			return key
		}
	}
	c.t.Fatalf("%s owns nothing", m.ID)
	return ""
}

// inPlace is for members that only stop on SIGTERM.
const inPlace = "membership {\n  down_after = \"1500ms\"\n  leave_on_terminate = false\n}\n"

// Five members are restarted one after the other under load: on disk they only stop and come back, in memory they leave and
// join again. No caller sees an error, nothing is lost, and no key moves that need not.
func TestRollingRestart(t *testing.T) {
	t.Run("in place", func(t *testing.T) {
		c := beginOwn(t, 5, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
		before := c.placement()
		c.rolling(func(m *process.Member) {
			c.must(m.Signal(syscall.SIGTERM))
			c.gone(m)
			c.must(m.Start())
			c.client.SetEndpoints(c.endpoints())
		})
		after := c.placement()
		if fmt.Sprint(after.Base) != fmt.Sprint(before.Base) || len(after.History) != len(before.History) {
			t.Errorf("keys have moved: %s, then %s", &before, &after)
		}
		for _, m := range c.members {
			a, _ := before.Member(m.ID)
			if b, _ := after.Member(m.ID); a.Incarnation != b.Incarnation {
				t.Errorf("%s has another incarnation: what it held was filled again", m.ID)
			}
		}
		c.activated(2, 3) // with its own member's restart, or, if that is missed meanwhile, elsewhere and back
	})
	t.Run("leave and join", func(t *testing.T) {
		c := beginOwn(t, 5, process.Settings{})
		before := c.placement()
		c.rolling(func(m *process.Member) {
			c.must(m.Signal(syscall.SIGTERM))
			c.gone(m)
			c.see(m.ID+" is forgotten", func(p *membership.Placement) bool { _, ok := p.Member(m.ID); return !ok })
			c.must(m.Wipe())
			c.must(m.Start())
			c.client.SetEndpoints(c.endpoints())
			c.registered(m.ID)
			c.must(c.apply(coordinator.ChangeRequest{Add: []string{m.ID}}))
		})
		after := c.placement()
		if fmt.Sprint(after.Base) != fmt.Sprint(before.Base) || len(after.History)-len(before.History) != 10 {
			t.Errorf("each member leaves once and comes back once: %d changes, %s", len(after.History)-len(before.History), &after)
		}
		c.activated(3, 3) // a key moves away from its own member, and back
	})
}

// activated checks how often each ledger of the mailers was activated. What each placement requires of it is checked, exactly
// and for more keys, in chainmailtest.
func (c *cluster) activated(least, most int) {
	c.t.Helper()
	for _, key := range append([]string{sharedKey}, "s0", "s1", "s2", "s3", "s4", "s5", "s6", "s7") {
		var on []string
		for _, m := range c.members {
			for range said(c.t, m, "ledger "+key+" is activated") {
				on = append(on, m.ID)
			}
		}
		if len(on) < least || len(on) > most {
			c.t.Errorf("ledger %s was activated %d times, not %d to %d, on %v", key, len(on), least, most, on)
		}
	}
}

// rolling restarts each member under both loads, and allows no error.
func (c *cluster) rolling(restart func(m *process.Member)) {
	c.t.Helper()
	c.importRows(500)
	c.start()
	l := c.mail(8, c.endpoints())
	l.more(200)
	for _, m := range c.members {
		restart(m)
		c.ready(c.members...)
		c.more(200)
		l.more(100)
	}
	l.check()
	for i, err := range l.failed() {
		if i < 5 {
			c.t.Errorf("an ask failed: %v", err)
		}
	}
	c.check(false)
}

// said gives the lines of a member's log that have some words.
func said(t *testing.T, m *process.Member, words string) (out []string) {
	t.Helper()
	b, err := os.ReadFile(m.Log())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, words) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}
