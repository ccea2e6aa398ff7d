package integration

import (
	"testing"

	"chainmail/integration/process"
)

// Members in memory are killed and started one after the other, each as soon as the gate lets it: status --wait-ready at the
// one before. No key is lost.
func TestRestartGate(t *testing.T) {
	c := begin(t, 3, process.Settings{})
	want := c.written(30)
	for range 2 {
		for _, m := range c.members {
			c.must(m.Kill())
			c.must(m.Start())
			expect(t, nil, 0, "up 3", "status", "--wait-ready", "--timeout", "25s", "--http-addr", m.HTTP)
		}
	}
	c.client.SetEndpoints(c.endpoints())
	c.ready(c.members...)
	c.holds(want)
	m := c.members[0]
	c.must(m.Kill())
	expect(t, nil, exitNoLeader, "no endpoint", "status", "--wait-ready", "--timeout", "1s", "--http-addr", m.HTTP)
	c.must(m.Start())
}
