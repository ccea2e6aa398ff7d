// Command embed is an application with an HTTP server of its own on top of a member: shopping carts. It serves until it is
// interrupted. With -demo two such hosts are run in one process and asked a few things.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"chainmail"
	"chainmail/actor"
)

func main() {
	demo := flag.Bool("demo", false, "run two hosts, ask them, stop them")
	addr := flag.String("http", "127.0.0.1:8080", "address of the HTTP server")
	bind := flag.String("bind", "127.0.0.1:8621", "address of the member")
	join := flag.String("join", "", "address of another member; empty: form a cluster")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if *demo {
		if err := tryOut(ctx); err != nil {
			log.Fatal(err)
		}
		return
	}
	cfg := chainmail.Config{BindAddr: *bind, BootstrapExpect: 1}
	if *join != "" {
		cfg.BootstrapExpect, cfg.RetryJoin = 0, []string{*join}
	}
	h, err := start(ctx, cfg, *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("serving at %s, member at %s", h.url, h.node.Addr())
	<-ctx.Done()
	if err := h.shutdown(); err != nil {
		log.Fatal(err)
	}
}

// shutdownTimeout is how long leaving and the requests under way may take.
const shutdownTimeout = 20 * time.Second

// host is one host of the application: a member and an HTTP server.
type host struct {
	node *chainmail.Node
	http *http.Server
	url  string
	left chan struct{} // closed when shutdown begins
}

// start starts a host. Its HTTP server answers from the beginning: /healthz says when it can be sent requests.
func start(ctx context.Context, cfg chainmail.Config, addr string) (*host, error) {
	h := &host{left: make(chan struct{})}
	h.http = &http.Server{Handler: h.routes(), ReadHeaderTimeout: 5 * time.Second}
	cfg.Types = []actor.Registered{carts}
	// A member that leaves serves until its carts are at others, and then asks before it is let go: the last requests are
	// answered here.
	cfg.BeforeGoing = func(ctx context.Context) { h.http.Shutdown(ctx) }
	var err error
	if h.node, err = chainmail.Start(ctx, cfg); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		h.node.Close()
		return nil, err
	}
	h.url = "http://" + l.Addr().String()
	go func() {
		if err := h.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Print(err)
		}
	}()
	if err := h.node.Enter(ctx); err != nil {
		h.http.Close()
		h.node.Close()
		return nil, err
	}
	return h, nil
}

// shutdown takes the host out of service without an error for anybody: load balancers are told by /healthz, the member
// leaves, requests under way are answered, and only then is anything closed.
func (h *host) shutdown() error {
	ctx, done := context.WithTimeout(context.Background(), shutdownTimeout)
	defer done()
	close(h.left)
	err := h.node.Leave(ctx)
	if errors.Is(err, chainmail.ErrLastMember) { // there is nobody to leave anything to
		err = nil
	}
	return errors.Join(err, h.http.Shutdown(ctx), h.node.Close())
}
