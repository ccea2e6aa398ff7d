package coordinator

import (
	"errors"
	"fmt"

	"chainmail/coordinator/membership"
)

// Errors of the calls.
var (
	ErrNotLeader      = errors.New("this member is not the leader")
	ErrNoLeader       = errors.New("no leader is known")
	ErrUnknownOutcome = errors.New("outcome is not known")
	ErrFormed         = errors.New("the cluster is formed already")
	ErrWiped          = errors.New("the Raft state is gone but this member was part of a cluster")
	ErrWrongCluster   = errors.New("another cluster")
	ErrClosed         = errors.New("coordinator is closed")
	ErrRefused        = errors.New("refused")
)

// Refusal is a command that the log took and refused: the same on every member. It is ErrRefused.
type Refusal struct{ membership.Result }

func (r *Refusal) Error() string {
	s := fmt.Sprintf("%s at version %d", r.Code, r.Version)
	if r.ID != "" {
		s += ", change " + r.ID
	}
	return s + ": " + r.Text
}

func (r *Refusal) Is(target error) bool { return target == ErrRefused }

// codes number the errors that travel in error responses.
var codes = map[uint16]error{
	0x4001: ErrNotLeader, 0x4002: ErrNoLeader, 0x4003: ErrUnknownOutcome, 0x4004: ErrFormed, 0x4005: ErrWrongCluster, 0x4006: ErrClosed,
}

// ErrorCode gives the number with which an error travels, 0 if it has none. ErrorOf is the way back, nil for unknown ones.
func ErrorCode(err error) uint16 {
	for c, e := range codes {
		if errors.Is(err, e) {
			return c
		}
	}
	return 0
}

// ErrorOf is described at ErrorCode.
func ErrorOf(code uint16) error { return codes[code] }
