// Package process runs members as separate processes of the production binary, through the production configuration.
// The tests of package integration and the demo use it.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Settings are what differs between the configurations of members.
type Settings struct {
	Store      string   // memory, bbolt or postgres
	DSN        string   // of postgres
	Join       []string // cluster addresses
	Expect     int      // bootstrap_expect
	Multiplier float64  // of Raft's times; 0: 0.25, a heartbeat timeout of 500 ms
	Extra      string   // more HCL
	Place      *Place   // nil: on loopback
}

// Place is a network of the member's own, where it has its usual ports.
type Place struct {
	Host string
	Wrap []string // the command that starts a program there
	HTTP string   // host:port by which the caller reaches the API
}

// Member is one member's process, or the place where it can be started.
type Member struct {
	ID      string
	HTTP    string // host:port
	Cluster string // host:port

	binary, dir string
	place       *Place

	mu     sync.Mutex
	cmd    *exec.Cmd
	stdin  io.Closer
	exited chan struct{}
	err    error
}

// ErrRunning: the member runs already.
var ErrRunning = errors.New("member runs already")

const host = "127.0.0.1"

// given are the ports that freePorts has given: who got one may not listen on it yet, or not now.
var given struct {
	sync.Mutex
	ports map[int]bool
}

// lowPort and highPort bound the ports that are given: those beyond are what systems give to outgoing connections, which could
// take the port of a member that is started again.
const lowPort, highPort = 10240, 32767

// freePorts finds ports of which nobody listens now, and gives none twice.
func freePorts(n int) ([]int, error) {
	given.Lock()
	defer given.Unlock()
	if given.ports == nil {
		given.ports = map[int]bool{}
	}
	var out []int
	var last error
	for tries := 0; len(out) < n; tries++ {
		if tries > 1000 {
			return nil, fmt.Errorf("no free port between %d and %d: %w", lowPort, highPort, last)
		}
		port := lowPort + rand.IntN(highPort-lowPort+1)
		if given.ports[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
		if err != nil {
			last = err
			continue
		}
		l.Close()
		given.ports[port] = true
		out = append(out, port)
	}
	return out, nil
}

// New writes the configuration of a member below dir, on free ports. Configure writes it again.
func New(binary, dir, id string, s Settings) (*Member, error) {
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	m := &Member{place: s.Place, ID: id, binary: binary, dir: filepath.Join(dir, id),
		HTTP: fmt.Sprintf("%s:%d", host, ports[0]), Cluster: fmt.Sprintf("%s:%d", host, ports[1])}
	if s.Place != nil {
		m.HTTP, m.Cluster = s.Place.HTTP, s.Place.Host+":8621"
	}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return nil, err
	}
	return m, m.Configure(s)
}

// Config is the path of the configuration file, Log that of what the process says.
func (m *Member) Config() string { return filepath.Join(m.dir, "config.hcl") }

// Log is described at Config.
func (m *Member) Log() string { return filepath.Join(m.dir, "log") }

// Data is the member's data directory.
func (m *Member) Data() string { return filepath.Join(m.dir, "data") }

// Configure writes the configuration.
func (m *Member) Configure(s Settings) error {
	var b bytes.Buffer
	_, http, _ := net.SplitHostPort(m.HTTP)
	host, cluster, _ := net.SplitHostPort(m.Cluster)
	if m.place != nil {
		http = "8620"
	}
	if s.Multiplier == 0 {
		s.Multiplier = 0.25
	}
	quoted := make([]string, len(s.Join))
	for i, a := range s.Join {
		quoted[i] = fmt.Sprintf("%q", a)
	}
	fmt.Fprintf(&b, "node_id   = %q\ndata_dir  = %q\nbind_addr = %q\n", m.ID, m.Data(), host)
	fmt.Fprintf(&b, "ports {\n  http    = %s\n  cluster = %s\n}\n", http, cluster)
	fmt.Fprintf(&b, "server {\n  bootstrap_expect = %d\n  retry_join       = [%s]\n  retry_interval   = \"200ms\"\n}\n", s.Expect, strings.Join(quoted, ", "))
	fmt.Fprintf(&b, "raft {\n  performance_multiplier = %v\n}\n", s.Multiplier)
	fmt.Fprintf(&b, "store {\n  backend = %q\n  dsn     = %q\n}\n", s.Store, s.DSN)
	if !strings.Contains(s.Extra, "membership {") {
		fmt.Fprintf(&b, "membership {\n  down_after = \"1500ms\"\n}\n")
	}
	b.WriteString(s.Extra)
	return os.WriteFile(m.Config(), b.Bytes(), 0o600)
}

// Start starts the process. It does not wait until the member is ready.
func (m *Member) Start() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running() {
		return fmt.Errorf("start %s: %w", m.ID, ErrRunning)
	}
	log, err := os.OpenFile(m.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// The process stops when the pipe to its standard input is closed: also when this process is killed.
	args := []string{m.binary, "agent", "--config", m.Config(), "--stop-on-stdin-eof"}
	if m.place != nil {
		args = append(slices.Clone(m.place.Wrap), args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is for this process alone
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		log.Close()
		return fmt.Errorf("start %s: %w", m.ID, err)
	}
	m.cmd, m.stdin, m.err, m.exited = cmd, stdin, nil, make(chan struct{})
	go m.reap(cmd, log, m.exited)
	return nil
}

func (m *Member) reap(cmd *exec.Cmd, log *os.File, exited chan struct{}) {
	err := cmd.Wait()
	log.Close()
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	close(exited)
}

func (m *Member) running() bool {
	if m.exited == nil {
		return false
	}
	select {
	case <-m.exited:
		return false
	default:
		return true
	}
}

// Running says whether the process runs, stopped ones too.
func (m *Member) Running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.running()
}

// Signal sends a signal; nothing happens if the process has ended.
func (m *Member) Signal(s os.Signal) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.running() {
		return nil
	}
	if err := m.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (m *Member) Kill() error {
	if err := m.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	m.mu.Lock()
	exited := m.exited
	m.mu.Unlock()
	if exited != nil {
		<-exited
	}
	return nil
}

// Wait waits until the process ends by itself and gives its error: nil for exit code 0.
func (m *Member) Wait(ctx context.Context) error {
	m.mu.Lock()
	exited := m.exited
	m.mu.Unlock()
	if exited == nil {
		return nil
	}
	select {
	case <-exited:
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.err != nil {
			return fmt.Errorf("member %s ended: %w; it said:\n%s", m.ID, m.err, m.Tail(20))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("member %s still runs: %w; it said:\n%s", m.ID, ctx.Err(), m.Tail(20))
	}
}

// Wipe removes the data of a member that does not run.
func (m *Member) Wipe() error {
	if m.Running() {
		return fmt.Errorf("wipe %s: %w", m.ID, ErrRunning)
	}
	return os.RemoveAll(m.Data())
}

// Tail gives the last lines of what the process said.
func (m *Member) Tail(lines int) string {
	b, err := os.ReadFile(m.Log())
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Stop ends the process: gently first, then by force after the patience.
func (m *Member) Stop(patience time.Duration) error {
	if !m.Running() {
		return nil
	}
	m.mu.Lock()
	m.stdin.Close()
	m.cmd.Process.Signal(syscall.SIGCONT) // if it was stopped
	exited := m.exited
	m.mu.Unlock()
	select {
	case <-exited:
		return nil
	case <-time.After(patience):
		return m.Kill()
	}
}
