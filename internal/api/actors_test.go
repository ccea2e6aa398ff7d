package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor/builtin"
)

// Types that an application defines are asked in JSON like the built-in ones, and errors have the same form.
func TestOwnTypes(t *testing.T) {
	n, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, NodeID: "dev", Types: builtin.Types()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	h := serve(t, NewServer(n, Options{}))
	for _, x := range []struct {
		verb, path, id, body string
		status               int
		want                 string
	}{
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":"a","ttl_ms":60000}`, 200, `"token":1`},
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":"b","ttl_ms":60000}`, 422, `lock is held by a`},
		{"GET", "/v1/actors/lock/l/acquire", "", ``, 400, `use POST`},
		{"GET", "/v1/actors/lock/l/holder", "", ``, 200, `"holder":"a"`},
		{"POST", "/v1/actors/lock/l/steal", "", ``, 422, `acquire, holder, release`},
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":1}`, 400, `holder`},
		{"POST", "/v1/actors/lock/l/acquire", "", `{"holder":"a","ttl":1}`, 400, `unknown field`},
		{"POST", "/v1/actors/queue/q/push", "once", `{"data":"x"}`, 200, `1`},
		{"POST", "/v1/actors/queue/q/push", "once", `{"data":"x"}`, 200, `1`},
		{"POST", "/v1/actors/queue/q/push", "", `{"data":"x"}`, 200, `2`},
		{"POST", "/v1/actors/counter/c/add", "once", `{"delta":5}`, 200, `"sum":5`},
		{"POST", "/v1/actors/counter/c/add", "once", `{"delta":5}`, 200, `"sum":5`},
		{"POST", "/v1/actors/counter/c/add", strings.Repeat("x", 200), `{"delta":5}`, 422, `request id of 200 bytes`},
		{"GET", "/v1/actors/counter/c/get", "", ``, 200, `"sum":5`},
		{"POST", "/v1/actors/none/c/get", "", ``, 422, `counter, kv, lock, map, queue`},
		{"GET", "/v1/actors?type=counter", "", ``, 200, `"sum":5`},
		{"GET", "/v1/actors?type=queue", "", ``, 200, `{"Last":2,"Taken":{"pages":0},"Waiting":{"pages":2}}`},
		{"GET", "/v1/actors?type=none", "", ``, 400, `counter, kv, lock, map, queue`},
	} {
		q, err := http.NewRequest(x.verb, h.URL+x.path, strings.NewReader(x.body))
		if err != nil {
			t.Fatal(err)
		}
		if x.id != "" {
			q.Header.Set("Idempotency-Key", x.id)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != x.status || !strings.Contains(string(got), x.want) {
			t.Errorf("%s %s %s gives %d %s, not %d with %s", x.verb, x.path, x.body, resp.StatusCode, got, x.status, x.want)
		}
	}
}

// A request that is sent again when its key may have forgotten it is not run: its outcome stays unknown, and the client does
// not go on asking.
func TestRequestIsForgotten(t *testing.T) {
	n, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, NodeID: "dev", Types: builtin.Types()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	h := serve(t, NewServer(n, Options{}))
	ask := func(id, age string, want int, words string) {
		t.Helper()
		q, err := http.NewRequest("POST", h.URL+"/v1/actors/counter/c/add", strings.NewReader(`{"delta":1}`))
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Idempotency-Key", id)
		if age != "" {
			q.Header.Set("Idempotency-Age", age)
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if b, _ := io.ReadAll(resp.Body); resp.StatusCode != want || !strings.Contains(string(b), words) {
			t.Errorf("%s, %s old, gives %d %s", id, age, resp.StatusCode, b)
		}
	}
	ask("first", "", 200, `"sum":1`)
	ask("first", "1s", 200, `"sum":1`)
	for i := range 2100 {
		ask(fmt.Sprint("more", i), "", 200, "sum")
	}
	ask("first", "1m", 504, `"forgotten":true`)
	ask("first", "soon", 400, "Idempotency-Age")
	ask("", "1s", 400, "Idempotency-Age")
	c := NewClient([]string{h.URL}, "", nil)
	defer c.Close()
	if sum, err := c.Count(t.Context(), "c"); err != nil || sum != 2101 {
		t.Error(sum, err)
	}
}

// A request whose answer is lost is sent again by the client, to whoever answers, and takes effect once. If nobody does, its
// outcome is unknown, also when the last attempts were not even sent.
func TestClientSendsAgain(t *testing.T) {
	n, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, NodeID: "dev"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	s := NewServer(n, Options{})
	good := serve(t, s)
	var lost atomic.Int64
	bad := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(httptest.NewRecorder(), r) // it is run
		lost.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(bad.Close)
	c := NewClient([]string{bad.URL, good.URL}, "", nil)
	defer c.Close()
	ctx, done := context.WithTimeout(t.Context(), 5*time.Second)
	defer done()
	if sum, err := c.Add(ctx, "c", 1); err != nil || sum != 1 || lost.Load() == 0 {
		t.Errorf("%d, %v, %d answers lost", sum, err, lost.Load())
	}
	only := NewClient([]string{bad.URL, "127.0.0.1:1"}, "", nil)
	defer only.Close()
	short, done := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer done()
	if _, err := only.Add(short, "c", 1); !errors.Is(err, chainmail.ErrUnknownOutcome) {
		t.Errorf("no answer arrives: %v", err)
	}
	if sum, err := c.Count(ctx, "c"); err != nil || sum != 2 {
		t.Errorf("%d, %v", sum, err)
	}
}

// A member dies after it has run a request on a connection that was used before, and nobody is left: the outcome is unknown,
// whatever package http would make of it.
func TestLostConnectionIsUnknown(t *testing.T) {
	var h *httptest.Server
	asked := 0
	h = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked == 1 {
			reply(w, 200, Value{Stamp: "s"})
			return
		}
		h.Listener.Close()
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(h.Close)
	c := NewClient([]string{h.URL}, "", nil)
	defer c.Close()
	if _, err := c.Put(t.Context(), "k", nil); err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer done()
	if _, err := c.Delete(ctx, "k"); !errors.Is(err, chainmail.ErrUnknownOutcome) {
		t.Errorf("the connection was lost under way: %v", err)
	}
}
