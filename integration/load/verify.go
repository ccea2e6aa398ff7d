package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"chainmail"
	"chainmail/internal/api"
)

const verifiers = 16

// Stop ends the requests; those under way are finished. The load can still be verified.
func (l *Load) Stop() {
	l.stop()
	l.wg.Wait()
}

// Verify reads back every counter and every row after Stop, and gives what the whole load has seen.
func (l *Load) Verify(ctx context.Context, endpoints []string) (Report, error) {
	c := api.NewClient(endpoints, "", nil)
	defer c.Close()
	var wg sync.WaitGroup
	var next, verified atomic.Int64
	var first atomic.Pointer[error]
	for range verifiers {
		wg.Go(func() {
			for first.Load() == nil {
				k := int(next.Add(1) - 1)
				if k >= len(l.counters)+len(l.rows) {
					return
				}
				if err := l.verify(ctx, c, k, &verified); err != nil {
					first.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Reads = l.reads.Load()
	l.report.Verified = int(verified.Load())
	if err := first.Load(); err != nil {
		return l.report, *err
	}
	return l.report, nil
}

func (l *Load) verify(ctx context.Context, c *api.Client, k int, verified *atomic.Int64) error {
	if k < len(l.counters) {
		sum, err := c.Count(ctx, counterKey(k))
		if err != nil {
			return err
		}
		x := &l.counters[k]
		if acked := x.acked.Load(); sum < acked {
			l.lose(acked-sum, "counter %s is %d after %d acknowledged adds", counterKey(k), sum, acked)
		} else if sum > x.tried.Load() {
			l.wrong("counter %s is %d after %d attempted adds", counterKey(k), sum, x.tried.Load())
		}
		return nil
	}
	x := &l.rows[k-len(l.counters)]
	b, _, err := c.Get(ctx, x.key)
	if errors.Is(err, chainmail.ErrNotFound) {
		l.lose(1, "row %s is not found", x.key)
		return nil
	}
	if err != nil {
		return err
	}
	if text := x.check(b, x.acked.Load()); text != "" {
		l.lose(1, "row %s: %s", x.key, text)
		return nil
	}
	verified.Add(1)
	return nil
}

func (l *Load) lose(n int64, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.report.Lost += n
	l.example(format, args...)
}
