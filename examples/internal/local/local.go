// Package local runs several members in one process, for examples that show what happens when some of them come, go or
// die. Each is configured as a host of its own would be, with shorter times.
package local

import (
	"context"
	"fmt"
	"time"

	"chainmail"
)

const (
	heartbeat = 300 * time.Millisecond // a lost leader is replaced within two of them
	downAfter = 600 * time.Millisecond // then the keys that a dead member owned are served by others
	maxVotes  = 5                      // the default of Config.Membership.MaxVoters
)

// Start forms a cluster: the first member alone, then the others join it and enter the ring. cfg is what they have in common.
func Start(ctx context.Context, cfg chainmail.Config, ids ...string) ([]*chainmail.Node, error) {
	var nodes []*chainmail.Node
	for i, id := range ids {
		c := cfg
		if i == 0 {
			c.BootstrapExpect = 1
		}
		n, err := Add(ctx, c, id, nodes...)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
	return nodes, WaitVotes(ctx, nodes[0], min(len(nodes)-1+len(nodes)%2, maxVotes)) // always an odd number
}

// Add starts a member that joins those that are known, and enters the ring.
func Add(ctx context.Context, cfg chainmail.Config, id string, known ...*chainmail.Node) (*chainmail.Node, error) {
	cfg.NodeID = id
	if cfg.BindAddr == "" {
		cfg.BindAddr = "127.0.0.1:0" // any free port
	}
	for _, n := range known {
		cfg.RetryJoin = append(cfg.RetryJoin[:len(cfg.RetryJoin):len(cfg.RetryJoin)], n.Addr())
	}
	cfg.Raft.Heartbeat = heartbeat
	cfg.Membership.DownAfter = downAfter
	n, err := chainmail.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := n.Enter(ctx); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// WaitVotes waits until so many members have a vote in the log. They get them one by one after they have entered; until
// then a cluster with one vote does not outlive the member that has it.
func WaitVotes(ctx context.Context, n *chainmail.Node, want int) error {
	for {
		votes := 0
		for _, m := range n.Members(ctx) {
			if m.Role == "voter" && !m.Removed {
				votes++
			}
		}
		if votes >= want {
			return nil
		}
		select {
		case <-time.After(heartbeat / 10):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d votes: %w", votes, want, ctx.Err())
		}
	}
}
