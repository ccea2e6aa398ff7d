package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"chainmail/engine/core"
	"chainmail/engine/store"
	"chainmail/engine/store/storetest"
	"chainmail/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var owner = storetest.Owner

// settings are those of a member that does not wait long.
func settings(dsn string) Config {
	return Config{DSN: dsn, Owner: owner, Attempt: 5 * time.Second, Patience: time.Second}
}

func open(t *testing.T, cfg Config) (*Store, store.Start) {
	t.Helper()
	s, start, err := Open(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, start
}

// admin is a connection of somebody else.
func admin(t *testing.T, srv *pgtest.Server) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(context.Background(), srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	in := strings.ReplaceAll(sql, "@", pgx.Identifier{schemaOf(owner)}.Sanitize()+".")
	if _, err := c.Exec(context.Background(), in, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
}

// writer applies one put after another and keeps what was acknowledged.
type writer struct {
	s    store.Store
	n    uint64
	want storetest.Model
}

func (w *writer) put() error {
	w.n++
	var puts []core.Put
	for i := range uint64(2) { // the second one would refuse the first one if the batch were written twice
		s := core.Stamp{Epoch: storetest.Epoch(1, 1), Seq: 2*w.n + i}
		puts = append(puts, core.Put{Key: core.Key{Type: "kv", Name: fmt.Sprint(w.n % 7)}, Meta: core.CopyMeta{Promised: s.Epoch, Stamp: s}, Full: w.n%2 == 0,
			Pages: []core.Page{storetest.Page(fmt.Sprint((w.n+i)%3), fmt.Sprint("value ", w.n), s)}})
	}
	other := core.Key{Type: "kv", Name: "other"}
	puts = append(puts, core.Put{Key: other, Meta: core.CopyMeta{Promised: storetest.Epoch(w.n, 1)}}, core.Put{Key: other, Drop: true},
		core.Put{Key: other, Meta: core.CopyMeta{Promised: storetest.Epoch(1, 1)}})
	err := w.s.Apply(context.Background(), puts, nil)
	if err == nil {
		for _, p := range puts {
			w.want.Apply(p)
		}
	}
	return err
}

func (w *writer) puts(t *testing.T, n int) {
	t.Helper()
	for range n {
		if err := w.put(); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *writer) check(t *testing.T, cfg Config) *Store {
	t.Helper()
	if err := w.s.Close(); err != nil {
		t.Fatal(err)
	}
	s, start := open(t, cfg)
	if d := w.want.Diff(start.Saved); d != "" {
		t.Fatal(d)
	}
	w.s = s
	return s
}

func TestPostgres(t *testing.T) {
	srv := pgtest.Start(t)
	places := 0
	t.Run("contract", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T) storetest.Open {
			places++
			schema := fmt.Sprint("contract", places)
			return func(o store.Owner) (store.Store, store.Start, error) {
				cfg := settings(srv.DSN())
				cfg.Owner, cfg.Schema = o, schema // one for all members
				s, start, err := Open(context.Background(), cfg)
				return s, start, err
			}
		})
	})
	for _, c := range []struct {
		name string
		f    func(*testing.T, *pgtest.Server)
	}{
		{"connection lost", connectionLost}, {"slow", slow}, {"full", full}, {"away", away}, {"taken over", takenOver}, {"damaged", damaged}, {"not allowed", notAllowed}, {"close", closes},
	} {
		t.Run(c.name, func(t *testing.T) {
			exec(t, admin(t, srv), "DROP SCHEMA IF EXISTS "+pgx.Identifier{schemaOf(owner)}.Sanitize()+" CASCADE")
			c.f(t, srv)
		})
	}
}

// The server of the tests does not wait for its disk.
func BenchmarkPostgres(b *testing.B) {
	cfg := settings(pgtest.Start(b).DSN())
	storetest.Bench(b, func(o store.Owner) (store.Store, store.Start, error) { return Open(context.Background(), cfg) })
}

