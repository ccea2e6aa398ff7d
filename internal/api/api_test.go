package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}

func devNode(t *testing.T) *chainmail.Node {
	t.Helper()
	n, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, NodeID: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

func serve(t *testing.T, s *Server) *httptest.Server {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); h.Close() })
	return h
}

const readToken, operateToken = "read-token-read-token", "operate-token-operate"

// Every route is asked with no token, a wrong one, one that may read, and one that may operate.
func TestRights(t *testing.T) {
	h := serve(t, NewServer(devNode(t), Options{Tokens: Tokens{Read: []string{readToken}, Operate: []string{operateToken}}}))
	for _, r := range routes {
		method, path, _ := strings.Cut(r.pattern, " ")
		path = strings.NewReplacer("{type}", "kv", "{key...}", "k", "{key}", "k", "{method}", "get", "{id}", "c-1").Replace(path)
		if path == "/v1/events" {
			path += "?follow=false"
		}
		for token, allowed := range map[string]bool{"": r.right == Open, "wrong": r.right == Open, readToken: r.right != Operate, operateToken: true} {
			q, err := http.NewRequest(method, h.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				q.Header.Set("Authorization", "Bearer "+token)
			}
			resp, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			denied := resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden
			if denied == allowed {
				t.Errorf("%s with token %q gives %s", r.pattern, token, resp.Status)
			}
			if token == readToken && r.right == Operate && resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s for a reader gives %s", r.pattern, resp.Status)
			}
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	h := serve(t, NewServer(devNode(t), Options{}))
	q, _ := http.NewRequest("POST", h.URL+"/v1/actors/counter/a/add", nil)
	q.Header.Set("Origin", "https://evil.example")
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Error(resp.Status)
	}
}

// Every class of a call's error survives the way over HTTP under errors.Is, and says whether it may have been run.
func TestErrorsSurvive(t *testing.T) {
	for _, class := range []error{chainmail.ErrUnavailable, chainmail.ErrUnknownOutcome, chainmail.ErrOverloaded, chainmail.ErrRejected, chainmail.ErrNotFound, chainmail.ErrStampMismatch, chainmail.ErrClosed} {
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			writeProblem(w, &chainmail.CallError{Class: class, Type: "kv", Key: "k", Method: "put", Version: 7, Text: "because"})
		}))
		c := NewClient([]string{h.URL}, "", nil)
		ctx, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := c.Put(ctx, "k", nil)
		done()
		var p *Problem
		if !errors.Is(err, class) || !errors.As(err, &p) || p.Version != 7 || !strings.Contains(p.Detail, "because") || p.UnknownOutcome != (class == chainmail.ErrUnknownOutcome) {
			t.Errorf("%v arrives as %#v", class, err)
		}
		c.Close()
		h.Close()
	}
	for _, x := range []struct {
		err  error
		code string
	}{
		{&coordinator.Refusal{Result: membership.Result{Code: membership.ErrRunning, ID: "c-4", Version: 3}}, "change-running"},
		{fmt.Errorf("x: %w", coordinator.ErrNoLeader), "no-leader"},
		{fmt.Errorf("x: %w: %w", coordinator.ErrUnknownOutcome, context.DeadlineExceeded), "unknown-outcome"},
		{errors.New("anything"), "internal"},
	} {
		if p := problemOf(x.err); p.Code != x.code || p.Status == 0 {
			t.Errorf("%v is %+v", x.err, p)
		}
	}
	for code := membership.ErrStale; code <= membership.ErrKeyReused; code++ {
		if _, ok := codes[code.String()]; !ok {
			t.Errorf("the log's refusal %s has no status", code)
		}
	}
}

