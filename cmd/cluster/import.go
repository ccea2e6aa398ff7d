package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"chainmail/internal/rows"
)

// bulkTimeout is the time for an import or export when none is given.
const bulkTimeout = 10 * time.Minute

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
		n, err := rows.Import(ctx, cl, list, func(n int) {
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
