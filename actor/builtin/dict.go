package builtin

import (
	"context"
	"errors"

	"chainmail/actor"
)

// MapState is a map of texts.
type MapState struct {
	Entries actor.Map[string, string]
}

// Entry is a key with its value.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Range asks for the entries after a key.
type Range struct {
	After string `json:"after"`
	Most  int    `json:"most"`
}

// Errors of maps.
var (
	ErrNoEntry = errors.New("the map has no such key")
	ErrKey     = errors.New("a key has 1 to 512 bytes")
)

const (
	maxMapKey  = 512
	maxEntries = 1000
)

// Maps is the type map, with its messages: many small entries under one key of the cluster. A change replicates its entry
// alone.
var (
	Maps = actor.NewType("map", actor.Options[MapState]{Errors: map[uint16]error{1: ErrNoEntry, 2: ErrKey}})

	// Set puts an entry.
	Set = actor.Handle(Maps, "set", func(_ context.Context, m *MapState, e Entry) (actor.None, error) {
		if e.Key == "" || len(e.Key) > maxMapKey {
			return actor.None{}, ErrKey
		}
		m.Entries.Set(e.Key, e.Value)
		return actor.None{}, nil
	})
	// Get gives the value of a key, or ErrNoEntry.
	Get = actor.Query(Maps, "get", func(_ context.Context, m *MapState, key string) (string, error) {
		v, ok := m.Entries.Get(key)
		if !ok {
			return "", ErrNoEntry
		}
		return v, nil
	})
	// Remove deletes a key and says whether it was there.
	Remove = actor.Handle(Maps, "remove", func(_ context.Context, m *MapState, key string) (bool, error) {
		return m.Entries.Delete(key), nil
	})
	// List gives entries in the order of their keys, 1,000 at most.
	List = actor.Query(Maps, "list", func(_ context.Context, m *MapState, r Range) ([]Entry, error) {
		if r.Most <= 0 || r.Most > maxEntries {
			r.Most = maxEntries
		}
		out := []Entry{}
		for k, v := range m.Entries.From(r.After) {
			if len(out) == r.Most {
				break
			}
			if k > r.After || r.After == "" {
				out = append(out, Entry{k, v})
			}
		}
		return out, nil
	})
	// Size counts the entries.
	Size = actor.Query(Maps, "size", func(_ context.Context, m *MapState, _ actor.None) (int, error) {
		return m.Entries.Len(), nil
	})
)
