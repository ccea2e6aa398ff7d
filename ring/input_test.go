package ring

import (
	"fmt"
	"strings"
	"testing"
)

// Whoever reads an error must know which member or which number to correct.
func TestNewRefuses(t *testing.T) {
	good := Params{HashV1, 4}
	long := strings.Repeat("x", maxID+1)
	for name, c := range map[string]struct {
		p     Params
		ms    []Member
		names []string
	}{
		"unknown hash":    {Params{2, 4}, members("a"), []string{"algorithm 2", "knows 1"}},
		"no hash":         {Params{0, 4}, members("a"), []string{"algorithm 0"}},
		"no vnodes":       {Params{HashV1, 0}, members("a"), []string{"0 virtual nodes", "4096"}},
		"negative vnodes": {Params{HashV1, -3}, members("a"), []string{"-3 virtual nodes"}},
		"too many vnodes": {Params{HashV1, MaxVNodes + 1}, members("a"), []string{"4097 virtual nodes", "4096"}},
		"empty id":        {good, []Member{{ID: "a", Weight: 1}, {Weight: 1}}, []string{`member id ""`, "0 bytes"}},
		"long id":         {good, []Member{{ID: "a", Weight: 1}, {ID: long, Weight: 1}}, []string{long, "65 bytes", "64"}},
		"long id, bytes":  {good, []Member{{ID: strings.Repeat("ä", 33), Weight: 1}}, []string{"ää", "66 bytes"}},
		"no weight":       {good, []Member{{ID: "a", Weight: 1}, {ID: "bad"}}, []string{"member bad", "weight 0", "64"}},
		"negative weight": {good, []Member{{ID: "bad", Weight: -1}, {ID: "a", Weight: 1}}, []string{"member bad", "weight -1"}},
		"large weight":    {good, []Member{{ID: "bad", Weight: MaxWeight + 1}}, []string{"member bad", "weight 65", "64"}},
		"twice":           {good, members("a twin b twin"), []string{"member twin", "twice"}},
		"twice in zones":  {good, members("a twin@x b twin@y*2"), []string{"member twin", "twice"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := New(c.p, c.ms)
			if r != nil {
				t.Errorf("a ring beside the error: %+v", r)
			}
			says(t, err, c.names)
		})
	}
}

func says(t *testing.T, err error, names []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, n := range append(names, "ring: ") {
		if !strings.Contains(err.Error(), n) {
			t.Errorf("%q does not say %q", err, n)
		}
	}
}

// What is just inside the limits is accepted.
func TestNewAcceptsLimits(t *testing.T) {
	for _, c := range []struct {
		p Params
		m Member
	}{
		{Params{HashV1, 1}, Member{ID: "a", Weight: 1}},
		{Params{HashV1, MaxVNodes}, Member{ID: strings.Repeat("x", maxID), Weight: 1}},
		{Params{HashV1, MaxVNodes}, Member{ID: "a", Weight: MaxWeight}},
	} {
		r := must(t, c.p, []Member{c.m})
		if got := len(r.tokens); got != c.p.VNodes*c.m.Weight {
			t.Errorf("%+v has %d tokens", c, got)
		}
	}
}

func TestChainRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		from, to string
		names    []string
	}{
		"empty target":    {"a b", "", []string{"target set is empty"}},
		"both empty":      {"", "", []string{"target set is empty"}},
		"twice in from":   {"a twin twin", "a", []string{"member twin", "twice"}},
		"twice in target": {"a", "a twin b twin", []string{"member twin", "twice"}},
		"other weight":    {"a heavy*2", "a heavy*3", []string{"member heavy", "Weight:3", "Weight:2", "remove it"}},
		"other zone":      {"a moved@x", "a moved@y", []string{"member moved", "Zone:y", "Zone:x", "remove it"}},
		"lost its zone":   {"a moved@x", "moved b", []string{"member moved", "Zone:x"}},
	} {
		t.Run(name, func(t *testing.T) {
			steps, err := Chain(members(c.from), members(c.to), nil)
			if steps != nil {
				t.Errorf("steps beside the error: %v", steps)
			}
			says(t, err, c.names)
		})
	}
}

func TestReplicaCountsOutOfBounds(t *testing.T) {
	r := must(t, Params{HashV1, 8}, fleet(10, 0))
	for n, want := range map[int]int{-1 << 31: 0, -1: 0, 0: 0, 7: 7, 8: 7, 1 << 31: 7} {
		if got := r.Replicas(1<<63, n); len(got) != want {
			t.Errorf("%d replicas: %v", n, got)
		}
	}
	if got := fmt.Sprint(r.Replicas(1<<63, 99)); got != fmt.Sprint(r.Replicas(1<<63, MaxReplicas)) {
		t.Error(got)
	}
}
