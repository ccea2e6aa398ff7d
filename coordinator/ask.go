package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// askForLeader asks the members that this one knows of who leads. A member that was removed while it was away is no longer
// sent the log: this is how it learns that (ErrRemoved).
func (c *Coordinator) askForLeader(ctx context.Context) (addr string, err error) {
	addrs := slices.Clone(c.cfg.RetryJoin)
	for _, s := range c.servers() {
		addrs = append(addrs, string(s.Address))
	}
	for _, m := range c.Placement().Members {
		addrs = append(addrs, m.Address)
	}
	slices.Sort(addrs)
	for _, a := range slices.Compact(addrs) {
		if a == c.cfg.Self.Address {
			continue
		}
		s, err := c.statusAt(ctx, a)
		if errors.Is(err, ErrRemoved) {
			return "", err
		}
		// An address that Config.RetryJoin lists may be that of a cluster with another name, which has to list no stranger.
		if err == nil && s.ClusterName == c.cfg.ClusterName && s.LeaderAddr != "" && s.LeaderAddr != c.cfg.Self.Address {
			return s.LeaderAddr, nil
		}
	}
	return "", ErrNoLeader
}

// statusAt asks who is at an address for its status.
func (c *Coordinator) statusAt(ctx context.Context, addr string) (s Status, err error) {
	b, err := c.cfg.Requests.Request(ctx, addr, KindStatus, nil)
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// statusSoon is statusAt of one that is to answer at once.
func (c *Coordinator) statusSoon(ctx context.Context, addr string) (Status, error) {
	ctx, done := context.WithTimeout(ctx, c.cfg.Heartbeat/2)
	defer done()
	return c.statusAt(ctx, addr)
}
