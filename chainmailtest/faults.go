package chainmailtest

import (
	"time"
)

// stop ends a member without any farewell.
func (c *Cluster) stop(i int) {
	c.t.Helper()
	c.mu.Lock()
	m := c.members[i]
	m.dead = true
	c.mu.Unlock()
	m.host.kill()
	if err := m.node.Close(); err != nil {
		c.t.Errorf("chainmailtest: close %s: %v", m.id, err)
	}
}

// Kill ends members as SIGKILL does: their connections are closed, nobody is told why, and what they had in memory is lost.
// With Durable their directory stays. Calls that they were asked have an unknown outcome. Handlers that run there see the
// end of their contexts: what they do then reaches nobody.
func (c *Cluster) Kill(which ...int) {
	c.t.Helper()
	c.known("Kill", which...)
	for _, i := range which {
		c.stop(i)
	}
}

// Restart starts members again, at their addresses and with what their directories hold; one that runs is killed first.
// It does not wait until they serve: see Settle.
func (c *Cluster) Restart(which ...int) {
	c.t.Helper()
	c.known("Restart", which...)
	for _, i := range which {
		if !c.all()[i].dead {
			c.stop(i)
		}
	}
	for _, i := range which {
		c.start(i)
	}
}

// Pause stalls all that members send and are sent, as SIGSTOP does: no connection is closed. What is asked at the member
// itself does run, and waits for the others.
func (c *Cluster) Pause(which ...int) { c.t.Helper(); c.pause("Pause", true, which) }

// Resume ends Pause: what has stalled is delivered.
func (c *Cluster) Resume(which ...int) { c.t.Helper(); c.pause("Resume", false, which) }

func (c *Cluster) pause(what string, on bool, which []int) {
	c.t.Helper()
	c.known(what, which...)
	var names []string
	c.mu.Lock()
	for _, i := range which {
		c.members[i].paused = on
		names = append(names, c.members[i].id)
	}
	c.mu.Unlock()
	c.net.change(func() {
		for _, name := range names {
			c.net.paused[name] = on
		}
	})
}

// Partition cuts every member of one side off from every one of the other, in both directions. Connections stall, and new
// ones are not made; none is reset.
func (c *Cluster) Partition(a, b []int) {
	c.t.Helper()
	c.known("Partition", a...)
	c.known("Partition", b...)
	all := c.all()
	c.net.change(func() {
		for _, i := range a {
			for _, j := range b {
				c.net.cut[way{all[i].id, all[j].id}] = true
				c.net.cut[way{all[j].id, all[i].id}] = true
			}
		}
	})
}

// Cut stalls what one member sends to another. What the other one sends arrives.
func (c *Cluster) Cut(from, to int) {
	c.t.Helper()
	c.known("Cut", from, to)
	all := c.all()
	c.net.change(func() { c.net.cut[way{all[from].id, all[to].id}] = true })
}

// Delay makes all that one member sends to another arrive so much later.
func (c *Cluster) Delay(from, to int, d time.Duration) {
	c.t.Helper()
	c.known("Delay", from, to)
	all := c.all()
	c.net.change(func() { c.net.delay[way{all[from].id, all[to].id}] = d })
}

// Heal ends all partitions, cuts and delays: what has stalled is delivered. Members that are paused stay so.
func (c *Cluster) Heal() {
	c.net.change(func() {
		clear(c.net.cut)
		clear(c.net.delay)
	})
}
