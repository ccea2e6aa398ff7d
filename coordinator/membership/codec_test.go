package membership_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

var update = flag.Bool("update", false, "write the golden files anew")

// samples is one command of each kind, every field set.
func samples() map[string]membership.Command {
	ref := &membership.ChangeRef{ID: "c-7"}
	m := membership.Member{ID: "a", Incarnation: 1<<63 + 5, Address: "a:8621", HTTP: "a:8620", Zone: "z", Weight: 2, NonVoter: true}
	started := m
	started.Start = 1<<63 + 9
	return map[string]membership.Command{
		"init":         {At: 1, Init: &membership.Init{ClusterID: "c1", Ring: ring.Params{Hash: 1, VNodes: 8}, Replicas: 3, Limits: membership.Limits{Rate: 9, MaxConcurrent: 4}}},
		"register":     {At: 2, Register: &membership.Register{Member: m}},
		"start":        {At: 2, Register: &membership.Register{Member: started, Starts: []uint64{1 << 62, 8}}},
		"change":       {At: 3, Change: &membership.ChangeCommand{Add: []string{"d"}, Remove: []string{"a"}, ExpectVersion: 4, Key: "k", Retarget: true, By: "ops", Why: "ünïcode \" and \\"}},
		"report":       {At: 4, Report: []membership.Report{{Member: "a", Incarnation: 5, Step: 6, What: membership.Copied}, {Member: "b", Incarnation: 7, Step: 6, What: membership.Refilled}}},
		"advance":      {At: 5, Advance: &membership.Advance{Version: 9, Stage: membership.StageSwitch}},
		"abort":        {At: 6, Abort: ref},
		"pause":        {At: 7, Pause: ref},
		"resume":       {At: 8, Resume: ref},
		"mark":         {At: 9, Mark: &membership.Mark{Member: "a", Incarnation: 5, Down: true}},
		"limits":       {At: 10, Limits: &membership.LimitsCommand{Limits: membership.Limits{Rate: 1, MaxConcurrent: 2}}},
		"declare-lost": {At: 11, DeclareLost: &membership.DeclareLost{Bans: []membership.Ban{{Member: "a", Incarnation: 5}}, ExpectVersion: 3, By: "ops", Why: "fire"}},
		"set-replicas": {At: 12, SetReplicas: &membership.SetReplicas{Type: "kv", N: 5}},
		"forget-named": {At: 13, Forget: &membership.Forget{Member: "a", Incarnation: 1<<63 + 5}},
		"forget":       {At: 13, Forget: &membership.Forget{Member: "a"}},
		"pins":         {At: 14, Pins: []membership.Pin{{Member: "a", Type: "kv", Keys: 3}}},
	}
}

// samplePlacement has every field set.
func samplePlacement() *membership.Placement {
	set := []ring.Member{{ID: "a", Zone: "z", Weight: 2}, {ID: "b", Weight: 1}}
	ch := membership.Change{ID: "c-7", Key: "k", Add: []string{"b"}, Remove: []string{"c"}, By: "ops", Why: "more room", Outcome: membership.Aborted, Paused: true, Started: 3, Ended: 4,
		Steps: 2, StepDone: 1, StartedAt: 1700000000000, EndedAt: 1700000001000}
	return &membership.Placement{ClusterID: "c1", Revision: 12, Version: 5, Previous: set[:1], Target: set, Base: set[:1], Next: set, Stage: membership.StageSwitch, Step: 5, Began: 4,
		Members: []membership.Member{{ID: "a", Incarnation: 1<<63 + 5, Start: 1<<63 + 9, Address: "a:8621", HTTP: "a:8620", Zone: "z", Weight: 2, State: membership.Active, Down: true, Refilling: true, GivenUp: true, Marked: 6, Removed: true, NonVoter: true}},
		Banned:  []membership.Ban{{Member: "a", Incarnation: 4}}, Ring: ring.Params{Hash: 1, VNodes: 8}, Replicas: map[string]int{"": 3, "kv": 2, "b": 1, "a": 1},
		Running: &ch, History: []membership.Change{ch}, Reports: []membership.Report{{Member: "b", Incarnation: 6, Step: 5, What: membership.Filled}},
		Limits: membership.Limits{Rate: 1 << 40, MaxConcurrent: 4}, Lost: []membership.Loss{{Version: 2, Bans: []membership.Ban{{Member: "c", Incarnation: 9}}, By: "ops", Why: "fire"}},
		Pins: []membership.Pin{{Member: "a", Type: "kv", Keys: 3}}}
}

