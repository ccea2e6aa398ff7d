package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"chainmail"
	"chainmail/integration/process"
)

// The log of a member is damaged while it is down: it does not start, says what to do, and is let in with an empty directory.
func TestDamagedLog(t *testing.T) {
	c := begin(t, 3, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
	want := c.written(10)
	m := c.members[2]
	c.must(m.Kill())
	path := filepath.Join(m.Data(), "raft", "raft.db")
	raw, err := os.ReadFile(path)
	c.must(err)
	copy(raw, make([]byte, os.Getpagesize()))
	c.must(os.WriteFile(path, raw, 0o600))
	c.must(m.Start())
	err = m.Wait(patient(t))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(err.Error(), "store is damaged") || !strings.Contains(err.Error(), "empty one") || strings.Contains(err.Error(), "goroutine") {
		t.Errorf("with a damaged log it ends with %v", err)
	}
	c.must(os.Rename(m.Data(), m.Data()+".damaged"))
	c.must(m.Start())
	c.client.SetEndpoints(c.endpoints())
	c.ready(c.members...)
	c.holds(want)
}
