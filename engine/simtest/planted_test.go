package simtest

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	planted     = flag.Int("planted", 0, "run each planted bug with up to so many seeds")
	plantedOnly = flag.String("bug", "", "with -planted: these bugs alone, separated by commas")
)

// plantedFile lists the bugs: a name and what it does, and the lines of the source that make it.
const plantedFile = "testdata/planted.txt"

// plant is a bug that the simulator has to find. It is in no build: its tests are built with files of its own in the place
// of those that it changes.
type plant struct {
	name, what string
	edits      []edit
}

type edit struct{ file, old, new string }

// parsePlants reads the list. A bug begins with "# name: what it does"; "@ file" names a file, and each run of lines that
// begin with a space, - or + is one edit of it: what is there is ' ' and -, what comes in its place is ' ' and +.
func parsePlants(text string) (out []*plant) {
	var file string
	var e *edit
	for line := range strings.Lines(text) {
		switch mark, rest := line[0], line[1:]; mark {
		case '#':
			name, what, _ := strings.Cut(strings.TrimSpace(rest), ": ")
			out = append(out, &plant{name: name, what: what})
			e = nil
		case '@':
			file, e = strings.TrimSpace(rest), nil
		case '\n':
			e = nil
		default:
			if p := out[len(out)-1]; e == nil {
				p.edits = append(p.edits, edit{file: file})
				e = &p.edits[len(p.edits)-1]
			}
			if mark != '+' {
				e.old += rest
			}
			if mark != '-' {
				e.new += rest
			}
		}
	}
	return out
}

// root is the module's directory, from here.
const root = "../.."

// sources gives the changed files of a bug, by their paths from the root.
func (p *plant) sources() (map[string]string, error) {
	out := map[string]string{}
	for _, e := range p.edits {
		text, ok := out[e.file]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.old); n != 1 {
			return nil, fmt.Errorf("%s has these lines %d times, not once:\n%s", e.file, n, e.old)
		}
		out[e.file] = strings.Replace(text, e.old, e.new, 1)
	}
	return out, nil
}

// overlay writes the changed files and the file that tells the go command of them.
func (p *plant) overlay(dir string) (string, error) {
	files, err := p.sources()
	if err != nil {
		return "", err
	}
	top, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range files {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(top, name)] = to
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, "overlay.json")
	return to, os.WriteFile(to, b, 0o600)
}

var (
	foundSeed = regexp.MustCompile(`(?m)^\s+sim_test\.go:\d+: seed (\d+): (.*)$`)
	allRan    = regexp.MustCompile(`(?m)^sim: seeds=\d+ .* violations=0 `)
)

// find runs the simulator with the bug, from seed 1, and gives the first seed that fails, 0 for none, and how.
func (p *plant) find(dir string, seeds int) (seed, how string, err error) {
	file, err := p.overlay(dir)
	if err != nil {
		return "", "", err
	}
	c := exec.Command("go", "test", "-overlay", file, "-vet=off", "-count=1", "-timeout=0", "-run=TestSim$", ".", "-v", "-seeds", fmt.Sprint(seeds), "-failures=1")
	out, err := c.CombinedOutput()
	if m := foundSeed.FindSubmatch(out); m != nil {
		return string(m[1]), string(m[2]), nil
	}
	if err != nil || !allRan.Match(out) {
		return "", "", fmt.Errorf("%w\n%s", err, out)
	}
	return "", "", nil
}

func readPlants(t *testing.T) []*plant {
	b, err := os.ReadFile(plantedFile)
	if err != nil {
		t.Fatal(err)
	}
	return parsePlants(string(b))
}

// TestPlants says whether the list still fits the source: each of its edits is of lines that are there exactly once.
func TestPlants(t *testing.T) {
	names := map[string]bool{}
	for _, p := range readPlants(t) {
		if _, err := p.sources(); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		if names[p.name] || p.what == "" || len(p.edits) == 0 {
			t.Errorf("%s is there twice, or incomplete", p.name)
		}
		names[p.name] = true
	}
	if len(names) < 25 {
		t.Errorf("%d bugs are planted; 25 are the least", len(names))
	}
}

// TestPlanted has the simulator find each planted bug: make planted.
func TestPlanted(t *testing.T) {
	if *planted == 0 {
		t.Skip("takes long; make planted runs it")
	}
	n, found := 0, 0
	for _, p := range readPlants(t) {
		if *plantedOnly != "" && !strings.Contains(","+*plantedOnly+",", ","+p.name+",") {
			continue
		}
		n++
		seed, how, err := p.find(t.TempDir(), *planted)
		switch {
		case err != nil:
			t.Errorf("%s: %v", p.name, err)
			seed, how = "error", ""
		case seed == "":
			t.Errorf("%s is not found in %d seeds: %s", p.name, *planted, p.what)
			seed = "-"
		default:
			found++
		}
		fmt.Printf("%-22s %6s  %s\n", p.name, seed, short(how))
	}
	fmt.Printf("planted: %d of %d found\n", found, n)
}

// short gives the beginning of a violation.
func short(s string) string {
	const most = 110
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
