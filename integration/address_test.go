package integration

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
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

// All voters come back at other addresses: none is elected, and each says why. A majority at the old addresses is enough.
func TestAllAddressesAtOnce(t *testing.T) {
	c := begin(t, 3, process.Settings{Store: chainmail.StoreBolt, Extra: inPlace})
	want := c.written(5)
	type place struct{ http, cluster string }
	var old []place
	for _, m := range c.members {
		old = append(old, place{m.HTTP, m.Cluster})
		c.moved(m)
	}
	for _, m := range c.members {
		c.must(m.Start())
	}
	for i, m := range c.members {
		c.until(m.ID+" says why there is no leader", func(context.Context) (bool, string) {
			resp, err := http.Get("http://" + m.HTTP + "/readyz")
			if err != nil {
				return false, err.Error()
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			c.must(err)
			return strings.Contains(string(b), "Raft knows it at "+old[i].cluster+", but it is at "+m.Cluster) && strings.Contains(m.Tail(1000), "no leader for long"), string(b)
		})
	}
	for i, m := range c.members[:2] {
		c.must(m.Kill())
		m.HTTP, m.Cluster = old[i].http, old[i].cluster
		c.must(m.Configure(c.set))
		c.must(m.Start())
	}
	c.client.SetEndpoints(c.endpoints())
	c.see("the third one is at its new address", func(p *membership.Placement) bool {
		x, _ := p.Member(c.members[2].ID)
		return x.Address == c.members[2].Cluster
	})
	c.ready(c.members...)
	c.holds(want)
}
