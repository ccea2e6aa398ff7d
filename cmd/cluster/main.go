// Command cluster runs members of a cluster of actors (cluster agent) and is the client of their HTTP API (all else).
//
// Exit codes: 0 done or healthy, 1 refused or failed, 2 usage or invalid configuration and nothing was sent, 3 no endpoint
// or no leader, 4 reachable but not healthy, 5 conflict, 6 gave up waiting while the change goes on, 7 preflight refused,
// 8 the plan has changes, 130 detached.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"chainmail/internal/api"
)

// Exit codes.
const (
	exitOK        = 0
	exitFailed    = 1
	exitUsage     = 2
	exitNoLeader  = 3
	exitUnhealthy = 4
	exitConflict  = 5
	exitGaveUp    = 6
	exitPreflight = 7
	exitChanges   = 8
	exitDetached  = 130
)

// reasons are the codes of errors that no server has given one.
var reasons = map[int]string{exitFailed: "failed", exitUsage: "usage", exitNoLeader: "no-leader", exitUnhealthy: "unhealthy", exitConflict: "conflict",
	exitGaveUp: "gave-up", exitPreflight: "preflight", exitChanges: "changes", exitDetached: "detached"}

// exitError is an error with the code that the process ends with, and the command to run next.
type exitError struct {
	code int
	next string
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(code int, next, format string, args ...any) error {
	return &exitError{code, next, fmt.Errorf(format, args...)}
}

func usage(format string, args ...any) error { return fail(exitUsage, "", format, args...) }

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

// run is the whole program but for the process.
func run(ctx context.Context, args []string, in io.Reader, out, talk io.Writer) int {
	c := &cli{in: in, out: out, talk: talk}
	root := c.root()
	plain(root)
	root.SetArgs(longFlags(args))
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(talk)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	return c.explain(cmd, err)
}

// plain has every command say what arguments it takes, not only how many; those that only hold others refuse what they do
// not hold.
func plain(cmd *cobra.Command) {
	if cmd.HasParent() && !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usage("unknown command %q", args[0])
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				if len(args) == 0 {
					return usage("arguments are missing; it is: %s", cmd.UseLine())
				}
				return usage("%q are not the arguments that it takes; it is: %s", args, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		plain(sub)
	}
}

// longFlags lets -flag work as --flag.
func longFlags(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		if a == "--" {
			copy(out[i:], args[i:])
			break
		}
		if len(a) > 2 && a[0] == '-' && (a[1] >= 'a' && a[1] <= 'z') {
			a = "-" + a
		}
		out[i] = a
	}
	return out
}

// explain prints an error as three lines: what failed, why, and what to run next; and gives the exit code.
func (c *cli) explain(cmd *cobra.Command, err error) int {
	code, why, next := exitFailed, "", ""
	var x *exitError
	var p *api.Problem
	switch {
	case errors.As(err, &x):
		code, next = x.code, x.next
		if errors.As(err, &p) {
			why, next = p.Code, first(next, p.Hint)
		}
	case errors.As(err, &p):
		code, why, next = codeOf(p), p.Code, p.Hint
	case errors.Is(err, api.ErrNoEndpoint):
		code, why, next = exitNoLeader, "no endpoint of "+strings.Join(c.addrs, ", ")+" answers", "start an agent, or give --http-addr"
	case errors.Is(err, context.Canceled):
		code = exitDetached
	default:
		code = exitUsage // what cobra and pflag complain about
	}
	fmt.Fprintf(c.talk, "Error: %s: %v\nWhy:   %s\nNext:  %s\n", cmd.CommandPath(), err, first(why, reasons[code]), first(next, cmd.CommandPath()+" --help"))
	return code
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func codeOf(p *api.Problem) int {
	switch p.Code {
	case "stale", "change-running", "key-reused", "pinned", "formed", "stamp-mismatch", "wrong-cluster":
		return exitConflict
	case "no-leader":
		return exitNoLeader
	case "not-ready", "unavailable":
		return exitUnhealthy
	}
	return exitFailed
}

// fromEnv sets the flags that were not given from CLUSTER_<FLAG>.
func fromEnv(flags *pflag.FlagSet) (err error) {
	flags.VisitAll(func(f *pflag.Flag) {
		name := "CLUSTER_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := os.Getenv(name); v != "" && !f.Changed && err == nil { // an empty one is none
			if e := flags.Set(f.Name, v); e != nil {
				err = usage("%s=%q: %v", name, v, e)
			}
		}
	})
	return err
}
