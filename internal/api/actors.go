package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"chainmail"
	"chainmail/actor"
	"chainmail/engine/kinds"
)

// Value is a kv value in JSON: as text where it is UTF-8, else in base64.
type Value struct {
	Text   *string `json:"value,omitempty"`
	Base64 *string `json:"value_base64,omitempty"`
	Stamp  string  `json:"stamp,omitempty"`
	Expect *string `json:"expect,omitempty"` // of a compare-and-swap: the stamp, "" for no value
}

// MakeValue gives a value's JSON form.
func MakeValue(b []byte) Value {
	if utf8.Valid(b) {
		s := string(b)
		return Value{Text: &s}
	}
	s := base64.StdEncoding.EncodeToString(b)
	return Value{Base64: &s}
}

// Bytes is the way back from MakeValue.
func (v Value) Bytes() ([]byte, error) {
	switch {
	case v.Text != nil && v.Base64 == nil:
		return []byte(*v.Text), nil
	case v.Base64 != nil && v.Text == nil:
		return base64.StdEncoding.DecodeString(*v.Base64)
	}
	return nil, errors.New("either value or value_base64 is needed")
}

// Deleted answers a kv delete.
type Deleted struct {
	Deleted bool `json:"deleted"` // there was a value
}

// Delta is the body of a counter's add, Sum the answer of it and of get.
type Delta struct {
	Delta int64 `json:"delta"`
}

// Sum is described at Delta.
type Sum struct {
	Sum int64 `json:"sum"`
}

// method gives the handler's body for a JSON body, and the JSON answer for the handler's. Reading methods may be asked
// with GET.
type method struct {
	reads bool
	in    func(r *http.Request) ([]byte, error)
	out   func(a chainmail.Answer) (any, error)
}

func none(r *http.Request) ([]byte, error) { return nil, body(r, &struct{}{}) }

func stamped(a chainmail.Answer) (any, error) { return Value{Stamp: a.Stamp}, nil }

func sum(a chainmail.Answer) (any, error) {
	n, err := kinds.ParseInt(a.Body)
	return Sum{n}, err
}

func put(r *http.Request) ([]byte, error) {
	var v Value
	if err := body(r, &v); err != nil {
		return nil, err
	}
	b, err := v.Bytes()
	if err != nil {
		return nil, problem("bad-request", "%v", err)
	}
	if v.Expect != nil {
		return nil, problem("bad-request", "put takes no expected stamp; use cas")
	}
	return b, nil
}

func cas(r *http.Request) ([]byte, error) {
	var v Value
	if err := body(r, &v); err != nil {
		return nil, err
	}
	b, err := v.Bytes()
	if err != nil || v.Expect == nil {
		return nil, problem("bad-request", "cas needs expect (a stamp, or \"\" for no value) and value or value_base64")
	}
	return kinds.AppendCAS(nil, *v.Expect, b), nil
}

// methods are those of the built-in types.
var methods = map[string]map[string]method{
	kinds.KV: {
		kinds.Get: {true, none, func(a chainmail.Answer) (any, error) {
			stamp, b, err := kinds.ParseValue(a.Body)
			v := MakeValue(b)
			v.Stamp = stamp
			return v, err
		}},
		kinds.Put: {false, put, stamped},
		kinds.CAS: {false, cas, stamped},
		kinds.Delete: {false, none, func(a chainmail.Answer) (any, error) {
			return Deleted{len(a.Body) == 1 && a.Body[0] == 1}, nil
		}},
	},
	kinds.Counter: {
		kinds.Get: {true, none, sum},
		kinds.Add: {false, func(r *http.Request) ([]byte, error) {
			d := Delta{Delta: 1}
			err := body(r, &d)
			return kinds.AppendInt(nil, d.Delta), err
		}, sum},
	},
}

func (s *Server) ask(w http.ResponseWriter, r *http.Request) error {
	typ, name := r.PathValue("type"), r.PathValue("method")
	reads, err := s.known(typ, name)
	if err != nil {
		return err
	}
	if r.Method == http.MethodGet && !reads {
		return problem("bad-request", "%s of %s changes the key: use POST", name, typ)
	}
	ctx, done, err := due(r)
	if err != nil {
		return err
	}
	defer done()
	if m, ok := methods[typ][name]; ok {
		return s.askPlain(ctx, w, r, m)
	}
	var raw json.RawMessage
	if err := body(r, &raw); err != nil {
		return err
	}
	age, err := requestAge(r)
	if err != nil {
		return err
	}
	out, err := actor.AskJSON(ctx, s.node, s.types[typ], actor.Call{Key: r.PathValue("key"), Method: name, Body: raw, RequestID: requestID(r), Tried: age})
	var bad *actor.Error
	if errors.As(err, &bad) { // found before it was sent
		return problem("bad-request", "%v", err)
	}
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, json.RawMessage(out))
}

