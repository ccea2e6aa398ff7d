package coordinator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bolterrors "go.etcd.io/bbolt/errors"

	"chainmail/coordinator/membership"
	"chainmail/internal/boltfile"
)

// stores are what a Raft node keeps.
type stores struct {
	log    raft.LogStore
	stable raft.StableStore
	snaps  raft.SnapshotStore
	close  io.Closer
}

const (
	logCache      = 512
	keepSnapshots = 2
	raftFile      = "raft.db"
)

func openStores(dir, member string, log hclog.Logger) (*stores, error) {
	if dir == "" {
		mem := raft.NewInmemStore()
		return &stores{log: mem, stable: mem, snaps: raft.NewInmemSnapshotStore(), close: io.NopCloser(nil)}, nil
	}
	path := filepath.Join(dir, raftFile)
	db, err := openLog(path)
	if err != nil {
		return nil, explainLog(path, member, err)
	}
	cache, err := raft.NewLogCache(logCache, db)
	if err != nil {
		db.Close()
		return nil, err
	}
	snaps, err := raft.NewFileSnapshotStoreWithLogger(dir, keepSnapshots, log)
	if err != nil {
		db.Close()
		return nil, err
	}
	if err := repairLog(db, snaps); err != nil {
		db.Close()
		return nil, err
	}
	return &stores{log: cache, stable: db, snaps: snaps, close: db}, nil
}

// explainLog says what to do about a log that cannot be opened.
func explainLog(path, member string, err error) error {
	err = fmt.Errorf("open the Raft log %s of member %s: %w", path, member, err)
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return fmt.Errorf("%w; another process has it open: stop that first", err)
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w; the member may have forgotten what it voted for or acknowledged: move its data directory away and start it with an empty one, "+
			"so that it is let in as one that lost its memory, or remove it with a change. One member at a time", err)
	case errors.Is(err, boltfile.ErrForeign):
		return fmt.Errorf("%w; name another data directory, or move the file away", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; let the member's user read and write the file and its directory", err)
	}
	return err
}

func openBolt(path string) (checkedStore, error) {
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true, BoltOptions: boltfile.Options()})
	return checkedStore{db}, err
}

// openLog opens or creates the log. The file is made under another name first: an empty one at the path has lost something.
func openLog(path string) (db checkedStore, err error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := boltfile.Create(path, func(fresh string) error {
			db, err := openBolt(fresh)
			if err != nil {
				return err
			}
			return db.Close()
		}); err != nil {
			return db, err
		}
	}
	indexes, err := checkLog(path)
	if err != nil {
		return db, err
	}
	if db, err = openBolt(path); err != nil {
		return db, err
	}
	if err = readLog(db, indexes); err != nil {
		db.Close()
	}
	return db, err
}

// The buckets of hashicorp/raft-boltdb, and what hashicorp/raft keeps in the second one: two terms and an address.
const (
	bucketLogs, bucketConf = "logs", "conf"
	currentTerm            = "CurrentTerm"
)

var confKeys = []string{currentTerm, "LastVoteTerm", "LastVoteCand"}

// checkLog checks the file before it is mapped: with an older meta page in use a vote or an entry that was acknowledged would
// be forgotten. It gives the indexes of the entries.
func checkLog(path string) (indexes []uint64, err error) {
	_, buckets, err := boltfile.Check(path, func(bucket string, key, value []byte) error {
		switch {
		case bucket == bucketLogs && len(key) == numberSize:
			indexes = append(indexes, binary.BigEndian.Uint64(key))
		case bucket == bucketConf && slices.Contains(confKeys, string(key)):
			_, err := valueOf(key, value)
			return err
		default:
			return fmt.Errorf("%q of %d bytes is nothing that belongs there", key, len(value))
		}
		return nil
	})
	ours := []string{bucketConf, bucketLogs}
	switch {
	case err != nil || slices.Equal(buckets, ours):
		return indexes, err
	case slices.ContainsFunc(buckets, func(b string) bool { return !slices.Contains(ours, b) }):
		return nil, fmt.Errorf("its buckets are %q: %w", buckets, boltfile.ErrForeign)
	}
	return nil, fmt.Errorf("of its buckets only %q are there: %w", buckets, ErrDamaged)
}

// readLog reads all entries once: Raft would end the process when it comes to one that is no entry.
func readLog(db checkedStore, indexes []uint64) error {
	term, err := db.GetUint64([]byte(currentTerm))
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return err
	}
	for n, i := range indexes {
		if n > 0 && i != indexes[n-1]+1 {
			return fmt.Errorf("entry %d follows entry %d: %w", i, indexes[n-1], ErrDamaged)
		}
		var l raft.Log
		if err := db.GetLog(i, &l); err != nil {
			return err
		}
		if l.Term > term {
			return fmt.Errorf("entry %d is of term %d, in term %d: %w", i, l.Term, term, ErrDamaged)
		}
		if l.Type == raft.LogCommand {
			_, err := membership.Decode(l.Data)
			if errors.Is(err, membership.ErrVersion) {
				return fmt.Errorf("entry %d: %w; use the version of this program that wrote it", i, err)
			}
			if err != nil {
				return fmt.Errorf("entry %d: %w: %w", i, ErrDamaged, err)
			}
		}
	}
	return nil
}

// repairLog deletes a log that contradicts the newest snapshot: with another term at the snapshot's index a follower
// would take the same snapshot again and again (hashicorp/raft#697). The snapshot is what was committed.
func repairLog(log raft.LogStore, snaps raft.SnapshotStore) error {
	list, err := snaps.List()
	if err != nil || len(list) == 0 {
		return err
	}
	var l raft.Log
	switch err := log.GetLog(list[0].Index, &l); {
	case errors.Is(err, raft.ErrLogNotFound):
		return nil
	case err != nil:
		return err
	case l.Term == list[0].Term:
		return nil
	}
	first, err := log.FirstIndex()
	if err != nil {
		return err
	}
	last, err := log.LastIndex()
	if err != nil {
		return err
	}
	return log.DeleteRange(first, last)
}
