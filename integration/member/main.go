// Command member is a member with actor types of its own, for the tests of whole processes: started, configured and stopped
// as the production binary is.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"chainmail"
	"chainmail/cmd/cluster/config"
	"chainmail/integration/member/types"
	"chainmail/internal/api"
)

func main() {
	if len(os.Args) < 4 || os.Args[1] != "agent" || os.Args[2] != "--config" {
		fmt.Fprintln(os.Stderr, "usage: member agent --config FILE [--stop-on-stdin-eof]")
		os.Exit(2)
	}
	if err := run(os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	f, err := config.Read(path)
	if err != nil {
		return err
	}
	cfg, err := f.Agent()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", cfg.HTTPBind)
	if err != nil {
		return err
	}
	var server *api.Server
	h := &http.Server{}
	cfg.Node.HTTPAddr = l.Addr().String()
	cfg.Node.Logger = hclog.New(&hclog.LoggerOptions{Name: "member", Level: cfg.LogLevel})
	cfg.Node.Types = append(cfg.Node.Types, types.All()...)
	cfg.Node.BeforeGoing = func(ctx context.Context) { stopHTTP(h, server) }
	node, err := chainmail.Start(context.Background(), cfg.Node)
	if err != nil {
		return err
	}
	server = api.NewServer(node, api.Options{Version: "test"})
	h.Handler = server
	go h.Serve(l)
	err = serve(cfg, node, server)
	stopHTTP(h, server)
	return errors.Join(err, node.Close())
}

// serve waits for the end.
func serve(cfg config.Agent, node *chainmail.Node, server *api.Server) error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ended := make(chan struct{})
	go func() { io.Copy(io.Discard, os.Stdin); close(ended) }()
	select {
	case <-signals:
	case <-node.Removed():
		return node.RemovedError()
	case <-node.Failed():
		return node.Err()
	case <-ended:
		return nil
	}
	if !cfg.LeaveOnTerminate {
		return nil
	}
	ctx, done := context.WithTimeout(context.Background(), cfg.LeaveTimeout)
	defer done()
	server.Leaving()
	return node.Leave(ctx)
}

// drain is how long requests under way have when the member stops.
const drain = 3 * time.Second

func stopHTTP(h *http.Server, server *api.Server) {
	server.Leaving()
	server.Close()
	ctx, done := context.WithTimeout(context.Background(), drain)
	defer done()
	if h.Shutdown(ctx) != nil {
		h.Close()
	}
}
