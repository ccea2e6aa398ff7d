package actor_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"math/big"
	"strings"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/engine/kinds"
)

type plain struct{ N int }

type hidden struct {
	n int //lint:ignore U1000 it is there to be refused
}

type base struct{ Kept int }

type halfJSON struct{ N int }

func (halfJSON) MarshalJSON() ([]byte, error) { return []byte(`"n"`), nil }

type halfBinary struct{ N int }

func (halfBinary) MarshalBinary() ([]byte, error) { return []byte("n"), nil }

type ringed struct { // refers to itself, which is fine
	Next *ringed
	All  map[string][]ringed
}

// check gives what is wrong with a type.
func check[S any](name string, o actor.Options[S]) error { return actor.Check(actor.NewType(name, o)) }

func state[S any]() error { return check("typ", actor.Options[S]{}) }

func with(f func(t *actor.Type[plain])) error {
	t := actor.NewType("typ", actor.Options[plain]{})
	f(t)
	return actor.Check(t)
}

func nothing[Req, Resp any](context.Context, *plain, Req) (r Resp, err error) { return r, nil }

// Each mistake in a definition is told when the type is defined, with the type's name and what is to be mended.
func TestDefinitionMistakes(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	for name, x := range map[string]struct {
		err  error
		want string // "" for no mistake; else what the text has, beside the type's name
	}{
		"fine": {check("typ", actor.Options[struct {
			A ringed
			T time.Time
			M actor.Map[string, ringed]
			L actor.List[[]byte]
			B actor.Blob
			h hidden
			C chan int `page:"-"`
			X any
			E struct{}
			I struct {
				N int
				c chan int
			}
			J struct {
				N int
				C chan int `json:"-"`
			}
		}]{Errors: map[uint16]error{0: one, 64535: two}}), ""},
		"no name":     {check("", actor.Options[plain]{}), "a name has 1 to 64 bytes"},
		"long name":   {check(strings.Repeat("n", 65), actor.Options[plain]{}), "a name has 1 to 64 bytes"},
		"name with @": {check("@typ", actor.Options[plain]{}), "a name has"},
		"name with /": {check("a/b", actor.Options[plain]{}), "a name has"},
		"no struct":   {state[int](), "the state int is no struct"},
		"pointer":     {state[*plain](), "is no struct"},
		"page twice": {state[struct {
			A, B int `page:"x"`
		}](), `fields A and B`},
		"page like a field": {state[struct {
			A int
			B int `page:"A"`
		}](), `are both page "A"`},
		"reserved page": {state[struct {
			A int `page:"@active"`
		}](), `without / and @: "@active"`},
		"page in a page": {state[struct {
			A int `page:"a/b"`
		}](), "without / and @"},
		"empty page": {state[struct {
			A int `page:""`
		}](), "a page's name has 1 to 128 bytes"},
		"long page": {state[struct {
			A int `page:"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"`
		}](), "a page's name has 1 to 128 bytes"},
		"channel":  {state[struct{ A chan int }](), "field A of struct { A chan int } cannot be kept: chan int is a chan"},
		"function": {state[struct{ A func() }](), "func() is a func"},
		"channel deeper": {state[struct {
			A map[string][]struct{ C chan int }
		}](), "field C of struct { C chan int }: chan int is a chan"},
		"complex":             {state[struct{ A complex128 }](), "complex128 is a complex128"},
		"interface":           {state[struct{ A io.Reader }](), "io.Reader is an interface"},
		"nothing exported":    {state[struct{ A hidden }](), "has no exported fields"},
		"embedded":            {state[struct{ base }](), "base is embedded"},
		"hidden container":    {state[struct{ m actor.Map[string, int] }](), "is a container and not exported"},
		"container deeper":    {state[struct{ A []actor.List[int] }](), "containers are fields of the state itself"},
		"container in a map":  {state[struct{ A actor.Map[string, actor.Blob] }](), "containers are fields of the state itself"},
		"function in a map":   {state[struct{ A actor.Map[string, func()] }](), "func() is a func"},
		"channel in a list":   {state[struct{ A actor.List[chan int] }](), "chan int is a chan"},
		"text alone":          {state[struct{ A *big.Int }](), "big.Int has no exported fields: nothing of it would be written; it can be written with JSON, or with MarshalBinary"},
		"text as a message":   {with(func(t *actor.Type[plain]) { actor.Handle(t, "do", nothing[big.Int, int]) }), "the message cannot be sent: big.Int has no"},
		"text with JSON":      {check("typ", actor.Options[struct{ A *big.Int }]{Codec: actor.JSON}), ""},
		"half JSON":           {check("typ", actor.Options[struct{ A []halfJSON }]{Codec: actor.JSON}), "halfJSON writes its JSON itself and does not read it"},
		"half JSON as fields": {state[struct{ A halfJSON }](), ""},
		"half binary": {check("typ", actor.Options[struct {
			A actor.Map[string, *halfBinary]
		}]{Codec: actor.Binary}), "halfBinary has one of MarshalBinary and UnmarshalBinary"},
		"half binary as fields": {state[struct{ A halfBinary }](), ""},
		"embedded by a pointer": {state[struct{ A struct{ *base } }](), "*actor_test.base is embedded in"},
		"swallowed": {state[struct {
			A struct {
				time.Time
				N int
			}
		}](), "time.Time is embedded in struct { time.Time; N int } and writes itself, without the fields beside it"},
		"not swallowed":        {state[struct{ A struct{ time.Time } }](), ""},
		"inline body":          {check("typ", actor.Options[plain]{Inline: true, Run: func(context.Context, *actor.Self[plain]) error { return nil }}), "Inline handlers do not wait"},
		"negative replicas":    {check("typ", actor.Options[plain]{Replicas: -1}), "none is below 0"},
		"pinned with replicas": {check("typ", actor.Options[plain]{Pinned: true, Replicas: 3}), "pinned keys have one copy, not 3"},
		"failure":              {check("typ", actor.Options[plain]{OnFailure: 9}), "OnFailure is 9"},
		"nil error":            {check("typ", actor.Options[plain]{Errors: map[uint16]error{7: nil}}), "error 7 is nil"},
		"error twice":          {check("typ", actor.Options[plain]{Errors: map[uint16]error{7: one, 8: one}}), `errors 7 and 8 are both "one"`},
		"big error":            {check("typ", actor.Options[plain]{Errors: map[uint16]error{64536: one}}), "codes are at most 64535"},
		"method twice": {with(func(t *actor.Type[plain]) {
			actor.Handle(t, "do", nothing[int, int])
			actor.Query(t, "do", nothing[int, int])
		}), `method "do" is there twice`},
		"stream like a method": {with(func(t *actor.Type[plain]) {
			actor.Handle(t, "do", nothing[int, int])
			actor.Stream(t, "do", func(context.Context, *plain, int) iter.Seq2[int, error] { return nil })
		}), `method "do" is there twice`},
		"no method name":         {with(func(t *actor.Type[plain]) { actor.Handle(t, "", nothing[int, int]) }), "a method's name has 1 to 128 bytes"},
		"reserved method":        {with(func(t *actor.Type[plain]) { actor.Query(t, "@next", nothing[int, int]) }), `without blanks, / and @: "@next"`},
		"nil handler":            {with(func(t *actor.Type[plain]) { actor.Handle[plain, int, int](t, "do", nil) }), `method "do" has no handler`},
		"nil stream":             {with(func(t *actor.Type[plain]) { actor.Stream[plain, int, int](t, "do", nil) }), `method "do" has no handler`},
		"nil sink":               {with(func(t *actor.Type[plain]) { actor.Collect[plain, int, int](t, "do", nil) }), `method "do" has no handler`},
		"channel in a message":   {with(func(t *actor.Type[plain]) { actor.Handle(t, "do", nothing[chan int, int]) }), `method "do": the message cannot be sent: chan int`},
		"function in an answer":  {with(func(t *actor.Type[plain]) { actor.Query(t, "do", nothing[int, []func()]) }), `method "do": the answer cannot be sent: func()`},
		"hidden answer":          {with(func(t *actor.Type[plain]) { actor.Query(t, "do", nothing[int, hidden]) }), "has no exported fields"},
		"container in an answer": {with(func(t *actor.Type[plain]) { actor.Query(t, "do", nothing[int, actor.List[int]]) }), `method "do": the answer`},
	} {
		t.Run(name, func(t *testing.T) {
			switch {
			case x.want == "" && x.err != nil:
				t.Errorf("refused: %v", x.err)
			case x.want == "":
			case x.err == nil:
				t.Error("not noticed")
			case !strings.Contains(x.err.Error(), x.want) || !strings.HasPrefix(x.err.Error(), `actor type "`):
				t.Errorf("%v\ndoes not say %q", x.err, x.want)
			}
		})
	}
}

// Types with one name are refused by the host of a member, as are those with a name of a built-in type.
func TestTypeNamesCollide(t *testing.T) {
	a, b := actor.NewType("same", actor.Options[plain]{}), actor.NewType("same", actor.Options[struct{}]{})
	wrong, kv := actor.NewType("x", actor.Options[int]{}), actor.NewType("kv", actor.Options[plain]{})
	for want, types := range map[string][]actor.Registered{
		`"same" is there twice`: {a, b}, `actor type "x": the state int`: {a, wrong}, `"kv" is there twice`: {kv},
	} {
		if h, err := actor.NewHost(actor.HostConfig{Types: types, Plain: kinds.Builtin()}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v gives %v, %v", want, h, err)
		}
	}
}

// A variable that is not set yet is no type.
func TestTypeThatIsNotMade(t *testing.T) {
	for _, typ := range []actor.Registered{nil, (*actor.Type[plain])(nil), &actor.Type[plain]{}} {
		if err := actor.Check(typ); err == nil {
			t.Errorf("%#v is a type", typ)
		}
		if _, err := chainmail.Start(t.Context(), chainmail.Config{Dev: true, Types: []actor.Registered{typ}}); err == nil {
			t.Errorf("a member starts with %#v", typ)
		}
	}
}
