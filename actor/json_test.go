package actor

import (
	"context"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	"chainmail/engine/core"
)

// echo answers a call with its body.
type echo struct{ Asker }

func (echo) AskActor(_ context.Context, c Call) ([]byte, error) { return c.Body, nil }

func same[S, T any](t *Type[S], name string) {
	Query(t, name, func(_ context.Context, _ *S, v T) (T, error) { return v, nil })
}

// Messages are taken and given as JSON, those of protobuf in its own form of it; what cannot be meant is refused.
func TestAskJSON(t *testing.T) {
	typ := NewType("typ", Options[struct{ N int }]{Codec: Protobuf})
	same[struct{ N int }, struct{ A, B int }](typ, "plain")
	same[struct{ N int }, *structpb.Value](typ, "proto")
	if err := Check(typ); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct{ method, in, out, err string }{
		{"plain", `{"A":1,"B":2}`, `{"A":1,"B":2}`, ""},
		{"plain", ``, `{"A":0,"B":0}`, ""},
		{"plain", `{"A":1,"C":2}`, "", `unknown field "C"`},
		{"plain", `{"A":1} {}`, "", "goes on after its value"},
		{"plain", `{"A"`, "", "unexpected EOF"},
		{"plain", `[1]`, "", "cannot unmarshal array"},
		{"proto", `[1,"x",null]`, `[1,"x",null]`, ""},
		{"proto", `{`, "", "unexpected"},
	} {
		out, err := AskJSON(t.Context(), echo{}, typ, Call{Method: x.method, Body: []byte(x.in)})
		if got := strings.ReplaceAll(string(out), ", ", ","); got != x.out {
			t.Errorf("%s %s gives %s", x.method, x.in, out)
		}
		if (err == nil) != (x.err == "") || err != nil && !strings.Contains(err.Error(), x.err) {
			t.Errorf("%s %s: %v", x.method, x.in, err)
		}
	}
}

// A field that JSON has no form for does not keep the others from being shown.
func TestShowState(t *testing.T) {
	type state struct {
		F float64
		V *structpb.Value
		M Map[string, int]
	}
	pages := program(t, Protobuf, map[string]core.Page{}, func(s *state) {
		s.F, s.V = math.Inf(1), structpb.NewBoolValue(true)
		s.M.Set("a", 1)
	})
	kept := map[string][]byte{}
	for name, p := range pages {
		kept[name] = p.Data
	}
	got, err := ShowState(NewType("typ", Options[state]{Codec: Protobuf}), kept)
	if want := `{"F":"+Inf","M":{"pages":1},"V":true}`; err != nil || string(got) != want {
		t.Errorf("%s, %v; %s is wanted", got, err, want)
	}
}
