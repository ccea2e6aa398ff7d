package actor

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"time"
)

// ErrStreamGone ends a stream whose key was moved, or whose actor ended, before it was through.
var ErrStreamGone = errors.New("stream is gone")

const (
	streamItems = 64       // that one answer carries
	streamBytes = 64 << 10 // likewise, one element more
	maxStreams  = 256      // of one activation
	streamIdle  = time.Minute
)

// stream is one under way at its actor: an iterator that goes on when it is asked, in the actor's turn.
type stream struct {
	name string                                // of the method
	next func() ([]byte, error, bool)          // of elements that the actor gives
	push func(in *chunk) ([]byte, bool, error) // of elements that it takes
	stop func()
	used time.Time
	late bool   // it was idle for too long: the message that ends it is on its way
	fail error  // that the handler has ended it with, after elements that went before
	seq  uint64 // of the last part
	last []byte // the answer to it
}

// chunk is a part of a stream on the wire.
type chunk struct {
	ID    string
	Seq   uint64 `codec:",omitempty"` // of the part, from 1 on: one that comes again is answered as before; 0 for any
	Items [][]byte
	End   bool   // there is no more
	Err   string // why it ended, if not in order
	Code  uint16
	Name  string // of the method, with the first chunk that a caller sends
	Body  []byte // the answer, with the end of a stream that the actor takes
}

// Source is a message that is answered by a stream of elements.
type Source[Req, T any] struct {
	d    *def
	name string
}

// Stream adds a message that is answered by a stream. The handler changes nothing. What it gives runs in the actor's turns,
// a few elements at a time, as the caller asks for more: it sees the state as it is then, and a slow caller holds up
// nobody. Other messages are run in between.
func Stream[S, Req, T any](t *Type[S], name string, f func(ctx context.Context, state *S, req Req) iter.Seq2[T, error]) *Source[Req, T] {
	d := t.d
	checkMethod[Req, T](d, name, f == nil)
	d.add(name, &methodDef{reads: true, open: func(ctx context.Context, state any, body []byte) (func() ([]byte, error, bool), func(), error) {
		req, err := decode[Req](d, body)
		if err != nil {
			return nil, nil, err
		}
		next, stop := iter.Pull2(f(ctx, state.(*S), req))
		return func() ([]byte, error, bool) {
			v, err, ok := next()
			if !ok || err != nil {
				return nil, err, ok
			}
			b, err := encode(d, &v)
			return b, err, true
		}, stop, nil
	}})
	return &Source[Req, T]{d, name}
}

// Ask asks for the stream. An error is the last element; it is ErrStreamGone if the key moved meanwhile.
func (s *Source[Req, T]) Ask(ctx context.Context, a Asker, key string, req Req) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		body, err := encode(s.d, &req)
		if err != nil {
			yield(zero, err)
			return
		}
		c := Call{Type: s.d.name, Key: key, Method: s.name, Body: body, Reads: true}
		id := ""
		for seq := uint64(1); ; seq++ {
			got, err := askChunk(ctx, a, c)
			if err != nil {
				s.close(ctx, a, key, id)
				yield(zero, s.d.known(err))
				return
			}
			if id = got.ID; got.End {
				id = ""
			}
			for _, b := range got.Items {
				v, err := decode[T](s.d, b)
				if !yield(v, err) || err != nil {
					s.close(ctx, a, key, id)
					return
				}
			}
			if got.End {
				return
			}
			c = Call{Type: s.d.name, Key: key, Method: nextMethod, Shown: s.name, Body: pack(&chunk{ID: id, Seq: seq}), Reads: true}
		}
	}
}

// remote is an error of a stream's handler.
type remote struct {
	code uint16
	text string
}

func (r *remote) Error() string       { return r.text }
func (r *remote) HandlerCode() uint16 { return r.code }

// close tells the actor that the caller wants no more, if there is any.
func (s *Source[Req, T]) close(ctx context.Context, a Asker, key, id string) {
	if id != "" {
		a.TellActor(context.WithoutCancel(ctx), Call{Type: s.d.name, Key: key, Method: nextMethod, Shown: s.name, Body: pack(&chunk{ID: id, End: true})})
	}
}

func askChunk(ctx context.Context, a Asker, c Call) (chunk, error) {
	body, err := a.AskActor(ctx, c)
	if code := coded(nil); errors.As(err, &code) && code.HandlerCode() == CodeGone {
		return chunk{}, fmt.Errorf("%w: %w", ErrStreamGone, err)
	}
	if err != nil {
		return chunk{}, err
	}
	return unpack(body)
}

func pack(c *chunk) []byte {
	b, err := MsgPack.Marshal(c)
	if err != nil {
		panic(err) // its fields can always be written
	}
	return b
}

func unpack(b []byte) (c chunk, err error) {
	if err := MsgPack.Unmarshal(b, &c); err != nil {
		return c, &Error{CodeBadBody, fmt.Sprintf("%d bytes are no part of a stream: %v", len(b), err)}
	}
	return c, nil
}

