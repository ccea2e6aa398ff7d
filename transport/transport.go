package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Lane is one of the kinds of connection that Send uses.
type Lane uint8

const (
	Messages Lane = iota
	Replication
	Bulk
	lanes
)

func (l Lane) class() Class { return ClassMessages + Class(l) }

// Peer is a member as its HELLO showed it.
type Peer struct {
	Member      string
	Incarnation uint64
	Addr        string // remote address of the connection
}

// Handler takes what arrives.
type Handler interface {
	// OnFrame takes a one-way frame. It is called in order for each connection. payload is valid during the call. more says
	// that something behind it has arrived already: what the frame causes is better done together with what that causes.
	OnFrame(from Peer, lane Lane, kind uint8, payload []byte, more bool)
	// OnRequest answers a request of the control class. ctx has the caller's deadline, and ends with the connection.
	OnRequest(ctx context.Context, from Peer, kind uint8, payload []byte) ([]byte, error)
	// OnPeerDown says that what was sent to a member in the lane Messages may have been lost.
	OnPeerDown(member string)
	// Admit may refuse a peer, for example a banned incarnation, with ErrRemoved.
	Admit(peer Identity, class Class) error
	// ErrorCode gives the number with which an error of OnRequest travels.
	ErrorCode(err error) uint16
}

// Config is what a Transport is made with.
type Config struct {
	Listener  net.Listener
	Advertise string                                     // host:port that others dial
	Identity  func() Identity                            // asked for each handshake
	Resolve   func(member string) (addr string, ok bool) // asked for each dial
	Handler   Handler
	Dial      func(ctx context.Context, addr string) (net.Conn, error) // nil: TCP
	TLS       *TLS                                                     // nil: as the bytes are
	// Diverged is called when a peer has another ring at the same placement version; may be nil. Connections between the two are
	// refused but those of Raft and control: by these all find out who is the odd one.
	Diverged func()
	Logger   hclog.Logger

	// MaxInbound and MaxInboundFrom bound the connections that others open here: in total, and from one remote address.
	MaxInbound, MaxInboundFrom int // 0: 4096 and 512
}

const (
	helloTimeout = 5 * time.Second
	pingEvery    = 15 * time.Second
	deadAfter    = 45 * time.Second
	writeTimeout = 10 * time.Second
	dialFirst    = 50 * time.Millisecond
	dialMost     = 2 * time.Second
	dialSoon     = time.Second      // how long what is queued waits for the first connection
	dialRefused  = 60 * time.Second // after a refusal that will not change soon
	queueBytes   = 8 << 20          // of one member and lane
	keepBytes    = 1 << 20          // of an empty queue's memory
	maxRequests  = 64               // of one control connection at once; more wait at the caller
	maxServed    = 4 * maxRequests  // a cancelled request is served until its handler returns
)

// Transport is one member's end of all connections.
//
//	goroutine            started by        ended by                       waited for by
//	accept loop          New               closing the listener           Close
//	one a connection in  accept loop       its end, or Close closing it   Close
//	one a request in     its connection    the handler's return; ctx      Close
//	one a pipe out       first Send        Close                          Close
//	reader of a pipe     its pipe          its connection's end           Close
//	a control's two      Request           its connection's end           Close
type Transport struct {
	cfg    Config
	log    hclog.Logger
	ctx    context.Context
	stop   context.CancelFunc
	wg     sync.WaitGroup
	raft   *StreamLayer
	stats  counters
	server *tls.Config
	client *tls.Config

	mu       sync.Mutex
	closed   bool
	conns    map[net.Conn]guest
	guests   crowd     // those that others opened
	unknown  strangers // those of them that have not said HELLO yet
	pipes    map[pipeKey]*pipe
	controls map[string]*control
	inbound  map[pipeKey]*inbound
}

type pipeKey struct {
	member string
	lane   Lane
}

// inbound is the connection on which a member sends in a lane.
type inbound struct {
	raw  net.Conn
	done chan struct{} // closed when its last frame was handled
}

// New starts to listen. The listener belongs to the Transport from here on.
func New(cfg Config) (*Transport, error) {
	if cfg.Listener == nil || cfg.Identity == nil || cfg.Resolve == nil || cfg.Handler == nil {
		return nil, errors.New("transport: a listener, an identity, a resolver and a handler are needed")
	}
	if cfg.TLS != nil && (cfg.TLS.Roots == nil || cfg.TLS.Certificate == nil || cfg.TLS.Cluster == "" && !cfg.TLS.AnyRole) {
		return nil, errors.New("transport: TLS needs the roots, a certificate and the name of the cluster")
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
		}
	}
	t := &Transport{cfg: cfg, log: cfg.Logger.Named("transport"), conns: map[net.Conn]guest{}, pipes: map[pipeKey]*pipe{}, controls: map[string]*control{}, inbound: map[pipeKey]*inbound{}}
	t.guests, t.unknown = newCrowd(cmp.Or(cfg.MaxInbound, maxConns), cmp.Or(cfg.MaxInboundFrom, maxConnsFrom)), strangers{crowd: newCrowd(maxUnknown, maxUnknownFrom)}
	if cfg.TLS != nil {
		t.server, t.client = cfg.TLS.server(), cfg.TLS.client()
	}
	t.ctx, t.stop = context.WithCancel(context.Background())
	t.raft = &StreamLayer{t: t, in: make(chan net.Conn)}
	t.wg.Add(1)
	go t.accept()
	return t, nil
}

