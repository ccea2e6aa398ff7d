package membership_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// TestStories replays the transcripts. Each line of input is one log entry, or a look at the placement after it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{t: t}
		datadriven.RunTest(t, path, s.tell)
	})
}

// story is a log in the making.
type story struct {
	t *testing.T
	p membership.Placement
	d *datadriven.TestData
}

func (s *story) tell(t *testing.T, d *datadriven.TestData) string {
	s.t, s.d = t, d
	switch d.Cmd {
	case "found":
		return s.found()
	case "show":
		return s.show()
	case "waiting":
		return s.waiting()
	case "steps":
		return s.steps()
	case "history":
		return s.history()
	case "drive":
		return s.drive()
	case "fill-history":
		return s.fillHistory()
	}
	c, ok := s.command()
	if !ok {
		d.Fatalf(t, "unknown command %s", d.Cmd)
	}
	return s.apply(c)
}

// apply takes the command the way of the log: encoded, decoded, applied, and checked.
func (s *story) apply(c membership.Command) string {
	c.At = 1700000000000
	b, err := membership.Encode(c)
	if err != nil {
		return err.Error()
	}
	if c, err = membership.Decode(b); err != nil {
		return err.Error()
	}
	next, r := step(s.t, s.p, c)
	s.p = next
	out := r.Code.String()
	if r.ID != "" {
		out += " " + r.ID
	}
	if r.Text != "" {
		out += ": " + r.Text
	}
	return out + "\n" + s.p.String() + "\n"
}

func (s *story) text(key string) string {
	var v string
	s.d.MaybeScanArgs(s.t, key, &v)
	return v
}

func (s *story) number(key string, otherwise uint64) uint64 {
	v := otherwise
	s.d.MaybeScanArgs(s.t, key, &v)
	return v
}

func (s *story) list(key string) []string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (s *story) bans() []membership.Ban {
	var out []membership.Ban
	for _, v := range s.list("bans") {
		id, inc, _ := strings.Cut(v, ":")
		b := membership.Ban{Member: id}
		if _, err := fmt.Sscan(inc, &b.Incarnation); err != nil {
			s.d.Fatalf(s.t, "ban %q: %v", v, err)
		}
		out = append(out, b)
	}
	return out
}

func (s *story) incarnation() uint64 {
	m, _ := s.p.Member(s.text("m"))
	return s.number("inc", m.Incarnation)
}

func (s *story) command() (c membership.Command, known bool) {
	ref := &membership.ChangeRef{ID: s.text("id")}
	switch s.d.Cmd {
	case "init":
		c.Init = &membership.Init{ClusterID: s.text("id"), Ring: ring.Params{Hash: uint8(s.number("hash", 1)), VNodes: int(s.number("vnodes", 8))},
			Replicas: int(s.number("replicas", 3))}
	case "register":
		id := s.text("m")
		m := membership.Member{ID: id, Incarnation: s.number("inc", 1), Address: id + ":8621", Zone: s.text("zone"), Weight: int(s.number("weight", 1))}
		s.d.MaybeScanArgs(s.t, "addr", &m.Address)
		m.Start = s.number("start", 0)
		listed, _ := s.p.Member(id)
		c.Register = &membership.Register{Member: m, Seen: s.number("seen", listed.Incarnation), Starts: s.numbers("starts")}
	case "change":
		c.Change = &membership.ChangeCommand{Add: s.list("add"), Remove: s.list("remove"), ExpectVersion: s.number("expect", 0), Key: s.text("key"),
			Retarget: s.d.HasArg("retarget"), DropPinned: s.d.HasArg("drop-pinned"), By: s.text("by")}
	case "report":
		what := map[string]membership.What{"copied": membership.Copied, "filled": membership.Filled, "refilled": membership.Refilled}[s.text("what")]
		c.Report = []membership.Report{{Member: s.text("m"), Incarnation: s.incarnation(), Step: s.number("step", s.p.Step), What: what}}
	case "advance":
		stage := s.p.Stage
		if v := s.text("stage"); v != "" {
			if err := stage.UnmarshalText([]byte(v)); err != nil {
				s.d.Fatalf(s.t, "%v", err)
			}
		}
		c.Advance = &membership.Advance{Version: s.number("version", s.p.Version), Stage: stage}
	case "abort":
		c.Abort = ref
	case "pause":
		c.Pause = ref
	case "resume":
		c.Resume = ref
	case "mark":
		c.Mark = &membership.Mark{Member: s.text("m"), Incarnation: s.incarnation(), Down: s.text("down") == "true"}
	case "limits":
		c.Limits = &membership.LimitsCommand{Limits: membership.Limits{Rate: s.signed("rate"), MaxConcurrent: int(s.signed("concurrent"))}}
	case "declare-lost":
		c.DeclareLost = &membership.DeclareLost{Bans: s.bans(), ExpectVersion: s.number("expect", 0), By: s.text("by"), Why: s.text("why")}
	case "set-replicas":
		c.SetReplicas = &membership.SetReplicas{Type: s.text("type"), N: int(s.signed("n"))}
	case "forget":
		c.Forget = &membership.Forget{Member: s.text("m"), Incarnation: s.number("inc", 0)}
	case "pins":
		c.Pins = []membership.Pin{{Member: s.text("m"), Type: s.text("type"), Keys: int(s.number("keys", 0))}}
	case "nothing":
	default:
		return c, false
	}
	return c, true
}

