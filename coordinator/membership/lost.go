package membership

import (
	"fmt"
	"slices"
	"strings"
)

func (p *Placement) declareLost(c DeclareLost) Result {
	if slices.ContainsFunc(p.Lost, c.is) {
		return Result{Code: Unchanged}
	}
	if c.ExpectVersion != 0 && c.ExpectVersion != p.Version {
		return Result{Code: ErrStale, Text: fmt.Sprintf("made for version %d, now %d; look at what is lost again", c.ExpectVersion, p.Version)}
	}
	if len(c.Bans) == 0 {
		return invalid("name the members and incarnations whose copies are lost")
	}
	for _, b := range c.Bans {
		switch m, ok := p.Member(b.Member); {
		case !ok:
			return Result{Code: ErrUnknownMember, Text: "no member " + b.Member}
		case m.Incarnation != b.Incarnation:
			return Result{Code: ErrStale, Text: fmt.Sprintf("incarnation %x of member %s was to be given up, but %x is listed; look again", b.Incarnation, b.Member, m.Incarnation)}
		case !m.Down && !m.Refilling:
			return invalid("member %s is up and complete with incarnation %x: nothing of it is lost", b.Member, b.Incarnation)
		}
	}
	if rest := p.missing(func(m Member) bool { return !slices.Contains(c.Bans, Ban{m.ID, m.Incarnation}) && !m.GivenUp }); len(rest) > 0 {
		return invalid("%s cannot be asked either, and may hold the only copies that are left: wait until they are up and filled, or name them too", strings.Join(rest, ", "))
	}
	p.bump()
	p.Lost = append(slices.Clip(p.Lost), Loss{Version: p.Version, Bans: slices.Clone(c.Bans), By: c.By, Why: c.Why})
	for _, b := range c.Bans {
		p.giveUp(b)
	}
	return Result{}
}

// giveUp has nobody wait for what a member had. One that is down is taken for one that has nothing any more: should it come
// back with what it had, what was given up would turn up again beside what was written since. One that is up and refilling has
// nothing from before. Whichever incarnation comes next, it is so until it has filled again.
func (p *Placement) giveUp(b Ban) {
	i, _ := p.find(b.Member)
	m := p.edit(i)
	m.GivenUp = true
	if !m.Down || b.Incarnation == 0 {
		return
	}
	p.ban(b.Member, b.Incarnation)
	p.dropReports(b.Member)
	m.Incarnation, m.Refilling = 0, In(p.Base, b.Member)
}

// is says whether a loss is this one: a command whose outcome was not known is sent again.
func (c DeclareLost) is(l Loss) bool {
	return (c.ExpectVersion == 0 || l.Version == c.ExpectVersion+1) && slices.Equal(l.Bans, c.Bans) && l.By == c.By && l.Why == c.Why
}

// missing lists the members of the ring that cannot be asked for copies and for which f is true.
func (p *Placement) missing(f func(m Member) bool) (out []string) {
	for _, m := range p.Members {
		if (In(p.Base, m.ID) || In(p.Next, m.ID)) && (m.Down || m.Refilling) && f(m) {
			out = append(out, m.ID)
		}
	}
	return out
}

// LostAt gives the version of the newest loss, 0 if nothing was lost.
func (p *Placement) LostAt() uint64 {
	if len(p.Lost) == 0 {
		return 0
	}
	return p.Lost[len(p.Lost)-1].Version
}
