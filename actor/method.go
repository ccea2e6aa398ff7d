package actor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// None is the message, or the answer, that says nothing.
type None struct{}

// Call is a message on its way to its actor.
type Call struct {
	Type, Key, Method string
	Body              []byte
	Shown             string        // what errors call the method; "": Method
	RequestID         string        // "": none
	Tried             time.Duration // how long ago the message was first sent under RequestID; 0: now
	Once              bool          // a request id is made up and the message repeated under it while the outcome is unknown
	Reads             bool          // the handler changes nothing: it may be run again
	Local             bool          // of a read: the owner alone may answer
	Further           bool          // a part of a stream of which others were taken: that it was not run is not that nothing was
}

// Asker is where calls come from: a *chainmail.Node.
type Asker interface {
	// AskActor gives a message to its actor and waits for the answer.
	AskActor(ctx context.Context, c Call) ([]byte, error)
	// TellActor gives a message to its actor and does not wait.
	TellActor(ctx context.Context, c Call) error
}

// Method is a message that actors of one type understand, with its answer.
type Method[Req, Resp any] struct {
	d    *def
	name string
	m    *methodDef
	fast func(ctx context.Context, state any, req Req) (Resp, error) // of queries that the owner alone answers; nil: none
}

// methodDef is a Method without its type parameters.
type methodDef struct {
	reads    bool
	local    bool
	call     func(ctx context.Context, state any, body []byte) ([]byte, error)
	take     func(ctx context.Context, state any) *stream                                                                  // of a stream that the actor takes
	open     func(ctx context.Context, state any, body []byte) (next func() ([]byte, error, bool), stop func(), err error) // of a stream
	fromJSON func(raw []byte) ([]byte, error)
	toJSON   func(body []byte) ([]byte, error)
}

// Handle adds a message that may change the state.
func Handle[S, Req, Resp any](t *Type[S], name string, f func(ctx context.Context, state *S, req Req) (Resp, error)) *Method[Req, Resp] {
	return add(t, name, false, f)
}

// Query adds a message that changes nothing: it is answered without a commit. A change that it makes all the same is
// taken back and told as an error, wherever it can be seen cheaply: in fields without pointers, and in containers. What is
// behind a field's pointers, slices and maps must not be changed, nor given to a pointer, slice or map: that is neither seen nor
// taken back, and the next message that changes the state may commit it. Timers, reminders, Delete and Stop are not for queries
// either: see After and Turn.
func Query[S, Req, Resp any](t *Type[S], name string, f func(ctx context.Context, state *S, req Req) (Resp, error)) *Method[Req, Resp] {
	return add(t, name, true, f)
}

func add[S, Req, Resp any](t *Type[S], name string, reads bool, f func(context.Context, *S, Req) (Resp, error)) *Method[Req, Resp] {
	d := t.d
	checkMethod[Req, Resp](d, name, f == nil)
	m := &methodDef{reads: reads, local: reads && d.set.LocalReads, fromJSON: fromJSON[Req](d), toJSON: toJSON[Resp](d),
		call: func(ctx context.Context, state any, body []byte) ([]byte, error) {
			req, err := decode[Req](d, body)
			if err != nil {
				return nil, err
			}
			resp, err := f(ctx, state.(*S), req)
			if err != nil {
				return nil, err
			}
			return encode(d, &resp)
		}}
	d.add(name, m)
	out := &Method[Req, Resp]{d: d, name: name, m: m}
	if m.local && isValue(reflect.TypeFor[Req]()) && isValue(reflect.TypeFor[Resp]()) {
		out.fast = func(ctx context.Context, state any, req Req) (Resp, error) { return f(ctx, state.(*S), req) }
	}
	return out
}

// maxMethodName bounds a method's name.
const maxMethodName = 128

// checkMethod tells what is wrong with a method's handler, and the types of its message and answer.
func checkMethod[Req, Resp any](d *def, name string, missing bool) {
	if missing {
		d.fail("method %q has no handler", name)
	}
	d.checkSent(name, "message", reflect.TypeFor[Req]())
	d.checkSent(name, "answer", reflect.TypeFor[Resp]())
}

