package integration

import (
	"net"
	"testing"

	"chainmail"
	"chainmail/coordinator/membership"
	"chainmail/integration/process"
)

// moved starts a member that was killed at other ports.
func (c *cluster) moved(m *process.Member) {
	c.t.Helper()
	c.must(m.Kill())
	for _, addr := range []*string{&m.HTTP, &m.Cluster} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		c.must(err)
		*addr = l.Addr().String()
		c.must(l.Close())
	}
	c.must(m.Configure(c.set))
}

// A voter comes back with its disk at another address: it is found there, and keeps its vote.
func TestOneAddressAtATime(t *testing.T) {
	c := begin(t, 3, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
	want := c.written(5)
	for _, m := range c.members {
		c.moved(m)
		c.must(m.Start())
		c.client.SetEndpoints(c.endpoints())
		c.see(m.ID+" is at its new address", func(p *membership.Placement) bool { x, _ := p.Member(m.ID); return x.Address == m.Cluster })
		c.ready(c.members...)
	}
	c.holds(want)
}
