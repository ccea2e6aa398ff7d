package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// Kinds is a Runner of pure handlers alone: they run at once, on the core's goroutine.
type Kinds map[string]kinds.Handler

// Run runs one message. A handler that panics answers its message with kinds.Internal and changes nothing.
func (k Kinds) Run(e *core.Execute, _ func(*core.Executed)) *core.Executed {
	x := &core.Executed{Activation: e.Activation, Seq: e.Seq}
	body, changes, err := k.call(e)
	if err == nil {
		x.Body, x.Changes = body, changes
		return x
	}
	var app *kinds.AppError
	if errors.As(err, &app) {
		x.AppCode, x.Text, x.Body = app.Code, app.Text, body
	} else {
		x.AppCode, x.Text = kinds.Internal, err.Error()
	}
	return x
}

func (k Kinds) call(e *core.Execute) (body []byte, changes []core.Change, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler of %s panicked on %q: %v", e.Key, e.Method, p)
		}
	}()
	h := k[e.Key.Type]
	if h == nil {
		return nil, nil, &kinds.AppError{Code: kinds.BadRequest, Text: fmt.Sprintf("actor type %q is not known here; register it or use one of %v", e.Key.Type, sorted(k))}
	}
	return h(e.State, e.Method, e.Body)
}

// Ended has nothing to drop: pure handlers keep nothing.
func (k Kinds) Ended(*core.Ended) {}

func sorted(k Kinds) []string { return slices.Sorted(maps.Keys(k)) }
