package integration

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"chainmail"
	"chainmail/coordinator/membership"
	"chainmail/integration/member/types"
	"chainmail/integration/process"
)

// switchboard is a network of namespaces: one for each member, joined by a bridge in one more. Nothing of it is seen outside.
type switchboard struct {
	t    *testing.T
	name string
}

// newSwitchboard skips the test where namespaces cannot be made.
func newSwitchboard(t *testing.T, members int) *switchboard {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	s := &switchboard{t, fmt.Sprintf("cm%d", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", s.name+"sw").CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %v %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "del", s.name+"sw").Run() })
	s.ip("-n", s.name+"sw", "link", "add", "br0", "type", "bridge")
	s.ip("-n", s.name+"sw", "link", "set", "br0", "up")
	for i := range members {
		ns, veth, port := s.ns(i), fmt.Sprint(s.name, "v", i), fmt.Sprint("p", i)
		s.ip("netns", "add", ns)
		t.Cleanup(func() { exec.Command("ip", "netns", "del", ns).Run() })
		s.ip("-n", ns, "link", "add", "name", veth, "type", "veth", "peer", "name", port, "netns", s.name+"sw")
		s.ip("-n", s.name+"sw", "link", "set", port, "master", "br0")
		s.ip("-n", s.name+"sw", "link", "set", port, "up")
		s.ip("-n", ns, "addr", "add", s.addr(i)+"/24", "dev", veth)
		s.ip("-n", ns, "link", "set", veth, "up")
		s.ip("-n", ns, "link", "set", "lo", "up")
	}
	return s
}

func (s *switchboard) ns(i int) string   { return fmt.Sprint(s.name, "n", i) }
func (s *switchboard) addr(i int) string { return fmt.Sprint("10.77.0.", i+1) }

func (s *switchboard) ip(args ...string) {
	s.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("ip %s: %v %s", strings.Join(args, " "), err, out)
	}
}

// plug joins a member to the others, or cuts it off: its connections stall, none is reset.
func (s *switchboard) plug(i int, in bool) {
	s.t.Helper()
	s.ip("-n", s.name+"sw", "link", "set", fmt.Sprint("p", i), map[bool]string{true: "up", false: "down"}[in])
}

// place is where the i-th member runs. Its API listens on its own loopback; callers come by a listener of this process.
func (s *switchboard) place(i int) *process.Place {
	s.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go s.forward(conn, i)
		}
	}()
	return &process.Place{Host: s.addr(i), Wrap: []string{"ip", "netns", "exec", s.ns(i)}, HTTP: l.Addr().String()}
}

func (s *switchboard) forward(from net.Conn, i int) {
	defer from.Close()
	to, err := s.dial(i)
	if err != nil {
		return
	}
	defer to.Close()
	go func() { io.Copy(to, from); to.(*net.TCPConn).CloseWrite() }()
	io.Copy(from, to)
}

const sysSetns = 308 // of amd64

// dial makes a connection inside a namespace: a socket stays where it was made.
func (s *switchboard) dial(i int) (conn net.Conn, err error) {
	if runtime.GOARCH != "amd64" {
		return nil, syscall.ENOSYS
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		f, e := os.Open("/run/netns/" + s.ns(i))
		if e != nil {
			err = e
			return
		}
		defer f.Close()
		if _, _, no := syscall.RawSyscall(sysSetns, f.Fd(), syscall.CLONE_NEWNET, 0); no != 0 {
			err = no
			return
		}
		conn, err = (&net.Dialer{Timeout: time.Second}).Dial("tcp4", "127.0.0.1:8620")
	}()
	<-done
	return conn, err
}

// One member after the other is cut off from the others by the network itself, under load, for longer than it takes to be taken for
// dead. The majority goes on; the one that is alone commits nothing and reads nothing stale; after the heal all agree.
func TestNetworkPartition(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; make integration runs it")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the number of setns is known for amd64 only")
	}
	b, err := ownBinary()
	if err != nil {
		t.Fatal(err)
	}
	s := newSwitchboard(t, 3)
	c := beginWith(t, b, 3, process.Settings{Store: chainmail.StoreMemory}, s.place)
	l := c.mail(6, c.endpoints())
	l.more(200)
	total := 0
	cut := c.members[:2]
	if os.Getenv("CHAINMAIL_SOAK") != "" { // make soak sets it
		cut = c.members
	}
	for i, m := range cut {
		key := c.ownedKey("ledger", m)
		var rest []string
		for _, x := range c.members {
			if x != m {
				rest = append(rest, x.HTTP)
			}
		}
		c.must(c.client.Ask(patient(t), "ledger", key, "post", false, types.Mail{From: "me", Seq: 0}, nil))
		s.plug(i, false)
		c.client.SetEndpoints(rest)
		c.see(m.ID+" is down", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return x.Down })
		c.must(c.client.Ask(patient(t), "ledger", key, "post", false, types.Mail{From: "me", Seq: 1}, nil))
		c.alone(m, key)
		l.more(100)
		s.plug(i, true)
		c.client.SetEndpoints(c.endpoints())
		c.see(m.ID+" is up", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return !x.Down })
		c.ready(c.members...)
		log := c.ledger(key)
		for k, x := range log {
			if x.From == "me" && x.Seq != k || x.From == "alone" && k < 2 || len(log) > 3 {
				t.Errorf("%s holds %v", key, log)
			}
		}
		total += len(log)
	}
	l.check()
	t.Logf("%d own mails, errors %v", total, len(l.failed()))
}

// alone asks a member that is cut off, which owned the key: it must neither acknowledge nor read anything.
func (c *cluster) alone(m *process.Member, key string) {
	c.t.Helper()
	for _, x := range []struct{ method, body string }{{"read", ""}, {"post", `{"from":"alone","seq":9}`}} {
		out, _, code := run(c.t, nil, append([]string{"--http-addr", m.HTTP, "--timeout", "2s"}, ask(key, x.method, x.body)...)...)
		if code == 0 {
			c.t.Errorf("%s alone answers %s of %s: %s", m.ID, x.method, key, out)
		}
	}
}

func ask(key, method, body string) []string {
	args := []string{"actors", "ask", "ledger", key, method}
	if body != "" {
		args = append(args, body)
	}
	return args
}
