package main

import (
	"context"
	"fmt"
	"io"
	"os/user"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/internal/api"
)

func (c *cli) operatorCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "operator", Short: "What only a person decides"}
	cmd.AddCommand(c.declareLostCmd())
	return cmd
}

func (c *cli) declareLostCmd() *cobra.Command {
	q := coordinator.LossRequest{By: userName()}
	plan := false
	cmd := &cobra.Command{Use: "declare-lost ID...", Short: "Give up the copies of members whose memory or disk is gone for good", Args: cobra.MinimumNArgs(1),
		Long: "Give up the copies of members that are down, or back without their memory. Keys that wait for them go on with what the\n" +
			"other members hold: writes that only the named members had are lost. It shows what that is before it asks.",
		RunE: func(cmd *cobra.Command, ids []string) error {
			q.Members = ids
			if q.Why == "" && !plan {
				return usage("say why with --why; it is kept in the log")
			}
			return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
				p, err := cl.PlanLoss(ctx, q)
				if err != nil {
					return err
				}
				if plan {
					return c.print(p, func(w io.Writer) { lossTable(w, p) })
				}
				return c.declareLost(ctx, cl, q, p)
			})
		}}
	cmd.Flags().StringVar(&q.Why, "why", "", "the reason; it is kept in the log")
	cmd.Flags().StringVar(&q.By, "by", q.By, "who decides")
	cmd.Flags().Uint64Var(&q.ExpectVersion, "expect-version", 0, "refuse if the placement has another version")
	cmd.Flags().BoolVar(&plan, "plan", false, "show what would be given up; nothing is changed")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return ""
}

// declareLost shows the plan, asks, and declares. Members that were all given up before stay so: nothing is left to do.
func (c *cli) declareLost(ctx context.Context, cl *api.Client, q coordinator.LossRequest, p coordinator.LossPlan) error {
	w := tabwriter.NewWriter(c.talk, 0, 0, 2, ' ', 0)
	lossTable(w, p)
	if err := w.Flush(); err != nil {
		return err
	}
	if again := len(p.Members) == countGivenUp(p); again {
		c.say("all of them were given up before: nothing is done")
		return c.print(membership.Loss{Version: p.Version, Bans: []membership.Ban{}}, func(io.Writer) {})
	}
	if err := c.confirm("Gives up what only "+strings.Join(q.Members, ", ")+" had, for good", q.Members[0]); err != nil {
		return err
	}
	q.ExpectVersion = p.Version
	// To read the plan may have taken all the time that there was.
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), c.timeout)
	defer done()
	l, err := cl.DeclareLost(ctx, q)
	if err != nil {
		return err
	}
	for _, m := range p.Members {
		if m.Down && m.OnRing {
			c.say("%s is down: start it with an empty data directory, or: cluster change apply --remove %s", m.ID, m.ID)
		}
	}
	return c.print(l, func(w io.Writer) {
		fmt.Fprintf(w, "declared lost at version %d: %s\n", l.Version, strings.Join(q.Members, ", "))
	})
}

func countGivenUp(p coordinator.LossPlan) (n int) {
	for _, m := range p.Members {
		if m.GivenUp {
			n++
		}
	}
	return n
}

func lossTable(w io.Writer, p coordinator.LossPlan) {
	fmt.Fprintf(w, "for placement version %d\n\nMEMBER\tNOW\tTHEN\n", p.Version)
	for _, m := range p.Members {
		now, then := "up without its memory", "fills from the others"
		if m.Down {
			now, then = "down", "comes back with an empty data directory, or not at all"
		}
		if m.GivenUp {
			now += ", given up before"
		}
		if m.Pinned > 0 {
			then += fmt.Sprintf("; %d keys that are pinned to it are lost", m.Pinned)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", m.ID, now, then)
	}
	fmt.Fprintf(w, "\nothers that are up and complete: %s\n\nTYPES\tREPLICAS\tBEGIN ANEW\tMAY LACK THEIR LAST WRITES\n", dash(strings.Join(p.Others, " ")))
	for _, x := range p.Types {
		name := x.Type
		if name == "" {
			name = "all others"
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\n", name, x.Replicas, atStake(x.Anew, x.KeysAnew), atStake(x.Behind, x.KeysBehind))
	}
	if len(p.Silent) > 0 {
		fmt.Fprintf(w, "\nno answer from %s: keys are estimated from what the others hold\n", strings.Join(p.Silent, ", "))
	}
}

// atStake writes a share of the circle and about how many keys it has.
func atStake(share float64, keys int) string {
	s := fmt.Sprintf("%.2f %% of the circle", 100*share)
	if keys >= 0 {
		s += fmt.Sprintf(", ~%d keys", keys)
	}
	return s
}
