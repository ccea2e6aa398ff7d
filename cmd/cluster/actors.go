package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"chainmail"
	"chainmail/internal/api"
)

func (c *cli) actorsCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "actors", Short: "Look at actors and ask them"}
	cmd.AddCommand(c.actorsListCmd(), c.actorsShowCmd(), c.actorsAskCmd())
	return cmd
}

func (c *cli) actorsListCmd() *cobra.Command {
	var prefix string
	var limit int
	cmd := &cobra.Command{Use: "list TYPE", Short: "List keys of a type by the members that own them", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			items := []api.Item{}
			err := cl.Each(ctx, args[0], prefix, func(it api.Item) error {
				items = append(items, it)
				if limit > 0 && len(items) >= limit {
					return errEnough
				}
				return nil
			})
			if err != nil && !errors.Is(err, errEnough) {
				return err
			}
			return c.print(items, func(w io.Writer) {
				fmt.Fprintln(w, "KEY\tOWNER\tVALUE")
				for _, it := range items {
					fmt.Fprintf(w, "%s\t%s\t%.80s\n", it.Key, it.Member, it.Value)
				}
			})
		})
	}}
	cmd.Flags().StringVar(&prefix, "prefix", "", "of the keys")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most so many; 0: all")
	return cmd
}

var errEnough = errors.New("enough")

func (c *cli) actorsShowCmd() *cobra.Command {
	return &cobra.Command{Use: "show TYPE KEY", Short: "Say why a key waits: what every replica knows of it", Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			var es []chainmail.Explanation
			if err := cl.Do(ctx, http.MethodGet, "/v1/copies/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1]), nil, &es, true); err != nil {
				return err
			}
			return c.print(es, func(w io.Writer) {
				if len(es) > 0 {
					fmt.Fprintf(w, "owner %s, replicas %s, next %s, version %d %s\n\n", dash(es[0].Owner), strings.Join(es[0].Base, " "), strings.Join(es[0].Next, " "), es[0].Version, es[0].Stage)
				}
				fmt.Fprintln(w, "MEMBER\tPROMISED\tSTAMP\tPAGES\tFILLED\tACTIVATION\tWAITING\tWHY")
				for _, e := range es {
					fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%t\t%s\t%d\t%s\n", e.Member, e.Copy.Promised, e.Copy.Stamp, e.Pages, e.Filled, dash(e.Activation), e.Waiting, dash(e.Why))
				}
			})
		})
	}}
}

func (c *cli) actorsAskCmd() *cobra.Command {
	return &cobra.Command{Use: "ask TYPE KEY METHOD [JSON]", Short: "Ask an actor", Args: cobra.RangeArgs(3, 4), RunE: func(cmd *cobra.Command, args []string) error {
		var in any
		if len(args) == 4 {
			if !json.Valid([]byte(args[3])) {
				return usage("%s is not JSON", args[3])
			}
			in = json.RawMessage(args[3])
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			var out json.RawMessage
			if err := cl.Ask(ctx, args[0], args[1], args[2], false, in, &out); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.out, "%s\n", out)
			return err
		})
	}}
}

func (c *cli) counterCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "counter", Short: "The built-in type counter"}
	sum := func(s int64) error {
		return c.print(api.Sum{Sum: s}, func(w io.Writer) { fmt.Fprintln(w, s) })
	}
	cmd.AddCommand(
		&cobra.Command{Use: "get KEY", Short: "Print a counter's sum", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
				s, err := cl.Count(ctx, args[0])
				if err != nil {
					return err
				}
				return sum(s)
			})
		}},
		&cobra.Command{Use: "add KEY [DELTA]", Short: "Add to a counter and print the sum", Args: cobra.RangeArgs(1, 2), DisableFlagParsing: false, RunE: func(cmd *cobra.Command, args []string) error {
			delta := int64(1)
			if len(args) == 2 {
				var err error
				if delta, err = strconv.ParseInt(args[1], 10, 64); err != nil {
					return usage("%s is not a whole number of 64 bits", args[1])
				}
			}
			return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
				s, err := cl.Add(ctx, args[0], delta)
				if err != nil {
					return err
				}
				return sum(s)
			})
		}})
	return cmd
}

func (c *cli) kvCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "kv", Short: "The built-in type kv: values under keys"}
	var expect string
	put := &cobra.Command{Use: "put KEY VALUE", Short: "Set a value; - reads it from standard input", Args: cobra.ExactArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		value := []byte(args[1])
		if args[1] == "-" {
			var err error
			if value, err = io.ReadAll(c.in); err != nil {
				return err
			}
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) (err error) {
			var stamp string
			if cmd.Flags().Changed("expect") {
				stamp, err = cl.CompareAndSwap(ctx, args[0], expect, value)
			} else {
				stamp, err = cl.Put(ctx, args[0], value)
			}
			if err != nil {
				return err
			}
			return c.print(api.Value{Stamp: stamp}, func(w io.Writer) { fmt.Fprintln(w, stamp) })
		})
	}}
	put.Flags().StringVar(&expect, "expect", "", "set only if the value has this stamp; \"\": only if there is none")
	cmd.AddCommand(put, c.kvGetCmd(), c.kvDeleteCmd(), c.kvImportCmd(), c.kvExportCmd())
	return cmd
}

func (c *cli) kvGetCmd() *cobra.Command {
	return &cobra.Command{Use: "get KEY", Short: "Print a value", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			b, stamp, err := cl.Get(ctx, args[0])
			if err != nil {
				return err
			}
			if c.format == formatTable {
				_, err := c.out.Write(b)
				if err == nil && isTTY(c.out) {
					fmt.Fprintln(c.out)
				}
				return err
			}
			v := api.MakeValue(b)
			v.Stamp = stamp
			return c.print(v, nil)
		})
	}}
}

func (c *cli) kvDeleteCmd() *cobra.Command {
	return &cobra.Command{Use: "delete KEY", Short: "Remove a value", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			was, err := cl.Delete(ctx, args[0])
			if err != nil {
				return err
			}
			return c.print(api.Deleted{Deleted: was}, func(w io.Writer) { fmt.Fprintln(w, was) })
		})
	}}
}

func (c *cli) kvExportCmd() *cobra.Command {
	var prefix, file string
	cmd := &cobra.Command{Use: "export", Short: "Write all keys and values, one JSON object a line", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		out := c.out
		if file != "" {
			f, err := os.Create(file)
			if err != nil {
				return usage("%v", err)
			}
			defer f.Close()
			out = f
		}
		if !cmd.Flags().Changed("timeout") {
			c.timeout = bulkTimeout
		}
		e := json.NewEncoder(out)
		n := 0
		err := c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			return cl.Each(ctx, "kv", prefix, func(it api.Item) error {
				var v api.Value
				if err := json.Unmarshal(it.Value, &v); err != nil {
					return err
				}
				n++
				return e.Encode(struct {
					Key string `json:"key"`
					api.Value
				}{it.Key, v})
			})
		})
		if err == nil {
			c.say("%d keys", n)
		}
		return err
	}}
	cmd.Flags().StringVar(&prefix, "prefix", "", "of the keys")
	cmd.Flags().StringVar(&file, "output", "", "file to write; default: standard output")
	return cmd
}
