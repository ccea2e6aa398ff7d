package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"chainmail/cmd/cluster/config"
)

func (c *cli) configCmd() *cobra.Command {
	cmd := &cobra.Command{Use: "config", Short: "Check, show and make configurations"}
	cmd.AddCommand(
		&cobra.Command{Use: "validate FILE|DIR", Short: "Say what is wrong with a configuration", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			if _, err := readConfig(args[0]); err != nil {
				return err
			}
			c.say("%s is valid", args[0])
			return nil
		}},
		&cobra.Command{Use: "show FILE|DIR", Short: "Print a configuration with every default filled in", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			f, err := config.Read(args[0])
			if err != nil {
				return fail(exitUsage, seeExample, "%w", err)
			}
			if c.format != formatTable {
				return c.print(f, nil)
			}
			_, err = fmt.Fprint(c.out, config.Example(f))
			return err
		}},
		&cobra.Command{Use: "example", Short: "Print every key with its default", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(c.out, config.Example(config.Default()))
			return err
		}})
	return cmd
}
