package chainmail

import (
	"errors"
	"fmt"

	"chainmail/actor"
	"chainmail/engine"
	"chainmail/engine/core"
	"chainmail/engine/kinds"
)

// Errors of calls. Each says what the caller may do; errors.Is holds wherever the call was made.
var (
	// ErrUnavailable: the message was not run. No quorum of the key's replicas could be reached, or the key's range was
	// not filled, in time. Trying again later is safe.
	ErrUnavailable = errors.New("unavailable")
	// ErrUnknownOutcome: the message may have taken effect or not. Do not assume either.
	ErrUnknownOutcome = errors.New("unknown outcome")
	// ErrOverloaded: the message was not run because too many wait. Do not try again at once.
	ErrOverloaded = errors.New("overloaded")
	// ErrRejected: the call itself is wrong.
	ErrRejected = errors.New("rejected")
	// ErrFailed: the handler itself answered with an error, or panicked. What it changed is undone.
	ErrFailed = errors.New("handler failed")
	// ErrClosed: the node is closed.
	ErrClosed = errors.New("node is closed")
	// ErrNotFound: the key has no value.
	ErrNotFound = errors.New("not found")
	// ErrStampMismatch: a compare-and-swap found another stamp.
	ErrStampMismatch = errors.New("stamp differs")
	// ErrLastMember: the last member of a cluster cannot leave it.
	ErrLastMember = errors.New("the last member cannot leave")
	// ErrNoCluster: this member is part of no cluster.
	ErrNoCluster = errors.New("member is part of no cluster")
	// ErrPinned: this member holds keys that no other member has.
	ErrPinned = errors.New("member holds pinned keys")
	// ErrRemoved: this member was removed from the cluster.
	ErrRemoved = errors.New("member was removed from the cluster")
	// ErrSuperseded: the log lists a start of this member that its store does not know of.
	ErrSuperseded = errors.New("another process has this member's store or a copy of it, or an older state of it was put back: stop that one; start one of them with an empty store (its data directory moved away, or its schema dropped)")
	// ErrMemory: a page in this member's memory did not match its checksum.
	ErrMemory = engine.ErrMemory
)

// CallError is a failed call: its class is what errors.Is finds.
type CallError struct {
	Class   error // one of the errors above
	Type    string
	Key     string
	Method  string
	Version uint64 // of the placement that decided it
	AppCode uint16 // of the handler, 0 if it did not run
	Text    string
}

func (e *CallError) Error() string {
	return fmt.Sprintf("%s %s/%s at version %d: %s: %s", e.Method, e.Type, e.Key, e.Version, e.Class, e.Text)
}

func (e *CallError) Unwrap() error { return e.Class }

// HandlerCode is AppCode.
func (e *CallError) HandlerCode() uint16 { return e.AppCode }

// Code is the class's stable name, as in the HTTP API.
func (e *CallError) Code() string {
	for code, err := range classes {
		if err == e.Class {
			return code
		}
	}
	return "rejected"
}

// classes gives the errors their names in the HTTP API.
var classes = map[string]error{
	"unavailable": ErrUnavailable, "unknown-outcome": ErrUnknownOutcome, "overloaded": ErrOverloaded, "rejected": ErrRejected,
	"not-found": ErrNotFound, "handler-failed": ErrFailed, "stamp-mismatch": ErrStampMismatch, "closed": ErrClosed,
}

// ErrorClass gives the class of a code of the HTTP API, nil for an unknown one.
func ErrorClass(code string) error { return classes[code] }

// callError turns a result into an error, nil if it is OK.
func callError(k core.Key, method string, r core.Result) error {
	if r.Code == core.CodeOK {
		return nil
	}
	e := &CallError{Type: k.Type, Key: k.Name, Method: method, Version: r.Version, AppCode: r.AppCode, Text: r.Text}
	switch r.Code {
	case core.CodeUnavailable, core.CodeClosing, core.CodeRedirect:
		e.Class = ErrUnavailable
	case core.CodeUnknownOutcome:
		e.Class = ErrUnknownOutcome
	case core.CodeOverloaded:
		e.Class = ErrOverloaded
	default:
		e.Class = ErrRejected
	}
	switch r.AppCode {
	case kinds.NotFound:
		e.Class = ErrNotFound
	case kinds.StampMismatch:
		e.Class = ErrStampMismatch
	case actor.CodeUnknown:
		e.Class = ErrUnknownOutcome
	case actor.CodeNoMethod, actor.CodeBadBody, actor.CodeReused: // the call is wrong
	default:
		if r.AppCode >= actor.CodeFailed {
			e.Class = ErrFailed
		}
	}
	return e
}
