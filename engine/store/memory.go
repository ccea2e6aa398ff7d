package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"chainmail/engine/core"
)

// Memory is a disk in memory: what was written to it is there until it is dropped, whatever becomes of the stores that
// were opened on it. It is the contract in its plainest form, for tests.
type Memory struct {
	mu      sync.Mutex
	made    bool
	opened  *memoryStore
	owner   Owner
	cluster string
	start   Start // without what is saved
	view    []byte
	records map[core.Key]core.Record
}

// Open opens the store on the disk, and makes it first if there is none.
func (m *Memory) Open(o Owner) (Store, Start, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.opened != nil:
		return nil, Start{}, ErrInUse
	case !m.made:
		m.made, m.owner, m.records, m.start.Incarnation = true, o, map[core.Key]core.Record{}, NewIncarnation()
	case m.owner != o:
		return nil, Start{}, fmt.Errorf("it is of %s, not of %s: %w", m.owner, o, ErrIdentity)
	}
	m.start.Boot++
	start := m.start
	start.Saved = &core.Saved{Records: slices.SortedFunc(maps.Values(m.records), func(a, b core.Record) int {
		return compareKeys(a.Key, b.Key)
	})}
	if m.view != nil {
		start.Saved.View = new(core.View)
		if err := json.Unmarshal(m.view, start.Saved.View); err != nil {
			return nil, Start{}, err
		}
	}
	start.Starts = NextStarts(start.Starts, NewStart(), o.Member, start.Incarnation, start.Saved.View)
	m.start.Starts = start.Starts
	m.opened = &memoryStore{m}
	return m.opened, start, nil
}

func compareKeys(a, b core.Key) int {
	if c := strings.Compare(a.Type, b.Type); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

type memoryStore struct{ m *Memory }

func (s *memoryStore) Apply(_ context.Context, puts []core.Put, view *core.View) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.opened != s {
		return ErrClosed
	}
	next := maps.Clone(s.m.records)
	for i := range puts {
		p := &puts[i]
		if err := Admissible(next[p.Key].Meta, p); err != nil {
			return err
		}
		if p.Drop {
			delete(next, p.Key)
			continue
		}
		next[p.Key] = core.Record{Key: p.Key, Meta: p.Meta, Pages: merge(next[p.Key].Pages, p)}
	}
	if view != nil {
		v, err := json.Marshal(view)
		if err != nil {
			return err
		}
		s.m.view = v
	}
	s.m.records = next
	return nil
}

// merge gives the pages of a copy after a put, sorted by name.
func merge(old []core.Page, p *core.Put) []core.Page {
	byName := map[string]core.Page{}
	if !p.Full {
		for _, pg := range old {
			byName[pg.Name] = pg
		}
	}
	for _, name := range p.Removed {
		delete(byName, name)
	}
	for _, pg := range p.Pages {
		byName[pg.Name] = pg
	}
	return slices.SortedFunc(maps.Values(byName), func(a, b core.Page) int { return strings.Compare(a.Name, b.Name) })
}

func (s *memoryStore) Bind(_ context.Context, cluster string) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.opened != s {
		return ErrClosed
	}
	if s.m.cluster != "" && s.m.cluster != cluster {
		return fmt.Errorf("its copies are of the cluster with id %s, not %s: %w", s.m.cluster, cluster, ErrIdentity)
	}
	s.m.cluster = cluster
	return nil
}

func (s *memoryStore) Close() error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	if s.m.opened == s {
		s.m.opened = nil
	}
	return nil
}
