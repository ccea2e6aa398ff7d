package actor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"chainmail/engine/core"
)

// timer sends its actor a message after a while.
type timer struct{ t *time.Timer }

func (t *timer) stop() { t.t.Stop() }

// After has a message sent to the actor itself, once, after d: if the handler succeeds, and as long as the activation lives.
// A timer of the same name is replaced. It is an error in a Query, and once the handler whose context it is has returned.
func After[Req, Resp any](ctx context.Context, name string, d time.Duration, m *Method[Req, Resp], req Req) error {
	return setTimer(ctx, name, d, 0, m, req)
}

// Every has a message sent to the actor itself again and again, d after the answer to the one before: if the handler succeeds,
// and as long as the activation lives. OnActivate is the place for it. A timer of the same name is replaced.
// Errors are those of After.
func Every[Req, Resp any](ctx context.Context, name string, d time.Duration, m *Method[Req, Resp], req Req) error {
	if d <= 0 {
		return fmt.Errorf("timer %q for %s: every %s is no pause", name, m.name, d)
	}
	return setTimer(ctx, name, d, d, m, req)
}

func setTimer[Req, Resp any](ctx context.Context, name string, first, every time.Duration, m *Method[Req, Resp], req Req) error {
	t, c, err := toSelf(ctx, m, req)
	if err != nil {
		return err
	}
	i := t.i
	return t.ask(fmt.Sprintf("timer %q", name), t.thenLater(func() []core.Change {
		i.arm(&i.timers, name, first, func() time.Duration { i.send(c); return every })
		return nil
	}))
}

// toSelf gives the turn, and the message to the actor itself.
func toSelf[Req, Resp any](ctx context.Context, m *Method[Req, Resp], req Req) (*Turn, Call, error) {
	t := Current(ctx)
	if t == nil {
		return nil, Call{}, fmt.Errorf("timer for %s: the context is not a handler's", m.name)
	}
	if t.i.d != m.d {
		return nil, Call{}, fmt.Errorf("timer of %s: %s is a method of type %s", t.i.key, m.name, m.d.name)
	}
	c, err := m.Call(t.Key(), req)
	return t, c, err
}

// StopTimer stops a timer of the actor's, if the handler succeeds. A query that asks for it fails.
func StopTimer(ctx context.Context, name string) {
	if t := Current(ctx); t != nil {
		t.must(fmt.Sprintf("StopTimer %q", name), t.thenLater(func() []core.Change { t.i.disarm(t.i.timers, name); return nil }))
	}
}

// send gives the actor a message and waits for the answer.
func (i *instance) send(c Call) {
	ctx, done := context.WithTimeout(i.ctx, ownTimeout)
	defer done()
	if _, err := i.h.cfg.Asker.AskActor(ctx, c); err != nil && i.ctx.Err() == nil {
		i.h.cfg.Logger.Warn("message of a timer failed", "key", i.key.String(), "method", c.Method, "error", err)
	}
}

// arm sets a timer; fire gives the pause until it is set again, 0 for never. The caller holds mu.
func (i *instance) arm(in *map[string]*timer, name string, d time.Duration, fire func() time.Duration) {
	if *in == nil {
		*in = map[string]*timer{}
	}
	i.disarm(*in, name)
	t := &timer{}
	(*in)[name] = t
	t.t = time.AfterFunc(max(d, 0), func() { i.fire(*in, name, t, fire) })
}

func (i *instance) disarm(in map[string]*timer, name string) {
	if t := in[name]; t != nil {
		t.stop()
		delete(in, name)
	}
}

func (i *instance) fire(in map[string]*timer, name string, t *timer, fire func() time.Duration) {
	if !i.h.begin() {
		return
	}
	defer i.h.wg.Done()
	again := fire()
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case in[name] != t || i.over:
	case again > 0:
		t.t.Reset(again)
	default:
		delete(in, name)
	}
}

// begin counts work that is not begun by the engine; it is false once the Host is closed.
func (h *Host) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	h.wg.Add(1)
	return true
}

const remindPrefix = "@remind/"

