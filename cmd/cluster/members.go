package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"chainmail"
	"chainmail/cmd/cluster/config"
	"chainmail/coordinator/membership"
	"chainmail/internal/api"
)

func (c *cli) bootstrapCmd() *cobra.Command {
	var voters []string
	var ifNeeded bool
	cmd := &cobra.Command{Use: "bootstrap --voter ID=HOST:PORT ...", Short: "Form the cluster, once", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		q := api.BootstrapRequest{Voters: map[string]string{}, IfNeeded: ifNeeded}
		for _, v := range voters {
			id, addr, ok := strings.Cut(v, "=")
			if !ok || id == "" || addr == "" {
				return usage("--voter %s: write ID=HOST:PORT of the cluster port", v)
			}
			if old := q.Voters[id]; old != "" {
				return usage("--voter %s: member %s is named twice", v, id)
			}
			q.Voters[id] = addr
		}
		if len(q.Voters) == 0 {
			return usage("name the voters with --voter ID=HOST:PORT")
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			if err := cl.Do(ctx, http.MethodPost, "/v1/bootstrap", q, nil, ifNeeded); err != nil {
				return err
			}
			return c.waitReady(ctx, cl)
		})
	}}
	cmd.Flags().StringSliceVar(&voters, "voter", nil, "a first member, as ID=HOST:PORT")
	cmd.Flags().BoolVar(&ifNeeded, "if-needed", false, "do nothing if the cluster is formed already")
	return cmd
}

func (c *cli) joinCmd() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{Use: "join ADDR...", Short: "Take the asked agent into a cluster, as a standby member", Args: cobra.MinimumNArgs(1), RunE: func(cmd *cobra.Command, args []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			if err := cl.Do(ctx, http.MethodPost, "/v1/join", api.JoinRequest{Addresses: args}, nil, true); err != nil {
				return err
			}
			if wait {
				return c.waitReady(ctx, cl)
			}
			c.say("joined; add it to the ring with: cluster change apply --add ID")
			return nil
		})
	}}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until it has caught up with the log")
	return cmd
}

const lookEvery = 50 * time.Millisecond

// until asks again and again until f says that it is done, or ctx ends.
func until(ctx context.Context, f func() (done bool, err error)) error {
	for {
		done, err := f()
		if done || err != nil {
			return err
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitReady waits until the asked member serves, and all that it lost is filled, by a placement that is not an old one. It
// may not listen yet.
func (c *cli) waitReady(ctx context.Context, cl *api.Client) error {
	var last api.Status
	var failed error
	err := until(ctx, func() (bool, error) {
		q, done := context.WithTimeout(ctx, askEvery)
		defer done()
		s, err := cl.CurrentStatus(q)
		if err != nil && ctx.Err() != nil {
			return false, nil // what was said before says more
		}
		if failed = err; mayCome(err) {
			return false, nil
		}
		last = s
		return s.Ready, err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var p *api.Problem
	switch {
	case errors.Is(failed, api.ErrNoEndpoint):
		return failed
	case errors.As(failed, &p):
		return fail(exitGaveUp, "cluster status", "not ready after %s: %w", c.timeout, failed)
	}
	return fail(exitGaveUp, "cluster status", "not ready after %s: %s", c.timeout, firstFailed(last.Checks))
}

// askEvery bounds one question about a member that is being waited for.
const askEvery = 2 * time.Second

// mayCome says whether time may mend an error.
func mayCome(err error) bool {
	var p *api.Problem
	if errors.As(err, &p) {
		return p.Code == "no-leader" || p.Code == "not-ready" || p.Code == "unavailable" || p.Code == "closed"
	}
	return errors.Is(err, api.ErrNoEndpoint)
}

func firstFailed(checks []chainmail.Check) string {
	for _, x := range checks {
		if !x.OK {
			return x.Name + ": " + x.Why
		}
	}
	return ""
}

func (c *cli) leaveCmd() *cobra.Command {
	var wait, dropPinned bool
	cmd := &cobra.Command{Use: "leave", Short: "Remove the asked agent from its cluster: drain, hand over, stop", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("timeout") {
			c.timeout = 30 * time.Minute
		}
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			s, err := cl.Status(ctx)
			if err != nil {
				return err
			}
			if err := c.confirm("Member "+s.Member+" will leave its cluster", s.Member); err != nil {
				return err
			}
			p, err := cl.Placement(ctx)
			if err != nil {
				return err
			}
			if err := cl.Do(ctx, http.MethodPost, fmt.Sprintf("/v1/leave?drop_pinned=%t", dropPinned), nil, nil, false); err != nil {
				return err
			}
			if !wait {
				c.say("member %s leaves; see: cluster change watch", s.Member)
				return nil
			}
			return c.waitGone(ctx, cl, s.Member, p)
		})
	}}
	cmd.Flags().BoolVar(&dropPinned, "drop-pinned", false, "give up the pinned keys that the member holds")
	cmd.Flags().BoolVar(&wait, "wait", true, "wait until the removal is committed and the member has been let go")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do not ask")
	return cmd
}

// waitGone asks the other members until they do not list a member any more.
func (c *cli) waitGone(ctx context.Context, cl *api.Client, id string, p membership.Placement) error {
	var others []string
	for _, m := range p.Members {
		if m.ID != id && m.HTTP != "" {
			others = append(others, m.HTTP)
		}
	}
	cl.SetEndpoints(others)
	err := until(ctx, func() (bool, error) {
		p, err := cl.Placement(ctx)
		_, listed := p.Member(id)
		return err == nil && !listed, err
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return fail(exitGaveUp, "cluster change watch", "member %s has not left after %s; the change goes on", id, c.timeout)
	}
	return err
}

func (c *cli) membersCmd() *cobra.Command {
	var detailed bool
	cmd := &cobra.Command{Use: "members", Short: "List the members", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			ms, err := cl.Members(ctx)
			if err != nil {
				return err
			}
			return c.print(ms, func(w io.Writer) { membersTable(w, ms, detailed) })
		})
	}}
	cmd.Flags().BoolVar(&detailed, "detailed", false, "what each holds and waits for, too")
	return cmd
}

