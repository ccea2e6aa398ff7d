package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/coordinator/membership"
)

const (
	votesEvery = time.Second
	// nearLog is how far a member's log may be behind the leader's when it gets a vote.
	nearLog = 256
	// departGrace is how long a removed member that does not say that it has handed everything over is waited for.
	departGrace = 2 * time.Minute
)

// votes is when the leader last looked at them. It is the leader loop's.
type votes struct {
	looked   time.Time
	departed map[string]time.Time // removed members, since they were first seen
}

// balanceVotes brings Raft's servers in line with the placement by at most one step: a removed member that is down or
// silent goes, then a member of the ring that has caught up gets a vote while there are fewer than max_voters, and an
// even number of votes is left as it is only while no further member can have one.
func (c *Coordinator) balanceVotes(p *membership.Placement) {
	if time.Since(c.votes.looked) < min(votesEvery, c.cfg.Heartbeat) {
		return
	}
	c.votes.looked = time.Now()
	if c.moveServer(p) {
		return
	}
	if c.dropDeparted(p) || p.Stage != membership.StageStable {
		return
	}
	given, err := c.passVote(p, "")
	c.warn("give another member a vote", err)
	if given {
		c.votes.looked = time.Time{} // an even number should not last
	}
}

// moveServer tells Raft the address of one member that came back at another one, and says whether it did. It has registered
// there, and must answer there: one that is let in without its log is at its new address in Raft first.
func (c *Coordinator) moveServer(p *membership.Placement) bool {
	f := c.raft.GetConfiguration()
	if f.Error() != nil {
		return false
	}
	for _, s := range f.Configuration().Servers {
		m, ok := p.Member(string(s.ID))
		if !ok || m.Address == string(s.Address) || !c.answersAt(m.ID, m.Address) {
			continue
		}
		c.log.Info("a member has another address", "member", m.ID, "address", m.Address, "before", string(s.Address))
		err := c.ask(func() error { // a voter keeps its vote
			return c.raft.AddNonvoter(s.ID, raft.ServerAddress(m.Address), f.Index(), queueTimeout).Error()
		})
		c.warn("change the address of "+m.ID, err)
		return err == nil
	}
	return false
}

func (c *Coordinator) answersAt(id, addr string) bool {
	if id == c.cfg.Self.ID {
		return addr == c.cfg.Self.Address
	}
	s, err := c.statusSoon(c.ctx, addr)
	return err == nil && s.Member == id
}

// passVote gives a vote to a member that should have one, at most one at a time, and says whether it did. The votes of
// members that go, and that of one which is about to, are not counted: others have to take their place first.
func (c *Coordinator) passVote(p *membership.Placement, going string) (given bool, err error) {
	f := c.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return false, err
	}
	next := heir(p, f.Configuration().Servers, going, c.cfg.MaxVoters, c.caughtUp)
	if next == nil {
		return false, nil
	}
	if err := c.ask(func() error { return c.raft.AddVoter(next.ID, next.Address, f.Index(), queueTimeout).Error() }); err != nil {
		return false, fmt.Errorf("a vote for %s: %w", next.ID, err)
	}
	return true, nil
}

// heir gives the server that gets a vote next, nil if none should. It has to be on the ring and to stay there: one that the
// running change removes would have to pass the vote on at once.
func heir(p *membership.Placement, servers []raft.Server, going string, most int, caughtUp func(addr string) bool) *raft.Server {
	voters, could := 0, 0
	var next *raft.Server
	for _, s := range servers {
		m, ok := p.Member(string(s.ID))
		fit := ok && !m.Down && !m.NonVoter && membership.In(p.Base, m.ID) && membership.In(p.Target, m.ID)
		if s.Suffrage == raft.Voter && (string(s.ID) == going || ok && m.Removed) {
			continue
		} else if s.Suffrage == raft.Voter {
			voters++
		} else if fit && caughtUp(string(s.Address)) {
			could++
			if next == nil {
				next = &s
			}
		}
	}
	if wantedVotes(voters, could, most) <= voters {
		return nil
	}
	return next
}

// wantedVotes gives how many votes there should be when so many servers have one and so many more could: at most most,
// and not an even number that was odd before, which would make the log no safer.
func wantedVotes(voters, could, most int) int {
	want := min(most, voters+could)
	if want%2 == 0 && want > voters {
		want--
	}
	return max(want, voters)
}

// dropDeparted removes one member that a change has removed and that is down, or has been silent for long.
func (c *Coordinator) dropDeparted(p *membership.Placement) bool {
	if c.votes.departed == nil {
		c.votes.departed = map[string]time.Time{}
	}
	for _, m := range p.Members {
		if m.State != membership.Standby || !m.Removed {
			delete(c.votes.departed, m.ID)
			continue
		}
		since, ok := c.votes.departed[m.ID]
		if !ok {
			since = time.Now()
			c.votes.departed[m.ID] = since
		}
		if m.ID == c.cfg.Self.ID || !m.Down && time.Since(since) < departGrace {
			continue
		}
		ctx, done := context.WithTimeout(c.ctx, c.cfg.Heartbeat)
		err := c.letGo(ctx, m.ID, m.Incarnation)
		done()
		c.warn("let "+m.ID+" go", err)
		return err == nil
	}
	return false
}

// canSpare says whether the voters that are up keep a majority without one of them.
func (c *Coordinator) canSpare(id string) bool {
	voters, healthy := 0, 0
	p := c.Placement()
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter || string(s.ID) == id {
			continue
		}
		voters++
		if m, ok := p.Member(string(s.ID)); ok && !m.Down {
			healthy++
		}
	}
	return voters > 0 && healthy >= voters/2+1
}

func (c *Coordinator) caughtUp(addr string) bool {
	s, err := c.statusSoon(c.ctx, addr)
	return err == nil && s.Applied+nearLog >= c.raft.AppliedIndex()
}