// proxy hands bytes on, and cuts each of its first connections after a number of messages of the client.
type proxy struct {
	l    net.Listener
	to   string
	wg   sync.WaitGroup
	mu   sync.Mutex
	cuts []int // of the next connections
}

func newProxy(t *testing.T, srv *pgtest.Server, cuts ...int) (dsn string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "pg") // the name of a socket may have 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", filepath.Join(dir, filepath.Base(srv.Socket())))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: srv.Socket(), cuts: cuts}
	p.wg.Go(p.serve)
	t.Cleanup(func() { l.Close(); p.wg.Wait(); os.RemoveAll(dir) })
	return pgtest.DSN(dir)
}

func (p *proxy) serve() {
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", p.to)
		if err != nil {
			in.Close()
			return
		}
		cut := -1
		p.mu.Lock()
		if len(p.cuts) > 0 {
			cut, p.cuts = p.cuts[0], p.cuts[1:]
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.hand(in, out, cut) })
	}
}

// hand hands on what the client sends; after so many pieces the client's side is closed, though the server gets the last
// one. Half of the cuts leave the server's answer to it under way.
func (p *proxy) hand(in, out net.Conn, cut int) {
	defer in.Close()
	defer out.Close()
	p.wg.Go(func() {
		io.Copy(in, out)
		in.Close()
	})
	b := make([]byte, 1<<20)
	for n := 0; ; n++ {
		k, err := in.Read(b)
		if err != nil {
			return
		}
		if n == cut {
			in.Close()
		}
		if _, err := out.Write(b[:k]); err != nil {
			return
		}
		if n == cut {
			// The server is let finish what it was asked: it is the answer that is lost.
			out.(*net.UnixConn).CloseWrite()
			io.Copy(io.Discard, out)
			return
		}
	}
}

// connectionLost: the connection is cut after every message in turn, most of all between a commit and its answer. What
// was acknowledged is there, once.
func connectionLost(t *testing.T, srv *pgtest.Server) {
	w := &writer{want: storetest.Model{}}
	cfg := settings(srv.DSN())
	cfg.Patience = 20 * time.Second
	for cut := range 24 {
		cfg := cfg
		cfg.DSN = newProxy(t, srv, cut)
		w.s, _ = open(t, cfg)
		w.puts(t, 6)
		w.check(t, cfg).Close()
	}
	s, start := open(t, cfg)
	if s.Retries() != 0 || start.Boot < 48 {
		t.Errorf("%d retries, boot %d", s.Retries(), start.Boot)
	}
}

