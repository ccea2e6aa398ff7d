package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	metrics "github.com/hashicorp/go-metrics/compat"
	sink "github.com/hashicorp/go-metrics/compat/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"chainmail"
	"chainmail/cmd/cluster/config"
	"chainmail/internal/api"
)

const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 30 * time.Second
	headerBytes   = 16 << 10
	httpDrain     = 3 * time.Second // for requests under way when the member stops
	idleGrace     = 500 * time.Millisecond
)

// agent is one running daemon.
type agent struct {
	cfg      config.Agent
	path     string // of the configuration, "" with --dev
	log      hclog.InterceptLogger
	node     *chainmail.Node
	api      *api.Server
	http     *http.Server
	serving  sync.WaitGroup
	conns    atomic.Int64 // open ones of the API
	stopOnce sync.Once
	leave    chan bool // asked over the API, with whether pinned keys may be lost; capacity 1, further ones say nothing new
	lifeline io.Reader // not nil: stop when it ends
	raftSink *prometheus.Registry
}

func (c *cli) agentCmd() *cobra.Command {
	var path string
	var dev, lifeline bool
	cmd := &cobra.Command{Use: "agent", Short: "Run a member", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if dev == (path != "") {
			return usage("give either --config FILE or DIR, or --dev")
		}
		a := &agent{path: path, leave: make(chan bool, 1)}
		if lifeline {
			a.lifeline = c.in
		}
		var err error
		if dev {
			a.cfg, err = devConfig()
		} else {
			a.cfg, err = readConfig(path)
		}
		if err != nil {
			return err
		}
		a.log = hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "cluster", Level: a.cfg.LogLevel, JSONFormat: a.cfg.LogJSON, Output: c.talk})
		return a.run(cmd.Context())
	}}
	cmd.Flags().StringVar(&path, "config", "", "configuration file, or directory of *.hcl files")
	cmd.Flags().BoolVar(&dev, "dev", false, "one member that forms its own cluster, in memory, on loopback")
	cmd.Flags().BoolVar(&lifeline, "stop-on-stdin-eof", false, "stop when standard input ends")
	cmd.Flags().MarkHidden("stop-on-stdin-eof")
	return cmd
}

// devConfig is that of one member in memory on loopback.
func devConfig() (config.Agent, error) {
	f := config.Default()
	f.NodeID, f.DataDir, f.Store.Backend, f.BindAddr = "dev", "", chainmail.StoreMemory, "127.0.0.1"
	f.Membership.LeaveOnTerminate = false
	a, err := f.Agent()
	a.Node.Dev = true
	a.Node.Raft.Heartbeat = 0
	return a, err
}

func readConfig(path string) (config.Agent, error) {
	f, err := config.Read(path)
	if err != nil {
		return config.Agent{}, fail(exitUsage, seeExample, "%w", err)
	}
	a, err := f.Agent()
	if err != nil {
		return a, fail(exitUsage, seeExample, "%s: %w", path, err)
	}
	return a, nil
}

// seeExample shows every key with its default.
const seeExample = "cluster config example"

// run runs the member until it is told to stop, leaves, is removed, or fails.
func (a *agent) run(ctx context.Context) error {
	if err := a.start(ctx); err != nil {
		return fail(exitFailed, "", "start: %w", err)
	}
	defer a.stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	if a.lifeline != nil {
		go func() { io.Copy(io.Discard, a.lifeline); close(ended) }() // ends with the process at the latest
	}
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				a.reload(ctx)
				continue
			}
			a.log.Info("stopping", "signal", s.String())
			if !a.cfg.LeaveOnTerminate {
				return nil
			}
			return a.goAway(ctx, signals, false)
		case dropPinned := <-a.leave:
			return a.goAway(ctx, signals, dropPinned)
		case <-a.node.Removed():
			return a.wasRemoved()
		case <-a.node.Failed():
			return fail(exitFailed, "", "member %s has failed: %w", a.node.ID(), a.node.Err())
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *agent) wasRemoved() error {
	if err := a.node.RemovedError(); err != nil {
		return fail(exitFailed, "start it with an empty data directory", "member %s: %w", a.node.ID(), err)
	}
	a.log.Info("removed from the cluster", "member", a.node.ID())
	return nil
}

