//go:build unix

package transport

import (
	"net"
	"syscall"
)

// direct writes to a connection's socket what that takes at once. One goroutine uses it at a time.
type direct struct {
	raw  syscall.RawConn
	data []byte
	n    int
	try  func(fd uintptr)
}

// newDirect is nil for what is not bare TCP.
func newDirect(c net.Conn) *direct {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.try = func(fd uintptr) {
		if n, err := syscall.Write(int(fd), d.data); err == nil { // the socket does not block
			d.n = n
		}
	}
	return d
}

// write says how much the socket took. Why it took no more shows when the rest is written.
func (d *direct) write(data []byte) int {
	d.data, d.n = data, 0
	d.raw.Control(d.try) // RawConn.Write would wait, and heed the deadline of the write before
	d.data = nil
	return d.n
}
