// Package bridge turns the log's placement into the engine's view of it. Neither package knows the other; the root
// package and the simulator use this one.
package bridge

import (
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
)

// View gives the engine's part of a placement, nil for one of a cluster that was not formed yet.
func View(p *membership.Placement) *core.View {
	if p.ClusterID == "" {
		return nil
	}
	v := &core.View{
		Revision: p.Revision, Version: p.Version, Step: p.Step, Began: p.Began, Stage: core.Stage(p.Stage),
		Base: p.Base, Next: p.Next, Target: p.Target, Ring: p.Ring, Replicas: p.Replicas,
		Rate: p.Limits.Rate, Streams: p.Limits.MaxConcurrent, Lost: p.LostAt(),
	}
	for _, m := range p.Members {
		v.Members = append(v.Members, core.MemberInfo{ID: m.ID, Incarnation: m.Incarnation, Start: m.Start, Address: m.Address, Down: m.Down, Refilling: m.Refilling, GivenUp: m.GivenUp, Marked: m.Marked})
	}
	return v
}

// What gives the log's word for a report of the engine.
func What(r core.Reported) membership.What {
	return map[core.Reported]membership.What{
		core.ReportCopied: membership.Copied, core.ReportFilled: membership.Filled, core.ReportRefilled: membership.Refilled,
	}[r]
}