// goAway leaves the cluster within leave_timeout; a second signal ends it at once. What was left behind is an error.
func (a *agent) goAway(ctx context.Context, signals <-chan os.Signal, dropPinned bool) error {
	ctx, done := context.WithTimeout(ctx, a.cfg.LeaveTimeout)
	defer done()
	go func() {
		select {
		case <-signals:
			a.log.Warn("second signal: stopping at once", "member", a.node.ID())
			done()
		case <-ctx.Done():
		}
	}()
	a.log.Info("leaving the cluster", "member", a.node.ID(), "timeout", a.cfg.LeaveTimeout.String())
	a.api.Leaving()
	var opts []chainmail.LeaveOption
	if dropPinned {
		opts = append(opts, chainmail.DropPinned())
	}
	err := a.node.Leave(ctx, opts...)
	if errors.Is(err, chainmail.ErrPinned) {
		return fail(exitFailed, "start it again, or: cluster leave --drop-pinned", "stopped without leaving: %w", err)
	}
	if errors.Is(err, chainmail.ErrLastMember) || errors.Is(err, chainmail.ErrNoCluster) {
		a.log.Info("there is nobody to leave: it only stops", "member", a.node.ID(), "error", err)
		return nil
	}
	if err != nil {
		return fail(exitFailed, "cluster members, on another member", "%w", err)
	}
	a.log.Info("left the cluster", "member", a.node.ID())
	return nil
}

func (a *agent) start(ctx context.Context) error {
	l, err := net.Listen("tcp", a.cfg.HTTPBind)
	if err != nil {
		return err
	}
	tokens, err := readTokens(a.cfg.TokenFile)
	if err != nil {
		l.Close()
		return err
	}
	a.cfg.Node.HTTPAddr = announced(l.Addr(), a.cfg.Node.Advertise)
	a.cfg.Node.Logger = a.log
	a.cfg.Node.BeforeGoing = func(context.Context) { a.stopHTTP() }
	a.bridgeRaftMetrics()
	if a.node, err = chainmail.Start(ctx, a.cfg.Node); err != nil {
		l.Close()
		return err
	}
	a.api = api.NewServer(a.node, api.Options{Tokens: tokens, Metrics: a.metricsHandler(), Leave: a.askedToLeave, Version: version})
	a.http = &http.Server{Handler: a.api, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, MaxHeaderBytes: headerBytes, ConnState: a.count,
		ErrorLog: a.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
	if t := a.cfg.Node.TLS; t.CAFile != "" {
		if l, err = secure(l, t, len(tokens.Read)+len(tokens.Operate) > 0); err != nil {
			a.node.Close()
			return err
		}
	}
	a.serving.Go(func() {
		if err := a.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("http server ended", "error", err)
		}
	})
	a.log.Info("member runs", "member", a.node.ID(), "http", a.cfg.Node.HTTPAddr, "cluster", a.node.Addr(), "store", a.cfg.Node.Store, "program", version)
	return nil
}

func (a *agent) count(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		a.conns.Add(1)
	case http.StateClosed, http.StateHijacked:
		a.conns.Add(-1)
	}
}

func (a *agent) askedToLeave(dropPinned bool) {
	select {
	case a.leave <- dropPinned:
	default:
	}
}

// stopHTTP takes no more requests and waits for those under way. An answer ends its connection from now on; those that
// nobody uses are closed after a moment, because a request may be on its way over them.
func (a *agent) stopHTTP() {
	a.stopOnce.Do(func() {
		a.api.Leaving()
		a.api.Close()
		for end := time.Now().Add(idleGrace); a.conns.Load() > 0 && time.Now().Before(end); {
			time.Sleep(idleGrace / 50)
		}
		ctx, done := context.WithTimeout(context.Background(), httpDrain)
		defer done()
		if a.http.Shutdown(ctx) != nil {
			a.http.Close()
		}
		a.serving.Wait()
	})
}