// reminder is a page: what is to be done, and when.
type reminder struct {
	At     int64 // Unix time in nanoseconds
	Every  time.Duration
	Method string
	Body   []byte
}

// Remind has a message sent to the actor itself at a time, and then again every so often, or never with 0. It is kept with
// the state: it survives crashes, moves and idle times, and takes effect once each time, late if nobody could run it.
// Times are those of the owner's clock. A reminder of the same name is replaced. Errors are those of After.
func Remind[Req, Resp any](ctx context.Context, name string, at time.Time, every time.Duration, m *Method[Req, Resp], req Req) error {
	switch {
	case every < 0:
		return fmt.Errorf("reminder %q for %s: every %s is no pause", name, m.name, every)
	case !time.Unix(0, at.UnixNano()).Equal(at):
		return fmt.Errorf("reminder %q for %s: %s is not between 1678 and 2262", name, m.name, at)
	}
	t, c, err := toSelf(ctx, m, req)
	if err != nil {
		return err
	}
	return t.ask(fmt.Sprintf("reminder %q", name), t.thenLater(func() []core.Change {
		return t.i.setReminder(name, reminder{at.UnixNano(), every, c.Method, c.Body})
	}))
}

// StopReminder removes a reminder, if the handler succeeds. A query that asks for it fails.
func StopReminder(ctx context.Context, name string) {
	if t := Current(ctx); t != nil {
		t.must(fmt.Sprintf("StopReminder %q", name), t.thenLater(func() []core.Change { return t.i.dropReminder(name) }))
	}
}

func (i *instance) setReminder(name string, r reminder) []core.Change {
	b, err := MsgPack.Marshal(&r)
	if err != nil {
		panic(err)
	}
	i.armReminder(name, r)
	return []core.Change{{Name: remindPrefix + name, Data: b}}
}

func (i *instance) dropReminder(name string) []core.Change {
	if i.remind[name] == nil {
		return nil
	}
	i.disarm(i.remind, name)
	return []core.Change{{Name: remindPrefix + name, Delete: true}}
}

// remindAgain is the pause after a reminder whose message was not answered.
const remindAgain = time.Second

func (i *instance) armReminder(name string, r reminder) {
	i.arm(&i.remind, name, time.Until(time.Unix(0, r.At)), func() time.Duration {
		i.own(remindMethod, []byte(name))
		return remindAgain // the message has set it anew, or failed
	})
}

// armReminders sets the timers of the reminders among the pages.
func (i *instance) armReminders(kept map[string]core.Page) {
	for n, p := range kept {
		if name, ok := strings.CutPrefix(n, remindPrefix); ok {
			var r reminder
			if err := MsgPack.Unmarshal(p.Data, &r); err != nil {
				i.h.cfg.Logger.Error("reminder cannot be read", "key", i.key.String(), "page", n, "error", err)
				continue
			}
			i.armReminder(name, r)
		}
	}
}

// reminded runs a reminder's message if it is due, and sets it for the next time with the same commit.
func (i *instance) reminded(ctx context.Context, t *Turn, e *core.Execute) ([]byte, error) {
	name := string(e.Body)
	b, ok := i.st.page(remindPrefix + name)
	if !ok {
		i.disarm(i.remind, name)
		return nil, nil
	}
	var r reminder
	if err := MsgPack.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if left := time.Until(time.Unix(0, r.At)); left > 0 {
		i.armReminder(name, r)
		return nil, nil
	}
	m := i.d.methods[r.Method]
	if m == nil || m.call == nil {
		return nil, &Error{CodeNoMethod, fmt.Sprintf("reminder %q of %s is for method %q, which type %s does not have", name, i.key, r.Method, i.d.name)}
	}
	if r.Every <= 0 {
		t.later = append(t.later, func() []core.Change { return i.dropReminder(name) })
	} else {
		next := r
		next.At = time.Now().Add(r.Every).UnixNano()
		t.later = append(t.later, func() []core.Change { return i.setReminder(name, next) })
	}
	return m.call(ctx, i.st.ptr.Interface(), r.Body)
}
