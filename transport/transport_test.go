package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is one frame that a handler was given.
type heard struct {
	from Peer
	lane Lane
	kind uint8
	text string
}

// recorder is a Handler that notes what arrives. Its functions, where set, go first.
type recorder struct {
	onFrame   func(heard)
	onMore    func(more bool)
	onRequest func(ctx context.Context, from Peer, kind uint8, payload []byte) ([]byte, error)
	admit     func(peer Identity, class Class) error
	codes     map[error]uint16

	mu     sync.Mutex
	frames []heard
	downs  []string
}

func (r *recorder) OnFrame(from Peer, lane Lane, kind uint8, payload []byte, more bool) {
	if r.onMore != nil {
		r.onMore(more)
	}
	h := heard{from, lane, kind, string(payload)}
	if r.onFrame != nil {
		r.onFrame(h)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, h)
}

func (r *recorder) OnRequest(ctx context.Context, from Peer, kind uint8, payload []byte) ([]byte, error) {
	if r.onRequest != nil {
		return r.onRequest(ctx, from, kind, payload)
	}
	return payload, nil
}

func (r *recorder) OnPeerDown(member string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.downs = append(r.downs, member)
}

func (r *recorder) Admit(peer Identity, class Class) error {
	if r.admit != nil {
		return r.admit(peer, class)
	}
	return nil
}

func (r *recorder) ErrorCode(err error) uint16 {
	for e, c := range r.codes {
		if errors.Is(err, e) {
			return c
		}
	}
	return 1
}

func (r *recorder) heard() []heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]heard(nil), r.frames...)
}

func (r *recorder) down() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.downs)
}

// network knows where the members of one test listen: over loopback, or in memory for tests in virtual time.
type network struct {
	tb     testing.TB
	memory bool
	mu     sync.Mutex
	addrs  map[string]string
	pipes  map[string]*pipeListener
}

func loopback(tb testing.TB) *network { return &network{tb: tb, addrs: map[string]string{}} }

func inMemory(tb testing.TB) *network {
	return &network{tb: tb, memory: true, addrs: map[string]string{}, pipes: map[string]*pipeListener{}}
}

func (n *network) resolve(id string) (string, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, ok := n.addrs[id]
	return a, ok
}

func (n *network) place(id, addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs[id] = addr
}

func (n *network) listen(id string) net.Listener {
	if n.memory {
		l := &pipeListener{name: id, in: make(chan net.Conn), over: make(chan struct{})}
		n.mu.Lock()
		n.pipes[id] = l
		n.mu.Unlock()
		return l
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		n.tb.Fatal(err)
	}
	return l
}

func (n *network) dial(ctx context.Context, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.pipes[addr]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", addr)
	}
	return l.dial(ctx)
}

// pipeListener gives the far ends of net.Pipe.
type pipeListener struct {
	name string
	in   chan net.Conn
	once sync.Once
	over chan struct{}
}

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case l.in <- b:
		return a, nil
	case <-l.over:
		return nil, fmt.Errorf("%s has closed", l.name)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.over:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.over) }); return nil }
func (l *pipeListener) Addr() net.Addr { return address(l.name) }

// member is one Transport of a test.
type member struct {
	*Transport
	*recorder
	id   string
	addr string
	self Identity
}

const clusterID = "c1"

func ident(id string) Identity {
	return Identity{ClusterID: clusterID, Member: id, Incarnation: 7, Version: 3, RingDigest: 0xabcdef}
}

// start starts a member; set may change its configuration, and its identity through the returned member's self.
func (n *network) start(id string, r *recorder, set ...func(*member, *Config)) *member {
	n.tb.Helper()
	l := n.listen(id)
	m := &member{recorder: r, id: id, addr: l.Addr().String(), self: ident(id)}
	cfg := Config{Listener: l, Advertise: m.addr, Identity: func() Identity { return m.self }, Resolve: n.resolve, Handler: r}
	if n.memory {
		cfg.Dial = n.dial
	}
	for _, f := range set {
		f(m, &cfg)
	}
	n.place(id, m.addr)
	t, err := New(cfg)
	if err != nil {
		n.tb.Fatal(err)
	}
	m.Transport = t
	n.tb.Cleanup(func() { closeSoon(n.tb, t) })
	return m
}

// closeSoon closes a Transport and holds it to the promised time.
func closeSoon(tb testing.TB, t *Transport) {
	tb.Helper()
	begin := time.Now()
	t.Close()
	if d := time.Since(begin); d > 2*time.Second {
		tb.Errorf("Close took %s", d)
	}
}

// identity sets what a member says of itself.
func identity(change func(*Identity)) func(*member, *Config) {
	return func(m *member, _ *Config) { change(&m.self) }
}

// eventually waits for a condition.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	end := time.Now().Add(5 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			tb.Fatalf("waited 5 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func ctx5(tb testing.TB) context.Context {
	ctx, done := context.WithTimeout(context.Background(), 5*time.Second)
	tb.Cleanup(done)
	return ctx
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	n := loopback(t)
	l := n.listen("a")
	defer l.Close()
	whole := Config{Listener: l, Identity: func() Identity { return ident("a") }, Resolve: n.resolve, Handler: &recorder{}}
	for name, spoil := range map[string]func(*Config){
		"listener": func(c *Config) { c.Listener = nil }, "identity": func(c *Config) { c.Identity = nil },
		"resolver": func(c *Config) { c.Resolve = nil }, "handler": func(c *Config) { c.Handler = nil },
		"roots": func(c *Config) { c.TLS = &TLS{Cluster: "x"} }, // nil roots would mean those of the system
	} {
		c := whole
		spoil(&c)
		if tr, err := New(c); err == nil {
			tr.Close()
			t.Errorf("without %s: no error", name)
		}
	}
}