func membersTable(w io.Writer, ms []chainmail.MemberStatus, detailed bool) {
	fmt.Fprint(w, "ID\tADDRESS\tHTTP\tSTATE\tHEALTH\tRAFT")
	if detailed {
		fmt.Fprint(w, "\tZONE\tWEIGHT\tCOPIES\tACTIVE\tHELD\tORPHANS\tIN\tOUT\tLAG\tCONTACT\tVERSION\tUPTIME")
	}
	fmt.Fprintln(w)
	for _, m := range ms {
		health := "up"
		switch {
		case m.Down:
			health = "down"
		case !m.Reachable:
			health = "no answer"
		case m.Refilling:
			health = "refilling"
		}
		role := m.Role
		if m.Leader {
			role = "leader"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s", m.ID, m.Address, m.HTTP, m.State, health, role)
		if detailed {
			fmt.Fprintf(w, "\t%s\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%d\t%s\t%d\t%s", m.Zone, m.Weight, m.Copies, m.Activations, m.Held, m.Orphans,
				config.FormatSize(int64(m.BytesIn)), config.FormatSize(int64(m.BytesOut)), m.LogLag, m.LastContact.Round(time.Millisecond), m.Version, m.Uptime.Round(time.Second))
		}
		fmt.Fprintln(w)
	}
}

func (c *cli) statusCmd() *cobra.Command {
	var wait bool
	cmd := &cobra.Command{Use: "status", Short: "Is the cluster healthy?", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			if wait {
				if err := c.waitReady(ctx, cl); err != nil {
					return err
				}
			}
			s, err := cl.Status(ctx)
			if err != nil {
				return err
			}
			if err := c.print(s, func(w io.Writer) { statusTable(w, s) }); err != nil {
				return err
			}
			switch {
			case s.ClusterID == "":
				return fail(exitNoLeader, "cluster bootstrap --voter ID=HOST:PORT ..., or cluster join ADDR", "member %s is part of no cluster yet", s.Member)
			case s.Leader == "":
				return fail(exitNoLeader, "cluster members", "no leader is known to member %s", s.Member)
			case !s.Ready:
				return fail(exitUnhealthy, "cluster members --detailed", "member %s is not ready: %s", s.Member, firstFailed(s.Checks))
			case len(s.Down)+len(s.Refilling) > 0:
				return fail(exitUnhealthy, "cluster members --detailed", "down: %v, refilling: %v", s.Down, s.Refilling)
			}
			return nil
		})
	}}
	cmd.Flags().BoolVar(&wait, "wait-ready", false, "wait until the asked member is listed, serves, and has filled all that it lost")
	return cmd
}

