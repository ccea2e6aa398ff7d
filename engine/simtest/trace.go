package simtest

import (
	"fmt"
	"hash"
	"hash/fnv"
	"io"

	"chainmail/engine/core"
)

// traceLines is how much of a trace is kept for a failure.
const traceLines = 200

// trace keeps a run's last lines and a hash over all of them.
type trace struct {
	lines [traceLines]string
	n     int
	hash  hash.Hash64
	out   io.Writer // not nil: every line goes here too
}

func newTrace() trace { return trace{hash: fnv.New64a()} }

func (t *trace) add(now core.Time, format string, args ...any) {
	line := at(now) + " " + fmt.Sprintf(format, args...)
	io.WriteString(t.hash, line)
	t.lines[t.n%traceLines] = line
	t.n++
	if t.out != nil {
		fmt.Fprintln(t.out, line)
	}
}

func (t *trace) last() []string {
	var out []string
	for i := max(0, t.n-traceLines); i < t.n; i++ {
		out = append(out, t.lines[i%traceLines])
	}
	return out
}
