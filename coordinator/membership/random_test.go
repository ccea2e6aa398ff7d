package membership_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// TestRandomCommands sends random logs. After every entry the checks of step hold; at the end the change that runs can
// be brought to its end, and every way to the same entries gives the same placement.
func TestRandomCommands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &log{t: t}
		l.add(membership.Command{Init: &membership.Init{ClusterID: "c1", Ring: ring.Params{Hash: ring.HashV1, VNodes: 2}, Replicas: rapid.IntRange(1, 4).Draw(t, "replicas")}})
		for range rapid.IntRange(1, 60).Draw(t, "entries") {
			l.add(l.draw())
		}
		l.finish()
		l.replay()
	})
}

// log is the entries so far and the placement that they give.
type log struct {
	t       *rapid.T
	p       membership.Placement
	entries [][]byte
	ids     []string // changes that have been started
}

func (l *log) add(c membership.Command) membership.Result {
	c.At = int64(len(l.entries))
	b, err := membership.Encode(c)
	if err != nil {
		l.t.Fatalf("encode: %v", err)
	}
	l.entries = append(l.entries, b)
	if c, err = membership.Decode(b); err != nil {
		l.t.Fatalf("decode: %v", err)
	}
	running := l.p.Running
	next, r := step(l.t, l.p, c)
	if c.Change != nil && r.Code == membership.OK {
		if running != nil && !c.Change.Retarget {
			l.t.Fatalf("change %s took the place of %s unasked", r.ID, running.ID)
		}
		l.ids = append(l.ids, r.ID)
	}
	l.p = next
	return r
}

func (l *log) member() string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(l.t, "member")
}

func (l *log) members(label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}), 0, 3, rapid.ID).Draw(l.t, label)
}

func (l *log) incarnation(id string) uint64 {
	m, _ := l.p.Member(id)
	if rapid.IntRange(0, 9).Draw(l.t, "other incarnation") == 0 {
		return rapid.Uint64Range(1, 4).Draw(l.t, "incarnation")
	}
	return m.Incarnation
}

func (l *log) ref() *membership.ChangeRef {
	return &membership.ChangeRef{ID: rapid.SampledFrom(append([]string{"", "c-0"}, l.ids...)).Draw(l.t, "change")}
}

// draw makes a command; those that move a change on come more often.
func (l *log) draw() membership.Command {
	switch k := rapid.IntRange(0, 19).Draw(l.t, "kind"); k {
	case 0, 1, 2:
		return l.register()
	case 3, 4, 5:
		return membership.Command{Change: l.change()}
	case 6, 7, 8, 9:
		return membership.Command{Report: l.reports()}
	case 10, 11, 12:
		return membership.Command{Advance: l.advance()}
	case 13:
		return membership.Command{Abort: l.ref()}
	case 14:
		return membership.Command{Pause: l.ref()}
	case 15:
		return membership.Command{Resume: l.ref()}
	case 16:
		id := l.member()
		return membership.Command{Mark: &membership.Mark{Member: id, Incarnation: l.incarnation(id), Down: rapid.Bool().Draw(l.t, "down")}}
	case 17:
		id := l.member()
		return membership.Command{DeclareLost: &membership.DeclareLost{Bans: []membership.Ban{{Member: id, Incarnation: l.incarnation(id)}}}}
	case 18:
		id := l.member()
		return membership.Command{Forget: &membership.Forget{Member: id, Incarnation: l.incarnation(id)}}
	default:
		return l.setting()
	}
}

func (l *log) setting() membership.Command {
	switch rapid.IntRange(0, 3).Draw(l.t, "setting") {
	case 0:
		return membership.Command{Limits: &membership.LimitsCommand{Limits: membership.Limits{Rate: rapid.Int64Range(-1, 2).Draw(l.t, "rate"), MaxConcurrent: 2}}}
	case 1:
		return membership.Command{SetReplicas: &membership.SetReplicas{Type: rapid.SampledFrom([]string{"t", "u"}).Draw(l.t, "type"), N: rapid.IntRange(0, 8).Draw(l.t, "n")}}
	case 2:
		return membership.Command{Pins: []membership.Pin{{Member: l.member(), Type: "t", Keys: rapid.IntRange(0, 2).Draw(l.t, "keys")}}}
	}
	return membership.Command{Init: &membership.Init{ClusterID: "c2", Replicas: 1}}
}

func (l *log) register() membership.Command {
	id := l.member()
	m := membership.Member{ID: id, Incarnation: rapid.Uint64Range(1, 4).Draw(l.t, "incarnation"), Start: rapid.Uint64Range(0, 3).Draw(l.t, "start"), Address: id + ":1", Weight: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(l.t, "weight"),
		Zone: rapid.SampledFrom([]string{"", "", "z"}).Draw(l.t, "zone")}
	old, ok := l.p.Member(id)
	if ok && rapid.Bool().Draw(l.t, "same place") {
		m.Zone, m.Weight = old.Zone, old.Weight
	}
	seen := old.Incarnation
	if rapid.IntRange(0, 7).Draw(l.t, "late") == 0 {
		seen = rapid.Uint64Range(0, 4).Draw(l.t, "seen")
	}
	return membership.Command{Register: &membership.Register{Member: m, Seen: seen, Starts: rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 3).Draw(l.t, "starts")}}
}