// Close closes the listener and every connection, those of Raft too, and waits for all goroutines.
func (t *Transport) Close() error {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		t.wg.Wait()
		return nil
	}
	t.closed = true
	conns := t.conns
	t.conns = map[net.Conn]guest{}
	t.mu.Unlock()
	t.stop()
	err := t.cfg.Listener.Close()
	for c := range conns {
		c.Close()
	}
	t.wg.Wait()
	return err
}

// track notes a connection that this member opened so that Close closes it; it fails when that has begun.
func (t *Transport) track(c net.Conn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.Close()
		return false
	}
	t.conns[c] = guest{}
	return true
}

func (t *Transport) untrack(c net.Conn) {
	c.Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if g := t.conns[c]; g.in {
		t.guests.leave(g.from)
	}
	delete(t.conns, c)
}

func (t *Transport) accept() {
	defer t.wg.Done()
	for {
		c, err := t.cfg.Listener.Accept()
		if err != nil {
			if t.ctx.Err() != nil {
				return
			}
			t.log.Warn("accept failed", "error", err)
			select {
			case <-t.ctx.Done():
				return
			case <-time.After(dialFirst):
			}
			continue
		}
		if err := t.letIn(c); err != nil {
			t.stats.refuse(err)
			t.log.Debug("connection refused", "peer", c.RemoteAddr().String(), "error", err)
			c.Close()
			continue
		}
		go t.serve(c)
	}
}

// serve carries one accepted connection to its end.
func (t *Transport) serve(c net.Conn) {
	defer t.wg.Done()
	defer func() {
		if p := recover(); p != nil {
			t.log.Error("panic in a connection", "error", p, "stack", string(debug.Stack()))
		}
	}()
	leave := func() {
		t.mu.Lock()
		t.unknown.leave(c)
		t.mu.Unlock()
	}
	defer leave()
	keep := false
	defer func() {
		if !keep {
			t.untrack(c)
		}
	}()
	conn, h, err := t.welcome(c)
	leave()
	if err != nil {
		t.stats.refuse(err)
		t.log.Debug("connection refused", "peer", c.RemoteAddr().String(), "error", err)
		return
	}
	peer := Peer{h.id.Member, h.id.Incarnation, c.RemoteAddr().String()}
	switch h.class {
	case ClassRaft:
		keep = t.raft.deliver(&streamConn{Conn: conn, raw: c, t: t})
	case ClassControl:
		t.serveControl(conn, c, peer)
	default:
		lane := Lane(h.class - ClassMessages)
		done := t.takeOver(c, pipeKey{peer.Member, lane})
		defer done()
		t.hears(peer.Member)
		t.serveFrames(conn, peer, lane)
	}
}

// takeOver ends the connection on which the member sent before, and waits until its last frame was handled: otherwise
// what the old and the new one carry would be handled in any order.
func (t *Transport) takeOver(c net.Conn, k pipeKey) (done func()) {
	in := &inbound{raw: c, done: make(chan struct{})}
	t.mu.Lock()
	old := t.inbound[k]
	t.inbound[k] = in
	t.mu.Unlock()
	if old != nil {
		old.raw.Close()
		<-old.done // its handler returns, as at Close
	}
	return func() {
		t.mu.Lock()
		if t.inbound[k] == in {
			delete(t.inbound, k)
		}
		t.mu.Unlock()
		close(in.done)
	}
}

// welcome is the listener's side of the handshake.
func (t *Transport) welcome(c net.Conn) (net.Conn, hello, error) {
	c.SetDeadline(time.Now().Add(helloTimeout))
	conn := c
	if t.server != nil {
		tc := tls.Server(c, t.server)
		if err := tc.HandshakeContext(t.ctx); err != nil {
			return nil, hello{}, err
		}
		conn = tc
	}
	h, err := readHello(conn)
	if err != nil && !errors.Is(err, ErrFrame) {
		return nil, h, err
	}
	self := t.cfg.Identity()
	if err == nil {
		err = h.meets(self)
	}
	if err == nil {
		err = t.examine(conn, self, h, false)
	}
	if err != nil {
		conn.Write(appendRefused(nil, err))
		return nil, h, err
	}
	_, err = conn.Write(hello{protocol, protocol, h.class, self}.append(nil))
	c.SetDeadline(time.Time{})
	return conn, h, err
}

