package main

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"chainmail/cmd/cluster/demo"
)

func (c *cli) demoCmd() *cobra.Command {
	opt := demo.Options{Talk: c.talk, TTY: isTTY(c.talk)}
	cmd := &cobra.Command{Use: "demo", Short: "Change, kill and restart the members of a cluster on this machine under load, and prove that nothing was lost", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		switch {
		case opt.Members < 3:
			return usage("--members is %d; at least 3 are needed, so that one can be killed", opt.Members)
		case !slices.Contains([]string{"memory", "bbolt", "none", "bolt"}, opt.Store):
			return usage("--store is %q; use memory or bbolt", opt.Store)
		case opt.Input != "" && opt.Key == "":
			return usage("name the key column of %s with --key", opt.Input)
		case opt.Input == "" && opt.Key == "":
			opt.Key = "id"
		}
		var err error
		if opt.Binary, err = os.Executable(); err != nil {
			return err
		}
		ctx, done := interruptible(cmd.Context())
		defer done()
		v, err := demo.Run(ctx, opt)
		if ctx.Err() != nil {
			return fail(exitDetached, "", "interrupted; all members were stopped")
		}
		if errors.Is(err, demo.ErrInput) {
			return usage("%v", err)
		}
		if err != nil {
			return fail(exitFailed, "", "%w", err)
		}
		if err := c.print(v, func(w io.Writer) { v.Table(w) }); err != nil {
			return err
		}
		if !v.Pass() {
			return fail(exitFailed, "cluster demo --keep", "something was lost, read wrongly or left unanswered")
		}
		return nil
	}}
	f := cmd.Flags()
	f.IntVar(&opt.Members, "members", 3, "members to start with")
	f.StringVar(&opt.Input, "input", "", "CSV file to import; default: the world's radio navigation aids")
	f.StringVar(&opt.Key, "key", "", "its key column")
	f.DurationVar(&opt.Duration, "duration", 20*time.Second, "keep the load up for at least so long")
	f.StringVar(&opt.Store, "store", "memory", "memory, or bbolt: on disk")
	f.BoolVar(&opt.Keep, "keep", false, "keep configurations and logs")
	return cmd
}
