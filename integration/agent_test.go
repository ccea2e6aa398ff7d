package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"chainmail/coordinator/membership"
	"chainmail/integration/process"
)

// SIGHUP takes the log level and the transfer limits from the configuration, and nothing from a wrong one.
func TestReload(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	m := c.members[0]
	s := c.set
	s.Expect = 1
	s.Extra = "log_level = \"debug\"\ntransfer {\n  rate_limit = \"7MiB\"\n}\n"
	c.must(m.Configure(s))
	c.must(m.Signal(syscall.SIGHUP))
	c.see("the new limit", func(p *membership.Placement) bool { return p.Limits.Rate == 7<<20 })
	c.until("the level is set", func(context.Context) (bool, string) {
		return strings.Contains(m.Tail(100), "log_level=debug"), m.Tail(3)
	})
	s.Extra = "transfer {\n  rate_limit = \"fast\"\n}\n"
	c.must(m.Configure(s))
	c.must(m.Signal(syscall.SIGHUP))
	c.until("the wrong one is refused", func(context.Context) (bool, string) {
		return strings.Contains(m.Tail(100), "configuration is not taken"), m.Tail(3)
	})
	if p := c.placement(); p.Limits.Rate != 7<<20 {
		t.Errorf("limits are %+v", p.Limits)
	}
}

// With a token file nobody without a token gets in, and readers change nothing.
func TestTokens(t *testing.T) {
	c := begin(t, 1, process.Settings{})
	m := c.members[0]
	file := filepath.Join(t.TempDir(), "tokens")
	c.must(os.WriteFile(file, []byte("# rights\nread aaaaaaaaaaaaaaaaaaaa\noperate bbbbbbbbbbbbbbbbbbbb\n"), 0o600))
	c.must(m.Kill())
	s := c.set
	s.Expect = 1
	s.Extra = fmt.Sprintf("acl {\n  token_file = %q\n}\n", file)
	c.must(m.Configure(s))
	c.must(m.Start())
	const reader, operator = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
	c.until("it answers", func(context.Context) (bool, string) {
		_, talk, code := run(t, c, "status", "--token", reader)
		return code == 0 || code == exitUnhealthy, talk
	})
	expect(t, c, 1, "unauthorized", "members")
	expect(t, c, 1, "unauthorized", "members", "--token", "wrong")
	expect(t, c, 0, "m1", "members", "--token", reader)
	expect(t, c, 1, "forbidden", "limits", "--rate", "1MiB", "--token", reader)
	expect(t, c, 0, "1MiB", "limits", "--rate", "1MiB", "--token", operator)
	t.Setenv("CLUSTER_TOKEN", operator)
	expect(t, c, 0, "m1", "members")
	c.must(m.Kill())
	c.must(os.WriteFile(file, []byte("operate short\n"), 0o600))
	c.must(m.Start())
	if err := m.Wait(patient(t)); err == nil || !strings.Contains(err.Error(), "at least 16 characters") {
		t.Errorf("a short token: %v", err)
	}
}

const exitUnhealthy = 4
