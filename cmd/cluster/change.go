package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chainmail"
	"chainmail/cmd/cluster/config"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
	"chainmail/internal/api"
)

func (c *cli) changeCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "change", Short: "Change who is on the ring"}
	cmd.AddCommand(c.planCmd(), c.applyCmd(), c.changeStatusCmd(), c.watchCmd(), c.changeListCmd(),
		c.steerCmd("pause", "Keep a change from advancing"), c.steerCmd("resume", "Let a paused change go on"),
		c.steerCmd("abort", "End a change where it stands; steps that are done stay done"))
	return cmd
}

// changeFlags are those that say what a change does.
type changeFlags struct {
	add, remove, replace []string
	retarget, dropPinned bool
}

func (f *changeFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&f.add, "add", nil, "member to add; may be given several times")
	cmd.Flags().StringSliceVar(&f.remove, "remove", nil, "member to remove")
	cmd.Flags().StringSliceVar(&f.replace, "replace", nil, "OLD=NEW: remove one and add the other")
	cmd.Flags().BoolVar(&f.retarget, "retarget", false, "take the place of the running change")
	cmd.Flags().BoolVar(&f.dropPinned, "drop-pinned", false, "give up the pinned keys of the members that go")
}

func (f *changeFlags) request() (coordinator.ChangeRequest, error) {
	q := coordinator.ChangeRequest{Add: f.add, Remove: f.remove, Retarget: f.retarget, DropPinned: f.dropPinned}
	for _, r := range f.replace {
		old, next, ok := strings.Cut(r, "=")
		if !ok || old == "" || next == "" {
			return q, usage("--replace %s: write OLD=NEW", r)
		}
		q.Remove, q.Add = append(q.Remove, old), append(q.Add, next)
	}
	if len(q.Add)+len(q.Remove) == 0 {
		return q, usage("say what changes with --add, --remove or --replace")
	}
	return q, nil
}

func (c *cli) planCmd() *cobra.Command {
	var f changeFlags
	var detailed bool
	cmd := &cobra.Command{Use: "plan", Short: "Show what a change would do; nothing is changed", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q, err := f.request()
		if err != nil {
			return err
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			p, err := cl.Plan(ctx, q)
			if err != nil {
				return err
			}
			if err := c.print(p, func(w io.Writer) { planTable(w, p) }); err != nil {
				return err
			}
			if err := preflight(p); err != nil {
				return err
			}
			if detailed && len(p.Steps) > 0 {
				return &exitError{code: exitChanges, next: fmt.Sprintf("cluster change apply --expect-version %d, with the same flags", p.Version), err: fmt.Errorf("the plan has %d steps", len(p.Steps))}
			}
			return nil
		})
	}}
	f.bind(cmd)
	cmd.Flags().BoolVar(&detailed, "detailed-exitcode", false, "exit with 8 if there is something to do")
	return cmd
}

func preflight(p coordinator.ChangePlan) error {
	for _, x := range p.Checks {
		if !x.OK && !x.Warning {
			return fail(exitPreflight, "cluster members --detailed", "preflight %s: %s", x.Name, x.Why)
		}
	}
	return nil
}

func planTable(w io.Writer, p coordinator.ChangePlan) {
	fmt.Fprintf(w, "for placement version %d, target %s\n\n", p.Version, strings.Join(p.Target, " "))
	fmt.Fprintln(w, "STEP\tRANGES\tFROM\tTO\tSHARE\tKEYS\tBYTES")
	for _, s := range p.Steps {
		name, n := s.Step, fmt.Sprint(s.Ranges)
		for _, m := range s.Moves {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.2f %%\t%s\n", name, n, dash(m.From), dash(m.To), 100*m.Share, about(p, m.Keys, m.Bytes))
			name, n = "", ""
		}
		if name != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, n)
		}
	}
	if e := p.Estimate; e != nil {
		fmt.Fprintf(w, "\nestimated from what the members hold, in all: %d copies of keys, %s\n", e.Keys, config.FormatSize(e.Bytes))
		if len(e.Silent) > 0 {
			fmt.Fprintf(w, "no answer from %s: taken from what the others hold\n", strings.Join(e.Silent, ", "))
		}
	} else {
		fmt.Fprintln(w, "\nno member has told what it holds: keys and bytes are not known")
	}
	fmt.Fprintln(w, "\nMEMBER\tOWNS\tTHEN")
	ids := map[string]bool{}
	for id := range p.BalanceBefore {
		ids[id] = true
	}
	for id := range p.BalanceAfter {
		ids[id] = true
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		fmt.Fprintf(w, "%s\t%.2f %%\t%.2f %%\n", id, 100*p.BalanceBefore[id], 100*p.BalanceAfter[id])
	}
	fmt.Fprintln(w)
	for _, s := range p.Raft {
		fmt.Fprintf(w, "raft\t%s\n", s)
	}
	for _, x := range p.Checks {
		mark := "ok"
		if !x.OK {
			mark = x.Why
		}
		fmt.Fprintf(w, "check %s\t%s\n", x.Name, mark)
	}
}