// known says whether a method reads; an error if there is no such type or method.
func (s *Server) known(typ, name string) (reads bool, err error) {
	if t := s.types[typ]; t != nil {
		reads, ok := actor.Reads(t, name)
		if !ok {
			return false, problem("rejected", "type %s has no method %q; it has %s", typ, name, strings.Join(actor.Methods(t), ", "))
		}
		return reads, nil
	}
	if methods[typ] == nil {
		return false, s.unknownType(typ)
	}
	m, ok := methods[typ][name]
	if !ok {
		return false, problem("rejected", "type %s has no method %q", typ, name)
	}
	return m.reads, nil
}

func (s *Server) unknownType(typ string) error {
	return problem("rejected", "type %q is not known on member %s; it has %s", typ, s.node.ID(), strings.Join(s.typeNames(), ", "))
}

func (s *Server) typeNames() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for n := range methods {
			if !yield(n) {
				return
			}
		}
		for n := range s.types {
			if !yield(n) {
				return
			}
		}
	})
}

// idHeader is the caller's name for a request: the same one again takes effect once. ageHeader says how long ago it was first
// sent under that name; 0 is for the first time. By it a key knows whether it may have forgotten the request meanwhile.
const (
	idHeader  = "Idempotency-Key"
	ageHeader = "Idempotency-Age"
)

func requestID(r *http.Request) string { return r.Header.Get(idHeader) }

func requestAge(r *http.Request) (time.Duration, error) {
	text := r.Header.Get(ageHeader)
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || requestID(r) == "" {
		return 0, problem("bad-request", "%s is %q; a duration like 1.5s is meant, beside %s", ageHeader, text, idHeader)
	}
	return d, nil
}

// askPlain asks a built-in type.
func (s *Server) askPlain(ctx context.Context, w http.ResponseWriter, r *http.Request, m method) error {
	in, err := m.in(r)
	if err != nil {
		return err
	}
	ask := s.node.Once
	if m.reads {
		ask = s.node.Read
	}
	age, err := requestAge(r)
	if err != nil {
		return err
	}
	a, err := ask(ctx, r.PathValue("type"), r.PathValue("key"), r.PathValue("method"), in, chainmail.RequestID(requestID(r)), chainmail.Repeated(age))
	if err != nil {
		return err
	}
	out, err := m.out(a)
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, out)
}

func (s *Server) explain(w http.ResponseWriter, r *http.Request) error {
	if typ := r.PathValue("type"); methods[typ] == nil && s.types[typ] == nil {
		return s.unknownType(typ)
	}
	e, err := s.node.Explain(r.Context(), r.PathValue("type"), r.PathValue("key"))
	if err != nil {
		return err
	}
	return reply(w, http.StatusOK, e)
}

// Item is one key of a list: what its value is depends on the type.
type Item struct {
	Key    string          `json:"key"`
	Member string          `json:"member"`
	Value  json.RawMessage `json:"value"`
}

// Page is a part of the keys that a member owns.
type Page struct {
	Items []Item `json:"items"`
	More  bool   `json:"more"` // ask again with after=the last key
}

const defaultLimit, maxLimit = 100, 1000

// list gives the keys of ?type= that ?member= owns, after ?after=, with ?prefix=.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := number(r, "limit", defaultLimit)
	if err != nil {
		return err
	}
	member := q.Get("member")
	if member == "" {
		member = s.node.ID()
	}
	if _, ok := s.node.Coordinator().Placement().Member(member); !ok {
		return problem("unknown-member", "no member %s", member)
	}
	typ := q.Get("type")
	if methods[typ] == nil && s.types[typ] == nil {
		return problem("bad-request", "list needs a type: %s, not %q", strings.Join(s.typeNames(), ", "), typ)
	}
	p, err := s.node.List(r.Context(), member, typ, q.Get("prefix"), q.Get("after"), int(min(max(limit, 1), maxLimit)))
	if err != nil {
		return problem("unavailable", "%v", err)
	}
	out := Page{Items: []Item{}, More: p.More}
	for _, it := range p.Items {
		v, err := s.itemValue(typ, it)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, Item{it.Key, it.Member, v})
	}
	return reply(w, http.StatusOK, out)
}

func (s *Server) itemValue(typ string, it chainmail.Item) (json.RawMessage, error) {
	if t := s.types[typ]; t != nil {
		return actor.ShowState(t, it.Pages)
	}
	for name, data := range it.Pages {
		if strings.HasPrefix(name, "@") { // the engine's own
			continue
		}
		if typ == kinds.Counter {
			n, err := kinds.ParseInt(data)
			if err != nil {
				return nil, err
			}
			return json.Marshal(Sum{n})
		}
		return json.Marshal(MakeValue(data))
	}
	return json.RawMessage("null"), nil
}
