package config

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write config.hcl.example anew")

const exampleFile = "../../../config.hcl.example"

// The example in the repository holds every key with its default, and nothing else.
func TestExampleIsComplete(t *testing.T) {
	want := Example(Default())
	if *update {
		if err := os.WriteFile(exampleFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("config.hcl.example differs from the keys in the code; run go test ./cmd/cluster/config -update")
	}
	f, err := Parse(got, "config.hcl")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(f, Default()) {
		t.Errorf("the example gives %+v", f)
	}
	if _, err := f.Agent(); err != nil {
		t.Error(err)
	}
}

func TestEmptyFileGivesDefaults(t *testing.T) {
	f, err := Parse([]byte("node_id = \"a\"\nports {\n http = 1\n}\n"), "config.hcl")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.NodeID, want.Ports.HTTP = "a", 1
	if !reflect.DeepEqual(f, want) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	a, err := f.Agent()
	if err != nil || a.Node.BindAddr != "0.0.0.0:8621" || a.HTTPBind != "127.0.0.1:1" || a.Node.Raft.Heartbeat != 2*time.Second || a.LeaveTimeout != 30*time.Second || a.Node.Limits.HeldBytes != 64<<20 {
		t.Errorf("%+v %v", a, err)
	}
}

func TestRefused(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"unknown key", "node_id = \"a\"\nclustername = \"x\"\n", `config.hcl:2: Unsupported argument: An argument named "clustername" is not expected here. Did you mean "cluster_name"?`},
		{"unknown block", "membreship {\n}\n", `config.hcl:1: Unsupported block type: Blocks of type "membreship" are not expected here. Did you mean "membership"?`},
		{"unknown key in a block", "ports {\n htpp = 1\n}\n", `config.hcl:2: Unsupported argument`},
		{"block twice", "ports {\n}\nports {\n}\n", "config.hcl:3: Duplicate ports block"},
		{"wrong kind", "weight = \"many\"\n", "config.hcl:1: Unsuitable value type"},
		{"no HCL", "weight = = 1\n", "config.hcl:1: Invalid expression"},
		{"bad duration", "membership {\n down_after = \"3\"\n}\n", `membership.down_after is "3"; write a duration`},
		{"bad size", "transfer {\n rate_limit = \"fast\"\n}\n", `transfer.rate_limit: "fast" is not a size`},
		{"negative size", "transfer {\n rate_limit = \"-1MiB\"\n}\n", "is not a size"},
		{"even expectation", "server {\n bootstrap_expect = 2\n retry_join = [\"h:1\"]\n}\n", "bootstrap_expect is 2"},
		{"expectation without others", "server {\n bootstrap_expect = 3\n}\n", "retry_join is empty"},
		{"joins itself", "advertise = \"h\"\nserver {\n retry_join = [\"h:8621\"]\n}\n", "holds only this member"},
		{"address without port", "server {\n retry_join = [\"h\"]\n}\n", "write host:port"},
		{"wildcard advertise", "advertise = \"0.0.0.0\"\n", "is a wildcard"},
		{"trailing logs", "raft {\n trailing_logs = 10\n}\n", "trailing_logs 10 is below snapshot_threshold 8192"},
		{"half of tls", "tls {\n ca_file = \"x\"\n}\n", "together"},
		{"store", "store {\n backend = \"oracle\"\n}\n", `store "oracle" is not known`},
		{"postgres without dsn", "store {\n backend = \"postgres\"\n}\n", `store "postgres" and a dsn need each other`},
		{"dsn without postgres", "store {\n dsn = \"host=h\"\n}\n", `store "postgres" and a dsn need each other`},
		{"postgres without directory", "data_dir = \"\"\nstore {\n backend = \"postgres\"\n dsn = \"host=h\"\n}\n", "needs a data_dir"},
		{"store without directory", "data_dir = \"\"\n", "needs a data_dir"},
		{"budgets", "membership {\n remove_down_after = \"1s\"\n}\n", "remove_down_after 1s is below down_after 3s"},
		{"down before heartbeat", "membership {\n down_after = \"1s\"\n}\n", "shorter than the heartbeat"},
		{"level", "log_level = \"loud\"\n", "log_level"},
		{"same ports", "ports {\n http = 8621\n}\n", "need to differ"},
		{"port", "ports {\n http = 70000\n}\n", "0 to 65535"},
		{"multiplier", "raft {\n performance_multiplier = 100\n}\n", "performance_multiplier"},
		{"vnodes", "ring {\n vnodes = 0\n}\n", "vnodes"},
		{"replicas", "ring {\n replicas = 8\n}\n", "replicas is 8"},
		{"weight", "weight = 65\n", "weight is 65"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse([]byte(c.src), "config.hcl")
			if err == nil {
				_, err = f.Agent()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestReadDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "no *.hcl file") {
		t.Error(err)
	}
	for name, src := range map[string]string{"10-id.hcl": "node_id = \"a\"\n", "20-ports.hcl": "ports {\n http = 7\n}\n", "x.txt": "no = HCL ="} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Read(dir)
	if err != nil || f.NodeID != "a" || f.Ports.HTTP != 7 {
		t.Errorf("%+v %v", f, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "30.hcl"), []byte("node_id = \"b\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), "30.hcl:1") {
		t.Errorf("a key in two files gives %v", err)
	}
	if _, err := Read(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing file is read")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "64MiB": 64 << 20, "1.5 KiB": 1536, "2GB": 2e9, "17": 17, "3B": 3} {
		if n, err := ParseSize(text); err != nil || n != want {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
	for _, n := range []int64{0, 1, 1023, 1024, 64 << 20, 5 << 40} {
		if back, err := ParseSize(FormatSize(n)); err != nil || back != n {
			t.Errorf("%d is written %s and read %d, %v", n, FormatSize(n), back, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(Example(Default())))
	f.Add([]byte("server {\n retry_join = [1, \"a\", null]\n}\nraft = {}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		if file, err := Parse(src, "config.hcl"); err == nil {
			file.Agent()
		}
	})
}