// about writes an estimate as one.
func about(p coordinator.ChangePlan, keys int, bytes int64) string {
	if p.Estimate == nil {
		return "?\t?"
	}
	return fmt.Sprintf("~%d\t~%s", keys, config.FormatSize(bytes))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *cli) applyCmd() *cobra.Command {
	var f changeFlags
	var expect uint64
	var key string
	var detach, wait bool
	cmd := &cobra.Command{Use: "apply [plan.json]", Short: "Submit ONE change, with several adds and removes", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		q, err := f.applied(args)
		if err != nil {
			return err
		}
		if expect != 0 {
			q.ExpectVersion = expect
		}
		q.Key = key
		return c.apply(cmd.Context(), q, wait && !detach)
	}}
	f.bind(cmd)
	cmd.Flags().Uint64Var(&expect, "expect-version", 0, "refuse if the placement has another version")
	cmd.Flags().StringVar(&key, "idempotency-key", "", "the same key and body give the same change again")
	cmd.Flags().BoolVar(&wait, "wait", true, "show the progress until the change has ended")
	cmd.Flags().BoolVar(&detach, "detach", false, "return once the change is in the log")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// applied gives the change of the flags, or of a plan's file, which is bound to its version.
func (f *changeFlags) applied(args []string) (coordinator.ChangeRequest, error) {
	if len(args) == 0 {
		return f.request()
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return coordinator.ChangeRequest{}, usage("%v", err)
	}
	var p coordinator.ChangePlan
	if err := json.Unmarshal(b, &p); err != nil {
		return coordinator.ChangeRequest{}, usage("%s is not a plan: %v", args[0], err)
	}
	if p.Version == 0 || len(p.Add)+len(p.Remove) == 0 {
		return coordinator.ChangeRequest{}, usage("%s is not a plan that changes something; make one with cluster change plan --format json", args[0])
	}
	return coordinator.ChangeRequest{Add: p.Add, Remove: p.Remove, ExpectVersion: p.Version, Retarget: f.retarget, DropPinned: f.dropPinned}, nil
}

func (c *cli) apply(ctx context.Context, q coordinator.ChangeRequest, wait bool) error {
	var ch membership.Change
	err := c.ask(ctx, func(ctx context.Context, cl *api.Client) error {
		if q.Key == "" { // with a key the change may be there already: the log knows
			p, err := cl.Plan(ctx, q)
			if err != nil {
				return err
			}
			if err := preflight(p); err != nil {
				return err
			}
		}
		if len(q.Remove) > 0 {
			if err := c.confirm("Removes "+strings.Join(q.Remove, ", ")+" from the ring", q.Remove[0]); err != nil {
				return err
			}
		}
		var err error
		ch, err = cl.Submit(ctx, q)
		return err
	})
	if err != nil {
		return err
	}
	if !wait {
		return c.print(ch, func(w io.Writer) { fmt.Fprintln(w, ch.ID) })
	}
	return c.watch(ctx, ch.ID)
}

func (c *cli) changeStatusCmd() *cobra.Command {
	return &cobra.Command{Use: "status [ID]", Short: "Show where a change stands", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			p, err := cl.Progress(ctx, id(args))
			if err != nil {
				return err
			}
			return c.print(p, func(w io.Writer) { progressTable(w, p) })
		})
	}}
}

func id(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func progressTable(w io.Writer, p chainmail.ChangeProgress) {
	fmt.Fprintf(w, "change\t%s, %s\n", p.ID, outcome(p.Change))
	fmt.Fprintf(w, "adds\t%s\nremoves\t%s\n", dash(strings.Join(p.Add, " ")), dash(strings.Join(p.Remove, " ")))
	fmt.Fprintf(w, "steps\t%d of %d done\n", p.StepDone, p.Steps)
	if p.EndedAt != 0 {
		fmt.Fprintf(w, "took\t%s\n", took(p.Change))
		return
	}
	fmt.Fprintf(w, "running\t%s, %s of the step %s\n", took(p.Change), p.Stage, p.Step)
	fmt.Fprintf(w, "chain\t%s\n", strings.Join(p.Chain, " "))
	for _, x := range p.Waiting {
		fmt.Fprintf(w, "waits\t%s\n", x)
	}
	for _, m := range p.Filling {
		for _, f := range m.Filling {
			fmt.Fprintf(w, "filling\t%s: %s\n", m.ID, fillText(f))
		}
	}
	for _, e := range p.Errors {
		fmt.Fprintf(w, "last error\t%s\n", e)
	}
}

func outcome(ch membership.Change) string {
	if ch.Paused {
		return "paused"
	}
	return ch.Outcome.String()
}

func took(ch membership.Change) time.Duration {
	end := time.Now()
	if ch.EndedAt != 0 {
		end = time.UnixMilli(ch.EndedAt)
	}
	return end.Sub(time.UnixMilli(ch.StartedAt)).Round(10 * time.Millisecond)
}

// fillText says how far a fill is: the share of the circle that its sources have answered for, and what they miss.
func fillText(f chainmail.Filling) string {
	var parts []string
	for _, s := range f.Sources {
		t := fmt.Sprintf("%.0f %% of %s", 100*s.Share, s.Member)
		if s.Why != "" {
			t += " (" + s.Why + ")"
		}
		parts = append(parts, t)
	}
	left := "nothing is known of what is left"
	if f.KeysLeft >= 0 {
		left = fmt.Sprintf("about %d keys and %s left", f.KeysLeft, config.FormatSize(int64(f.BytesLeft)))
	}
	return fmt.Sprintf("%s; %d keys and %s taken, %s", strings.Join(parts, ", "), f.Keys, config.FormatSize(int64(f.Bytes)), left)
}

func (c *cli) watchCmd() *cobra.Command {
	return &cobra.Command{Use: "watch [ID]", Short: "Show the progress of a change until it has ended", Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.watch(cmd.Context(), id(args))
	}}
}

