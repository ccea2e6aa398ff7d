package coordinator

import (
	"errors"
	"fmt"

	"chainmail/coordinator/membership"
	"chainmail/internal/boltfile"
)

// Errors of the calls.
var (
	ErrNotLeader      = errors.New("this member is not the leader")
	ErrNoLeader       = errors.New("no leader is known")
	ErrUnknownOutcome = errors.New("outcome is not known")
	ErrFormed         = errors.New("the cluster is formed already")
	ErrWiped          = errors.New("the Raft state is gone but this member was part of a cluster")
	ErrWrongCluster   = errors.New("another cluster")
	ErrAddress        = errors.New("each member needs an address of its own")
	ErrClosed         = errors.New("coordinator is closed")
	ErrRefused        = errors.New("refused")
	ErrDiverged       = errors.New("the placement is another than the other members'")
	ErrRemoved        = errors.New("this incarnation was removed from the cluster")
	ErrDamaged        = boltfile.ErrDamaged // the file with the Raft log
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

// codes number the errors that travel in error responses. An error that is several of them travels as the first one: an
// outcome that is not known must not arrive as a refusal.
var codes = []struct {
	code uint16
	err  error
}{
	{0x4003, ErrUnknownOutcome}, {0x4005, ErrWrongCluster}, {0x4004, ErrFormed}, {0x4001, ErrNotLeader}, {0x4002, ErrNoLeader}, {0x4006, ErrClosed}, {0x4007, ErrRemoved}, {0x4008, ErrAddress},
}

// ErrorCode gives the number with which an error travels, 0 if it has none. ErrorOf is the way back, nil for unknown ones.
func ErrorCode(err error) uint16 {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return 0
}

// ErrorOf is described at ErrorCode.
func ErrorOf(code uint16) error {
	for _, c := range codes {
		if c.code == code {
			return c.err
		}
	}
	return nil
}