// golden compares with a file of testdata. A difference means that logs and snapshots of members with the older program
// are read otherwise, or not at all.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	dump := []byte(hex.Dump(got))
	if *update {
		if err := os.WriteFile(path, dump, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, dump) {
		t.Errorf("%s differs; a new layout needs a new format number. Got:\n%s", path, dump)
	}
}

func TestCommandGolden(t *testing.T) {
	for name, c := range samples() {
		t.Run(name, func(t *testing.T) {
			b, err := membership.Encode(c)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "command-"+name+".hex", b)
			back, err := membership.Decode(b)
			if err != nil {
				t.Fatal(err)
			}
			c.Format = back.Format
			if !reflect.DeepEqual(c, back) {
				t.Errorf("round trip: %+v became %+v", c, back)
			}
			for i := range b {
				if _, err := membership.Decode(b[:i]); err == nil {
					t.Errorf("the first %d of %d bytes are taken for a command", i, len(b))
				}
			}
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	good, err := membership.Encode(samples()["pause"])
	if err != nil {
		t.Fatal(err)
	}
	huge := bytes.Repeat([]byte(" "), membership.MaxCommand+1)
	huge[0] = good[0]
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"empty":          {nil, membership.ErrShort},
		"other format":   {append([]byte{good[0] + 3}, good[1:]...), membership.ErrVersion},
		"no format":      {append([]byte{0}, good[1:]...), membership.ErrVersion},
		"a later one":    {append([]byte{good[0] + 1}, good[1:]...), membership.ErrCorrupt},
		"named in 1":     {[]byte("\x01" + `{"Forget":{"Member":"a","Incarnation":5}}`), membership.ErrCorrupt},
		"start in 1":     {[]byte("\x01" + `{"Register":{"Member":{"id":"a","incarnation":5,"start":2,"address":"a:1","http":"","weight":1,"state":"standby"}}}`), membership.ErrCorrupt},
		"too long":       {huge, membership.ErrCorrupt},
		"trailing bytes": {append(bytes.Clone(good), '{', '}'), membership.ErrCorrupt},
		"unknown field":  {append([]byte{good[0]}, `{"Format":1,"Explode":{}}`...), membership.ErrCorrupt},
		"no JSON":        {append([]byte{good[0]}, `hello`...), membership.ErrCorrupt},
		"unknown stage":  {append([]byte{good[0]}, `{"Advance":{"Version":1,"Stage":"limbo"}}`...), membership.ErrCorrupt},
	} {
		if _, err := membership.Decode(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
	}
	if _, err := membership.Encode(membership.Command{Change: &membership.ChangeCommand{Why: strings.Repeat("x", membership.MaxCommand)}}); err == nil {
		t.Error("a command that no member would read can be encoded")
	}
}

func TestSnapshotGolden(t *testing.T) {
	p := samplePlacement()
	everySet(t, reflect.ValueOf(*p), "Placement")
	b, err := membership.Snapshot(p)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "snapshot.hex", b)
	back, err := membership.Restore(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p, back) {
		t.Errorf("round trip:\n%+v\n%+v", p, back)
	}
	if membership.Digest(p) != membership.Digest(back) {
		t.Error("digest differs after the round trip")
	}
}

// everySet fails if a field is left at its zero value: the golden file would not cover it.
func everySet(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			everySet(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			everySet(t, v.Elem(), path)
			return
		}
		t.Errorf("%s is not set", path)
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			t.Errorf("%s is empty", path)
		}
		if v.Kind() == reflect.Slice && v.Len() > 0 {
			everySet(t, v.Index(0), path+"[0]")
		}
	default:
		if v.IsZero() {
			t.Errorf("%s is not set", path)
		}
	}
}

