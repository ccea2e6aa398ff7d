package transport

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
)

// Bounds of the connections that others open here. A member needs about a dozen to another one: a few for Raft, one for
// control, one for each lane, and for a while those that they take the place of. Several members may share an address
// (one host, address translation), so that one address may have those of some forty; whoever has more than that is not a
// member, or is broken, and must not take the room of the others.
const (
	maxUnknown     = 64             // connections that have not said HELLO yet
	maxUnknownFrom = maxUnknown / 2 // of one remote address
	maxConns       = 4096           // Config.MaxInbound's default
	maxConnsFrom   = 512            // Config.MaxInboundFrom's default
)

// crowd counts connections, in total and by where they come from. The Transport's mutex guards it.
type crowd struct {
	most, mostFrom int
	all            int
	from           map[netip.Prefix]int
}

func newCrowd(most, mostFrom int) crowd {
	return crowd{most: most, mostFrom: mostFrom, from: map[netip.Prefix]int{}}
}

// room says whether one more may come from there.
func (c *crowd) room(from netip.Prefix) error {
	if c.all >= c.most {
		return fmt.Errorf("%d connections are open, at most %d: %w", c.all, c.most, ErrLimit)
	}
	if n := c.from[from]; from.IsValid() && n >= c.mostFrom {
		return fmt.Errorf("%d connections from %s are open, at most %d: %w", n, from, c.mostFrom, ErrLimit)
	}
	return nil
}

func (c *crowd) enter(from netip.Prefix) {
	c.all++
	if from.IsValid() {
		c.from[from]++
	}
}

func (c *crowd) leave(from netip.Prefix) {
	c.all--
	if !from.IsValid() {
		return
	}
	if c.from[from]--; c.from[from] <= 0 {
		delete(c.from, from)
	}
}

// origin gives what one host can connect from: its IPv4 address, or its IPv6 network of 64 bits, in which it can choose
// any address. It is not valid for what is no IP address: those are bounded in total alone.
func origin(a net.Addr) netip.Prefix {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() {
		bits = 32
	}
	p, err := ip.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// strangers are the connections that have not said HELLO yet, in the order in which they came. The Transport's mutex guards
// them.
type strangers struct {
	crowd
	conns []stranger
}

type stranger struct {
	c    net.Conn
	from netip.Prefix
}

func (s *strangers) enter(c net.Conn, from netip.Prefix) {
	s.crowd.enter(from)
	s.conns = append(s.conns, stranger{c, from})
}

// leave forgets a connection, unless it has left before.
func (s *strangers) leave(c net.Conn) {
	i := slices.IndexFunc(s.conns, func(x stranger) bool { return x.c == c })
	if i >= 0 {
		s.crowd.leave(s.conns[i].from)
		s.conns = slices.Delete(s.conns, i, i+1)
	}
}

// giveWay ends the oldest one from where most come, if all places are taken and fewer come from there: whoever holds many
// silent connections must not keep a member out, which says HELLO at once.
func (s *strangers) giveWay(from netip.Prefix) {
	if s.all < s.most {
		return
	}
	for _, x := range s.conns {
		if n := s.crowd.from[x.from]; n > s.crowd.from[from] && n == slices.Max(slices.Collect(maps.Values(s.crowd.from))) {
			s.leave(x.c)
			x.c.Close()
			return
		}
	}
}

// letIn notes a connection that was accepted, or says why there is no room for it.
func (t *Transport) letIn(c net.Conn) error {
	from := origin(c.RemoteAddr())
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return ErrClosed
	}
	t.unknown.giveWay(from)
	if err := t.unknown.room(from); err != nil {
		return fmt.Errorf("before their HELLO %w", err)
	}
	if err := t.guests.room(from); err != nil {
		return err
	}
	t.unknown.enter(c, from)
	t.guests.enter(from)
	t.conns[c] = guest{from, true}
	t.wg.Add(1)
	return nil
}

// guest says whether a connection was opened by another member, and from where.
type guest struct {
	from netip.Prefix
	in   bool
}
