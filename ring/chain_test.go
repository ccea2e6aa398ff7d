package ring

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestChainIsTheSameInAnyOrder(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		c := someChange(rnd)
		from, to := slices.Clone(c.from), slices.Clone(c.to)
		want := c.steps(t)
		if !slices.Equal(from, c.from) || !slices.Equal(to, c.to) {
			t.Fatal("the input was changed")
		}
		shuffle(rnd, c.from)
		shuffle(rnd, c.to)
		if got := c.steps(t); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

func sorted(ms []Member) []Member {
	out := slices.Clone(ms)
	slices.SortFunc(out, func(a, b Member) int { return compareStrings(a.ID, b.ID) })
	return out
}

func without(ms []Member, id string) []Member {
	return slices.DeleteFunc(slices.Clone(ms), func(m Member) bool { return m.ID == id })
}

func TestChainLeadsToTarget(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		c := someChange(rnd)
		steps := c.steps(t)
		leads(t, c, steps)
		ordered(t, c, steps)
		p := someParams(rnd)
		if k := len(steps) - 1; k >= 0 && must(t, p, steps[k].Next).Digest() != must(t, p, c.to).Digest() {
			t.Fatal("the last ring of the chain is not that of the target")
		}
	})
}

// leads checks that a chain leads from one set to the other by one member a step, and that no ring between is smaller
// than the smaller end.
func leads(t *testing.T, c change, steps []Step) {
	t.Helper()
	now := sorted(c.from)
	for _, s := range steps {
		if !slices.Equal(s.Base, now) {
			t.Fatalf("%v begins at %+v, want %+v", s, s.Base, now)
		}
		small, large := s.Base, s.Next
		if s.Kind == Leave {
			small, large = large, small
		}
		if len(large) != len(small)+1 || !slices.Contains(large, s.Member) || !slices.Equal(without(large, s.Member.ID), small) {
			t.Fatalf("%v leads from %+v to %+v", s, s.Base, s.Next)
		}
		if len(s.Next) < min(len(c.from), len(c.to)) {
			t.Fatalf("%v leaves %d members; the ends have %d and %d", s, len(s.Next), len(c.from), len(c.to))
		}
		now = s.Next
	}
	if !slices.Equal(now, sorted(c.to)) {
		t.Fatalf("the chain ends at %+v, want %+v", now, sorted(c.to))
	}
}

// ordered checks that joins come first, then leavers that are down, then the others, each by id.
func ordered(t *testing.T, c change, steps []Step) {
	t.Helper()
	rank := func(s Step) int {
		switch {
		case s.Kind == Join:
			return 0
		case c.down[s.Member.ID]:
			return 1
		}
		return 2
	}
	for i, s := range steps {
		joins, leaves := !has(c.from, s.Member.ID), !has(c.to, s.Member.ID)
		if (s.Kind == Join) != joins || (s.Kind == Leave) != leaves {
			t.Fatalf("step %v, from %+v to %+v", s, c.from, c.to)
		}
		if i == 0 {
			continue
		}
		last := steps[i-1]
		if rank(s) < rank(last) || rank(s) == rank(last) && s.Member.ID <= last.Member.ID {
			t.Fatalf("%v comes after %v; down: %v", s, last, c.down)
		}
	}
}

func TestChainAsText(t *testing.T) {
	for _, c := range []struct{ from, to, down, want string }{
		{"a b c", "a b c", "", ""},
		{"a b c", "b c d", "", "+d -a"},
		{"a b c", "b c d e", "a", "+d +e -a"},
		{"d c b a", "f e", "c b", "+e +f -b -c -a -d"},
		{"", "b a", "", "+a +b"},
		{"m10 m9", "m2 m11", "m9", "+m11 +m2 -m9 -m10"},
	} {
		steps, err := Chain(members(c.from), members(c.to), func(id string) bool { return slices.Contains(strings.Fields(c.down), id) })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range steps {
			got = append(got, s.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s -> %s: %v, want %s", c.from, c.to, got, c.want)
		}
	}
}

// Without a down function everybody is alive. A member that joins is no less a join for being down.
func TestChainWithoutDown(t *testing.T) {
	c := change{from: members("a b"), to: members("c d"), down: map[string]bool{"c": true}}
	want, err := Chain(c.from, c.to, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.steps(t); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := []string{Join.String(), Leave.String()}; !slices.Equal(got, []string{"join", "leave"}) {
		t.Error(got)
	}
}

// This is what the protocol's joint quorums stand on: with zones and weights, for every replica count, a step brings at
// most its own member into a set and takes at most one out (or the other way round), and never reorders those that stay.
func TestStepMovesOneReplica(t *testing.T) {
	random(t, func(t *testing.T, rnd *rand.Rand) {
		c, p := someChange(rnd), someParams(rnd)
		for _, s := range c.steps(t) {
			base, next := must(t, p, s.Base), must(t, p, s.Next)
			oneReplica(t, s, base, next, probes(rnd, slices.Concat(base.tokens, next.tokens)))
		}
	})
}

func oneReplica(t *testing.T, s Step, base, next *Ring, at []Token) {
	t.Helper()
	for _, x := range at {
		for n := 1; n <= MaxReplicas; n++ {
			before, after := base.Replicas(x, n), next.Replicas(x, n)
			if s.Kind == Leave {
				before, after = after, before
			}
			joined(t, s, n, before, after)
		}
	}
}

// joined checks a replica set before and after a join. The order of those that stay is compared by what is left of both.
func joined(t *testing.T, s Step, n int, before, after []string) {
	t.Helper()
	x := s.Member.ID
	if len(before) != min(n, min(len(s.Base), len(s.Next))) || len(after) != min(n, max(len(s.Base), len(s.Next))) {
		t.Fatalf("%v: sets of %d are %v and %v", s, n, before, after)
	}
	var in, out, stay, stayed []string
	for _, id := range after {
		if slices.Contains(before, id) {
			stayed = append(stayed, id)
		} else {
			in = append(in, id)
		}
	}
	for _, id := range before {
		if slices.Contains(after, id) {
			stay = append(stay, id)
		} else {
			out = append(out, id)
		}
	}
	if len(in) > 1 || len(out) > 1 || len(in) == 1 && in[0] != x || len(out) > len(in) {
		t.Fatalf("%v, sets of %d: %v without and %v with %s", s, n, before, after, x)
	}
	if !slices.Equal(stay, stayed) {
		t.Fatalf("%v, sets of %d: %v without and %v with %s: those that stay are reordered", s, n, before, after, x)
	}
}