// slow: a write that takes too long is given up and tried again; it happens once.
func slow(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	cfg.Attempt, cfg.Patience = 300*time.Millisecond, 30*time.Second
	s, _ := open(t, cfg)
	w := &writer{s: s, want: storetest.Model{}}
	w.puts(t, 3)
	a := admin(t, srv)
	exec(t, a, "BEGIN; LOCK TABLE @copies IN ACCESS EXCLUSIVE MODE")
	done := make(chan error, 1)
	go func() { done <- w.put() }()
	for s.Retries() < 2 {
		select {
		case err := <-done:
			t.Fatalf("answered meanwhile: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	exec(t, a, "COMMIT")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	w.puts(t, 3)
	w.check(t, cfg)
}

// full: a database without room is waited for, and fails the store when it stays so. Nothing acknowledged is lost.
func full(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	cfg.Patience = 30 * time.Second
	s, _ := open(t, cfg)
	w := &writer{s: s, want: storetest.Model{}}
	w.puts(t, 3)
	a := admin(t, srv)
	exec(t, a, `CREATE FUNCTION @full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON @pages FOR EACH ROW EXECUTE FUNCTION @full()`)
	done := make(chan error, 1)
	go func() { done <- w.put() }()
	for s.Retries() < 2 {
		select {
		case err := <-done:
			t.Fatalf("answered meanwhile: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	exec(t, a, "DROP TRIGGER full_disk ON @pages")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	cfg.Patience = time.Second
	w.check(t, cfg)
	exec(t, a, "CREATE TRIGGER full_disk BEFORE INSERT ON @pages FOR EACH ROW EXECUTE FUNCTION @full()")
	if err := w.put(); !errors.Is(err, store.ErrNoSpace) || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), "member a") {
		t.Errorf("a full database gives %v", err)
	}
	exec(t, a, "DROP TRIGGER full_disk ON @pages")
	w.check(t, cfg)
}

// away: a server that was killed is waited for, and fails the store when it stays away.
func away(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	cfg.Patience = 60 * time.Second
	s, _ := open(t, cfg)
	w := &writer{s: s, want: storetest.Model{}}
	w.puts(t, 20)
	if err := srv.Stop(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- w.put() }()
	for s.Retries() < 2 {
		select {
		case err := <-done:
			t.Fatalf("answered meanwhile: %v", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	if err := srv.Run(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	cfg.Patience = time.Second
	w.check(t, cfg)
	if err := srv.Stop(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	if err := w.put(); !errors.Is(err, store.ErrAway) || !strings.Contains(err.Error(), "bring the database back") {
		t.Errorf("a database that is away gives %v", err)
	}
	if _, _, err := Open(context.Background(), cfg); !errors.Is(err, store.ErrAway) {
		t.Errorf("to open one that is away gives %v", err)
	}
	if err := srv.Run(); err != nil {
		t.Fatal(err)
	}
	w.check(t, cfg)
}

// takenOver: whoever has lost its lock to another process writes no more.
func takenOver(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	first, _ := open(t, cfg)
	w := &writer{s: first, want: storetest.Model{}}
	w.puts(t, 2)
	// A session that the server has given up, though its client has not noticed, has no lock any more.
	exec(t, admin(t, srv), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'chainmail a'")
	second, start := open(t, cfg)
	if d := w.want.Diff(start.Saved); d != "" {
		t.Error(d)
	}
	if err := w.put(); !errors.Is(err, store.ErrInUse) {
		t.Errorf("the first process writes: %v", err)
	}
	second.Close()
	if err := w.put(); !errors.Is(err, store.ErrInUse) || !strings.Contains(err.Error(), "another process has opened it since") {
		t.Errorf("the first process writes: %v", err)
	}
	w.check(t, cfg)
}

// damaged: what is not whole is refused, and says so.
func damaged(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	a := admin(t, srv)
	for what, harm := range map[string]string{
		"a copy is missing":    "DELETE FROM @copies WHERE name = '3'; DELETE FROM @pages WHERE name = '3'",
		"a page is missing":    "DELETE FROM @pages WHERE name = '3' AND page = (SELECT page FROM @pages WHERE name = '3' ORDER BY page LIMIT 1)",
		"a page of no copy":    "UPDATE @copies SET name = '33' WHERE name = '3'",
		"other data":           "UPDATE @pages SET data = 'x' WHERE name = '3'",
		"another checksum":     "UPDATE @pages SET sum = sum # 1 WHERE name = '3'",
		"half a stamp":         "UPDATE @copies SET stamp = substring(stamp from 1 for 20) WHERE name = '3'",
		"no identity":          "DELETE FROM @identity",
		"no table":             "DROP TABLE @pages",
		"a view that is none":  "UPDATE @identity SET view = '{'",
		"a promise too little": "UPDATE @copies SET promised = ''",
	} {
		s, _ := open(t, cfg)
		w := &writer{s: s, want: storetest.Model{}}
		w.puts(t, 10)
		w.check(t, cfg).Close()
		exec(t, a, harm)
		_, _, err := Open(context.Background(), cfg)
		if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "drop the schema") || !strings.Contains(err.Error(), schemaOf(owner)) {
			t.Errorf("%s: %v", what, err)
		}
		exec(t, a, "DROP SCHEMA "+pgx.Identifier{schemaOf(owner)}.Sanitize()+" CASCADE")
	}
	s, _ := open(t, cfg)
	exec(t, a, "UPDATE @identity SET applied = 9")
	w := &writer{s: s, want: storetest.Model{}}
	if err := w.put(); !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), "an older state was put back") {
		t.Errorf("a schema that was replaced under way gives %v", err)
	}
	s.Close()
	exec(t, a, "UPDATE @identity SET format = 9")
	if _, _, err := Open(context.Background(), cfg); !errors.Is(err, store.ErrFormat) {
		t.Errorf("a format of the future gives %v", err)
	}
	exec(t, a, "DROP TABLE @identity")
	if _, _, err := Open(context.Background(), cfg); !errors.Is(err, store.ErrForeign) {
		t.Errorf("tables of others give %v", err)
	}
}

func notAllowed(t *testing.T, srv *pgtest.Server) {
	exec(t, admin(t, srv), "CREATE ROLE guest LOGIN")
	cfg := settings(srv.DSN() + " user=guest")
	if _, _, err := Open(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), "let the role create a schema") {
		t.Errorf("a role without rights gives %v", err)
	}
	exec(t, admin(t, srv), "CREATE SCHEMA "+pgx.Identifier{schemaOf(owner)}.Sanitize()+" AUTHORIZATION guest")
	s, _ := open(t, cfg)
	w := &writer{s: s, want: storetest.Model{}}
	w.puts(t, 3)
	w.check(t, cfg)
	for dsn, want := range map[string]string{srv.DSN() + " dbname=none": "does not exist", "postgres://u:secret@h/db?sslmode=perhaps": "cannot parse"} {
		_, _, err := Open(context.Background(), settings(dsn))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", dsn, err)
		}
	}
}

// closes: a close, or the end of the context, ends a write that waits.
func closes(t *testing.T, srv *pgtest.Server) {
	cfg := settings(srv.DSN())
	cfg.Attempt, cfg.Patience = time.Minute, time.Minute
	a := admin(t, srv)
	for _, want := range []error{context.Canceled, store.ErrClosed} {
		s, _ := open(t, cfg)
		exec(t, a, "BEGIN; LOCK TABLE @copies IN ACCESS EXCLUSIVE MODE")
		ctx, done := context.WithCancel(context.Background())
		result := make(chan error, 1)
		go func() {
			result <- s.Apply(ctx, []core.Put{{Key: core.Key{Type: "kv"}, Meta: core.CopyMeta{Promised: storetest.Epoch(1, 1)}}}, nil)
		}()
		waiting(t, srv)
		began := time.Now()
		if errors.Is(want, context.Canceled) {
			done()
		} else {
			s.Close()
		}
		if err := <-result; !errors.Is(err, want) || time.Since(began) > 5*time.Second {
			t.Errorf("after %s: %v, want %v", time.Since(began), err, want)
		}
		done()
		s.Close()
		exec(t, a, "COMMIT")
	}
}

// waiting waits until a session waits for a lock.
func waiting(t *testing.T, srv *pgtest.Server) {
	t.Helper()
	c := admin(t, srv)
	for end := time.Now().Add(20 * time.Second); ; {
		var n int
		if err := c.QueryRow(context.Background(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatal("nobody waits")
		}
	}
}

func TestSchemaNames(t *testing.T) {
	long := strings.Repeat("x", 60)
	seen := map[string]bool{}
	for _, o := range []store.Owner{{ClusterName: "a", Member: "b"}, {ClusterName: "a/b", Member: "c"}, {ClusterName: "a", Member: long}, {ClusterName: "a", Member: long + "y"}, {ClusterName: strings.Repeat("é", 50), Member: "b"}} {
		name := schemaOf(o)
		if len(name) > 63 || seen[name] || strings.ToValidUTF8(name, "") != name {
			t.Errorf("%v has the schema %q", o, name)
		}
		seen[name] = true
	}
}
