package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/jackc/pgx/v5"

	"chainmail/engine/core"
	"chainmail/engine/store"
)

// Config says where a store is and how long its database is waited for.
type Config struct {
	DSN      string // a URL or key=value pairs; what it leaves out comes from PGPASSWORD, PGPASSFILE and so on
	Owner    store.Owner
	Schema   string        // default: one that no other member has
	Attempt  time.Duration // the most that one try takes; default 10 s
	Patience time.Duration // how long it is tried again; default 30 s
	Logger   hclog.Logger
}

// Store is the store of one member. A connection is made when it is needed, and again after an error.
type Store struct {
	cfg  Config
	log  hclog.Logger
	dsn  *pgx.ConnConfig
	sql  *statements
	ctx  context.Context // ends with Close
	stop context.CancelFunc

	busy    chan struct{} // capacity 1: whoever has put something in has what follows
	conn    *pgx.Conn     // nil: none
	start   store.Start   // without what was saved
	applied int64

	retries atomic.Uint64
}

// errFenced is what a process gets that another one has taken the place of.
var errFenced = fmt.Errorf("another process has opened it since: %w", store.ErrInUse)

// Open opens or creates the schema of a member. It tries for as long as Patience while the database cannot be reached.
func Open(ctx context.Context, cfg Config) (*Store, store.Start, error) {
	if cfg.Attempt == 0 {
		cfg.Attempt = 10 * time.Second
	}
	if cfg.Patience == 0 {
		cfg.Patience = 30 * time.Second
	}
	if cfg.Schema == "" {
		cfg.Schema = schemaOf(cfg.Owner)
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	dsn, err := pgx.ParseConfig(cfg.DSN)
	if err != nil {
		return nil, store.Start{}, fmt.Errorf("open store of member %s: %w", cfg.Owner.Member, err)
	}
	for name, value := range map[string]string{
		"application_name": "chainmail " + cfg.Owner.Member,
		// The server, too, ends a try that has taken too long, and notices soon when a member's host has gone: it would
		// keep the lock else.
		"statement_timeout": strconv.FormatInt(cfg.Attempt.Milliseconds(), 10), "tcp_keepalives_idle": "5", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3",
	} {
		dsn.RuntimeParams[name] = value
	}
	s := &Store{cfg: cfg, log: cfg.Logger.Named("store"), dsn: dsn, busy: make(chan struct{}, 1)}
	s.sql = newStatements(cfg.Schema)
	s.ctx, s.stop = context.WithCancel(context.Background())
	var saved *core.Saved
	err = s.do(ctx, "open", func(ctx context.Context, c *pgx.Conn) (err error) {
		if err := s.create(ctx, c); err != nil {
			return err
		}
		saved, err = s.load(ctx, c)
		return err
	})
	if err != nil {
		s.Close()
		return nil, store.Start{}, err
	}
	start := s.start
	start.Saved = saved
	return s, start, nil
}

// create makes the schema, with everything in it, if there is none.
func (s *Store) create(ctx context.Context, c *pgx.Conn) error {
	var schemas, ours, all int
	if err := c.QueryRow(ctx, s.sql.tables, s.cfg.Schema).Scan(&schemas, &ours, &all); err != nil || ours > 0 {
		return err
	}
	if all > 0 {
		return fmt.Errorf("it holds %d relations that are not ours: %w", all, store.ErrForeign)
	}
	return pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if schemas == 0 { // one that was made for a role may be all that it is allowed
			if _, err := tx.Exec(ctx, s.sql.create); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, s.sql.fill, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, s.sql.identify, format, s.cfg.Owner.ClusterName, s.cfg.Owner.Member, int64(store.NewIncarnation()))
		return err
	})
}

// load reads everything, checks that it is all that was written, and counts the start.
func (s *Store) load(ctx context.Context, c *pgx.Conn) (*core.Saved, error) {
	saved := &core.Saved{}
	err := pgx.BeginTxFunc(ctx, c, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		entries, err := s.identify(ctx, tx, saved)
		if err != nil {
			return err
		}
		pages, err := loadCopies(ctx, tx, s.sql, saved)
		if err != nil {
			return err
		}
		if have := int64(len(saved.Records)) + pages; have != entries {
			return fmt.Errorf("it holds %d copies and pages and should hold %d: %w", have, entries, store.ErrDamaged)
		}
		s.start.Starts = store.NextStarts(s.start.Starts, store.NewStart(), s.cfg.Owner.Member, s.start.Incarnation, saved.View)
		_, err = tx.Exec(ctx, s.sql.boot, int64(s.start.Boot), store.AppendStarts([]byte{}, s.start.Starts))
		return err
	})
	return saved, err
}

