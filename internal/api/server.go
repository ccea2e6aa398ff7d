package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/coordinator/membership"
)

// Right is what a caller needs for a route.
type Right uint8

const (
	Open    Right = iota // health checks
	Read                 // looks only
	Operate              // changes something
)

// Tokens are the bearer tokens of the API by right. Without any, everybody who reaches the API may do everything.
type Tokens struct{ Read, Operate []string }

// Options are what a Server is made with besides its node.
type Options struct {
	Tokens  Tokens
	Metrics http.Handler          // of /metrics; nil: none
	Leave   func(dropPinned bool) // begins to leave in the background; may be called more than once
	Version string                // of the program
}

// Server serves the API of one member.
type Server struct {
	node    *chainmail.Node
	opt     Options
	types   map[string]actor.Registered // beside kv and counter
	mux     *http.ServeMux
	leaving atomic.Bool
	closed  chan struct{} // feeds and blocking queries end
	closing sync.Once
}

const (
	maxBody    = 2 << 20 // a kv value of 1 MiB in base64 and some more
	maxWait    = 5 * time.Minute
	defaultDue = 5 * time.Second
)

type handle func(s *Server, w http.ResponseWriter, r *http.Request) error

type route struct {
	pattern string
	right   Right
	handle  handle
}

// routes are all there are; a test asks each without and with too small a right.
var routes = []route{
	{"GET /livez", Open, (*Server).livez},
	{"GET /readyz", Open, (*Server).readyz},
	{"GET /metrics", Read, (*Server).metrics},
	{"GET /v1/status", Read, (*Server).status},
	{"GET /v1/members", Read, (*Server).members},
	{"GET /v1/placement", Read, (*Server).placement},
	{"GET /v1/events", Read, (*Server).events},
	{"GET /v1/operator/raft", Read, (*Server).raft},
	{"POST /v1/bootstrap", Operate, (*Server).bootstrap},
	{"POST /v1/join", Operate, (*Server).join},
	{"POST /v1/leave", Operate, (*Server).leave},
	{"PUT /v1/limits", Operate, (*Server).limits},
	{"GET /v1/ring/locate", Read, (*Server).locate},
	{"GET /v1/changes", Read, (*Server).changes},
	{"POST /v1/changes:plan", Read, (*Server).plan},
	{"POST /v1/changes", Operate, (*Server).submit},
	{"GET /v1/changes/{id}", Read, (*Server).progress},
	{"POST /v1/changes/{id}", Operate, (*Server).steer}, // {id}:pause, :resume, :abort
	{"POST /v1/operator/losses:plan", Read, (*Server).planLoss},
	{"POST /v1/operator/losses", Operate, (*Server).declareLost},
	{"GET /v1/copies/{type}/{key...}", Read, (*Server).explain},
	{"GET /v1/actors", Read, (*Server).list},
	{"POST /v1/actors/{type}/{key}/{method}", Operate, (*Server).ask},
	{"GET /v1/actors/{type}/{key}/{method}", Read, (*Server).ask}, // methods that only read
}

// NewServer makes a Server of a node.
func NewServer(node *chainmail.Node, opt Options) *Server {
	s := &Server{node: node, opt: opt, mux: http.NewServeMux(), closed: make(chan struct{}), types: map[string]actor.Registered{}}
	for _, t := range node.Types() {
		s.types[actor.NameOf(t)] = t
	}
	for _, r := range routes {
		s.mux.HandleFunc(r.pattern, func(w http.ResponseWriter, q *http.Request) {
			err := s.allowed(q, r.right)
			if err == nil {
				err = r.handle(s, w, q)
			}
			if err != nil {
				writeProblem(w, err)
			}
		})
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, q *http.Request) {
		writeProblem(w, problem("unknown-path", "%s %s is not part of this API", q.Method, q.URL.Path))
	})
	return s
}

// Leaving makes the server end each connection with the next answer, so that clients go elsewhere before it is gone. It
// does so by itself once a change removes its member.
func (s *Server) Leaving() { s.leaving.Store(true) }

func (s *Server) goes() bool {
	p := s.node.Coordinator().Placement()
	return s.leaving.Load() || membership.In(p.Previous, s.node.ID()) && !membership.In(p.Target, s.node.ID())
}

// Close ends the feeds and the blocking queries; other requests go on.
func (s *Server) Close() { s.closing.Do(func() { close(s.closed) }) }

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Origin") != "" {
		writeProblem(w, problem("forbidden", "requests of web pages are not served"))
		return
	}
	if s.goes() {
		w.Header().Set("Connection", "close")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.mux.ServeHTTP(w, r)
}

// allowed compares in constant time, over hashes of one length.
func (s *Server) allowed(r *http.Request, right Right) error {
	t := s.opt.Tokens
	if right == Open || len(t.Read)+len(t.Operate) == 0 {
		return nil
	}
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case oneOf(given, t.Operate):
		return nil
	case !oneOf(given, t.Read):
		return problem("unauthorized", "%s %s needs a token", r.Method, r.URL.Path)
	case right == Operate:
		return problem("forbidden", "%s %s needs the right operate", r.Method, r.URL.Path)
	}
	return nil
}

func oneOf(given string, tokens []string) bool {
	g := sha256.Sum256([]byte(given))
	found := 0
	for _, t := range tokens {
		h := sha256.Sum256([]byte(t))
		found |= subtle.ConstantTimeCompare(g[:], h[:])
	}
	return found == 1
}

func reply(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}

// body reads a JSON body; fields that are not known are an error.
func body(r *http.Request, v any) error {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if errors.Is(err, io.EOF) {
		return nil // an empty body is an empty object
	}
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return problem("bad-request", "the body has more than %d bytes", big.Limit)
	case err != nil:
		return problem("bad-request", "the body is not the JSON that is needed: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problem("bad-request", "the body goes on after its JSON object")
	}
	return nil
}

// due bounds a request by its parameter timeout, 5 s without one.
func due(r *http.Request) (context.Context, context.CancelFunc, error) {
	d, err := duration(r, "timeout", defaultDue)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), d)
	return ctx, cancel, nil
}

func duration(r *http.Request, name string, without time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return without, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, problem("bad-request", "%s=%q is not a duration above 0", name, text)
	}
	return min(d, maxWait), nil
}

func number(r *http.Request, name string, without uint64) (uint64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return without, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, problem("bad-request", "%s=%q is not a number", name, text)
	}
	return n, nil
}

// indexHeader tells the index to give with the next blocking query.
const indexHeader = "X-Cluster-Index"

// block waits until the placement's revision is above ?index=, at most for ?wait=.
func (s *Server) block(w http.ResponseWriter, r *http.Request) error {
	index, err := number(r, "index", 0)
	if err != nil {
		return err
	}
	wait, err := duration(r, "wait", defaultDue)
	if err != nil {
		return err
	}
	if index > 0 {
		s.await(r.Context(), index, wait)
	}
	w.Header().Set(indexHeader, fmt.Sprint(s.node.Coordinator().Placement().Revision))
	return nil
}

func (s *Server) await(ctx context.Context, index uint64, wait time.Duration) {
	watch := s.node.Coordinator().Watch()
	defer watch.Close()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case p := <-watch.C():
			if p.Revision > index {
				return
			}
		case <-timer.C:
			return
		case <-s.closed:
			return
		case <-ctx.Done():
			return
		}
	}
}
