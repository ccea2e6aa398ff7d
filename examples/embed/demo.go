package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"chainmail"
)

// tryOut runs two hosts, asks them, and stops them one after the other.
func tryOut(ctx context.Context) error {
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	quick := chainmail.Raft{Heartbeat: 300 * time.Millisecond}
	one, err := start(ctx, chainmail.Config{NodeID: "one", BindAddr: "127.0.0.1:0", BootstrapExpect: 1, Raft: quick}, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer one.node.Close()
	two, err := start(ctx, chainmail.Config{NodeID: "two", BindAddr: "127.0.0.1:0", RetryJoin: []string{one.node.Addr()}, Raft: quick}, "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer two.node.Close()
	for _, step := range []struct {
		to                      *host
		method, path, body, key string
	}{
		{one, "GET", "/healthz", "", ""},
		{two, "GET", "/healthz", "", ""},
		{one, "POST", "/carts/ada", `{"item":"apple","count":2}`, "order-1"},
		{two, "POST", "/carts/ada", `{"item":"pear","count":1}`, "order-2"},
		{two, "POST", "/carts/ada", `{"item":"apple","count":2}`, "order-1"}, // again, to another host
		{one, "GET", "/carts/ada", "", ""},
		{one, "POST", "/carts/ada", `{"item":"plum","count":0}`, ""},
	} {
		if err := show(ctx, step.to, step.method, step.path, step.body, step.key); err != nil {
			return err
		}
	}
	if err := one.shutdown(); err != nil {
		return err
	}
	fmt.Println("one has left")
	if err := show(ctx, two, "GET", "/carts/ada", "", ""); err != nil {
		return err
	}
	if err := two.shutdown(); err != nil {
		return err
	}
	fmt.Println("two has stopped")
	return nil
}

// show makes a request and prints it with its answer.
func show(ctx context.Context, h *host, method, path, body, key string) error {
	q, err := http.NewRequestWithContext(ctx, method, h.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	if key != "" {
		q.Header.Set("Idempotency-Key", key)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(b))
	if r.StatusCode == http.StatusBadRequest {
		text = "refused"
	}
	fmt.Println(strings.TrimSpace(fmt.Sprintf("%s: %s %s %s", h.node.ID(), method, path, key)), "->", r.StatusCode, text)
	return nil
}