// identify checks whose store it is. It gives the number of rows that it must hold.
func (s *Store) identify(ctx context.Context, tx pgx.Tx, saved *core.Saved) (entries int64, err error) {
	var (
		f                 int
		o                 store.Owner
		incarnation, boot int64
		starts, view      []byte
	)
	if err = tx.QueryRow(ctx, s.sql.format).Scan(&f); err == nil && f == format {
		err = tx.QueryRow(ctx, s.sql.identity).Scan(&o.ClusterName, &o.Member, &incarnation, &boot, &starts, &s.applied, &entries, &view)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, fmt.Errorf("its identity is gone: %w", store.ErrDamaged)
	case err != nil:
		return 0, err
	case f != format:
		return 0, fmt.Errorf("format %d, this version knows %d: %w", f, format, store.ErrFormat)
	case o != s.cfg.Owner:
		return 0, fmt.Errorf("it is of %s, not of %s: %w", o, s.cfg.Owner, store.ErrIdentity)
	}
	s.start = store.Start{Incarnation: uint64(incarnation), Boot: uint64(boot) + 1}
	if s.start.Starts, err = store.ParseStarts(starts); err != nil {
		return 0, err
	}
	if view != nil {
		saved.View = new(core.View)
		if err := json.Unmarshal(view, saved.View); err != nil {
			return 0, fmt.Errorf("view: %w: %w", store.ErrDamaged, err)
		}
	}
	return entries, nil
}

// loadCopies reads copies and then their pages, both in the order of keys. It gives the number of pages.
func loadCopies(ctx context.Context, tx pgx.Tx, sql *statements, saved *core.Saved) (pages int64, err error) {
	var kind, name, promised, stamp []byte
	rows, err := tx.Query(ctx, sql.copies)
	if err != nil {
		return 0, err
	}
	_, err = pgx.ForEachRow(rows, []any{&kind, &name, &promised, &stamp}, func() (err error) {
		r := core.Record{Key: core.Key{Type: string(kind), Name: string(name)}}
		if r.Meta.Promised, err = parseEpoch(promised); err == nil {
			r.Meta.Stamp, err = parseStamp(stamp)
		}
		saved.Records = append(saved.Records, r)
		return err
	})
	if err != nil {
		return 0, err
	}
	var page, data []byte
	var sum int64
	if rows, err = tx.Query(ctx, sql.pages); err != nil {
		return 0, err
	}
	rest := saved.Records
	tag, err := pgx.ForEachRow(rows, []any{&kind, &name, &page, &stamp, &sum, &data}, func() (err error) {
		k := core.Key{Type: string(kind), Name: string(name)}
		for len(rest) > 0 && rest[0].Key != k {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return fmt.Errorf("page %q of %s is of no copy: %w", page, k, store.ErrDamaged)
		}
		pg := core.Page{Name: string(page), Sum: uint32(sum), Data: data}
		if pg.Stamp, err = parseStamp(stamp); err == nil && pg.Sum != core.PageSum(pg.Name, pg.Data) {
			err = fmt.Errorf("key %s: page %q does not match its checksum: %w", k, pg.Name, store.ErrDamaged)
		}
		rest[0].Pages = append(rest[0].Pages, pg)
		return err
	})
	return tag.RowsAffected(), err
}

// Bind is described at store.Store.
func (s *Store) Bind(ctx context.Context, cluster string) error {
	return s.do(ctx, "bind", func(ctx context.Context, c *pgx.Conn) error {
		if _, err := c.Exec(ctx, s.sql.bind, cluster); err != nil {
			return err
		}
		var bound string
		if err := c.QueryRow(ctx, s.sql.bound).Scan(&bound); err != nil {
			return err
		}
		if bound != cluster {
			return fmt.Errorf("its copies are of the cluster with id %s, not %s: %w", bound, cluster, store.ErrIdentity)
		}
		return nil
	})
}

// Retries counts the tries that failed and were followed by another.
func (s *Store) Retries() uint64 { return s.retries.Load() }

// Close ends what is under way and closes the connection.
func (s *Store) Close() error {
	s.stop()
	s.busy <- struct{}{}
	if s.conn != nil { // the server notices later that the session has ended: whoever opens next should not wait for that
		ctx, done := context.WithTimeout(context.Background(), closeLimit)
		s.conn.Exec(ctx, "SELECT pg_advisory_unlock_all()")
		done()
	}
	s.disconnect()
	<-s.busy
	return nil
}
