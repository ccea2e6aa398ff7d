package chainmail

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

// TestProgressErrors stops a source in the midst of a change: the progress says who failed, with what, who has seen it
// and how long ago that was.
func TestProgressErrors(t *testing.T) {
	nodes := cluster(t, 3, nil)
	ctx := limit(t, 40*time.Second)
	joiner := start(t, func() Config { c := testConfig(t, "m4"); c.RetryJoin = []string{nodes[0].Addr()}; return c }())
	for i := range 200 {
		if _, err := nodes[i%3].KV().Put(ctx, fmt.Sprint("k", i), make([]byte, 20000)); err != nil {
			t.Fatal(err)
		}
	}
	n := nodes[0]
	progress := func(what string, ok func(ChangeProgress) bool) ChangeProgress {
		t.Helper()
		for {
			p, err := n.Progress(ctx, "")
			if err == nil && ok(p) {
				return p
			}
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
				t.Fatalf("%s: %+v, %v", what, p, err)
			}
		}
	}
	for !hasMember(n, "m4") {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			t.Fatal("m4 does not join")
		}
	}
	if err := n.Coordinator().SetLimits(ctx, membership.Limits{Rate: 100 << 10}); err != nil { // it takes half a minute
		t.Fatal(err)
	}
	ch, err := n.Coordinator().Submit(ctx, coordinator.ChangeRequest{Add: []string{"m4"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Coordinator().Pause(ctx, ch.ID); err != nil { // it goes on reading what is new, and does not advance
		t.Fatal(err)
	}
	progress("m4 fills", func(p ChangeProgress) bool { return len(p.Filling) == 1 && p.Filling[0].ID == "m4" })
	nodes[2].Close()
	of := func(member, seen string) func(ChangeProgress) bool {
		return func(p ChangeProgress) bool {
			return slices.ContainsFunc(p.Errors, func(e ProgressError) bool { return e.Member == member && e.Seen == seen && e.What != "" })
		}
	}
	p := progress("the source that has stopped is named", of("m3", "m4"))
	if !slices.IsSortedFunc(p.Errors, func(a, b ProgressError) int { return int(a.Age - b.Age) }) {
		t.Errorf("not the newest first: %v", p.Errors)
	}
	// The one that is waited for fails as well.
	joiner.Close()
	if err := n.Coordinator().Resume(ctx, ch.ID); err != nil {
		t.Fatal(err)
	}
	p = progress("the joining member is named", of("m4", "m1"))
	for _, e := range p.Errors {
		if e.Member == "m4" && !strings.Contains(e.String(), "m4: not reachable") {
			t.Errorf("the error reads %q", e)
		}
	}
}

func TestSourceErrors(t *testing.T) {
	got := sourceErrors([]MemberStatus{
		{Member: membership.Member{ID: "d"}, Filling: []Filling{
			{Sources: []FillSource{{Member: "a", LastError: "no answer", ErrorAge: 3 * time.Second}, {Member: "b"}}},
			{Sources: []FillSource{{Member: "c", LastError: "down", ErrorAge: time.Second, Done: true}}}}},
		{Member: membership.Member{ID: "e"}},
	})
	want := []ProgressError{{"a", "d", "no answer", 3 * time.Second}, {"c", "d", "down", time.Second}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if s := got[0].String(); s != "a: no answer, seen by d 3s ago" {
		t.Errorf("it reads %q", s)
	}
}
