package transport

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// Class is what a connection is for.
type Class uint8

const (
	ClassRaft Class = iota + 1
	ClassControl
	ClassMessages
	ClassReplication
	ClassBulk
)

func (c Class) String() string {
	if c < ClassRaft || c > ClassBulk {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return [...]string{"raft", "control", "messages", "replication", "bulk"}[c-1]
}

// Identity is what a member says of itself when a connection opens.
type Identity struct {
	ClusterID   string // "" before the cluster is formed
	Member      string
	Incarnation uint64
	Version     uint64 // of its placement
	RingDigest  uint64 // of that placement's rings
}

const (
	helloMagic   = "CML1"
	refusedMagic = "CMLX"
	protocol     = 1
	helloFixed   = 10
	maxHello     = 600
	maxIdent     = 128
	maxReason    = 1024
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type hello struct {
	lowest, highest uint8
	class           Class
	id              Identity
}

func (h hello) append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, helloMagic...)
	dst = append(dst, h.lowest, h.highest, uint8(h.class), 0, 0, 0)
	for _, s := range []string{h.id.ClusterID, h.id.Member} {
		dst = append(dst, uint8(len(s)))
		dst = append(dst, s...)
	}
	for _, x := range []uint64{h.id.Incarnation, h.id.Version, h.id.RingDigest} {
		dst = binary.BigEndian.AppendUint64(dst, x)
	}
	binary.BigEndian.PutUint16(dst[start+8:], uint16(len(dst)-start-helloFixed+4))
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// parseHello reads a whole HELLO.
func parseHello(b []byte) (hello, error) {
	var h hello
	bad := func(why string) (hello, error) { return h, fmt.Errorf("hello: %s: %w", why, ErrFrame) }
	if len(b) < helloFixed+4 || len(b) > maxHello {
		return bad("length")
	}
	if string(b[:4]) != helloMagic || b[7] != 0 {
		return bad("first bytes")
	}
	if int(binary.BigEndian.Uint16(b[8:])) != len(b)-helloFixed {
		return bad("length")
	}
	body, sum := b[:len(b)-4], b[len(b)-4:]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(sum) {
		return bad("checksum")
	}
	h.lowest, h.highest, h.class = b[4], b[5], Class(b[6])
	rest := body[helloFixed:]
	for _, s := range []*string{&h.id.ClusterID, &h.id.Member} {
		if len(rest) < 1 || len(rest) < 1+int(rest[0]) || rest[0] > maxIdent {
			return bad("names")
		}
		*s = string(rest[1 : 1+rest[0]])
		rest = rest[1+rest[0]:]
	}
	if len(rest) != 24 {
		return bad("length")
	}
	for i, x := range []*uint64{&h.id.Incarnation, &h.id.Version, &h.id.RingDigest} {
		*x = binary.BigEndian.Uint64(rest[8*i:])
	}
	if h.class < ClassRaft || h.class > ClassBulk {
		return bad("class")
	}
	return h, nil
}

// meets says whether the peer speaks a protocol that this member speaks.
func (h hello) meets(self Identity) error {
	if h.lowest > protocol || h.highest < protocol {
		return fmt.Errorf("peer %s speaks protocols %d to %d, member %s speaks %d: %w", h.id.Member, h.lowest, h.highest, self.Member, protocol, ErrProtocol)
	}
	return nil
}

func appendRefused(dst []byte, err error) []byte {
	start := len(dst)
	text := err.Error()
	text = text[:min(len(text), maxReason)]
	dst = append(dst, refusedMagic...)
	dst = binary.BigEndian.AppendUint16(dst, codeOf(err))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(text)))
	dst = append(dst, text...)
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// readAnswer reads the listener's HELLO, or gives its refusal as an error.
func readAnswer(r io.Reader) (hello, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return hello{}, err
	}
	if string(head[:4]) != refusedMagic {
		return readHelloAfter(r, head)
	}
	n := int(binary.BigEndian.Uint16(head[6:]))
	if n > maxReason {
		return hello{}, fmt.Errorf("refusal of %d bytes: %w", n, ErrFrame)
	}
	b := append(head, make([]byte, n+4)...)
	if _, err := io.ReadFull(r, b[8:]); err != nil {
		return hello{}, short(err)
	}
	if crc32.Checksum(b[:len(b)-4], castagnoli) != binary.BigEndian.Uint32(b[len(b)-4:]) {
		return hello{}, fmt.Errorf("refusal: checksum: %w", ErrFrame)
	}
	reason := refusals[binary.BigEndian.Uint16(b[4:])]
	if reason == nil {
		reason = ErrFrame
	}
	return hello{}, fmt.Errorf("refused: %s: %w", b[8:len(b)-4], reason)
}

func readHello(r io.Reader) (hello, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(r, head); err != nil {
		return hello{}, err
	}
	return readHelloAfter(r, head)
}

func readHelloAfter(r io.Reader, head []byte) (hello, error) {
	if string(head[:4]) != helloMagic {
		return hello{}, fmt.Errorf("hello: first bytes %x: %w", head[:4], ErrFrame)
	}
	b := append(head, 0, 0)
	if _, err := io.ReadFull(r, b[8:]); err != nil {
		return hello{}, short(err)
	}
	n := int(binary.BigEndian.Uint16(b[8:]))
	if n > maxHello-helloFixed {
		return hello{}, fmt.Errorf("hello of %d bytes: %w", n, ErrFrame)
	}
	b = append(b, make([]byte, n)...)
	if _, err := io.ReadFull(r, b[helloFixed:]); err != nil {
		return hello{}, short(err)
	}
	return parseHello(b)
}
