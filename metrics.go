package chainmail

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"chainmail/coordinator/membership"
)

// metric is one number of a member, as it is at the time of a scrape.
type metric struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func gauge(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("chainmail_"+name, help, labels, nil), prometheus.GaugeValue}
}

func counter(name, help string, labels ...string) metric {
	return metric{prometheus.NewDesc("chainmail_"+name, help, labels, nil), prometheus.CounterValue}
}

// All metrics of a member. Ids are labels, never part of a name.
var (
	metricVersion     = gauge("placement_version", "Version of the placement that the engine goes by.")
	metricRevision    = gauge("placement_revision", "Log entries that changed the placement.")
	metricStage       = gauge("change_stage", "Stage of the active step: 0 stable, 1 copy, 2 switch.")
	metricWaiting     = gauge("change_waiting_members", "Members whose report the active step waits for.")
	metricMembers     = gauge("members", "Members in the log, by state.", "state")
	metricDown        = gauge("members_down", "Members that do not answer the leader.")
	metricRefilling   = gauge("members_refilling", "Members that lost their copies and fetch them again.")
	metricLeader      = gauge("raft_leader", "1 on the leader.")
	metricLag         = gauge("raft_apply_lag", "Log entries that are known here and not applied yet.")
	metricCopies      = gauge("copies", "Keys of which something is stored here.")
	metricActivations = gauge("activations", "Keys that are active here.")
	metricCalls       = gauge("calls", "Calls of callers here that are not answered yet.")
	metricHeld        = gauge("held_messages", "Messages that wait for their key.")
	metricHeldBytes   = gauge("held_bytes", "Bytes of the messages that wait for their key.")
	metricOrphans     = gauge("orphans", "Copies that this member need not hold and has not handed over yet.")
	metricWanted      = gauge("wanted_copies", "Copies that are known to be missing here.")
	metricFilled      = gauge("filled", "1 if this member holds all its ranges.")
	metricWrites      = counter("store_writes_total", "Writes to the store, each with all that had gathered.")
	metricWriteTime   = counter("store_write_seconds_total", "Time that writes to the store took.")
	metricRetries     = counter("store_retries_total", "Tries to reach the store's database that failed and were followed by another.")
	metricFrames      = counter("transport_frames_total", "Frames of the transport.", "lane", "direction")
	metricBytes       = counter("transport_bytes_total", "Bytes of the transport's frames.", "lane", "direction")
	metricRefused     = counter("transport_refused_total", "Handshakes that were refused.", "reason")
	metricBad         = counter("transport_bad_frames_total", "Connections that were closed for a frame that breaks a rule.")
	metricReconnects  = counter("transport_reconnects_total", "Connections that were made again.")
	metricConnections = gauge("transport_connections", "Open connections.")
)

var metrics = []metric{
	metricVersion, metricRevision, metricStage, metricWaiting, metricMembers, metricDown, metricRefilling, metricLeader, metricLag,
	metricCopies, metricActivations, metricCalls, metricHeld, metricHeldBytes, metricOrphans, metricWanted, metricFilled,
	metricWrites, metricWriteTime, metricRetries,
	metricFrames, metricBytes, metricRefused, metricBad, metricReconnects, metricConnections,
}

// Metrics gives the member's numbers to Prometheus, read at each scrape.
func (n *Node) Metrics() prometheus.Collector { return collector{n} }

type collector struct{ n *Node }

func (c collector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range metrics {
		ch <- m.desc
	}
}

// scrapeTimeout bounds how long a scrape waits for the engine.
const scrapeTimeout = time.Second

func (c collector) Collect(ch chan<- prometheus.Metric) {
	put := func(m metric, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, v, labels...)
	}
	c.placement(put)
	c.engine(put)
	c.store(put)
	c.transport(put)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (c collector) placement(put func(metric, float64, ...string)) {
	p := c.n.coord.Placement()
	put(metricStage, float64(p.Stage))
	put(metricWaiting, float64(len(membership.Waiting(p))))
	states := map[membership.State]int{}
	down, refilling := 0, 0
	for _, m := range p.Members {
		states[m.State]++
		down += int(truth(m.Down))
		refilling += int(truth(m.Refilling))
	}
	for s := membership.Standby; s <= membership.Leaving; s++ {
		put(metricMembers, float64(states[s]), s.String())
	}
	put(metricDown, float64(down))
	put(metricRefilling, float64(refilling))
	st := c.n.coord.Status()
	put(metricLeader, truth(st.State == "leader"))
	put(metricLag, float64(st.LastIndex-min(st.LastIndex, st.Applied)))
}

func (c collector) engine(put func(metric, float64, ...string)) {
	ctx, done := context.WithTimeout(c.n.ctx, scrapeTimeout)
	defer done()
	s, err := c.n.stats(ctx)
	if err != nil {
		return
	}
	for m, v := range map[metric]int{metricCopies: s.Copies, metricActivations: s.Activations, metricCalls: s.Calls, metricHeld: s.Held,
		metricHeldBytes: s.HeldBytes, metricOrphans: s.Orphans, metricWanted: s.Wanted} {
		put(m, float64(v))
	}
	put(metricVersion, float64(s.Version))
	put(metricRevision, float64(s.Revision))
	put(metricFilled, truth(s.Complete))
}

func (c collector) store(put func(metric, float64, ...string)) {
	if c.n.store == nil {
		return
	}
	writes, took := c.n.engine.Writes()
	put(metricWrites, float64(writes))
	put(metricWriteTime, took.Seconds())
	if r, ok := c.n.store.(interface{ Retries() uint64 }); ok {
		put(metricRetries, float64(r.Retries()))
	}
}

func (c collector) transport(put func(metric, float64, ...string)) {
	t := c.n.transport.Stats()
	for lane, l := range t.Lanes {
		put(metricFrames, float64(l.FramesIn), lane, "in")
		put(metricFrames, float64(l.FramesOut), lane, "out")
		put(metricBytes, float64(l.BytesIn), lane, "in")
		put(metricBytes, float64(l.BytesOut), lane, "out")
	}
	for reason, v := range t.Refused {
		put(metricRefused, float64(v), reason)
	}
	put(metricBad, float64(t.BadFrames))
	put(metricReconnects, float64(t.Reconnects))
	put(metricConnections, float64(t.Open))
}
