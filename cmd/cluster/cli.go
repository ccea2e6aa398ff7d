package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"chainmail/internal/api"
)

// version is set by the linker for releases.
var version = "dev"

// cli is what all commands share.
type cli struct {
	in        io.Reader
	out, talk io.Writer // stdout is data, stderr is talk

	addrs                 []string
	token, ca, cert, pkey string
	format                string
	timeout               time.Duration
	yes                   bool
}

const (
	formatTable  = "table"
	formatJSON   = "json"
	formatNDJSON = "ndjson"
)

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "cluster", Short: "Keyed, replicated, stateful actors that lose nothing while the cluster changes",
		SilenceErrors: true, SilenceUsage: true, CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := fromEnv(cmd.Flags()); err != nil {
				return err
			}
			switch c.format {
			case formatTable, formatJSON, formatNDJSON:
				return nil
			}
			return usage("--format=%s is not known; use table, json or ndjson", c.format)
		},
	}
	f := root.PersistentFlags()
	f.StringSliceVar(&c.addrs, "http-addr", []string{"127.0.0.1:8620"}, "addresses of members' HTTP APIs, tried in order")
	f.StringVar(&c.token, "token", "", "token of the API")
	f.StringVar(&c.ca, "ca-file", "", "CA of the API's certificate")
	f.StringVar(&c.cert, "cert-file", "", "client certificate")
	f.StringVar(&c.pkey, "key-file", "", "its key")
	f.StringVar(&c.format, "format", formatTable, "table, json or ndjson")
	f.DurationVar(&c.timeout, "timeout", 10*time.Second, "how long to wait for an answer")
	root.AddCommand(c.agentCmd(), c.bootstrapCmd(), c.joinCmd(), c.leaveCmd(), c.membersCmd(), c.statusCmd(), c.limitsCmd(), c.eventsCmd(),
		c.changeCmd(), c.operatorCmd(), c.ringCmd(), c.actorsCmd(), c.kvCmd(), c.counterCmd(), c.configCmd(), c.demoCmd(), c.versionCmd(), c.completionCmd())
	return root
}

// client gives a client of the API.
func (c *cli) client() (*api.Client, error) {
	t := &http.Transport{}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, usage("--ca-file: %v", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, usage("--ca-file %s holds no certificate", c.ca)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
		if c.cert != "" {
			pair, err := tls.LoadX509KeyPair(c.cert, c.pkey)
			if err != nil {
				return nil, usage("--cert-file: %v", err)
			}
			t.TLSClientConfig.Certificates = []tls.Certificate{pair}
		}
	}
	addrs := make([]string, len(c.addrs))
	for i, a := range c.addrs {
		if c.ca != "" && !strings.Contains(a, "://") {
			a = "https://" + a
		}
		addrs[i] = a
	}
	cl := api.NewClient(addrs, c.token, t)
	cl.Hasty = true
	return cl, nil
}

// ask runs f with a client and a context that ends with --timeout or an interrupt.
func (c *cli) ask(ctx context.Context, f func(ctx context.Context, cl *api.Client) error) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, done := context.WithTimeout(ctx, c.timeout)
	defer done()
	return f(ctx, cl)
}

// interruptible gives a context that an interrupt cancels.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}

// print writes a result as the format says: as the API's own object, or as a table.
func (c *cli) print(v any, table func(w io.Writer)) error {
	switch c.format {
	case formatJSON:
		e := json.NewEncoder(c.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	case formatNDJSON:
		e := json.NewEncoder(c.out)
		if rv := reflect.ValueOf(v); rv.Kind() == reflect.Slice {
			for i := range rv.Len() {
				if err := e.Encode(rv.Index(i).Interface()); err != nil {
					return err
				}
			}
			return nil
		}
		return e.Encode(v)
	}
	w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	table(w)
	return w.Flush()
}

// say writes talk.
func (c *cli) say(format string, args ...any) { fmt.Fprintf(c.talk, format+"\n", args...) }

// isTTY says whether a stream is a terminal.
func isTTY(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// confirm asks for a member's id (or another word) on a terminal; without one --yes is needed.
func (c *cli) confirm(what, word string) error {
	if c.yes {
		return nil
	}
	if !isTTY(c.in) {
		return usage("%s: give --yes when there is no terminal", what)
	}
	fmt.Fprintf(c.talk, "%s. Type %s to go on: ", what, word)
	var got string
	fmt.Fscanln(c.in, &got)
	if got != word {
		return fail(exitFailed, "", "not confirmed")
	}
	return nil
}

func (c *cli) versionCmd() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the program's version", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		v := map[string]string{"version": version}
		return c.print(v, func(w io.Writer) { fmt.Fprintln(w, "cluster", version) })
	}}
}

func (c *cli) completionCmd() *cobra.Command {
	return &cobra.Command{Use: "completion bash|zsh|fish|powershell", Short: "Print a completion script for a shell", Args: cobra.ExactArgs(1),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(c.out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(c.out)
			case "fish":
				return cmd.Root().GenFishCompletion(c.out, true)
			case "powershell":
				return cmd.Root().GenPowerShellCompletionWithDesc(c.out)
			}
			return usage("no completion for %s; there are bash, zsh, fish and powershell", args[0])
		}}
}
