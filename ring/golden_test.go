package ring

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares a text with a file in testdata. What these files say is a promise to running clusters: a key that is
// looked for elsewhere is a key that is lost. Another placement needs another algorithm number.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(is), len(was)) {
		var a, b string
		if i < len(is) {
			a = is[i]
		}
		if i < len(was) {
			b = was[i]
		}
		if a != b {
			t.Fatalf("%s:%d: got\n%s\nwant\n%s", path, i+1, a, b)
		}
	}
}

func TestGoldenTokens(t *testing.T) {
	var b strings.Builder
	long := strings.Repeat("x", 200)
	for _, k := range [][2]string{{"", ""}, {"", "a"}, {"a", ""}, {"counter", "a"}, {"counter", "b"}, {"counter", "c"}, {"ab", "c"}, {"a", "bc"},
		{"counter", "käse"}, {"counter", "\x00\xff"}, {"counter", long[:127]}, {"counter", long[:128]}, {long, long}} {
		fmt.Fprintf(&b, "key %016x %q %q\n", uint64(KeyToken(HashV1, k[0], k[1])), k[0], k[1])
	}
	for _, id := range []string{"a", "b", "m-1", "m-10", "käse", strings.Repeat("m", maxID)} {
		for _, i := range []int{0, 1, 255, 256, MaxVNodes*MaxWeight - 1} {
			fmt.Fprintf(&b, "vnode %016x %q %d\n", uint64(vnodeToken(id, i)), id, i)
		}
	}
	golden(t, "tokens.txt", b.String())
}

// members reads a list of members, each id, id@zone, id*weight or id@zone*weight.
func members(spec string) []Member {
	var out []Member
	for _, f := range strings.Fields(spec) {
		m := Member{Weight: 1}
		f, weight, ok := strings.Cut(f, "*")
		if ok {
			fmt.Sscan(weight, &m.Weight)
		}
		m.ID, m.Zone, _ = strings.Cut(f, "@")
		out = append(out, m)
	}
	return out
}

var goldenRings = []struct {
	name    string
	vnodes  int
	members string
}{
	{"one member", 4, "a"},
	{"three members without zones", 4, "a b c"},
	{"a zone each", 4, "a@x b@y c@z"},
	{"one small zone and one large zone", 4, "a@x b@x c@x d@x e@y"},
	{"three zones and weights", 4, "a@x b@x*2 c@y d@y*3 e@z"},
	{"some members without a zone", 4, "a b@x c d@y e@x f"},
	{"nine members at the default of virtual nodes", 256, "n1@x n2@y n3@z n4@x n5@y n6@z n7@x n8@y n9@z"},
}

func TestGoldenRings(t *testing.T) {
	var b strings.Builder
	for _, g := range goldenRings {
		r := must(t, Params{HashV1, g.vnodes}, members(g.members))
		fmt.Fprintf(&b, "# %s\n%s; %d virtual nodes; digest %016x\n", g.name, g.members, g.vnodes, r.Digest())
		for i := range 16 {
			at := Token(i) << 60
			fmt.Fprintf(&b, "%016x", uint64(at))
			for _, n := range []int{1, 2, 3, 5, 7} {
				fmt.Fprintf(&b, " | %s", strings.Join(r.Replicas(at, n), " "))
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	golden(t, "rings.txt", b.String())
}

func TestGoldenChains(t *testing.T) {
	var b strings.Builder
	for _, g := range []struct{ name, from, to, down string }{
		{"the first member", "", "a", ""},
		{"a joins b and c", "b c", "a b c", ""},
		{"one for one", "a b c", "b c d", ""},
		{"the dead leave before the living", "a b c d", "e f", "c"},
		{"a zone is left", "a@x b@x c@y d@z", "a@x b@x d@z", ""},
		{"the same set", "a b", "b a", ""},
	} {
		fmt.Fprintf(&b, "# %s\n%s -> %s; down: %s\n", g.name, g.from, g.to, g.down)
		steps, err := Chain(members(g.from), members(g.to), func(id string) bool { return id == g.down })
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			fmt.Fprintf(&b, "%v\n", s)
			p := Params{HashV1, 3}
			for _, m := range Diff(must(t, p, s.Base), must(t, p, s.Next), 2) {
				fmt.Fprintf(&b, "  %v %v -> %v gains %q loses %q\n", m.Range, m.From, m.To, m.Gains, m.Loses)
			}
		}
		b.WriteByte('\n')
	}
	golden(t, "chains.txt", b.String())
}