func TestRestoreErrors(t *testing.T) {
	good, err := membership.Snapshot(samplePlacement())
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := membership.Restore(good[:i]); !errors.Is(err, membership.ErrShort) {
			t.Errorf("the first %d of %d bytes: %v", i, len(good), err)
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		if _, err := membership.Restore(b); err == nil {
			t.Errorf("a flip in byte %d is not seen", i)
		}
	}
	change := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	long := bytes.Clone(good)
	binary.BigEndian.PutUint64(long[8:], 1<<62)
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"no magic":       {change(0, 'X'), membership.ErrCorrupt},
		"other version":  {change(4, 9), membership.ErrVersion},
		"reserved byte":  {change(6, 1), membership.ErrCorrupt},
		"huge length":    {long, membership.ErrCorrupt},
		"trailing byte":  {append(bytes.Clone(good), 0), membership.ErrCorrupt},
		"checksum":       {change(len(good)-1, good[len(good)-1]+1), membership.ErrCorrupt},
		"body":           {change(100, good[100]+1), membership.ErrCorrupt},
		"unknown field":  {sealed(`{"explode":1}`), membership.ErrCorrupt},
		"trailing value": {sealed(`{} {}`), membership.ErrCorrupt},
	} {
		if _, err := membership.Restore(c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, not %v", name, err, c.want)
		}
	}
}

// sealed makes a snapshot with any body.
func sealed(body string) []byte {
	b := append([]byte("CMSN"), 1, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	b = append(b, body...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// TestTextRoundTrip holds that the names in JSON come back as what they were, and unknown ones are refused.
func TestTextRoundTrip(t *testing.T) {
	type named struct {
		Stages   []membership.Stage
		States   []membership.State
		Whats    []membership.What
		Outcomes []membership.Outcome
	}
	in := named{[]membership.Stage{0, 1, 2}, []membership.State{0, 1, 2}, []membership.What{0, 1, 2, 3}, []membership.Outcome{0, 1, 2, 3}}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out named
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) || strings.Contains(string(b), "unknown") {
		t.Errorf("%s became %+v", b, out)
	}
	for _, field := range []string{"Stages", "States", "Whats", "Outcomes"} {
		if err := json.Unmarshal([]byte(`{"`+field+`":["other"]}`), &out); err == nil {
			t.Errorf("an unknown value of %s is taken", field)
		}
	}
	for c := membership.OK; c <= membership.ErrKeyReused; c++ {
		if strings.Contains(c.String(), "unknown(") {
			t.Errorf("code %d has no name", c)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range samples() {
		b, err := membership.Encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := membership.Decode(b)
		if err != nil {
			return
		}
		// What is read can be applied, to an empty cluster and to one that runs, and written again.
		for _, p := range []membership.Placement{{}, *samplePlacement(), running(t)} {
			membership.Apply(p, c)
		}
		if _, err := membership.Encode(c); err != nil && len(b) < membership.MaxCommand/8 {
			t.Fatalf("%+v cannot be encoded: %v", c, err)
		}
	})
}

// running is a cluster in the midst of a change.
func running(t testing.TB) membership.Placement {
	var p membership.Placement
	for i, c := range []membership.Command{
		{Init: &membership.Init{ClusterID: "c1", Ring: ring.Params{Hash: 1, VNodes: 2}, Replicas: 2}},
		{Register: &membership.Register{Member: membership.Member{ID: "a", Incarnation: 1, Address: "a:1", Weight: 1}}},
		{Register: &membership.Register{Member: membership.Member{ID: "b", Incarnation: 1, Address: "b:1", Weight: 1}}},
		{Change: &membership.ChangeCommand{Add: []string{"a"}}},
		{Change: &membership.ChangeCommand{Add: []string{"b"}}},
	} {
		var r membership.Result
		if p, r = membership.Apply(p, c); r.Code != membership.OK {
			t.Fatalf("entry %d: %+v", i, r)
		}
	}
	return p
}

func FuzzRestore(f *testing.F) {
	for _, p := range []membership.Placement{{}, *samplePlacement(), running(f)} {
		b, err := membership.Snapshot(&p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, false)
		f.Add(b[16:len(b)-32], true)
	}
	f.Fuzz(func(t *testing.T, b []byte, seal bool) {
		if seal {
			b = sealed(string(b))
		}
		p, err := membership.Restore(b)
		if err != nil {
			return
		}
		again, err := membership.Snapshot(p)
		if err != nil {
			t.Fatal(err)
		}
		q, err := membership.Restore(again)
		if err != nil {
			t.Fatalf("what was restored cannot be restored again: %v", err)
		}
		if membership.Digest(p) != membership.Digest(q) {
			t.Fatalf("digest differs:\n%+v\n%+v", p, q)
		}
	})
}
