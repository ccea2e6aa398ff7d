package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"time"
)

type frameType uint8

const (
	oneWay frameType = iota
	request
	response
	failure
	cancel
	ping
	pong
)

const (
	headerSize = 20
	// readStep is how much memory is taken ahead of the bytes that have arrived.
	readStep = 64 << 10
	// writeStep is how much must pass within one writeTimeout.
	writeStep = 256 << 10
	// deadStep is by how much a read's deadline may be earlier than it should be.
	deadStep   = 100 * time.Millisecond
	maxControl = 1 << 20
	maxFrame   = 8 << 20
)

// MaxPayload is what a one-way frame holds.
const MaxPayload = maxFrame

func limit(c Class) int {
	if c == ClassControl {
		return maxControl
	}
	return maxFrame
}

type frame struct {
	kind        uint8
	typ         frameType
	correlation uint64
	payload     []byte
}

// beginFrame appends a header to be completed by endFrame when the payload has been appended.
func beginFrame(dst []byte, kind uint8, typ frameType, correlation uint64) []byte {
	dst = append(dst, kind, uint8(typ), 0, 0, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint64(dst, correlation)
	return append(dst, 0, 0, 0, 0)
}

func endFrame(dst []byte, start int) {
	h := dst[start : start+headerSize]
	payload := dst[start+headerSize:]
	binary.BigEndian.PutUint32(h[4:], uint32(len(payload)))
	sum := crc32.Update(crc32.Checksum(h[:16], castagnoli), castagnoli, payload)
	binary.BigEndian.PutUint32(h[16:], sum)
}

func appendFrame(dst []byte, f frame) []byte {
	start := len(dst)
	dst = beginFrame(dst, f.kind, f.typ, f.correlation)
	dst = append(dst, f.payload...)
	endFrame(dst, start)
	return dst
}

// frameReader reads frames of one connection. A payload is valid until the next call.
type frameReader struct {
	conn  net.Conn // nil: no deadlines
	r     *bufio.Reader
	limit int
	head  [headerSize]byte
	buf   []byte
	until time.Time // the deadline that was set last
}

func newFrameReader(conn net.Conn, limit int) *frameReader {
	return &frameReader{conn: conn, r: bufio.NewReaderSize(conn, readStep), limit: limit}
}

// fill reads one piece of a frame. Each piece has its own deadline: a slow line is not a dead one. On a fast line the one that
// was set a moment ago is good enough.
func (fr *frameReader) fill(b []byte) error {
	if fr.conn != nil && fr.r.Buffered() < len(b) {
		if until := time.Now().Add(deadAfter); until.Sub(fr.until) > deadStep {
			fr.until = until
			fr.conn.SetReadDeadline(until)
		}
	}
	_, err := io.ReadFull(fr.r, b)
	return err
}

// short makes the end of the stream inside a frame another error than its end between two.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (fr *frameReader) next() (frame, error) {
	h := fr.head[:]
	if err := fr.fill(h); err != nil {
		return frame{}, err
	}
	f := frame{kind: h[0], typ: frameType(h[1]), correlation: binary.BigEndian.Uint64(h[8:])}
	size := binary.BigEndian.Uint32(h[4:])
	if f.typ > pong || h[2]|h[3] != 0 {
		return frame{}, fmt.Errorf("frame header %x: %w", h, ErrFrame)
	}
	if size > uint32(fr.limit) {
		return frame{}, fmt.Errorf("frame of %d bytes, at most %d: %w", size, fr.limit, ErrFrame)
	}
	n := int(size)
	buf := fr.buf[:0]
	for len(buf) < n {
		old := len(buf)
		step := min(n-old, max(readStep, min(cap(buf)-old, writeStep))) // larger where memory was taken before
		buf = slices.Grow(buf, step)[:old+step]
		if err := fr.fill(buf[old:]); err != nil {
			return frame{}, short(err)
		}
	}
	fr.buf = buf
	if cap(fr.buf) > readStep && n < readStep/4 { // one large frame does not keep its memory for good
		fr.buf = nil
	}
	sum := crc32.Update(crc32.Checksum(h[:16], castagnoli), castagnoli, buf)
	if sum != binary.BigEndian.Uint32(h[16:]) {
		return frame{}, fmt.Errorf("frame of kind %d: checksum: %w", f.kind, ErrFrame)
	}
	f.payload = buf
	return f, nil
}

// writeAll writes in steps with a deadline each. A full step that has passed shows that the other side reads: its pong,
// which is behind all that, gets more time.
func writeAll(conn net.Conn, data []byte) error {
	for len(data) > 0 {
		step := data[:min(len(data), writeStep)]
		conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := conn.Write(step); err != nil {
			return err
		}
		if len(step) == writeStep {
			conn.SetReadDeadline(time.Now().Add(deadAfter))
		}
		data = data[len(step):]
	}
	return nil
}