func (s *story) signed(key string) (v int64) {
	s.d.MaybeScanArgs(s.t, key, &v)
	return v
}

func (s *story) numbers(arg string) (out []uint64) {
	for _, x := range s.list(arg) {
		n, err := strconv.ParseUint(x, 10, 64)
		if err != nil {
			s.t.Fatal(err)
		}
		out = append(out, n)
	}
	return out
}

func (s *story) show() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, revision %d\n", &s.p, s.p.Revision)
	for _, m := range s.p.Members {
		fmt.Fprintf(&b, "%s incarnation %x at %s is %s", m.ID, m.Incarnation, m.Address, m.State)
		if m.Start > 0 {
			fmt.Fprintf(&b, ", start %x, marked at revision %d", m.Start, m.Marked)
		}
		for _, x := range []struct {
			on   bool
			name string
		}{{m.Down, "down"}, {m.Refilling, "refilling"}, {m.Removed, "removed"}} {
			if x.on {
				b.WriteString(", " + x.name)
			}
		}
		b.WriteString("\n")
	}
	for _, x := range s.p.Banned {
		fmt.Fprintf(&b, "banned: incarnation %x of %s\n", x.Incarnation, x.Member)
	}
	for _, l := range s.p.Lost {
		fmt.Fprintf(&b, "lost at version %d: %v, by %s: %s\n", l.Version, l.Bans, l.By, l.Why)
	}
	for _, x := range s.p.Pins {
		fmt.Fprintf(&b, "pinned on %s: %d keys of type %s\n", x.Member, x.Keys, x.Type)
	}
	if l := s.p.Limits; l != (membership.Limits{}) {
		fmt.Fprintf(&b, "limits: %d bytes per second, %d transfers\n", l.Rate, l.MaxConcurrent)
	}
	return b.String()
}

func (s *story) waiting() string {
	w := membership.Waiting(&s.p)
	if len(w) == 0 {
		return fmt.Sprintf("nobody; ready: %v\n", membership.Ready(&s.p))
	}
	var b strings.Builder
	for _, x := range w {
		fmt.Fprintln(&b, x)
	}
	return b.String()
}

func (s *story) steps() string {
	var out []string
	for _, x := range membership.Steps(&s.p) {
		out = append(out, fmt.Sprintf("%s %s->%s", x, membership.SetString(x.Base), membership.SetString(x.Next)))
	}
	return strings.Join(append(out, ""), "\n")
}

func (s *story) history() string {
	var b strings.Builder
	all := s.p.History
	if s.p.Running != nil {
		all = append(slices.Clip(all), *s.p.Running)
	}
	for _, h := range all {
		fmt.Fprintf(&b, "%s add %v remove %v: %s, %d of %d steps, versions %d to %d", h.ID, h.Add, h.Remove, h.Outcome, h.StepDone, h.Steps, h.Started, h.Ended)
		if h.Paused {
			b.WriteString(", paused")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// found forms a cluster with its first members on the ring.
func (s *story) found() string {
	s.apply(membership.Command{Init: &membership.Init{ClusterID: "c1", Ring: ring.Params{Hash: ring.HashV1, VNodes: 8}, Replicas: 3}})
	for _, id := range s.list("members") {
		s.apply(membership.Command{Register: &membership.Register{Member: membership.Member{ID: id, Incarnation: 1, Address: id + ":8621", Weight: 1}}})
	}
	return s.apply(membership.Command{Change: &membership.ChangeCommand{Add: s.list("members"), Key: "bootstrap"}})
}

// drive reports for everybody who is waited for, and advances, until the placement is stable or nothing helps.
func (s *story) drive() string {
	var b strings.Builder
	for s.p.Stage != membership.StageStable {
		from := s.p.Version
		s.reportAll()
		b.WriteString(s.apply(membership.Command{Advance: &membership.Advance{Version: s.p.Version, Stage: s.p.Stage}}))
		if s.p.Version == from {
			break
		}
	}
	return b.String()
}

func (s *story) reportAll() {
	for _, w := range membership.Waiting(&s.p) {
		if m, _ := s.p.Member(w.Member); !m.Down {
			s.apply(membership.Command{Report: []membership.Report{{Member: m.ID, Incarnation: m.Incarnation, Step: s.p.Step, What: w.What}}})
		}
	}
}

// fillHistory ends n changes.
func (s *story) fillHistory() string {
	for range s.number("n", 0) {
		s.apply(membership.Command{Change: &membership.ChangeCommand{Add: s.list("add")}})
		s.apply(membership.Command{Abort: &membership.ChangeRef{}})
	}
	return fmt.Sprintf("%d changes are kept\n", len(s.p.History))
}
