package actor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"chainmail/actor"
	"chainmail/chainmailtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test with a cluster in virtual time.
func bubble(t *testing.T, members int, types []actor.Registered, f func(t *testing.T, c *chainmailtest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, chainmailtest.New(t, chainmailtest.Options{Members: members, Types: types}))
	})
}

// journal notes what happens, in order.
type journal struct {
	mu   sync.Mutex
	list []string
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = append(j.list, fmt.Sprintf(format, args...))
}

// take gives what was noted since the last time.
func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	out := j.list
	j.list = nil
	return out
}

func (j *journal) want(t *testing.T, what string, want ...string) {
	t.Helper()
	if got := j.take(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// within gives a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, done := context.WithTimeout(t.Context(), d)
	t.Cleanup(done)
	return ctx
}

// must gives an answer that has to be one.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// keyOwnedBy gives a key that a member owns.
func keyOwnedBy(c *chainmailtest.Cluster, typ string, member int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("k", i); c.Owner(typ, key) == member {
			return key
		}
	}
}

// marked says whether a key is marked as active, and what pages it has.
func marked(t *testing.T, c *chainmailtest.Cluster, typ, key string) (bool, map[string][]byte) {
	t.Helper()
	n := c.Any()
	for _, m := range n.Members(t.Context()) {
		p, err := n.List(t.Context(), m.ID, typ, key, "", 1)
		if err == nil && len(p.Items) == 1 && p.Items[0].Key == key {
			_, ok := p.Items[0].Pages["@active"]
			return ok, p.Items[0].Pages
		}
	}
	return false, nil
}
