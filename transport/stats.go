package transport

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
)

// LaneStats counts one lane.
type LaneStats struct{ FramesIn, FramesOut, BytesIn, BytesOut uint64 }

// Stats counts what a Transport has done since it was made.
type Stats struct {
	Lanes      map[string]LaneStats
	Refused    map[string]uint64 // handshakes, by reason
	BadFrames  uint64            // connections closed for a frame that breaks a rule
	Reconnects uint64
	Open       int // connections
}

type laneCounters struct{ framesIn, framesOut, bytesIn, bytesOut atomic.Uint64 }

type counters struct {
	lanes      [lanes]laneCounters
	refused    [16]atomic.Uint64
	bad        atomic.Uint64
	reconnects atomic.Uint64
}

func (c *counters) in(l Lane, n int) {
	c.lanes[l].framesIn.Add(1)
	c.lanes[l].bytesIn.Add(uint64(n + headerSize))
}

func (c *counters) out(l Lane, n int) {
	c.lanes[l].framesOut.Add(1)
	c.lanes[l].bytesOut.Add(uint64(n + headerSize))
}

func (c *counters) refuse(err error) { c.refused[codeOf(err)].Add(1) }
func (c *counters) reconnect()       { c.reconnects.Add(1) }

// lost counts a connection that ended, if it ended for bad bytes.
func (c *counters) lost(err error) {
	if err != nil && errors.Is(err, ErrFrame) && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.bad.Add(1)
	}
}

// Stats gives the present counts.
func (t *Transport) Stats() Stats {
	s := Stats{Lanes: map[string]LaneStats{}, Refused: map[string]uint64{}, BadFrames: t.stats.bad.Load(), Reconnects: t.stats.reconnects.Load()}
	for l := Messages; l < lanes; l++ {
		c := &t.stats.lanes[l]
		s.Lanes[l.class().String()] = LaneStats{c.framesIn.Load(), c.framesOut.Load(), c.bytesIn.Load(), c.bytesOut.Load()}
	}
	for code, err := range refusals {
		s.Refused[err.Error()] = t.stats.refused[code].Load()
	}
	t.mu.Lock()
	s.Open = len(t.conns)
	t.mu.Unlock()
	return s
}
