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
		var s Status
		b, err := c.cfg.Requests.Request(ctx, a, KindStatus, nil)
		if errors.Is(err, ErrRemoved) {
			return "", err
		}
		// An address that Config.RetryJoin lists may be that of a cluster with another name, which has to list no stranger.
		if err == nil && json.Unmarshal(b, &s) == nil && s.ClusterName == c.cfg.ClusterName && s.LeaderAddr != "" && s.LeaderAddr != c.cfg.Self.Address {
			return s.LeaderAddr, nil
		}
	}
	return "", ErrNoLeader
}
