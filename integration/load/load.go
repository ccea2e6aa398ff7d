// Package load keeps asking a cluster and checks what it answers: nothing that was acknowledged may be lost, a counter is
// between what was acknowledged and what was attempted, no read is older than a write that was acknowledged before it
// began. A row is written by one writer at a time; after an outcome that is not known it is only read.
package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"chainmail"
	"chainmail/internal/api"
	"chainmail/internal/rows"
)

// Config says what is asked.
type Config struct {
	Endpoints []string
	Counters  int
	Rows      []rows.Row // imported before; nil: none
	Writers   int
	Readers   int
	Pace      time.Duration // pause of a worker between two requests
	Deadline  time.Duration // of a request; default 5 s
	Seed      uint64
}

const (
	defaultDeadline = 5 * time.Second
	refreshEvery    = 200 * time.Millisecond
	maxExamples     = 20
)

// Load is a running load.
type Load struct {
	cfg      Config
	clients  []*api.Client
	counters []counter
	rows     []row
	ctx      context.Context
	stop     context.CancelFunc
	wg       sync.WaitGroup

	ops, reads atomic.Int64
	window     atomic.Pointer[Window]

	mu     sync.Mutex
	report Report
}

// counter is bounded by what was acknowledged and what was attempted.
type counter struct{ acked, tried atomic.Int64 }

// row has the revision that was acknowledged, and one whose outcome is not known (0: none).
type row struct {
	key            string
	fields         map[string]string
	acked, unknown atomic.Int64
	tried          atomic.Int64
}

// Report is what a load has seen.
type Report struct {
	Acknowledged int64            `json:"acknowledged"`
	Lost         int64            `json:"lost"`
	WrongReads   int64            `json:"wrong_reads"`
	Unanswered   int64            `json:"unanswered"`
	Errors       map[string]int64 `json:"errors"`   // by code
	Examples     []string         `json:"examples"` // of errors and wrong reads
	Reads        int64            `json:"reads"`
	Verified     int              `json:"verified_rows"`
}

// Start starts a load.
func Start(cfg Config) *Load {
	if cfg.Deadline == 0 {
		cfg.Deadline = defaultDeadline
	}
	l := &Load{cfg: cfg, counters: make([]counter, cfg.Counters), rows: make([]row, len(cfg.Rows)), report: Report{Errors: map[string]int64{}, Examples: []string{}}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for i, r := range cfg.Rows {
		l.rows[i].key = r.Key
		if err := json.Unmarshal(r.Value, &l.rows[i].fields); err != nil {
			panic(fmt.Sprintf("row of line %d is not what package rows makes: %v", r.Line, err))
		}
	}
	for range cfg.Writers + cfg.Readers {
		l.clients = append(l.clients, api.NewClient(cfg.Endpoints, "", nil))
	}
	l.spread(cfg.Endpoints)
	l.wg.Go(l.refresh)
	for i, c := range l.clients {
		rng := rand.New(rand.NewPCG(cfg.Seed, uint64(i)))
		l.wg.Go(func() { l.work(c, rng, i) })
	}
	return l
}

// spread gives every worker another endpoint as its first.
func (l *Load) spread(endpoints []string) {
	for i, c := range l.clients {
		k := i % len(endpoints)
		c.SetEndpoints(append(append([]string(nil), endpoints[k:]...), endpoints[:k]...))
	}
}

// refresh follows the members.
func (l *Load) refresh() {
	c := api.NewClient(l.cfg.Endpoints, "", nil)
	defer c.Close()
	var last string
	for {
		ctx, done := context.WithTimeout(l.ctx, time.Second)
		err := c.Refresh(ctx)
		done()
		if now := c.Endpoints(); err == nil && fmt.Sprint(now) != last {
			last = fmt.Sprint(now)
			l.spread(now)
		}
		select {
		case <-time.After(refreshEvery):
		case <-l.ctx.Done():
			return
		}
	}
}

func (l *Load) work(c *api.Client, rng *rand.Rand, worker int) {
	defer c.Close()
	writes := worker < l.cfg.Writers
	for l.ctx.Err() == nil {
		k := rng.IntN(len(l.counters) + len(l.rows))
		began := time.Now()
		switch {
		case k < len(l.counters) && writes:
			l.add(c, k)
		case k < len(l.counters):
			l.count(c, k)
		case writes:
			k -= (k - len(l.counters)) % l.cfg.Writers // this writer's own rows
			if k += worker; k < len(l.counters)+len(l.rows) {
				l.write(c, k-len(l.counters))
			}
		default:
			l.read(c, k-len(l.counters))
		}
		k = min(k, len(l.counters)+len(l.rows)-1)
		if w := l.window.Load(); w != nil {
			w.note(k, time.Since(began))
		}
		l.ops.Add(1)
		if l.cfg.Pace > 0 {
			select {
			case <-time.After(l.cfg.Pace):
			case <-l.ctx.Done():
			}
		}
	}
}

// Ops is how many requests were answered.
func (l *Load) Ops() int64 { return l.ops.Load() }

// Errors is how many requests failed.
func (l *Load) Errors() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.report.Errors {
		n += k
	}
	return n
}