// watch prints a line for each new state of a change; on a terminal the last one is drawn again and again.
func (c *cli) watch(ctx context.Context, id string) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, done := interruptible(ctx)
	defer done()
	last, tty := "", isTTY(c.talk)
	for {
		q, cancel := context.WithTimeout(ctx, c.timeout)
		p, err := cl.Progress(q, id)
		cancel()
		if ctx.Err() != nil {
			return fail(exitDetached, "cluster change watch "+id, "detached; the change goes on")
		}
		if err != nil {
			return err
		}
		id = p.ID
		if p.Outcome != membership.Running {
			if tty && last != "" {
				fmt.Fprintln(c.talk)
			}
			return c.watched(p)
		}
		line, errs := watchLine(p)
		switch {
		case tty:
			fmt.Fprintf(c.talk, "\r\x1b[K%s%s, %s", line, errs, took(p.Change))
		case line != last:
			c.say("%s%s", line, errs)
		}
		last = line
		select {
		case <-time.After(2 * lookEvery):
		case <-ctx.Done():
		}
	}
}

// watchLine says where a change stands, and what it last met with: that alone is not worth a new line, since its age
// changes all the time.
func watchLine(p chainmail.ChangeProgress) (line, errs string) {
	line = p.String()
	if len(p.Waiting) > 0 {
		line += "; " + p.Waiting[0].String()
	}
	if len(p.Errors) > 0 {
		e := p.Errors[0]
		line += fmt.Sprintf("; last error of %s: %s", e.Member, e.What)
		errs = fmt.Sprintf(", seen by %s %s ago", e.Seen, e.Age.Round(100*time.Millisecond))
	}
	return line, errs
}

func (c *cli) watched(p chainmail.ChangeProgress) error {
	if err := c.print(p.Change, func(w io.Writer) { progressTable(w, p) }); err != nil {
		return err
	}
	if p.Outcome != membership.Done {
		return fail(exitFailed, "cluster change list", "change %s was %s after %d of %d steps", p.ID, p.Outcome, p.StepDone, p.Steps)
	}
	return nil
}

func (c *cli) changeListCmd() *cobra.Command {
	return &cobra.Command{Use: "list", Short: "List the running change and those that have ended", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			var l api.ChangeList
			if err := cl.Do(ctx, http.MethodGet, "/v1/changes", nil, &l, true); err != nil {
				return err
			}
			return c.print(l.Changes, func(w io.Writer) {
				fmt.Fprintln(w, "ID\tOUTCOME\tSTEPS\tADDS\tREMOVES\tTOOK\tBY\tWHY")
				for _, x := range l.Changes {
					fmt.Fprintf(w, "%s\t%s\t%d/%d\t%s\t%s\t%s\t%s\t%s\n", x.ID, outcome(x), x.StepDone, x.Steps, dash(strings.Join(x.Add, ",")), dash(strings.Join(x.Remove, ",")), took(x), dash(x.By), dash(x.Why))
				}
			})
		})
	}}
}

func (c *cli) steerCmd(what, short string) *cobra.Command {
	cmd := &cobra.Command{Use: what + " [ID]", Short: short, Args: cobra.MaximumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			p, err := cl.Progress(ctx, id(args))
			if err != nil {
				return err
			}
			if what == "abort" {
				if err := c.confirm("Aborts change "+p.ID+" after "+fmt.Sprint(p.StepDone)+" of "+fmt.Sprint(p.Steps)+" steps", p.ID); err != nil {
					return err
				}
			}
			if err := cl.Steer(ctx, p.ID, what); err != nil {
				return err
			}
			if p, err = cl.Progress(ctx, p.ID); err != nil {
				return err
			}
			return c.print(p, func(w io.Writer) { progressTable(w, p) })
		})
	}}
	if what == "abort" {
		cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	}
	return cmd
}
