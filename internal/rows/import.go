package rows

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"chainmail/internal/api"
)

const (
	workers    = 16
	putTimeout = 10 * time.Second
)

// Import puts all rows, several at once, and gives how many were acknowledged; the first error ends it. A put is
// sent again after an unknown outcome: it writes the same value.
func Import(ctx context.Context, c *api.Client, list []Row, progress func(n int)) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	next, done := 0, 0
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(list) || ctx.Err() != nil {
					return
				}
				if err := put(ctx, c, list[i]); err != nil {
					cancel(fmt.Errorf("line %d, key %s: %w", list[i].Line, list[i].Key, err))
					return
				}
				mu.Lock()
				done++
				progress(done)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return done, context.Cause(ctx)
}

func put(ctx context.Context, c *api.Client, r Row) error {
	ctx, done := context.WithTimeout(ctx, putTimeout)
	defer done()
	return c.Do(ctx, http.MethodPost, api.ActorPath("kv", r.Key, "put"), api.MakeValue(r.Value), nil, true)
}
