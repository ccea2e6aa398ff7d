package store

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Files and directories that must not be written are errors that say so.
func TestPermissions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "copies.db")
	b, _ := open(t, path)
	b.Close()
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o555)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	asNobody(t, func() {
		for _, p := range []string{path, filepath.Join(dir, "new.db"), filepath.Join(dir, "sub", "new.db")} {
			if _, _, err := OpenBolt(p, owner); !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "let the member's user read and write") {
				t.Errorf("%s: %v", p, err)
			}
		}
	})
}

// asNobody runs f without root's right to read and write everything.
func asNobody(t *testing.T, f func()) {
	if os.Geteuid() != 0 {
		f()
		return
	}
	for dir := t.TempDir(); dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := syscall.Setfsuid(65534); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}