// A request is sent again when it was certainly not run; one that carries a request id also when its outcome is unknown.
func TestRetries(t *testing.T) {
	for _, x := range []struct {
		code string
		id   bool
		more bool
	}{
		{"unavailable", false, true}, {"closed", false, true}, {"unknown-outcome", false, false}, {"overloaded", false, false}, {"rejected", false, false}, {"no-leader", false, false},
		{"unavailable", true, true}, {"closed", true, true}, {"unknown-outcome", true, true}, {"overloaded", true, false}, {"rejected", true, false},
	} {
		asked := 0
		h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if (r.Header.Get("Idempotency-Key") != "") != x.id || (r.Header.Get("Idempotency-Age") != "") != (asked == 1 && x.code == "unknown-outcome") {
				t.Errorf("request %d has headers %v", asked, r.Header)
			}
			if asked++; asked == 1 {
				writeProblem(w, problem(x.code, "first"))
				return
			}
			reply(w, 200, Value{Stamp: "s"})
		}))
		c := NewClient([]string{"127.0.0.1:1", h.URL}, "", nil) // nobody listens at the first one
		ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
		var err error
		if x.id {
			_, err = c.Put(ctx, "k", []byte("v"))
		} else {
			err = c.Do(ctx, "POST", "/v1/anything", nil, nil, false)
		}
		done()
		if (err == nil) != x.more || asked > 2 {
			t.Errorf("after %s, with an id %t: %v, asked %d times", x.code, x.id, err, asked)
		}
		c.Close()
		h.Close()
	}
	c := NewClient([]string{"127.0.0.1:1"}, "", nil)
	c.Hasty = true
	if _, err := c.Put(t.Context(), "k", nil); !errors.Is(err, ErrNoEndpoint) {
		t.Errorf("nobody there: %v", err)
	}
}

// A plan changes nothing: when time ends, what a member has said before is the answer, not that the outcome is unknown.
func TestPlanThatIsNotAnswered(t *testing.T) {
	asked := 0
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			writeProblem(w, problem("no-leader", "first"))
			return
		}
		io.Copy(io.Discard, r.Body) // until then the server does not look whether the client is there
		<-r.Context().Done()
	}))
	defer h.Close()
	c := NewClient([]string{h.URL}, "", nil)
	defer c.Close()
	ctx, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	var p *Problem
	if _, err := c.PlanLoss(ctx, coordinator.LossRequest{}); !errors.As(err, &p) || p.Code != "no-leader" {
		t.Errorf("%v", err)
	}
}

func TestCalls(t *testing.T) {
	n := devNode(t)
	h := serve(t, NewServer(n, Options{}))
	c := NewClient([]string{h.URL}, "", nil)
	defer c.Close()
	ctx, done := context.WithTimeout(t.Context(), 10*time.Second)
	defer done()
	binary := []byte{0, 255, 1}
	for _, key := range []string{"a", "with/slash", "with ?&%#", "ключ", "..", "a//b"} {
		stamp, err := c.Put(ctx, key, binary)
		if err != nil {
			t.Fatalf("put %q: %v", key, err)
		}
		b, again, err := c.Get(ctx, key)
		if err != nil || string(b) != string(binary) || again != stamp {
			t.Errorf("get %q: %v %q %v", key, b, again, err)
		}
		if _, err := c.CompareAndSwap(ctx, key, "1.1.1@x", nil); !errors.Is(err, chainmail.ErrStampMismatch) {
			t.Error(err)
		}
		if _, err := c.CompareAndSwap(ctx, key, stamp, []byte("text")); err != nil {
			t.Error(err)
		}
	}
	if s, err := c.Add(ctx, "n", -3); err != nil || s != -3 {
		t.Error(s, err)
	}
	seen := map[string]bool{}
	if err := c.Each(ctx, "kv", "", func(it Item) error { seen[it.Key] = true; return nil }); err != nil || len(seen) != 6 {
		t.Errorf("%v %v", seen, err)
	}
	p, err := c.Placement(ctx)
	if err != nil || len(p.Base) != 1 || p.Members[0].State != membership.Active {
		t.Errorf("%+v %v", p, err)
	}
	var blocked membership.Placement
	go n.Coordinator().SetLimits(ctx, membership.Limits{Rate: 1 << 30})
	if err := c.Do(ctx, "GET", fmt.Sprintf("/v1/placement?index=%d&wait=5s", p.Revision), nil, &blocked, true); err != nil || blocked.Revision <= p.Revision {
		t.Errorf("a blocking query gave revision %d after %d, %v", blocked.Revision, p.Revision, err)
	}
}
