package actor_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
)

// What cannot be written is an error where it is found: in the state, in an entry, in an answer and in a message. Nothing is
// committed with it.
func TestWhatCannotBeWritten(t *testing.T) {
	type doc struct {
		N   int
		Any any
		M   actor.Map[string, any]
	}
	type part struct {
		N int
		F func()
	}
	values := map[string]any{
		"a channel": make(chan int), "a function": func() {}, "inside a list": []any{1, make(chan int)}, "inside a map": map[string]any{"a": func() {}},
		"a field": part{}, "a list of them": []chan int{nil}, "behind a pointer": &part{},
	}
	for name, codec := range map[string]actor.Codec{"MsgPack": actor.MsgPack, "JSON": actor.JSON, "Protobuf": actor.Protobuf} {
		typ := actor.NewType("doc", actor.Options[doc]{Codec: codec})
		put := actor.Handle(typ, "put", func(_ context.Context, d *doc, x [2]string) (any, error) {
			d.N++
			switch v := values[x[1]]; x[0] {
			case "field":
				d.Any = v
			case "entry":
				d.M.Set("a", v)
			case "answer":
				return v, nil
			}
			return 1, nil
		})
		take := actor.Handle(typ, "take", func(_ context.Context, d *doc, v any) (int, error) { d.N++; return d.N, nil })
		look := actor.Query(typ, "look", func(_ context.Context, d *doc, _ actor.None) (int, error) { return d.N, nil })
		c := chainmailtest.New(t, chainmailtest.Options{Members: 1, Types: []actor.Registered{typ}})
		ctx := within(t, time.Minute)
		for what, v := range values {
			for _, where := range []string{"field", "entry", "answer"} {
				if got, err := put.Ask(ctx, c, "k", [2]string{where, what}); !errors.Is(err, chainmail.ErrFailed) || !strings.Contains(err.Error(), "doc") {
					t.Errorf("%s: %s as %s: %v, %v", name, what, where, got, err)
				}
			}
			if _, err := take.Ask(ctx, c, "k", v); err == nil {
				t.Errorf("%s: %s is sent", name, what)
			}
		}
		if n := must(look.Ask(ctx, c, "k", actor.None{})); n != 0 {
			t.Errorf("%s: %d messages had an effect", name, n)
		}
		if _, err := take.Ask(ctx, c, "k", map[string]any{"a": []any{1, "x", nil}}); err != nil {
			t.Errorf("%s: what can be written: %v", name, err)
		}
	}
}