func statusTable(w io.Writer, s api.Status) {
	fmt.Fprintf(w, "cluster\t%s\n", s.ClusterID)
	fmt.Fprintf(w, "asked\t%s (program %s)\n", s.Member, s.Program)
	fmt.Fprintf(w, "placement\tversion %d, %s\n", s.Version, s.Stage)
	fmt.Fprintf(w, "leader\t%s\n", s.Leader)
	fmt.Fprintf(w, "members\t%d, up %d\n", s.Members, s.Up)
	fmt.Fprintf(w, "ring\t%s\n", strings.Join(s.Ring, " "))
	fmt.Fprintf(w, "replicas\t%d\n", s.Replicas)
	for _, x := range s.Checks {
		mark := "ok"
		if !x.OK {
			mark = x.Why
		}
		fmt.Fprintf(w, "%s\t%s\n", x.Name, mark)
	}
	if len(s.Down) > 0 {
		fmt.Fprintf(w, "down\t%s\n", strings.Join(s.Down, " "))
	}
	if len(s.Refilling) > 0 {
		fmt.Fprintf(w, "refilling\t%s\n", strings.Join(s.Refilling, " "))
	}
	if s.Running != nil {
		fmt.Fprintf(w, "change\t%s, step %d of %d\n", s.Running.ID, s.Running.StepDone+1, s.Running.Steps)
	}
	for _, x := range s.Waiting {
		fmt.Fprintf(w, "\t%s\n", x)
	}
}

func (c *cli) limitsCmd() *cobra.Command {
	var rate string
	var streams int
	cmd := &cobra.Command{Use: "limits", Short: "Show or set the transfer limits of all members", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return c.ask(cmd.Context(), func(ctx context.Context, cl *api.Client) error {
			s, err := cl.Status(ctx)
			if err != nil {
				return err
			}
			l := s.Limits
			if cmd.Flags().Changed("rate") {
				if l.Rate, err = config.ParseSize(rate); err != nil {
					return usage("--rate: %v", err)
				}
			}
			if cmd.Flags().Changed("max-concurrent") {
				l.MaxConcurrent = streams
			}
			if l != s.Limits {
				if err := cl.Do(ctx, http.MethodPut, "/v1/limits", l, nil, true); err != nil {
					return err
				}
			}
			return c.print(l, func(w io.Writer) {
				text := "no limit"
				if l.Rate > 0 {
					text = config.FormatSize(l.Rate) + "/s"
				}
				fmt.Fprintf(w, "rate\t%s\nmax-concurrent\t%d\n", text, l.MaxConcurrent)
			})
		})
	}}
	cmd.Flags().StringVar(&rate, "rate", "", "bytes a second into one member, as 64MiB; 0: no limit")
	cmd.Flags().IntVar(&streams, "max-concurrent", 0, "transfers into one member at once; 0: the default")
	return cmd
}

func (c *cli) eventsCmd() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{Use: "events", Short: "Show what happened, as the asked member saw it", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		cl, err := c.client()
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, done := interruptible(cmd.Context())
		defer done()
		body, err := cl.Stream(ctx, fmt.Sprintf("/v1/events?follow=%t", follow))
		if err != nil {
			return err
		}
		defer body.Close()
		lines := bufio.NewScanner(body)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			if c.format != formatTable {
				fmt.Fprintln(c.out, data)
				continue
			}
			var e chainmail.Event
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return err
			}
			fmt.Fprintf(c.out, "%s  %s\n", e.At.Format(time.RFC3339), e.Text)
		}
		if ctx.Err() != nil {
			return nil
		}
		return lines.Err()
	}}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what happens")
	return cmd
}