func (l *Load) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), l.cfg.Deadline)
}

func counterKey(k int) string { return fmt.Sprintf("counter-%04d", k) }

func (l *Load) add(c *api.Client, k int) {
	x := &l.counters[k]
	before := x.acked.Load()
	x.tried.Add(1)
	ctx, done := l.deadline()
	defer done()
	sum, err := c.Add(ctx, counterKey(k), 1)
	if err != nil {
		if l.failed("add "+counterKey(k), err) {
			x.tried.Add(-1)
		}
		return
	}
	if most := x.tried.Load(); sum <= before || sum > most {
		l.wrong("add %s gave %d, between %d and %d would be right", counterKey(k), sum, before+1, most)
	}
	x.acked.Add(1)
	l.acknowledged()
}

func (l *Load) count(c *api.Client, k int) {
	x := &l.counters[k]
	before := x.acked.Load()
	ctx, done := l.deadline()
	defer done()
	sum, err := c.Count(ctx, counterKey(k))
	if err != nil {
		l.failed("get "+counterKey(k), err)
		return
	}
	l.reads.Add(1)
	if most := x.tried.Load(); sum < before || sum > most {
		l.wrong("get %s gave %d, between %d and %d would be right", counterKey(k), sum, before, most)
	}
}

// revField is the field that writers add to a row.
const revField = "_revision"

func (l *Load) write(c *api.Client, k int) {
	x := &l.rows[k]
	if x.unknown.Load() != 0 {
		return
	}
	next := x.acked.Load() + 1
	x.tried.Store(next)
	ctx, done := l.deadline()
	defer done()
	_, err := c.Put(ctx, x.key, x.value(next))
	switch {
	case err == nil:
		x.acked.Store(next)
		l.acknowledged()
	case l.failed("put "+x.key, err):
		x.tried.Store(next - 1)
	default:
		x.unknown.Store(next)
	}
}

func (x *row) value(rev int64) []byte {
	fields := make(map[string]string, len(x.fields)+1)
	for k, v := range x.fields {
		fields[k] = v
	}
	if rev > 0 {
		fields[revField] = fmt.Sprint(rev)
	}
	b, err := json.Marshal(fields)
	if err != nil {
		panic(err) // strings always can be written
	}
	return b
}

func (l *Load) read(c *api.Client, k int) {
	x := &l.rows[k]
	before := x.acked.Load()
	ctx, done := l.deadline()
	defer done()
	b, _, err := c.Get(ctx, x.key)
	if errors.Is(err, chainmail.ErrNotFound) {
		l.wrong("get %s: not found", x.key)
		return
	}
	if err != nil {
		l.failed("get "+x.key, err)
		return
	}
	l.reads.Add(1)
	if text := x.check(b, before); text != "" {
		l.wrong("get %s: %s", x.key, text)
	}
}

// check says what is wrong with a value that was read after the revision before was acknowledged; "" for nothing.
func (x *row) check(b []byte, before int64) string {
	var got map[string]string
	if err := json.Unmarshal(b, &got); err != nil {
		return fmt.Sprintf("%.60q is no row: %v", b, err)
	}
	rev := int64(0)
	if text, ok := got[revField]; ok {
		if _, err := fmt.Sscan(text, &rev); err != nil {
			return fmt.Sprintf("revision %q", text)
		}
		delete(got, revField)
	}
	if len(got) != len(x.fields) {
		return fmt.Sprintf("%d fields, not %d", len(got), len(x.fields))
	}
	for k, v := range x.fields {
		if got[k] != v {
			return fmt.Sprintf("field %s is %q, not %q", k, got[k], v)
		}
	}
	if most := x.tried.Load(); rev < before || rev > most {
		return fmt.Sprintf("revision %d, between %d and %d would be right", rev, before, most)
	}
	return ""
}

func (l *Load) acknowledged() {
	l.mu.Lock()
	l.report.Acknowledged++
	l.mu.Unlock()
}

func (l *Load) example(format string, args ...any) {
	if len(l.report.Examples) < maxExamples {
		l.report.Examples = append(l.report.Examples, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
	}
}

func (l *Load) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.WrongReads++
	l.example(format, args...)
}

// failed notes an error and says whether the request was certainly not run.
func (l *Load) failed(what string, err error) (notRun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var p *api.Problem
	code := "no-endpoint"
	if errors.As(err, &p) {
		code = p.Code
	} else if !errors.Is(err, api.ErrNoEndpoint) {
		code = "unknown"
	}
	if p != nil && p.Silent {
		l.report.Unanswered++
	}
	l.report.Errors[code]++
	l.example("%s: %v", what, err)
	return errors.Is(err, api.ErrNoEndpoint) || p != nil && !p.UnknownOutcome
}
