package membership

import (
	"fmt"
	"strings"

	"chainmail/ring"
)

func name(names []string, i uint8) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func (s Stage) String() string { return name([]string{"stable", "copy", "switch"}, uint8(s)) }
func (s State) String() string { return name([]string{"standby", "active", "leaving"}, uint8(s)) }
func (w What) String() string {
	return name([]string{"nothing", "copied", "filled", "refilled"}, uint8(w))
}
func (o Outcome) String() string {
	return name([]string{"running", "done", "aborted", "retargeted"}, uint8(o))
}
func (c Code) String() string {
	return name([]string{"ok", "unchanged", "stale", "change-running", "unknown-member", "unknown-change", "invalid", "banned", "not-ready", "key-reused", "pinned", "superseded"}, uint8(c))
}

// parse is the way back from names, for JSON.
func parse(names []string, b []byte) (uint8, error) {
	for i, n := range names {
		if n == string(b) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("unknown value %q; known are %s", b, strings.Join(names, ", "))
}

func (s Stage) MarshalText() ([]byte, error)   { return []byte(s.String()), nil }
func (s State) MarshalText() ([]byte, error)   { return []byte(s.String()), nil }
func (w What) MarshalText() ([]byte, error)    { return []byte(w.String()), nil }
func (o Outcome) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

func (s *Stage) UnmarshalText(b []byte) error {
	i, err := parse([]string{"stable", "copy", "switch"}, b)
	*s = Stage(i)
	return err
}

func (s *State) UnmarshalText(b []byte) error {
	i, err := parse([]string{"standby", "active", "leaving"}, b)
	*s = State(i)
	return err
}

func (w *What) UnmarshalText(b []byte) error {
	i, err := parse([]string{"nothing", "copied", "filled", "refilled"}, b)
	*w = What(i)
	return err
}

func (o *Outcome) UnmarshalText(b []byte) error {
	i, err := parse([]string{"running", "done", "aborted", "retargeted"}, b)
	*o = Outcome(i)
	return err
}

// SetString writes a member set as {a,b,c}.
func SetString(ms []ring.Member) string {
	ids := make([]string, len(ms))
	for i, m := range ms {
		ids[i] = m.ID
	}
	return "{" + strings.Join(ids, ",") + "}"
}

// String writes a placement as "v7 switch {a,b,c}->{a,b,c,d} target {b,c,d}".
func (p *Placement) String() string {
	s := fmt.Sprintf("v%d %s %s", p.Version, p.Stage, SetString(p.Base))
	if p.Stage != StageStable {
		s += "->" + SetString(p.Next) + " target " + SetString(p.Target)
	}
	return s
}