// examine holds a peer's identity against this member's. answers says that the peer is the listener.
func (t *Transport) examine(conn net.Conn, self Identity, h hello, answers bool) error {
	peer, class := h.id, h.class
	if tc, ok := conn.(*tls.Conn); ok {
		if err := t.cfg.TLS.check(tc.ConnectionState(), class, peer.Member, answers); err != nil {
			return err
		}
	}
	early := class == ClassRaft || class == ClassControl
	switch {
	case self.ClusterID != "" && peer.ClusterID != "" && self.ClusterID != peer.ClusterID:
		return fmt.Errorf("peer %s is of cluster %s, this member %s of %s: %w", peer.Member, peer.ClusterID, self.Member, self.ClusterID, ErrWrongCluster)
	case !early && (self.ClusterID == "" || peer.ClusterID == ""):
		return fmt.Errorf("peer %s, member %s: %w", peer.Member, self.Member, ErrNoCluster)
	case self.Version == peer.Version && self.Version != 0 && self.RingDigest != peer.RingDigest:
		err := fmt.Errorf("peer %s has ring %x at placement version %d, member %s has %x: %w", peer.Member, peer.RingDigest, peer.Version, self.Member, self.RingDigest, ErrRingDiverged)
		t.diverged(peer.Member, err)
		if !early {
			return err
		}
	}
	return t.cfg.Handler.Admit(peer, class)
}

func (t *Transport) diverged(peer string, err error) {
	t.log.Error("peer has another ring", "peer", peer, "error", err)
	if t.cfg.Diverged != nil {
		t.cfg.Diverged()
	}
}

// dial opens a connection and shakes hands. member is who must answer, "" for anybody. ctx comes from the Transport's own:
// Close closes what is tracked, so a handshake needs only its deadline.
func (t *Transport) dial(ctx context.Context, addr string, class Class, member string) (net.Conn, net.Conn, hello, error) {
	ctx, done := context.WithTimeout(ctx, helloTimeout)
	defer done()
	raw, err := t.cfg.Dial(ctx, addr)
	if err != nil {
		return nil, nil, hello{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if !t.track(raw) {
		return nil, nil, hello{}, ErrClosed
	}
	conn, h, err := t.greet(ctx, raw, class, member)
	if err != nil {
		t.untrack(raw)
		if !refusal(err) {
			err = fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return nil, nil, h, fmt.Errorf("%s at %s: %w", class, addr, err)
	}
	return conn, raw, h, nil
}

func (t *Transport) greet(ctx context.Context, raw net.Conn, class Class, member string) (net.Conn, hello, error) {
	end, _ := ctx.Deadline()
	raw.SetDeadline(end)
	conn := raw
	if t.client != nil {
		tc := tls.Client(raw, t.client)
		if err := tc.HandshakeContext(ctx); err != nil {
			return nil, hello{}, err
		}
		conn = tc
	}
	self := t.cfg.Identity()
	if _, err := conn.Write(hello{protocol, protocol, class, self}.append(nil)); err != nil {
		return nil, hello{}, err
	}
	h, err := readAnswer(conn)
	if errors.Is(err, ErrRingDiverged) {
		t.diverged(member, err)
	}
	if err != nil {
		return nil, h, err
	}
	if h.class != class {
		return nil, h, fmt.Errorf("asked for %s, the answer is %s: %w", class, h.class, ErrFrame)
	}
	if err := h.meets(self); err != nil {
		return nil, h, err
	}
	if member != "" && h.id.Member != member {
		return nil, h, fmt.Errorf("wanted member %s, %s answered: %w", member, h.id.Member, ErrWrongMember)
	}
	if err := t.examine(conn, self, h, true); err != nil {
		return nil, h, err
	}
	raw.SetDeadline(time.Time{})
	return conn, h, nil
}

// serveFrames gives the one-way frames of a connection to the handler.
func (t *Transport) serveFrames(conn net.Conn, peer Peer, lane Lane) {
	fr := newFrameReader(conn, limit(lane.class()))
	for t.ctx.Err() == nil { // what is buffered when Close comes could keep a slow handler busy for long
		f, err := fr.next()
		if err != nil {
			t.stats.lost(err)
			return
		}
		switch f.typ {
		case oneWay:
			t.stats.in(lane, len(f.payload))
			t.cfg.Handler.OnFrame(peer, lane, f.kind, f.payload, fr.r.Buffered() > 0)
		case ping:
			if err := writeAll(conn, appendFrame(nil, frame{typ: pong})); err != nil {
				return
			}
		default:
			t.stats.lost(ErrFrame)
			return
		}
	}
}
