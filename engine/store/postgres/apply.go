package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"chainmail/engine/core"
	"chainmail/engine/store"
)

// maxChunk bounds the bytes of pages in one statement: the server takes a message of less than 1 GiB.
const maxChunk = 32 << 20

// Apply is described at store.Store.
func (s *Store) Apply(ctx context.Context, puts []core.Put, view *core.View) error {
	changes, err := fold(puts)
	if err != nil {
		return s.explain("write", err)
	}
	b, err := newBatch(changes, view)
	if err != nil {
		return s.explain("write", err)
	}
	return s.do(ctx, "write", func(ctx context.Context, c *pgx.Conn) error { return s.apply(ctx, c, b) })
}

// apply is one try. Nothing but its commit makes it count: after any error the connection is closed.
func (s *Store) apply(ctx context.Context, c *pgx.Conn, b *batch) error {
	held, done := false, outcome{}
	q := &pgx.Batch{}
	q.Queue("BEGIN")
	q.Queue(s.sql.fence, int64(s.start.Incarnation), int64(s.start.Boot), s.applied).Query(func(rows pgx.Rows) error {
		held = rows.Next()
		rows.Close()
		return rows.Err()
	})
	b.queue(q, s.sql, &done)
	if err := c.SendBatch(ctx, q).Close(); err != nil {
		return err
	}
	switch {
	case !held: // whatever the rest says: it may have been written already
		return s.fenced(ctx, c)
	case done.older > 0:
		return fmt.Errorf("key %s: %w", b.checked[done.older-1], store.ErrOlder)
	}
	q = &pgx.Batch{}
	q.Queue(s.sql.finish, s.applied+1, done.entries, b.view)
	q.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" { // a transaction that had failed is rolled back without an error
			return fmt.Errorf("commit ended as %s", tag)
		}
		return nil
	})
	if err := c.SendBatch(ctx, q).Close(); err != nil {
		return err
	}
	s.applied++
	return nil
}

// fenced says why the identity is not the one expected: the commit of an earlier try happened, or it is another's now.
func (s *Store) fenced(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
		return err
	}
	var incarnation, boot, applied int64
	err := c.QueryRow(ctx, s.sql.state).Scan(&incarnation, &boot, &applied)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return fmt.Errorf("its identity is gone: %w", store.ErrDamaged)
	case err != nil:
		return err
	case uint64(incarnation) != s.start.Incarnation:
		return fmt.Errorf("it is of incarnation %x, this member is %x: %w", uint64(incarnation), s.start.Incarnation, store.ErrDamaged)
	case uint64(boot) > s.start.Boot:
		return errFenced
	case uint64(boot) == s.start.Boot && applied == s.applied+1:
		s.applied++
		return nil
	}
	return fmt.Errorf("it is at start %d and write %d, this member at %d and %d: an older state was put back: %w", boot, applied, s.start.Boot, s.applied, store.ErrDamaged)
}

// keys are columns of types and names.
type keys struct{ types, names [][]byte }

func (k *keys) add(key core.Key) {
	k.types, k.names = append(k.types, []byte(key.Type)), append(k.names, []byte(key.Name))
}

// copies are columns of keys, promises and stamps.
type copies struct {
	keys
	promised, stamps [][]byte
}

func (c *copies) add(k core.Key, m core.CopyMeta) error {
	promised, err := appendEpoch(nil, m.Promised)
	if err != nil {
		return err
	}
	stamp, err := appendStamp(nil, m.Stamp)
	c.keys.add(k)
	c.promised, c.stamps = append(c.promised, promised), append(c.stamps, stamp)
	return err
}

// pages are columns of pages.
type pages struct {
	keys
	pages, stamps, data [][]byte
	sums                []int64
	bytes               int
}

func (p *pages) add(k core.Key, pg *core.Page) error {
	stamp, err := appendStamp(nil, pg.Stamp)
	p.keys.add(k)
	p.pages, p.stamps, p.sums = append(p.pages, []byte(pg.Name)), append(p.stamps, stamp), append(p.sums, int64(pg.Sum))
	data := pg.Data
	if data == nil { // which would be no value
		data = []byte{}
	}
	p.data = append(p.data, data)
	p.bytes += len(data)
	return err
}

// batch is what one Apply writes, in columns.
type batch struct {
	view       []byte
	check, put copies
	checked    []core.Key
	wipe, drop keys
	remove     keys
	removed    [][]byte
	pages      []pages
}

func newBatch(changes []*change, view *core.View) (*batch, error) {
	b := &batch{}
	if view != nil {
		var err error
		if b.view, err = json.Marshal(view); err != nil {
			return nil, err
		}
	}
	for _, c := range changes {
		if err := b.add(c); err != nil {
			return nil, fmt.Errorf("key %s: %w", c.key, err)
		}
	}
	return b, nil
}

func (b *batch) add(c *change) error {
	if c.first != nil {
		if err := b.check.add(c.key, c.first.Meta); err != nil {
			return err
		}
		if store.Forgets(c.first) {
			b.check.stamps[len(b.check.stamps)-1] = aboveAll
		}
		b.checked = append(b.checked, c.key)
	}
	if c.wipe {
		b.wipe.add(c.key)
	}
	if c.gone {
		b.drop.add(c.key)
		return nil
	}
	for name, is := range c.removed {
		if is {
			b.remove.add(c.key)
			b.removed = append(b.removed, []byte(name))
		}
	}
	for _, pg := range c.pages {
		if n := len(b.pages); n == 0 || b.pages[n-1].bytes+len(pg.Data) > maxChunk {
			b.pages = append(b.pages, pages{})
		}
		if err := b.pages[len(b.pages)-1].add(c.key, &pg); err != nil {
			return err
		}
	}
	return b.put.add(c.key, c.meta)
}

// outcome is what became of a batch.
type outcome struct {
	older   int   // of the keys checked, from 1 on: the change is older than what is there
	entries int64 // how many rows there are more
}

// queue adds the statements, which fill in the outcome.
func (b *batch) queue(q *pgx.Batch, sql *statements, out *outcome) {
	if len(b.checked) > 0 {
		q.Queue(sql.older, b.check.types, b.check.names, b.check.promised, b.check.stamps).Query(func(rows pgx.Rows) error {
			defer rows.Close()
			if rows.Next() {
				return rows.Scan(&out.older)
			}
			return rows.Err()
		})
	}
	gone := func(sql string, args ...any) {
		if len(args[0].([][]byte)) > 0 {
			q.Queue(sql, args...).Exec(func(tag pgconn.CommandTag) error { out.entries -= tag.RowsAffected(); return nil })
		}
	}
	fresh := func(sql string, args ...any) {
		if len(args[0].([][]byte)) > 0 {
			q.Queue(sql, args...).QueryRow(func(row pgx.Row) error {
				var n int64
				err := row.Scan(&n)
				out.entries += n
				return err
			})
		}
	}
	gone(sql.wipe, b.wipe.types, b.wipe.names)
	gone(sql.drop, b.drop.types, b.drop.names)
	gone(sql.remove, b.remove.types, b.remove.names, b.removed)
	fresh(sql.putCopies, b.put.types, b.put.names, b.put.promised, b.put.stamps)
	for i := range b.pages {
		p := &b.pages[i]
		fresh(sql.putPages, p.types, p.names, p.pages, p.stamps, p.sums, p.data)
	}
}