func (d *def) checkSent(name, what string, t reflect.Type) {
	switch why := d.misfit(t); {
	case hasBox(t, nil):
		d.fail("method %q: the %s %s has a container inside, which is not sent", name, what, t)
	case why != "":
		d.fail("method %q: the %s cannot be sent: %s", name, what, why)
	}
}

func (d *def) add(name string, m *methodDef) {
	switch {
	case name == "" || len(name) > maxMethodName || strings.ContainsAny(name, "/@ \t\n"):
		d.fail("a method's name has 1 to %d bytes, without blanks, / and @: %q", maxMethodName, name)
	case d.methods[name] != nil:
		d.fail("method %q is there twice", name)
	default:
		d.methods[name] = m
	}
}

// Name gives the method's name on the wire.
func (m *Method[Req, Resp]) Name() string { return m.name }

// Ask sends the message to the actor of a key and waits for its answer: until ctx ends, or 5 seconds if it has no deadline.
// A message that changes the state carries a request id, by which it takes effect once however often it had to be sent.
// Errors are those of package chainmail, or of Options.Errors: errors.Is holds for both.
func (m *Method[Req, Resp]) Ask(ctx context.Context, a Asker, key string, req Req) (Resp, error) {
	if m.fast != nil {
		if resp, here := m.askHere(ctx, a, key, req); here {
			return resp, nil
		}
	}
	c, err := m.Call(key, req)
	if err != nil {
		var none Resp
		return none, err
	}
	return m.ask(ctx, a, c)
}

// AskOnce is Ask under a request id of the caller's own, of at most 128 bytes: who asks again with the same id, from any
// member and after any failure of its own, gets the first answer, as long as the key remembers it (see Options.Window). An answer above 64 KiB is not kept: who asks
// again gets chainmail.ErrUnknownOutcome, whose text says that the message took effect. An id that was used for another
// method of the key is chainmail.ErrRejected.
// A key that is deleted remembers nothing any more, so the same id is run again after that. To be told ErrUnknownOutcome
// instead, send m.Call with Call.Tried: how long ago the message was first sent. Repeats that Ask makes by itself do so.
func (m *Method[Req, Resp]) AskOnce(ctx context.Context, a Asker, key, id string, req Req) (Resp, error) {
	c, err := m.Call(key, req)
	if err != nil {
		var none Resp
		return none, err
	}
	c.RequestID = id
	return m.ask(ctx, a, c)
}

func (m *Method[Req, Resp]) ask(ctx context.Context, a Asker, c Call) (Resp, error) {
	body, err := a.AskActor(ctx, c)
	if err != nil {
		var none Resp
		return none, m.d.known(err)
	}
	return decode[Resp](m.d, body)
}

// Tell sends the message and does not wait: an error says that it was not sent. It is delivered at most once.
func (m *Method[Req, Resp]) Tell(ctx context.Context, a Asker, key string, req Req) error {
	c, err := m.Call(key, req)
	if err != nil {
		return err
	}
	return a.TellActor(ctx, c)
}

// Call gives the message as it is sent, for callers that want to change it.
func (m *Method[Req, Resp]) Call(key string, req Req) (Call, error) {
	body, err := encode(m.d, &req)
	return Call{Type: m.d.name, Key: key, Method: m.name, Body: body, Once: !m.m.reads && m.d.set.Window > 0, Reads: m.m.reads, Local: m.m.local}, err
}

// coded is an error that carries the code of a handler's error.
type coded interface {
	error
	HandlerCode() uint16
}

// known gives an error of Options.Errors back to the caller as what it was.
func (d *def) known(err error) error {
	var c coded
	if errors.As(err, &c) && c.HandlerCode() >= firstCode {
		if e := d.errors[c.HandlerCode()-firstCode]; e != nil {
			return fmt.Errorf("%w: %w", e, err)
		}
	}
	return err
}

// codeOf gives the code under which a handler's error travels.
func (d *def) codeOf(err error) uint16 {
	var own *Error
	if errors.As(err, &own) {
		return own.Code
	}
	for _, code := range d.codes {
		if errors.Is(err, d.errors[code]) {
			return firstCode + code
		}
	}
	return CodeFailed
}

