package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"chainmail"
	"chainmail/coordinator/membership"
	"chainmail/internal/api"
	"chainmail/ring"
)

func (c *cli) ringCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "ring", Short: "Show where keys are, and why"}
	cmd.AddCommand(c.ringShowCmd(), c.locateCmd(), c.ringDiffCmd())
	return cmd
}

// ringRow is one member of the ring.
type ringRow struct {
	Member string  `json:"member"`
	Zone   string  `json:"zone"`
	Weight int     `json:"weight"`
	Tokens int     `json:"tokens"`
	Owns   float64 `json:"owns"` // share of the circle
	Holds  float64 `json:"holds"`
}

func (c *cli) ringShowCmd() *cobra.Command {
	return &cobra.Command{Use: "show", Short: "Show the members of the ring and their shares", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			p, err := cl.Placement(ctx)
			if err != nil {
				return err
			}
			r, err := ring.New(p.Ring, p.Base)
			if err != nil {
				return err
			}
			owns, holds := r.Owned(), r.Held(p.Replicas[""])
			rows := []ringRow{}
			most := 0.0
			for _, m := range r.Members() {
				rows = append(rows, ringRow{m.ID, m.Zone, m.Weight, m.Weight * p.Ring.VNodes, owns[m.ID], holds[m.ID]})
				most = max(most, owns[m.ID])
			}
			return c.print(rows, func(w io.Writer) {
				fmt.Fprintln(w, "MEMBER\tZONE\tWEIGHT\tTOKENS\tOWNS\tHOLDS")
				for _, x := range rows {
					fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.2f %%\t%.2f %%\n", x.Member, x.Zone, x.Weight, x.Tokens, 100*x.Owns, 100*x.Holds)
				}
				fmt.Fprintf(w, "\nversion %d, %d replicas, digest %016x, largest share %.3f times the mean\n", p.Version, p.Replicas[""], r.Digest(), most*float64(len(rows)))
			})
		})
	}}
}

func (c *cli) locateCmd() *cobra.Command {
	return &cobra.Command{Use: "locate TYPE KEY...", Short: "Show the owner and the replicas of keys", Args: cobra.MinimumNArgs(2), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			out := []chainmail.Location{}
			for _, key := range args[1:] {
				var l chainmail.Location
				q := url.Values{"type": {args[0]}, "key": {key}}
				if err := cl.Do(ctx, http.MethodGet, "/v1/ring/locate?"+q.Encode(), nil, &l, true); err != nil {
					return err
				}
				out = append(out, l)
			}
			return c.print(out, func(w io.Writer) {
				fmt.Fprintln(w, "KEY\tTOKEN\tOWNER\tREPLICAS\tDESTINATION\tNEXT\tTARGET")
				for _, l := range out {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Key, l.Token, dash(l.Owner), strings.Join(l.Replicas, " "), dash(l.Destination), strings.Join(l.Next, " "), strings.Join(l.Target, " "))
				}
			})
		})
	}}
}

// diffRow is one range whose replicas differ.
type diffRow struct {
	Range string   `json:"range"`
	Share float64  `json:"share"`
	From  []string `json:"from"`
	To    []string `json:"to"`
	Gains string   `json:"gains"`
	Loses string   `json:"loses"`
}

func (c *cli) ringDiffCmd() *cobra.Command {
	var ranges bool
	cmd := &cobra.Command{Use: "diff FROM..TO", Short: "Show what differs between two rings: base, next, target, or lists of ids (a,b,c..a,b,d)", Args: cobra.ExactArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		from, to, ok := strings.Cut(args[0], "..")
		if !ok {
			return usage("%s: write FROM..TO", args[0])
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			p, err := cl.Placement(ctx)
			if err != nil {
				return err
			}
			rows, err := diffRows(&p, from, to)
			if err != nil {
				return err
			}
			return c.print(rows, func(w io.Writer) { diffTable(w, rows, ranges) })
		})
	}}
	cmd.Flags().BoolVar(&ranges, "ranges", false, "list every range, not the sums")
	return cmd
}

func diffRows(p *membership.Placement, from, to string) ([]diffRow, error) {
	var rings [2]*ring.Ring
	for i, name := range []string{from, to} {
		set, err := namedSet(p, name)
		if err != nil {
			return nil, err
		}
		if rings[i], err = ring.New(p.Ring, set); err != nil {
			return nil, usage("%v", err)
		}
	}
	rows := []diffRow{}
	for _, m := range ring.Diff(rings[0], rings[1], p.Replicas[""]) {
		rows = append(rows, diffRow{m.Range.String(), m.Range.Size(), m.From, m.To, m.Gains, m.Loses})
	}
	return rows, nil
}

func namedSet(p *membership.Placement, name string) ([]ring.Member, error) {
	switch name {
	case "base":
		return p.Base, nil
	case "next":
		return p.Next, nil
	case "target":
		return p.Target, nil
	case "previous":
		return p.Previous, nil
	}
	var out []ring.Member
	for _, id := range strings.Split(name, ",") {
		m, ok := p.Member(id)
		if !ok {
			return nil, usage("no member %q; use base, next, target, previous or ids with commas", id)
		}
		out = append(out, ring.Member{ID: m.ID, Zone: m.Zone, Weight: m.Weight})
	}
	return out, nil
}

func diffTable(w io.Writer, rows []diffRow, ranges bool) {
	if ranges {
		fmt.Fprintln(w, "RANGE\tSHARE\tFROM\tTO\tGAINS\tLOSES")
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%.4f %%\t%s\t%s\t%s\t%s\n", r.Range, 100*r.Share, strings.Join(r.From, " "), strings.Join(r.To, " "), dash(r.Gains), dash(r.Loses))
		}
		return
	}
	sums := map[[2]string]float64{}
	var keys [][2]string
	total := 0.0
	for _, r := range rows {
		k := [2]string{r.Loses, r.Gains}
		if _, known := sums[k]; !known {
			keys = append(keys, k)
		}
		sums[k] += r.Share
		total += r.Share
	}
	slices.SortFunc(keys, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	fmt.Fprintln(w, "LOSES\tGAINS\tSHARE")
	for _, k := range keys {
		fmt.Fprintf(w, "%s\t%s\t%.2f %%\n", dash(k[0]), dash(k[1]), 100*sums[k])
	}
	fmt.Fprintf(w, "\n%d ranges, %.2f %% of the circle\n", len(rows), 100*total)
}
