package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"chainmail/internal/api"
	"chainmail/internal/rows"
)

const (
	bulkTimeout   = 10 * time.Minute
	importWorkers = 16
	putTimeout    = 10 * time.Second
)

// imported is what an import did.
type imported struct {
	Rows     int     `json:"rows"`
	Imported int     `json:"imported"`
	Seconds  float64 `json:"seconds"`
}

func (c *cli) kvImportCmd() *cobra.Command {
	var key string
	cmd := &cobra.Command{Use: "import FILE.csv --key COL", Short: "Put every row of a CSV file, as a JSON object, under the key in a column", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		if key == "" {
			return usage("name the column of the keys with --key")
		}
		f, err := os.Open(args[0])
		if err != nil {
			return usage("%v", err)
		}
		defer f.Close()
		list, err := rows.Read(f, args[0], key)
		if err != nil {
			return fail(exitUsage, "mend the file", "%w", err)
		}
		cl, err := c.client()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, done := interruptible(cmd.Context())
		defer done()
		began := time.Now()
		n, err := importRows(ctx, cl, list, func(n int) {
			if n%1000 == 0 {
				c.say("%d of %d rows", n, len(list))
			}
		})
		if err != nil {
			return fail(exitFailed, "run the same import again: it writes the same values", "%d of %d rows are imported: %w", n, len(list), err)
		}
		out := imported{len(list), n, time.Since(began).Seconds()}
		return c.print(out, func(w io.Writer) { fmt.Fprintf(w, "%d rows in %.1f s\n", n, out.Seconds) })
	}}
	cmd.Flags().StringVar(&key, "key", "", "column of the keys")
	return cmd
}

// importRows puts all rows, several at once, and gives how many were acknowledged; the first error ends it. A put is
// sent again after an unknown outcome: it writes the same value.
func importRows(ctx context.Context, cl *api.Client, list []rows.Row, progress func(n int)) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	next, done := 0, 0
	var wg sync.WaitGroup
	for range importWorkers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(list) || ctx.Err() != nil {
					return
				}
				if err := putRow(ctx, cl, list[i]); err != nil {
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

func putRow(ctx context.Context, cl *api.Client, r rows.Row) error {
	ctx, done := context.WithTimeout(ctx, putTimeout)
	defer done()
	return cl.Do(ctx, "POST", api.ActorPath("kv", r.Key, "put"), api.MakeValue(r.Value), nil, true)
}
