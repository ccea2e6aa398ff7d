package kinds

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"chainmail/engine/core"
)

// run runs a handler and applies its changes.
func run(t *testing.T, typ string, state map[string]core.Page, method string, body []byte) ([]byte, uint16) {
	t.Helper()
	out, changes, err := Builtin()[typ](state, method, body)
	var app *AppError
	if err != nil && !errors.As(err, &app) {
		t.Fatalf("%s %s gives an error without a code: %v", typ, method, err)
	}
	for _, ch := range changes {
		switch {
		case ch.Name == "" && ch.Delete:
			clear(state)
		case ch.Delete:
			delete(state, ch.Name)
		default:
			state[ch.Name] = core.Page{Name: ch.Name, Data: ch.Data, Stamp: core.Stamp{Epoch: core.Epoch{Version: 1, Number: 2, Member: "m"}, Seq: 3}}
		}
	}
	if app != nil {
		return out, app.Code
	}
	return out, 0
}

func TestKV(t *testing.T) {
	state := map[string]core.Page{}
	step := func(method string, body []byte, code uint16) []byte {
		t.Helper()
		out, c := run(t, KV, state, method, body)
		if c != code {
			t.Fatalf("%s %.20q gives code %d, not %d", method, body, c, code)
		}
		return out
	}
	step(Get, nil, NotFound)
	if out := step(Delete, nil, 0); !bytes.Equal(out, []byte{0}) {
		t.Errorf("delete of nothing: %v", out)
	}
	step(CAS, AppendCAS(nil, "1.2.3@m", []byte("x")), StampMismatch)
	step(CAS, AppendCAS(nil, "", []byte("first")), 0)
	step(CAS, AppendCAS(nil, "", []byte("second")), StampMismatch)
	step(CAS, AppendCAS(nil, "1.2.3@m", []byte{}), 0)
	stamp, value, err := ParseValue(step(Get, nil, 0))
	if err != nil || stamp != "1.2.3@m" || len(value) != 0 {
		t.Errorf("%q %q %v", stamp, value, err)
	}
	body := []byte("mine")
	step(Put, body, 0)
	body[0] = 'X' // what was put is the state's own
	if _, value, _ = ParseValue(step(Get, nil, 0)); string(value) != "mine" {
		t.Errorf("the value is %q", value)
	}
	step(Put, make([]byte, MaxValue), 0)
	step(Put, make([]byte, MaxValue+1), TooLarge)
	step(CAS, AppendCAS(nil, "1.2.3@m", make([]byte, MaxValue+1)), TooLarge)
	step(CAS, []byte{200}, BadRequest)
	step("explode", nil, BadRequest)
	if out := step(Delete, nil, 0); !bytes.Equal(out, []byte{1}) || len(state) != 0 {
		t.Errorf("delete: %v, left %v", out, state)
	}
}

func TestCounter(t *testing.T) {
	state := map[string]core.Page{}
	for _, x := range []struct {
		add  int64
		code uint16
		sum  int64
	}{{5, 0, 5}, {-7, 0, -2}, {math.MinInt64, Overflow, -2}, {math.MaxInt64, 0, math.MaxInt64 - 2}, {3, Overflow, math.MaxInt64 - 2}, {2, 0, math.MaxInt64}, {0, 0, math.MaxInt64}} {
		if _, code := run(t, Counter, state, Add, AppendInt(nil, x.add)); code != x.code {
			t.Fatalf("add %d gives code %d", x.add, code)
		}
		out, _ := run(t, Counter, state, Get, nil)
		if sum, err := ParseInt(out); err != nil || sum != x.sum {
			t.Fatalf("after %d the sum is %d, %v", x.add, sum, err)
		}
	}
	for _, body := range [][]byte{nil, {1}, make([]byte, 9)} {
		if _, code := run(t, Counter, state, Add, body); code != BadRequest {
			t.Errorf("add of %d bytes gives code %d", len(body), code)
		}
	}
	if _, code := run(t, Counter, state, "explode", nil); code != BadRequest {
		t.Error(code)
	}
	state[countPage] = core.Page{Name: countPage, Data: []byte{1, 2}}
	if _, code := run(t, Counter, state, Get, nil); code != Internal {
		t.Errorf("a page of two bytes gives code %d", code)
	}
}

func TestStamps(t *testing.T) {
	s := core.Stamp{Epoch: core.Epoch{Version: 7, Number: math.MaxUint64, Member: "a@b.c"}, Seq: 9}
	if back, err := ParseStamp(StampString(s)); err != nil || back != s {
		t.Errorf("%s is read as %v, %v", StampString(s), back, err)
	}
	for _, bad := range []string{"", "1.2.3", "1.2.3@", "1.2@m", "1.2.3.4@m", "a.2.3@m", "-1.2.3@m", "1.2.18446744073709551616@m"} {
		if _, err := ParseStamp(bad); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q gives %v", bad, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x071.2.3@mvalue"), "1.2.3@m")
	f.Fuzz(func(t *testing.T, b []byte, s string) {
		if expect, value, err := ParseCAS(b); err == nil {
			e2, v2, err := ParseCAS(AppendCAS(nil, expect, value))
			if err != nil || e2 != expect || !bytes.Equal(v2, value) {
				t.Errorf("%q %q are read again as %q %q, %v", expect, value, e2, v2, err)
			}
		}
		ParseInt(b)
		if stamp, err := ParseStamp(s); err == nil {
			if again, err := ParseStamp(StampString(stamp)); err != nil || again != stamp {
				t.Errorf("%v is read again as %v, %v", stamp, again, err)
			}
		}
	})
}
