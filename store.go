package chainmail

import (
	"context"
	"fmt"
	"path/filepath"

	"chainmail/engine"
	"chainmail/engine/store"
	"chainmail/engine/store/postgres"
)

// copiesFile is the file of a bbolt store in the data directory.
const copiesFile = "copies.db"

// openStore opens what keeps this member's copies. In memory every start is an incarnation of its own.
func (n *Node) openStore(ctx context.Context) (start store.Start, err error) {
	owner := store.Owner{ClusterName: n.cfg.ClusterName, Member: n.id}
	switch n.cfg.Store {
	case StoreBolt:
		n.store, start, err = opened(store.OpenBolt(filepath.Join(n.cfg.DataDir, copiesFile), owner))
	case StorePostgres:
		n.store, start, err = opened(postgres.Open(ctx, postgres.Config{DSN: n.cfg.StoreDSN, Owner: owner, Logger: n.log}))
	default:
		start = store.Start{Incarnation: store.NewIncarnation(), Boot: 1, Starts: []uint64{store.NewStart()}}
	}
	return start, err
}

// opened makes a store that was not opened nil.
func opened[S store.Store](s S, start store.Start, err error) (store.Store, store.Start, error) {
	if err != nil {
		return nil, start, err
	}
	return s, start, nil
}

// bind holds the store to the cluster of a placement. A store of another cluster, as when a database was restored
// elsewhere, stops the member before it has answered anybody.
func (n *Node) bind(cluster string) bool {
	if n.store == nil || cluster == "" || n.bound == cluster {
		return true
	}
	if err := n.store.Bind(n.ctx, cluster); err != nil {
		if n.ctx.Err() == nil {
			n.engine.Fail(fmt.Errorf("%w: %w", engine.ErrStore, err))
		}
		return false
	}
	n.bound = cluster
	return true
}