// streamOpen starts a stream and gives its first elements. The context of the stream is the activation's: that of the
// message ends with it.
func (i *instance) streamOpen(name string, m *methodDef, state any, body []byte) ([]byte, error) {
	i.flowing = name
	i.endIdle()
	next, stop, err := m.open(streamCtx{i.work(), i}, state, body)
	if err != nil {
		return nil, err
	}
	s := &stream{name: name, next: next, stop: stop}
	return i.streamRead(newID(), s)
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// endIdle has streams that nobody has used for long end in turns of their own: what their handlers do then belongs neither to
// the message that runs now, which may be a query, nor to its fate.
func (i *instance) endIdle() {
	for id, s := range i.streams {
		if s.late || time.Since(s.used) <= streamIdle {
			continue
		}
		s.late = true
		method, c := nextMethod, chunk{ID: id, End: true}
		if s.push != nil {
			method, c.Code, c.Err = pushMethod, CodeGone, fmt.Sprintf("it was idle for more than %s", streamIdle)
		}
		i.h.wg.Go(func() { i.own(method, pack(&c)) })
	}
}

func (i *instance) keepStream(id string, s *stream) error {
	n := 0
	for _, s := range i.streams {
		if !s.late {
			n++
		}
	}
	if i.streams[id] == nil && n >= maxStreams {
		s.stop()
		return &Error{CodeFailed, fmt.Sprintf("%s has %d streams under way; at most %d are allowed", i.key, n, maxStreams)}
	}
	if i.streams == nil {
		i.streams = map[string]*stream{}
	}
	s.used = time.Now()
	i.streams[id] = s
	return nil
}

// dropStream ends a stream without an answer: its handler is told so, and may do what it pleases. The turn is not its own,
// though it has the instance for itself: it is a caller's that wants no more, for which nothing is committed, or that of the
// first message on another state than the handler's, or the activation has ended. So there is no turn for it to change.
func (i *instance) dropStream(id string) {
	if s := i.streams[id]; s != nil {
		delete(i.streams, id)
		t := i.turn
		i.turn = nil
		i.protected(s.name, func() error { s.stop(); return nil })
		i.turn = t
	}
}

func (i *instance) gone(id string) error {
	return &Error{CodeGone, fmt.Sprintf("stream %s of %s is not on member %s: the key moved, or it was idle for %s; ask again", id, i.key, i.h.cfg.Member, streamIdle)}
}

// streamNext gives the next elements of a stream, or ends it.
func (i *instance) streamNext(body []byte) ([]byte, error) {
	c, err := unpack(body)
	if err != nil {
		return nil, err
	}
	s := i.streams[c.ID]
	if i.flowing = ""; s != nil {
		i.flowing = s.name
	}
	switch {
	case c.End:
		if s != nil && s.next != nil { // one that takes elements may change something: it is ended with them
			i.dropStream(c.ID)
		}
		return nil, nil
	case s == nil || s.next == nil || c.Seq != 0 && c.Seq != s.seq && c.Seq != s.seq+1:
		return nil, i.gone(c.ID)
	case c.Seq != 0 && c.Seq == s.seq:
		s.used = time.Now()
		return s.last, nil
	}
	return i.streamRead(c.ID, s)
}

func (i *instance) streamRead(id string, s *stream) ([]byte, error) {
	out := chunk{ID: id}
	goesOn := false
	defer func() {
		if !goesOn { // also if the handler panicked
			delete(i.streams, id)
			s.stop()
		}
	}()
	if s.fail != nil {
		return nil, s.fail
	}
	for size := 0; len(out.Items) < streamItems && size < streamBytes; {
		b, failed, ok := s.next()
		if failed != nil && len(out.Items) > 0 { // told with the next part, as other handlers' errors are
			s.fail = failed
			break
		}
		if failed != nil {
			return nil, failed
		}
		if !ok {
			out.End = true
			return pack(&out), nil
		}
		out.Items = append(out.Items, b)
		size += len(b)
	}
	s.last = pack(&out)
	if i.streams[id] != nil {
		s.seq++
	}
	err := i.h.fits(i.key, s.name, s.last)
	if err == nil {
		err = i.keepStream(id, s)
	}
	goesOn = err == nil
	return s.last, err
}

// Sink is a message that is a stream of elements.
type Sink[T, Resp any] struct {
	d    *def
	name string
}

// Collect adds a message that is a stream: the handler takes its elements in the actor's turns, a few at a time as they
// come, and other messages are run in between. What it has changed by the end of a turn is committed with it, so that a
// stream that breaks off leaves what came before.
func Collect[S, T, Resp any](t *Type[S], name string, f func(ctx context.Context, state *S, in iter.Seq2[T, error]) (Resp, error)) *Sink[T, Resp] {
	d := t.d
	checkMethod[T, Resp](d, name, f == nil)
	d.add(name, &methodDef{take: func(ctx context.Context, state any) *stream { return collect(d, ctx, state.(*S), f) }})
	return &Sink[T, Resp]{d, name}
}

// collect runs a handler as a coroutine: it is left whenever it has taken what has come.
func collect[S, T, Resp any](d *def, ctx context.Context, state *S, f func(context.Context, *S, iter.Seq2[T, error]) (Resp, error)) *stream {
	var in *chunk
	var resp Resp
	var failed error
	run := func(wait func(struct{}) bool) {
		resp, failed = f(ctx, state, func(yield func(T, error) bool) {
			var zero T
			for {
				for _, b := range in.Items {
					v, err := decode[T](d, b)
					if !yield(v, err) || err != nil {
						return
					}
				}
				if in.End {
					if in.Err != "" {
						yield(zero, broken(in))
					}
					return
				}
				if !wait(struct{}{}) {
					yield(zero, ErrStreamGone)
					return
				}
			}
		})
	}
	next, stop := iter.Pull(run)
	return &stream{stop: stop, push: func(c *chunk) ([]byte, bool, error) {
		in = c
		if _, more := next(); more {
			return nil, false, nil
		}
		if failed != nil {
			return nil, true, failed
		}
		b, err := encode(d, &resp)
		return b, true, err
	}}
}

// streamPush gives a handler the elements that have come.
func (i *instance) streamPush(_ context.Context, state any, body []byte) ([]byte, error) {
	c, err := unpack(body)
	if err != nil {
		return nil, err
	}
	s := i.streams[c.ID]
	i.flowing = ""
	if s == nil {
		m := i.d.methods[c.Name]
		if c.Name == "" || m == nil || m.take == nil {
			return nil, i.gone(c.ID)
		}
		i.endIdle()
		s = m.take(streamCtx{i.work(), i}, state)
		s.name = c.Name
	}
	i.flowing = s.name
	switch {
	case c.Seq != 0 && c.Seq == s.seq && s.last != nil:
		return s.last, nil
	case c.Seq != 0 && s.seq != 0 && c.Seq != s.seq+1:
		return nil, i.gone(c.ID)
	}
	goesOn := false
	defer func() {
		if !goesOn { // also if the handler panicked
			delete(i.streams, c.ID)
			s.stop()
		}
	}()
	answer, end, err := s.push(&c)
	if end || err != nil {
		return pack(&chunk{ID: c.ID, End: true, Body: answer}), err
	}
	s.seq, s.last = c.Seq, pack(&chunk{ID: c.ID})
	err = i.keepStream(c.ID, s)
	goesOn = err == nil
	return s.last, err
}

// broken gives the error that a stream ended with.
func broken(in *chunk) error {
	if in.Code == CodeGone {
		return fmt.Errorf("%w: %s", ErrStreamGone, in.Err)
	}
	return &remote{in.Code, in.Err}
}

// Send sends the elements of a stream, as fast as the actor takes them, and gives its answer: also if it wanted no more
// before the end. An error in the stream is given to the handler and ends it. The error is ErrStreamGone if the key moved
// meanwhile, and one of unknown outcome if the sending broke off after elements that were taken: what was committed until
// then stays.
func (s *Sink[T, Resp]) Send(ctx context.Context, a Asker, key string, in iter.Seq2[T, error]) (resp Resp, err error) {
	c := chunk{ID: newID(), Seq: 1, Name: s.name}
	size := 0
	var last chunk
	send := func() bool {
		last, err = askChunk(ctx, a, Call{Type: s.d.name, Key: key, Method: pushMethod, Shown: s.name, Body: pack(&c), Once: true, Further: c.Seq > 1})
		c, size = chunk{ID: c.ID, Seq: c.Seq + 1}, 0
		return err == nil && !last.End
	}
	for v, failed := range in {
		if failed != nil {
			c.End, c.Code, c.Err = true, CodeFailed, failed.Error()
			break
		}
		b, err := encode(s.d, &v)
		if err != nil {
			c.End, c.Code, c.Err = true, CodeFailed, err.Error()
			break
		}
		c.Items = append(c.Items, b)
		if size += len(b); (len(c.Items) >= streamItems || size >= streamBytes) && !send() {
			break
		}
	}
	if err == nil && !last.End {
		c.End = true
		send()
	}
	if err != nil {
		if e := coded(nil); !errors.As(err, &e) || e.HandlerCode() == 0 { // the handler may be waiting for more
			a.TellActor(context.WithoutCancel(ctx), Call{Type: s.d.name, Key: key, Method: pushMethod, Shown: s.name,
				Body: pack(&chunk{ID: c.ID, End: true, Code: CodeGone, Err: "the sender broke off"})})
		}
		return resp, s.d.known(err)
	}
	return decode[Resp](s.d, last.Body)
}
