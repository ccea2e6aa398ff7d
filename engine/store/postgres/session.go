package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"chainmail/engine/store"
)

const (
	firstWait = 50 * time.Millisecond
	maxWait   = 2 * time.Second
	// slowAfter is when a try is worth a line in the log.
	slowAfter  = time.Second
	closeLimit = time.Second
)

var (
	errLocked  = fmt.Errorf("another session holds the lock of the schema: %w", store.ErrInUse)
	errStandby = errors.New("the server is a standby and takes no writes")
)

// do runs f with a connection, again while what fails may pass. One at a time.
func (s *Store) do(ctx context.Context, what string, f func(context.Context, *pgx.Conn) error) error {
	ctx, done := context.WithCancel(ctx)
	defer done()
	defer context.AfterFunc(s.ctx, done)()
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
	}
	began := time.Now()
	wait := firstWait
	for tries := 1; ; tries++ {
		if s.ctx.Err() != nil {
			return s.explain(what, store.ErrClosed)
		}
		if err := ctx.Err(); err != nil {
			return s.explain(what, err)
		}
		err := s.attempt(ctx, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			continue
		}
		if !passes(err) {
			return s.explain(what, err)
		}
		if took := time.Since(began); took+wait > s.cfg.Patience {
			return s.explain(what, fmt.Errorf("%w after %d tries in %s: %w", classOf(err), tries, took.Round(time.Millisecond), err))
		}
		s.retries.Add(1)
		s.log.Warn("the database does not serve, trying again", "member", s.cfg.Owner.Member, "attempt", tries, "elapsed", time.Since(began), "error", err)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, maxWait)
	}
}

func (s *Store) attempt(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, done := context.WithTimeout(ctx, s.cfg.Attempt)
	defer done()
	began := time.Now()
	err := s.connected(ctx)
	if err == nil {
		err = f(ctx, s.conn)
	}
	if took := time.Since(began); took > slowAfter {
		s.log.Warn("the database is slow", "member", s.cfg.Owner.Member, "elapsed", took)
	}
	if err != nil { // whatever it was, nothing of it is left on the server's side
		s.disconnect()
	}
	return err
}

func (s *Store) disconnect() {
	if s.conn == nil {
		return
	}
	ctx, done := context.WithTimeout(context.Background(), closeLimit)
	defer done()
	s.conn.Close(ctx)
	s.conn = nil
}

// connected makes a connection that holds the schema's lock, if there is none.
func (s *Store) connected(ctx context.Context) error {
	if s.conn != nil {
		return nil
	}
	conn, err := pgx.ConnectConfig(ctx, s.dsn.Copy())
	if err != nil {
		return err
	}
	s.conn = conn
	var locked, standby, lax, unsynced bool
	if err := conn.QueryRow(ctx, s.sql.session, lockOf(s.cfg.Schema)).Scan(&locked, &standby, &lax, &unsynced); err != nil {
		return err
	}
	switch {
	case standby:
		return errStandby
	case !locked:
		return errLocked
	}
	if unsynced {
		s.log.Warn("the server runs with fsync off: what it acknowledges does not survive a power cut", "member", s.cfg.Owner.Member)
	}
	if lax { // a commit that is answered must be on the disk
		_, err = conn.Exec(ctx, "SET synchronous_commit = on")
	}
	return err
}

// passes says whether the same try may succeed later.
func passes(err error) bool {
	for _, never := range []error{store.ErrOlder, store.ErrIdentity, store.ErrForeign, store.ErrFormat, store.ErrDamaged, errFenced} {
		if errors.Is(err, never) {
			return false
		}
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return true // the connection, or the time
	}
	switch pg.Code[:2] {
	case "08", // connection
		"40", // rolled back
		"53", // out of disk, memory, connections
		"55", // not in this state, lock not available
		"57", // shutting down, starting up, cancelled
		"58": // outside of the server
		return true
	}
	return pg.Code == "25006" // read only: a standby that is about to take over
}

// classOf says what an error that did not pass in time is.
func classOf(err error) error {
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, errLocked):
		return store.ErrInUse
	case errors.As(err, &pg) && pg.Code == "53100":
		return store.ErrNoSpace
	}
	return store.ErrAway
}

// explain says which store failed, and what to do next.
func (s *Store) explain(what string, err error) error {
	next := ""
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, store.ErrInUse):
		next = "stop the process that has it open"
	case errors.Is(err, store.ErrNoSpace):
		next = "make room for the database and start the member again: nothing that was acknowledged is lost"
	case errors.Is(err, store.ErrAway):
		next = "bring the database back and start the member again: nothing that was acknowledged is lost"
	case errors.Is(err, store.ErrIdentity):
		next = "give every member of every cluster a node_id of its own in this database, or drop the schema if what is in it is not needed"
	case errors.Is(err, store.ErrForeign):
		next = "name another database"
	case errors.Is(err, store.ErrFormat):
		next = "use the version of this program that wrote it"
	case errors.As(err, &pg) && (pg.Code == "42P01" || pg.Code == "42703"): // a table or column is missing
		err = fmt.Errorf("%w: %w", store.ErrDamaged, err)
		fallthrough
	case errors.Is(err, store.ErrDamaged):
		next = "drop the schema and start the member again: it then begins a new incarnation and fills from the others; do so on one member at a time. " +
			"A backup may be put back if the member has not run since it was made"
	case errors.As(err, &pg) && pg.Code == "42501":
		next = "let the role create a schema in the database, or own the schema"
	}
	err = fmt.Errorf("%s PostgreSQL schema %q in database %q at %s of member %s: %w", what, s.cfg.Schema, s.dsn.Database, s.dsn.Host, s.cfg.Owner.Member, err)
	if next != "" {
		err = fmt.Errorf("%w; %s", err, next)
	}
	return err
}
