package boltfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// Errors of Check and Inspect.
var (
	ErrForeign = errors.New("not a store of this program")
	ErrDamaged = errors.New("store is damaged")
)

// Visit gets an entry of a bucket. What it gets it must not keep; its error ends the inspection as damage.
type Visit func(bucket string, key, value []byte) error

// LockTimeout is how long another process that has a file open is waited for, LockPoll how often it is looked at.
const (
	LockTimeout = time.Second
	lockPoll    = 20 * time.Millisecond
)

// Check inspects a file under the lock that bbolt takes, too: another process that writes to it would make it look damaged.
// If another one has it the error is bbolt's ErrTimeout. A lock cannot be waited for with a time limit, so it is asked for
// again and again.
func Check(path string, visit Visit) (info os.FileInfo, buckets []string, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	for end := time.Now().Add(LockTimeout); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, nil, fmt.Errorf("lock: %w", err)
		}
		if time.Now().After(end) {
			return nil, nil, bolterrors.ErrTimeout
		}
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	buckets, err = Inspect(f, info.Size(), visit)
	return info, buckets, err
}

// Options are those with which a checked file is opened. Each caller gets its own.
func Options() *bbolt.Options {
	return &bbolt.Options{Timeout: LockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType}
}

// Create makes a file that is not there: fill makes it under another name, which it is given, and closes it.
func Create(path string, fill func(path string) error) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := fill(fresh); err != nil {
		return err
	}
	if err := os.Rename(fresh, path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