func (l *log) change() *membership.ChangeCommand {
	c := &membership.ChangeCommand{Retarget: l.p.Running != nil && rapid.Bool().Draw(l.t, "retarget"), Key: rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(l.t, "key")}
	for _, id := range l.members("touched") { // mostly what can be done
		_, known := l.p.Member(id)
		switch {
		case membership.In(l.p.Target, id):
			c.Remove = append(c.Remove, id)
		case known || rapid.IntRange(0, 9).Draw(l.t, "unknown") == 0:
			c.Add = append(c.Add, id)
		}
	}
	return c
}

func (l *log) reports() []membership.Report {
	var out []membership.Report
	for _, m := range l.p.Members {
		if rapid.IntRange(0, 3).Draw(l.t, "silent") > 0 {
			what := membership.Copied
			if l.p.Stage == membership.StageSwitch {
				what = membership.Filled
			}
			if m.Refilling && rapid.Bool().Draw(l.t, "refilled") {
				what = membership.Refilled
			}
			out = append(out, membership.Report{Member: m.ID, Incarnation: l.incarnation(m.ID), Step: l.p.Step, What: what})
		}
	}
	return out
}

func (l *log) advance() *membership.Advance {
	a := &membership.Advance{Version: l.p.Version, Stage: l.p.Stage}
	if rapid.IntRange(0, 9).Draw(l.t, "late") == 0 {
		a.Version -= min(a.Version, 1)
	}
	return a
}

// finish has everybody report and lets the change go on until it ends: no random log leads into a dead end.
func (l *log) finish() {
	l.add(membership.Command{Resume: &membership.ChangeRef{}})
	var all []membership.Report
	for _, m := range l.p.Members {
		all = append(all, membership.Report{Member: m.ID, Incarnation: m.Incarnation, What: membership.Refilled})
	}
	if len(all) > 0 {
		l.add(membership.Command{Report: all})
	}
	for n := 0; l.p.Stage != membership.StageStable; n++ {
		what := membership.Copied
		if l.p.Stage == membership.StageSwitch {
			what = membership.Filled
		}
		for i := range all {
			all[i].Step, all[i].What = l.p.Step, what
		}
		l.add(membership.Command{Report: all})
		if w := membership.Waiting(&l.p); len(w) > 0 || n > 20 {
			l.t.Fatalf("stage %d of %s does not end: %v", n, &l.p, w)
		}
		if r := l.add(membership.Command{Advance: &membership.Advance{Version: l.p.Version, Stage: l.p.Stage}}); r.Code != membership.OK {
			l.t.Fatalf("advance: %s %s", r.Code, r.Text)
		}
	}
	for _, id := range l.ids[max(0, len(l.ids)-membership.MaxHistory):] {
		if !slices.ContainsFunc(l.p.History, func(h membership.Change) bool {
			return h.ID == id && slices.Contains([]membership.Outcome{membership.Done, membership.Aborted, membership.Retargeted}, h.Outcome)
		}) {
			l.t.Fatalf("change %s has no outcome in %+v", id, l.p.History)
		}
	}
}

// replay compares the placement with those of members that took other ways to it.
func (l *log) replay() {
	cut := rapid.IntRange(0, len(l.entries)).Draw(l.t, "snapshot after")
	apply := func(p membership.Placement, entries [][]byte) membership.Placement {
		for _, b := range entries {
			c, err := membership.Decode(b)
			if err != nil {
				l.t.Fatalf("decode: %v", err)
			}
			p, _ = membership.Apply(p, c)
		}
		return p
	}
	early := apply(membership.Placement{}, l.entries[:cut])
	b, err := membership.Snapshot(&early)
	if err != nil {
		l.t.Fatalf("snapshot: %v", err)
	}
	restored, err := membership.Restore(b)
	if err != nil {
		l.t.Fatalf("restore: %v", err)
	}
	for name, p := range map[string]membership.Placement{
		"from the start":           apply(membership.Placement{}, l.entries),
		"over a snapshot":          apply(*restored, l.entries[cut:]),
		"from what it was made of": apply(early, l.entries[cut:]),
	} {
		if membership.Digest(&p) != membership.Digest(&l.p) {
			l.t.Fatalf("replayed %s, cut after %d of %d entries:\n%s\n%s", name, cut, len(l.entries), text(p), text(l.p))
		}
	}
}

func text(p membership.Placement) string { return fmt.Sprintf("%+v", p) }
