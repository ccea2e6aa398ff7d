package chainmail

import (
	"os/exec"
	"strings"
	"testing"
)

// direction says what packages must not import, directly or not, and why.
var direction = []struct{ pkg, not, why string }{
	{"chainmail/ring", "chainmail/", "the ring is pure and knows nobody"},
	{"chainmail/ring", "net", "the ring does no I/O"},
	{"chainmail/coordinator/membership", "github.com/hashicorp/raft", "the log's state is pure"},
	{"chainmail/coordinator/membership", "net", "the log's state is pure"},
	{"chainmail/coordinator/membership", "chainmail/engine", "the log does not know the engine"},
	{"chainmail/engine/core", "chainmail/coordinator", "the core knows views, not the log"},
	{"chainmail/engine/core", "chainmail/transport", "the core says what is sent, not how"},
	{"chainmail/engine/core", "net", "the core is pure"},
	{"chainmail/engine", "chainmail/coordinator", "only the root package wires"},
	{"chainmail/engine", "chainmail/transport", "only the root package wires"},
	{"chainmail/engine", "github.com/hashicorp/raft", "Raft is never in the path of reads and writes"},
	{"chainmail/engine", "go.etcd.io/bbolt", "the engine knows what a store does, not which one it is"},
	{"chainmail/engine", "github.com/jackc/pgx/v5", "the engine knows what a store does, not which one it is"},
	{"chainmail/transport", "chainmail/", "the transport moves bytes"},
	{"chainmail/transport", "github.com/hashicorp/raft", "only the coordinator knows Raft"},
	{"chainmail/coordinator", "chainmail/engine", "only the root package wires"},
	{"chainmail/coordinator", "chainmail/transport", "only the root package wires"},
	{"chainmail/internal/boltfile", "chainmail/", "it knows files, not what is in them"},
	{"chainmail", "chainmail/cmd", "embedders do not get the command"},
	{"chainmail", "chainmail/internal/api", "embedders do not get the HTTP API"},
	{"chainmail", "github.com/hashicorp/hcl/v2", "files are the command's"},
}

func TestImports(t *testing.T) {
	deps := map[string][]string{}
	for _, d := range direction {
		if deps[d.pkg] == nil {
			out, err := exec.Command("go", "list", "-deps", d.pkg).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			deps[d.pkg] = strings.Fields(string(out))
		}
		for _, dep := range deps[d.pkg] {
			banned := dep == d.not || strings.HasPrefix(dep, strings.TrimSuffix(d.not, "/")+"/")
			if banned && dep != d.pkg && !strings.HasPrefix(dep, "net/netip") {
				t.Errorf("%s imports %s: %s", d.pkg, dep, d.why)
			}
		}
	}
}
