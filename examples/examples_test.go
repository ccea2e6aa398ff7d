// Package examples has no code: each directory beside this file is a program. The test runs them all.
package examples

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Each example's README says how it is run and what it prints: the first block marked sh, the first one marked text.
var (
	howRun   = regexp.MustCompile("(?s)```sh\ngo run ./examples/([a-z]+)(.*?)\n```")
	howPrint = regexp.MustCompile("(?s)```text\n(.*?)```")
)

const (
	least    = 10 // lines of a README
	most     = 25
	patience = 90 * time.Second // for one example on a busy machine; they take a few seconds
)

// TestExamples builds every example and compares what it prints with its README.
func TestExamples(t *testing.T) {
	mains, err := filepath.Glob("*/main.go")
	if err != nil || len(mains) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	bin := t.TempDir()
	args := []string{"build", "-ldflags", "-s -w", "-o", bin + string(filepath.Separator)}
	for _, m := range mains {
		args = append(args, "./"+filepath.Dir(m))
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, m := range mains {
		name := filepath.Dir(m)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readme, err := os.ReadFile(filepath.Join(name, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			if n := bytes.Count(readme, []byte("\n")); n < least || n > most {
				t.Errorf("the README has %d lines; %d to %d are wanted", n, least, most)
			}
			run, prints := howRun.FindSubmatch(readme), howPrint.FindSubmatch(readme)
			if run == nil || prints == nil || string(run[1]) != name {
				t.Fatal("the README does not say how it is run, or what it prints")
			}
			ctx, done := context.WithTimeout(t.Context(), patience)
			defer done()
			var stderr bytes.Buffer
			cmd := exec.CommandContext(ctx, filepath.Join(bin, name), strings.Fields(string(run[2]))...)
			cmd.Stderr = &stderr
			got, err := cmd.Output()
			if err != nil {
				t.Errorf("%v: %s", err, &stderr)
			}
			if string(got) != string(prints[1]) {
				t.Errorf("it printed\n%s\nits README has\n%s\nstderr: %s", got, prints[1], &stderr)
			}
		})
	}
}
