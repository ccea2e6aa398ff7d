package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	seen := map[uint16]error{}
	for _, err := range []error{ErrNotLeader, ErrNoLeader, ErrUnknownOutcome, ErrFormed, ErrWrongCluster, ErrClosed, ErrRemoved, ErrAddress} {
		code := ErrorCode(fmt.Errorf("do this: %w", err))
		if code>>8 != 0x40 || seen[code] != nil {
			t.Errorf("%v has code %#x, as %v", err, code, seen[code])
		}
		seen[code] = err
		if back := ErrorOf(code); back != err {
			t.Errorf("%v came back as %v", err, back)
		}
	}
	if len(seen) != len(codes) {
		t.Errorf("%d codes, %d tried", len(codes), len(seen))
	}
	for _, err := range []error{nil, errors.New("other"), context.Canceled, ErrWiped, ErrRefused} {
		if code := ErrorCode(err); code != 0 {
			t.Errorf("%v has code %#x", err, code)
		}
	}
	if ErrorOf(0) != nil || ErrorOf(0x4fff) != nil {
		t.Error("unknown codes are errors")
	}
	// One that is several: always the same, and never a refusal when the outcome is not known.
	for range 50 {
		if code := ErrorCode(fmt.Errorf("%w: %w: %w", ErrNotLeader, ErrClosed, ErrUnknownOutcome)); ErrorOf(code) != ErrUnknownOutcome {
			t.Fatalf("an unknown outcome travels as %v", ErrorOf(code))
		}
	}
}

func TestRefusal(t *testing.T) {
	t.Parallel()
	for code := membership.OK; code <= membership.ErrKeyReused; code++ {
		err := refusal(membership.Result{Code: code, ID: "c-7", Version: 9, Text: "because"})
		if none := code == membership.OK || code == membership.Unchanged; none != (err == nil) {
			t.Errorf("%s: %v", code, err)
		}
		var r *Refusal
		if err != nil && (!errors.Is(err, ErrRefused) || !errors.As(fmt.Errorf("submit: %w", err), &r) || r.Code != code) {
			t.Errorf("%s is no refusal", code)
		}
		if err != nil && err.Error() != code.String()+" at version 9, change c-7: because" {
			t.Error(err)
		}
	}
}

func TestNotTaken(t *testing.T) {
	t.Parallel()
	for _, err := range []error{ErrNoLeader, fmt.Errorf("%w: %w", ErrNotLeader, raft.ErrNotLeader), ErrClosed} {
		if !notTaken(err) {
			t.Errorf("%v may have reached the log", err)
		}
	}
	for _, err := range []error{errCut, context.DeadlineExceeded, fmt.Errorf("%w: %w", ErrUnknownOutcome, ErrNotLeader)} {
		if notTaken(err) {
			t.Errorf("%v cannot have reached the log", err)
		}
	}
}
