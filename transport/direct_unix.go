//go:build unix

package transport

import (
	"net"
	"syscall"
)

// directTo gives a function that writes to a connection's socket what that takes at once, and says how much. Why it was no
// more shows when the rest is written. It is not for two at a time, and nil for what is not bare TCP.
func directTo(c net.Conn) func(data []byte) int {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	var data []byte
	var n int
	try := func(fd uintptr) {
		if k, err := syscall.Write(int(fd), data); err == nil { // the socket does not block
			n = k
		}
	}
	return func(b []byte) int {
		data, n = b, 0
		raw.Control(try) // RawConn.Write would wait, and heed the deadline of the write before
		data = nil
		return n
	}
}
