package store_test

import (
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"chainmail/engine/store"
	"chainmail/engine/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Open { return new(store.Memory).Open })
}

func BenchmarkBolt(b *testing.B) {
	path := filepath.Join(b.TempDir(), "copies.db")
	storetest.Bench(b, func(o store.Owner) (store.Store, store.Start, error) { return store.OpenBolt(path, o) })
}

func TestBolt(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Open {
		path := filepath.Join(t.TempDir(), "sub", "copies.db")
		return func(o store.Owner) (store.Store, store.Start, error) { return store.OpenBolt(path, o) }
	})
}
