package transport

import (
	"errors"
	"fmt"
)

// Errors. Those with a code survive the handshake: errors.Is holds for the refusal that the other side gave.
var (
	ErrClosed        = errors.New("transport is closed")
	ErrBusy          = errors.New("send queue is full")
	ErrUnknownMember = errors.New("address of the member is not known")
	ErrUnreachable   = errors.New("member cannot be reached")
	ErrFrame         = errors.New("bad frame")
	ErrTooBig        = fmt.Errorf("%w: it is too big", ErrFrame) // to be sent

	ErrProtocol     = errors.New("protocol versions do not meet")
	ErrWrongCluster = errors.New("another cluster")
	ErrNoCluster    = errors.New("cluster is not formed yet")
	ErrRingDiverged = errors.New("another ring at the same placement version")
	ErrRemoved      = errors.New("incarnation was removed from the cluster")
	ErrWrongMember  = errors.New("another member answers at this address")
	ErrLimit        = errors.New("too many connections")
)

// refusals numbers the errors that travel.
var refusals = map[uint16]error{1: ErrProtocol, 2: ErrWrongCluster, 3: ErrNoCluster, 4: ErrRingDiverged, 5: ErrRemoved, 6: ErrWrongMember, 7: ErrLimit, 8: ErrFrame}

func codeOf(err error) uint16 {
	for c, e := range refusals {
		if errors.Is(err, e) {
			return c
		}
	}
	return 8
}

// refusal says whether one side has refused the other; other errors of a handshake are those of the network.
func refusal(err error) bool {
	for _, e := range refusals {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// permanent says whether dialling again soon is of no use.
func permanent(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, ErrWrongCluster) || errors.Is(err, ErrRingDiverged) || errors.Is(err, ErrRemoved)
}

// RemoteError is an error response to a request: what the handler at the other member returned.
type RemoteError struct {
	Code uint16
	Text string
}

func (e *RemoteError) Error() string { return fmt.Sprintf("remote error %d: %s", e.Code, e.Text) }

// Is holds for another *RemoteError with the same code.
func (e *RemoteError) Is(target error) bool {
	other, ok := target.(*RemoteError)
	return ok && other.Code == e.Code
}
