// Package pgtest runs a PostgreSQL server for tests: a new one in a directory of its own, on a Unix socket, stopped by
// its pid. It needs the server's binaries; tests that ask for one are skipped where there are none.
package pgtest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Server is a server of one test.
type Server struct {
	dir    string // data is in it, and the socket
	bin    string
	cred   *syscall.Credential // nil: this process's user
	output bytes.Buffer

	mu    sync.Mutex
	cmd   *exec.Cmd
	ended chan struct{}
}

const (
	port = "5432" // part of the socket's name
	// debianBin is where Debian puts the binaries, which are not in the path.
	debianBin  = "/usr/lib/postgresql/*/bin"
	startLimit = 60 * time.Second
	stopLimit  = 30 * time.Second
)

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	bin := binaries()
	if bin == "" {
		t.Skip("no PostgreSQL server here: initdb and postgres are neither in the path nor in " + debianBin + "; apt-get install postgresql")
	}
	s := &Server{bin: bin}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(syscall.SIGINT); err != nil {
			t.Errorf("stop PostgreSQL: %v", err)
		}
		if t.Failed() {
			t.Logf("PostgreSQL said:\n%s", s.output.Bytes())
		}
		os.RemoveAll(s.dir)
	})
	if err := s.init(); err != nil {
		t.Fatal(err)
	}
	if err := s.Run(); err != nil {
		t.Fatalf("%v\n%s", err, s.output.Bytes())
	}
	return s
}

func binaries() string {
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p)
	}
	found, err := filepath.Glob(filepath.Join(debianBin, "initdb"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return filepath.Dir(found[len(found)-1])
}

// prepare makes the directory. The name of a socket may have 107 bytes, so it is not below that of the test. The server
// refuses to run as root: then it runs as the user that its package made.
func (s *Server) prepare() error {
	var err error
	if s.dir, err = os.MkdirTemp("", "pg"); err != nil || os.Geteuid() != 0 {
		return err
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return err
		}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	s.cred = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return errors.Join(err1, err2, os.Chown(s.dir, uid, gid))
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "HOME="+s.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	return cmd
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) init() error {
	cmd := s.command("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// Run starts the server again after a Stop, and waits until it answers.
func (s *Server) Run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Nothing here outlives the machine, so nothing needs to be on the disk: a killed server recovers without.
	cmd := s.command("postgres", "-D", s.data(), "-k", s.dir, "-p", port, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB")
	cmd.Stdout, cmd.Stderr = &s.output, &s.output
	dieWithParent(cmd.SysProcAttr) // a test that is killed cannot stop it
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // that is, with the thread that started it
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	s.cmd, s.ended = cmd, ended
	for limit := time.After(startLimit); ; {
		if s.answers() {
			return nil
		}
		select {
		case <-ended:
			return errors.New("PostgreSQL ended")
		case <-limit:
			return errors.New("PostgreSQL does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// answers says whether connections are taken. The server writes its state into the last line of a file.
func (s *Server) answers() bool {
	state, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	return err == nil && strings.HasSuffix(strings.TrimSpace(string(state)), "ready")
}

// Stop stops the server: SIGINT in order, SIGQUIT at once, so that it recovers at the next Run. It may be called twice.
func (s *Server) Stop(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return nil
	}
	cmd, ended := s.cmd, s.ended
	s.cmd = nil
	if err := cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-time.After(stopLimit):
		cmd.Process.Kill()
		<-ended
		return errors.New("it did not end and was killed")
	}
}

// Socket is the server's socket; its directory can be a host in a DSN.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL."+port) }

// DSN is that of the server's database; that of a proxy has the directory of its socket in the place of the server's.
func (s *Server) DSN() string { return DSN(s.dir) }

// DSN gives the DSN for a socket in a directory.
func DSN(dir string) string {
	return strings.Join([]string{"host=" + dir, "port=" + port, "user=postgres", "dbname=postgres", "sslmode=disable"}, " ")
}
