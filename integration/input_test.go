package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail/integration/process"
	"chainmail/internal/api"
)

// run runs the program as a client of a cluster and gives what it printed and its exit code.
func run(t *testing.T, c *cluster, args ...string) (out, talk string, code int) {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	if c != nil {
		args = append([]string{"--http-addr", strings.Join(c.endpoints(), ",")}, args...)
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	var x *exec.ExitError
	if err != nil && !errors.As(err, &x) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// threeLines are what every error ends with: what failed, why, and what to run next.
var threeLines = regexp.MustCompile(`(?m)\A(.*\n)*Error: .+\nWhy:   .+\nNext:  .+\n\z`)

// expect runs the program and holds it to an exit code and to words that it says.
func expect(t *testing.T, c *cluster, code int, words string, args ...string) string {
	t.Helper()
	out, talk, got := run(t, c, args...)
	if got != code || !strings.Contains(out+talk, words) {
		t.Errorf("cluster %s: exit code %d, not %d, or it does not say %q:\n%s%s", strings.Join(args, " "), got, code, words, out, talk)
	}
	if code != 0 && !threeLines.MatchString(talk) {
		t.Errorf("cluster %s does not fail in three lines:\n%s", strings.Join(args, " "), talk)
	}
	return out
}

func TestCommandLine(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	d := c.join(1)[0]
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, x := range []struct {
		code  int
		words string
		args  []string
	}{
		{0, "leader", []string{"status"}},
		{0, `"ready": true`, []string{"status", "--format", "json"}},
		{0, "standby", []string{"members"}},
		{0, "COPIES", []string{"members", "-detailed"}},
		{0, "m3", []string{"ring", "show"}},
		{0, "REPLICAS", []string{"ring", "locate", "kv", "a", "b"}},
		{0, "of the circle", []string{"ring", "diff", "m1,m2..m1,m2,m3"}},
		{2, "no member", []string{"ring", "diff", "base..m1,zz"}},
		{0, "@", []string{"kv", "put", "a/b c", "hello"}},
		{0, "hello", []string{"kv", "get", "a/b c"}},
		{5, "stamp", []string{"kv", "put", "a/b c", "x", "--expect", ""}},
		{1, "not found", []string{"kv", "get", "nothing"}},
		{0, "true", []string{"kv", "delete", "a/b c"}},
		{0, "false", []string{"kv", "delete", "a/b c"}},
		{0, "7", []string{"counter", "add", "n", "7"}},
		{0, "5", []string{"counter", "add", "n", "--", "-2"}},
		{0, `{"sum":5}`, []string{"counter", "get", "n", "--format", "ndjson"}},
		{1, "do not fit", []string{"counter", "add", "n", "9223372036854775807"}},
		{2, "not a whole number", []string{"counter", "add", "n", "x"}},
		{0, "owner", []string{"actors", "show", "counter", "n"}},
		{0, `{"sum":5}`, []string{"actors", "ask", "counter", "n", "get", "--timeout", "5s"}},
		{1, "no method", []string{"actors", "ask", "kv", "n", "explode"}},
		{0, `"token":1`, []string{"actors", "ask", "lock", "l", "acquire", `{"holder":"a","ttl_ms":60000}`}},
		{1, "lock is held by a", []string{"actors", "ask", "lock", "l", "acquire", `{"holder":"b","ttl_ms":60000}`}},
		{0, `"Holder":"a"`, []string{"actors", "list", "lock"}},
		{0, "1", []string{"actors", "ask", "queue", "q", "push", `{"data":"x"}`}},
		{1, "list, remove, set, size", []string{"actors", "ask", "map", "m", "explode"}},
		{1, "counter, kv, lock, map, queue", []string{"actors", "show", "nope", "k"}},
		{1, "counter, kv, lock, map, queue", []string{"actors", "list", "nope"}},
		{2, "list TYPE", []string{"actors", "list"}},
		{2, "TYPE KEY METHOD", []string{"actors", "ask", "kv", "n"}},
		{2, "is not JSON", []string{"actors", "ask", "kv", "n", "put", "x"}},
		{0, "max-concurrent", []string{"limits", "--rate", "64MiB", "--max-concurrent", "2"}},
		{2, "not a size", []string{"limits", "--rate", "much"}},
		{0, "m1", []string{"events", "--follow=false"}},
		{8, "+m4", []string{"change", "plan", "--add", d.ID, "--detailed-exitcode"}},
		{0, "+m4", []string{"change", "plan", "--replace", "m1=m4"}},
		{1, "unknown-member", []string{"change", "plan", "--add", "zz"}},
		{2, "say what changes", []string{"change", "apply"}},
		{2, "--yes", []string{"change", "apply", "--remove", "m1"}},
		{5, "stale", []string{"change", "apply", "--add", d.ID, "--expect-version", "1"}},
		{0, "done", []string{"change", "apply", "--add", d.ID, "--idempotency-key", "k"}},
		{0, "done", []string{"change", "apply", "--add", d.ID, "--idempotency-key", "k"}},
		{0, "done", []string{"change", "list"}},
		{1, "no change is running", []string{"change", "pause"}},
		{1, "no change is running", []string{"change", "status"}},
		{1, "no change is running", []string{"change", "watch"}},
		{1, "unknown-change", []string{"change", "status", "c-999999"}},
		{1, "1 to 1024", []string{"kv", "put", strings.Repeat("k", 1025), "v"}},
		{2, "unknown command", []string{"frobnicate"}},
		{2, "unknown command", []string{"kv", "frobnicate"}},
		{0, "Available Commands", []string{"kv"}},
		{1, "key is empty", []string{"kv", "put", "", "v"}},
		{2, "unknown flag", []string{"status", "--frob"}},
		{2, "--format", []string{"status", "--format", "xml"}},
		{0, "dev", []string{"version"}},
		{0, "complet", []string{"completion", "bash"}},
		{0, "node_id", []string{"config", "example"}},
		{0, "is valid", []string{"config", "validate", c.members[0].Config()}},
		{0, c.members[0].ID, []string{"config", "show", c.members[0].Config()}},
		{2, "cluster config example", []string{"config", "show", filepath.Join(dir, "none.hcl")}},
		{2, "bad.hcl:2", []string{"config", "validate", file("bad.hcl", "node_id = \"a\"\nfoo = 1\n")}},
		{2, "Did you mean", []string{"agent", "--config", file("bad2.hcl", "node_idd = \"a\"\n")}},
		{2, "no column", []string{"kv", "import", file("a.csv", "a,b\n1,2\n"), "--key", "id"}},
		{2, "line 3", []string{"kv", "import", file("b.csv", "id,b\n1,2\n3\n"), "--key", "id"}},
		{2, "stands in line 2", []string{"kv", "import", file("c.csv", "id,b\n1,2\n1,3\n"), "--key", "id"}},
		{2, "key is empty", []string{"kv", "import", file("d.csv", "id,b\n,2\n"), "--key", "id"}},
		{2, "no such file", []string{"kv", "import", filepath.Join(dir, "none.csv"), "--key", "id"}},
		{0, "2 rows", []string{"kv", "import", file("e.csv", "id,b\nr1,2\nr2,\"x\ny\"\n"), "--key", "id"}},
		{0, `"key":"r2"`, []string{"kv", "export", "--prefix", "r"}},
		{5, "formed", []string{"bootstrap", "--voter", "m1=" + c.members[0].Cluster, "--voter", "m2=" + c.members[1].Cluster, "--voter", "m3=" + c.members[2].Cluster}},
		{0, "", []string{"bootstrap", "--if-needed", "--voter", "m1=" + c.members[0].Cluster}},
		{2, "ID=HOST:PORT", []string{"bootstrap", "--voter", "m1"}},
	} {
		expect(t, c, x.code, x.words, x.args...)
	}
	expect(t, nil, 3, "no endpoint", "status", "--http-addr", "127.0.0.1:1")
	if out, _, _ := run(t, c, "kv", "get", "r2"); out != `{"b":"x\ny","id":"r2"}` {
		t.Errorf("the imported row is %s", out)
	}
	plan := expect(t, c, 0, "version", "change", "plan", "--remove", "m4", "--format", "json")
	expect(t, c, 0, "done", "change", "apply", file("plan.json", plan), "--yes")
	expect(t, c, 5, "stale", "change", "apply", file("plan.json", plan), "--yes")
}

func TestLeaveCommand(t *testing.T) {
	c := begin(t, 4, process.Settings{})
	c.join(1)
	standby := c.members[4]
	c.ready(standby)
	expect(t, nil, 0, "", "leave", "--yes", "--http-addr", standby.HTTP)
	c.gone(standby)
	m := c.members[3]
	_, talk, code := run(t, nil, "leave", "--yes", "--http-addr", m.HTTP)
	if code != 0 {
		t.Errorf("leave: %d\n%s", code, talk)
	}
	c.gone(m)
	if _, listed := func() (any, bool) { p := c.placement(); return p.Member(m.ID) }(); listed {
		t.Error("leave returned before the member was let go")
	}
}

// An agent that cannot be what it says: each ends, or can be stopped, at once, and says what is wrong.
func TestWrongAgents(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(50)
	wrong := func(name string, words string, edit func(m *process.Member, s *process.Settings)) {
		t.Run(name, func(t *testing.T) {
			m := c.make()
			s := c.set
			edit(m, &s)
			c.must(m.Configure(s))
			c.must(m.Start())
			c.until(name+" is refused", func(context.Context) (bool, string) {
				return strings.Contains(m.Tail(200), words), m.Tail(5)
			})
			if m.Running() { // it looks for a cluster until it is stopped
				c.must(m.Signal(syscall.SIGTERM))
				c.must(m.Wait(patient(t)))
			}
			c.must(m.Kill())
		})
	}
	wrong("duplicate address", "member m1 has: each member needs an address of its own", func(_ *process.Member, s *process.Settings) {
		s.Extra = fmt.Sprintf("advertise = %q\n", c.members[0].Cluster)
	})
	wrong("another cluster", "another cluster", func(_ *process.Member, s *process.Settings) { s.Extra = "cluster_name = \"other\"\n" })
	wrong("address in use", "address already in use", func(m *process.Member, _ *process.Settings) { m.Cluster = c.members[0].Cluster })
	wrong("http address in use", "address already in use", func(m *process.Member, _ *process.Settings) { m.HTTP = c.members[0].HTTP })
	if p := c.placement(); len(p.Members) != 3 {
		t.Errorf("members that were refused are listed: %+v", p.Members)
	}
	for _, r := range c.rows {
		if b, _, err := c.client.Get(patient(t), r.Key); err != nil || string(b) != string(r.Value) {
			t.Fatalf("%s is %.40q, %v", r.Key, b, err)
		}
	}
}

// Garbage and half-open connections on both ports do nothing to those who are served meanwhile, and are ended.
func TestGarbageOnThePorts(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	c.importRows(200)
	c.start()
	m := c.members[1]
	noise := make([]byte, 4096)
	rand.Read(noise)
	var open []net.Conn
	for i := range 60 {
		for _, addr := range []string{m.Cluster, m.HTTP} {
			conn, err := net.DialTimeout("tcp", addr, time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			switch i % 3 {
			case 0:
				conn.Write(noise)
			case 1:
				conn.Write(noise[:1])
				open = append(open, conn)
			default:
				open = append(open, conn)
			}
		}
	}
	c.planned(func() { c.more(500) })
	for i, conn := range open { // those that say nothing are ended by the member
		conn.SetReadDeadline(time.Now().Add(40 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("half-open connection %d to %s is still there", i, conn.RemoteAddr())
		}
	}
}

// Requests that are wrong get a problem with a code and change nothing.
func TestWrongRequests(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	base := "http://" + c.members[0].HTTP
	for _, x := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/v1/nothing", "", 404, "unknown-path"},
		{"POST", "/v1/status", "", 404, "unknown-path"},
		{"POST", "/v1/changes", `{"add":["m1"],"colour":"red"}`, 400, "bad-request"},
		{"POST", "/v1/changes", `{"add":`, 400, "bad-request"},
		{"POST", "/v1/changes", `{} {}`, 400, "bad-request"},
		{"POST", "/v1/changes", `{}`, 422, "invalid"},
		{"POST", "/v1/changes", `{"add":["zz"]}`, 404, "unknown-member"},
		{"POST", "/v1/changes", `{"remove":["m1"]}`, 422, "invalid"},
		{"POST", "/v1/changes/c-1:explode", ``, 404, "unknown-path"},
		{"GET", "/v1/changes/c-77", ``, 404, "unknown-change"},
		{"GET", "/v1/placement?index=x", ``, 400, "bad-request"},
		{"GET", "/v1/placement?wait=-1s", ``, 400, "bad-request"},
		{"PUT", "/v1/limits", `{"rate":-1}`, 422, "invalid"},
		{"GET", "/v1/ring/locate?type=kv", ``, 400, "bad-request"},
		{"POST", "/v1/actors/kv/a/put", `{"value":"x","value_base64":"eA=="}`, 400, "bad-request"},
		{"POST", "/v1/actors/kv/a/cas", `{"value":"x"}`, 400, "bad-request"},
		{"GET", "/v1/actors/kv/a/put", ``, 400, "bad-request"},
		{"POST", "/v1/actors/nope/a/put", `{}`, 422, "rejected"},
		{"POST", "/v1/actors/kv/a/nope", `{}`, 422, "rejected"},
		{"GET", "/v1/actors/kv/absent/get", ``, 404, "not-found"},
		{"POST", "/v1/actors/kv/" + strings.Repeat("k", 1025) + "/put", `{"value":"x"}`, 422, "rejected"},
		{"POST", "/v1/actors/kv/big/put", fmt.Sprintf(`{"value":%q}`, strings.Repeat("x", 1<<20+1)), 422, "rejected"},
		{"POST", "/v1/actors/kv/huge/put", fmt.Sprintf(`{"value":%q}`, strings.Repeat("x", 3<<20)), 400, "bad-request"},
		{"POST", "/v1/join", `{"addresses":["127.0.0.1:1"]}`, 409, "formed"},
		{"POST", "/v1/bootstrap", `{"voters":{"m9":"h:1"}}`, 400, "bad-request"},
		{"GET", "/v1/actors?type=kv&member=zz", ``, 404, "unknown-member"},
		{"GET", "/v1/actors?type=zz", ``, 400, "bad-request"},
	} {
		r, err := http.NewRequest(x.method, base+x.path, strings.NewReader(x.body))
		c.must(err)
		resp, err := http.DefaultClient.Do(r)
		c.must(err)
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != x.status || !strings.Contains(string(b), fmt.Sprintf(`"code":%q`, x.code)) || resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %.60s %.60s gives %d %.300s", x.method, x.path, x.body, resp.StatusCode, b)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/readyz?verbose", "/metrics", "/v1/status", "/v1/members", "/v1/placement", "/v1/changes", "/v1/operator/raft", "/v1/events?follow=false"} {
		resp, err := http.Get(base + path)
		c.must(err)
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || len(b) == 0 {
			t.Errorf("GET %s gives %d %.200s", path, resp.StatusCode, b)
		}
		if path == "/metrics" {
			for _, want := range []string{"chainmail_placement_version", "chainmail_transport_bytes_total", "cluster_raft_", "go_goroutines"} {
				if !strings.Contains(string(b), want) {
					t.Errorf("/metrics lacks %s", want)
				}
			}
		}
	}
	if _, err := c.client.Placement(patient(t)); err != nil {
		t.Error(err)
	}
	var p *api.Problem
	if err := c.client.Do(patient(t), "GET", "/v1/actors/kv/absent/get", nil, nil, true); !errors.As(err, &p) || p.Hint != "" && p.Status != 404 {
		t.Error(err)
	}
}