func (a *agent) stop() {
	a.stopHTTP()
	if err := a.node.Close(); err != nil {
		a.log.Warn("close", "error", err)
	}
}

// announced is what others dial: the bound host, or the advertised one when it is a wildcard.
func announced(bound net.Addr, advertise string) string {
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil {
		return ""
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsUnspecified() {
		return bound.String()
	}
	if h, _, err := net.SplitHostPort(advertise); err == nil {
		advertise = h
	}
	if advertise == "" {
		advertise, _ = os.Hostname()
	}
	return net.JoinHostPort(advertise, port)
}

// secure wraps a listener in TLS. Callers show a certificate of the CA, unless tokens say who they are.
func secure(l net.Listener, t chainmail.TLS, tokens bool) (net.Listener, error) {
	roots, cert, err := t.Load()
	if err != nil {
		l.Close()
		return nil, err
	}
	auth := tls.RequireAndVerifyClientCert
	if tokens {
		auth = tls.VerifyClientCertIfGiven
	}
	return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: auth, ClientCAs: roots, NextProtos: []string{"http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert() }}), nil
}

// readTokens reads lines of a right and a token; "" reads nothing.
func readTokens(path string) (t api.Tokens, err error) {
	if path == "" {
		return t, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return t, fmt.Errorf("acl.token_file: %w", err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for n := 1; s.Scan(); n++ {
		line := strings.TrimSpace(s.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		right, token, _ := strings.Cut(line, " ")
		token = strings.TrimSpace(token)
		switch {
		case len(token) < minToken:
			return t, fmt.Errorf("acl.token_file: %s:%d: a token needs at least %d characters", path, n, minToken)
		case right == "read":
			t.Read = append(t.Read, token)
		case right == "operate":
			t.Operate = append(t.Operate, token)
		default:
			return t, fmt.Errorf("acl.token_file: %s:%d: %q is no right; use read or operate", path, n, right)
		}
	}
	if err := s.Err(); err != nil {
		return t, err
	}
	if len(t.Operate) == 0 {
		return t, fmt.Errorf("acl.token_file: %s has no token with the right operate", path)
	}
	return t, nil
}

const minToken = 16

// reload reads the configuration again and takes the log level and the transfer limits from it. Certificates are read
// at each handshake anyway.
func (a *agent) reload(ctx context.Context) {
	if a.path == "" {
		return
	}
	next, err := readConfig(a.path)
	if err != nil {
		a.log.Error("configuration is not taken", "error", err)
		return
	}
	a.log.SetLevel(next.LogLevel)
	if next.Node.Transfer != a.cfg.Node.Transfer {
		ctx, done := context.WithTimeout(ctx, headerTimeout)
		defer done()
		if err := a.node.Coordinator().SetLimits(ctx, next.Node.Transfer); err != nil {
			a.log.Error("limits are not set", "error", err)
			return
		}
		a.cfg.Node.Transfer = next.Node.Transfer
	}
	a.log.Info("configuration read again", "log_level", next.LogLevel.String())
}

// bridgeRaftMetrics gives the numbers of hashicorp/raft to Prometheus. They never expire: a gap would look like a reset.
func (a *agent) bridgeRaftMetrics() {
	if !a.cfg.Prometheus {
		return
	}
	a.raftSink = prometheus.NewRegistry()
	s, err := sink.NewPrometheusSinkFrom(sink.PrometheusOpts{Expiration: 0, Registerer: a.raftSink})
	if err != nil {
		a.log.Warn("raft metrics are off", "error", err)
		return
	}
	c := metrics.DefaultConfig("cluster")
	c.EnableHostname, c.EnableRuntimeMetrics = false, false
	if _, err := metrics.NewGlobal(c, s); err != nil {
		a.log.Warn("raft metrics are off", "error", err)
	}
}

func (a *agent) metricsHandler() http.Handler {
	if !a.cfg.Prometheus {
		return nil
	}
	own := prometheus.NewRegistry()
	own.MustRegister(a.node.Metrics(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(prometheus.Gatherers{own, a.raftSink}, promhttp.HandlerOpts{})
}
