//go:build unix

package transport

import (
	"net"
	"syscall"
)

// direct writes to a connection's socket what it takes at once. One goroutine uses it at a time.
type direct struct {
	raw  syscall.RawConn
	data []byte
	n    int
	do   func(fd uintptr)
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
	d.do = func(fd uintptr) {
		if n, err := syscall.Write(int(fd), d.data); err == nil { // the socket does not block
			d.n = n
		}
	}
	return d
}

// write gives how much the socket took. Why it took no more is told to who writes the rest.
func (d *direct) write(data []byte) int {
	d.data, d.n = data, 0
	d.raw.Control(d.do) // not Write: that waits, and heeds the deadline of the last one
	d.data = nil
	return d.n
}
