package ring_test

import (
	"fmt"

	"chainmail/ring"
)

func ExampleNew() {
	members := []ring.Member{
		{ID: "a", Zone: "east", Weight: 1},
		{ID: "b", Zone: "east", Weight: 1},
		{ID: "c", Zone: "west", Weight: 2},
	}
	r, err := ring.New(ring.Params{Hash: ring.HashV1, VNodes: 256}, members)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%d members, digest %016x\n", r.Len(), r.Digest())

	_, err = ring.New(r.Params(), append(members, ring.Member{ID: "d"}))
	fmt.Println(err)
	// Output:
	// 3 members, digest 0d63fc9b150739d7
	// ring: member d has weight 0; 1 to 64 are allowed
}

func ExampleRing_Replicas() {
	r, err := ring.New(ring.Params{Hash: ring.HashV1, VNodes: 256}, []ring.Member{
		{ID: "a", Zone: "east", Weight: 1},
		{ID: "b", Zone: "east", Weight: 1},
		{ID: "c", Zone: "west", Weight: 1},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, key := range []string{"ann", "bob", "carol"} {
		t := ring.KeyToken(ring.HashV1, "cart", key)
		fmt.Println(key, "is owned by", r.Owner(t), "and held by", r.Replicas(t, 2))
	}
	// Output:
	// ann is owned by b and held by [b c]
	// bob is owned by a and held by [a c]
	// carol is owned by b and held by [b c]
}

func ExampleChain() {
	set := func(ids ...string) (out []ring.Member) {
		for _, id := range ids {
			out = append(out, ring.Member{ID: id, Weight: 1})
		}
		return out
	}
	down := func(id string) bool { return id == "c" }
	steps, err := ring.Chain(set("a", "b", "c"), set("b", "d", "e"), down)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range steps {
		fmt.Println(s, s.Kind, "from", len(s.Base), "to", len(s.Next), "members")
	}
	// Output:
	// +d join from 3 to 4 members
	// +e join from 4 to 5 members
	// -c leave from 5 to 4 members
	// -a leave from 4 to 3 members
}

func ExampleDiff() {
	p := ring.Params{Hash: ring.HashV1, VNodes: 2}
	a, b, c := ring.Member{ID: "a", Weight: 1}, ring.Member{ID: "b", Weight: 1}, ring.Member{ID: "c", Weight: 1}
	base, err := ring.New(p, []ring.Member{a, b})
	if err != nil {
		fmt.Println(err)
		return
	}
	next, err := ring.New(p, []ring.Member{a, b, c})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, m := range ring.Diff(base, next, 2) {
		fmt.Printf("%v %2.0f %% %v -> %v: %s in, %s out\n", m.Range, 100*m.Range.Size(), m.From, m.To, m.Gains, m.Loses)
	}
	// Output:
	// (c70685a62013d517,5b7ae6bcd4d504a3] 58 % [b a] -> [c b]: c in, a out
	// (b36cf1709112efc2,c70685a62013d517]  8 % [b a] -> [b c]: c in, a out
}

func ExampleRange() {
	r := ring.Range{Lo: 0xf000000000000000, Hi: 0x1000000000000000} // passes zero
	fmt.Println(r, r.Size(), r.Contains(r.Lo), r.Contains(0), r.Contains(r.Hi))
	// Output:
	// (f000000000000000,1000000000000000] 0.125 false true true
}