// Codes of handlers' errors on the wire. Those of the built-in types are below CodeFailed, those of Options.Errors begin
// at firstCode.
const (
	CodeFailed   uint16 = 100 + iota // an error without a code
	CodePanic                        // the handler panicked
	CodeNoMethod                     // the type has no such method
	CodeBadBody                      // the message cannot be decoded
	CodeUnknown                      // a repeated request that may have been run is not in the window any more
	CodeGone                         // the stream is not here any more
	CodeReused                       // the request's id is that of a message for another method
	firstCode    uint16 = 1000
)

// Error is an error with the code under which it travels.
type Error struct {
	Code uint16
	Text string
}

func (e *Error) Error() string { return e.Text }

// nothing is None as MsgPack writes it: it need not be made each time. It is never changed.
var nothing = func() []byte {
	b, _ := MsgPack.Marshal(new(None))
	return slices.Clip(b)
}()

func isNone[T any](d *def) bool {
	_, none := any((*T)(nil)).(*None)
	return none && d.codec == MsgPack
}

func decode[T any](d *def, body []byte) (v T, err error) {
	if isNone[T](d) && bytes.Equal(body, nothing) {
		return v, nil
	}
	if err := d.codec.Unmarshal(body, &v); err != nil {
		return v, &Error{CodeBadBody, fmt.Sprintf("type %s: %d bytes are no %T: %v", d.name, len(body), v, err)}
	}
	return v, nil
}

func encode[T any](d *def, v *T) ([]byte, error) {
	if isNone[T](d) {
		return nothing, nil
	}
	b, err := d.codec.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("type %s: encode %T: %w", d.name, *v, err)
	}
	return b, nil
}

// JSON forms, for callers that are no Go programs: those of protobuf for its messages.
func fromJSON[T any](d *def) func([]byte) ([]byte, error) {
	return func(raw []byte) ([]byte, error) {
		var v T
		if len(raw) > 0 {
			if err := readJSON(raw, &v); err != nil {
				return nil, &Error{CodeBadBody, fmt.Sprintf("type %s: %v", d.name, err)}
			}
		}
		return encode(d, &v)
	}
}

// readJSON refuses fields that are not known: a misspelt one would be lost without a word.
func readJSON(raw []byte, v any) error {
	if m, ok := pointee(v, true).(proto.Message); ok {
		return protojson.Unmarshal(raw, m)
	}
	r := json.NewDecoder(bytes.NewReader(raw))
	r.DisallowUnknownFields()
	if err := r.Decode(v); err != nil {
		return err
	}
	if _, err := r.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the JSON goes on after its value")
	}
	return nil
}

func toJSON[T any](d *def) func([]byte) ([]byte, error) {
	return func(body []byte) ([]byte, error) {
		v, err := decode[T](d, body)
		if err != nil {
			return nil, err
		}
		return marshalJSON(&v)
	}
}

func marshalJSON(v any) ([]byte, error) {
	if m, ok := pointee(v, false).(proto.Message); ok {
		return protojson.Marshal(m)
	}
	return json.Marshal(v)
}

// AskJSON sends a message whose body is JSON and gives the answer as JSON. Of c, Type and what depends on the method are
// filled in.
func AskJSON(ctx context.Context, a Asker, t Registered, c Call) ([]byte, error) {
	d := t.definition()
	m := d.methods[c.Method]
	if m == nil || m.call == nil {
		return nil, &Error{CodeNoMethod, fmt.Sprintf("type %s has no method %q; it has %s", d.name, c.Method, strings.Join(d.names(), ", "))}
	}
	body, err := m.fromJSON(c.Body)
	if err != nil {
		return nil, err
	}
	c.Type, c.Body, c.Reads, c.Local, c.Once = d.name, body, m.reads, m.local, !m.reads && d.set.Window > 0
	out, err := a.AskActor(ctx, c)
	if err != nil {
		return nil, d.known(err)
	}
	return m.toJSON(out)
}

// Reads says whether a method changes nothing; ok is false for one that the type does not have, or
// that is a stream.
func Reads(t Registered, method string) (reads, ok bool) {
	m := t.definition().methods[method]
	ok = m != nil && m.call != nil
	return ok && m.reads, ok
}

// Methods gives the names of a type's methods that can be asked for one answer.
func Methods(t Registered) []string { return t.definition().names() }

func (d *def) names() []string {
	var out []string
	for n, m := range d.methods {
		if m.call != nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
