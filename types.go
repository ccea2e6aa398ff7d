package chainmail

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"chainmail/actor"
	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/internal/bridge"
)

// Types gives the actor types that this member was started with, beside kv and counter.
func (n *Node) Types() []actor.Registered { return n.cfg.Types }

// Actors gives what runs this member's actors; package actor uses it to answer local reads at once.
func (n *Node) Actors() *actor.Host { return n.host }

// declare puts the replica counts of the types into the placement, where all members have them from. Calls wait for it: a
// key's replicas must be the same from its first use on.
func (n *Node) declare() {
	defer close(n.declared)
	for _, t := range n.cfg.Types {
		name := actor.NameOf(t)
		if err := n.declareOne(name, counted(t)); err != nil {
			n.log.Error("replica count differs", "type", name, "error", err)
			n.undeclared = err
			return
		}
	}
}

// counted gives the replica count that a type asks for, membership.Pinned for a pinned one, 0 for the cluster's.
func counted(t actor.Registered) int {
	s := actor.SettingsOf(t)
	if s.Pinned {
		return membership.Pinned
	}
	return s.Replicas
}

func (n *Node) pinnedType(typ string) bool {
	for _, t := range n.cfg.Types {
		if actor.NameOf(t) == typ {
			return actor.SettingsOf(t).Pinned
		}
	}
	return false
}

// declareOne has one count set, 0 for the cluster's, unless the placement has it already.
func (n *Node) declareOne(name string, count int) error {
	w := n.coord.Watch()
	defer w.Close()
	for {
		p := n.coord.Placement()
		want := cmp.Or(count, p.Replicas[""])
		have, ok := p.Replicas[name]
		if ok && have != want {
			return fmt.Errorf("type %s is %s in this cluster since its first use, %s in the configuration of member %s: set Options back to that",
				name, countText(have), countText(want), n.id)
		}
		if ok {
			n.engine.SetView(bridge.View(p), n.coord.IsLeader()) // before any call that has waited for it
			return nil
		}
		if p.ClusterID != "" && (p.Stage == membership.StageStable || want == p.Replicas[""]) {
			ctx, done := context.WithTimeout(n.ctx, registerTimeout)
			err := n.coord.SetReplicas(ctx, name, want)
			done()
			if err != nil {
				n.log.Debug("replica count not set yet", "type", name, "error", err)
			}
		}
		select {
		case <-w.C():
		case <-time.After(100 * time.Millisecond):
		case <-n.ctx.Done():
			return ErrClosed
		}
	}
}

func countText(n int) string {
	if n == membership.Pinned {
		return "pinned"
	}
	return fmt.Sprintf("of %d replicas", n)
}

// typeDeclared says whether messages to a type may be sent as far as replica counts matter.
func (n *Node) typeDeclared(typ string) (bool, error) {
	select {
	case <-n.declared:
		return true, n.undeclared
	default:
	}
	for _, t := range n.cfg.Types {
		if actor.NameOf(t) == typ {
			return false, nil
		}
	}
	return true, nil
}

// typeReady waits until the replica counts are declared.
func (n *Node) typeReady(ctx context.Context, typ string) error {
	if declared, err := n.typeDeclared(typ); declared {
		return err
	}
	select {
	case <-n.declared:
		return n.undeclared
	case <-ctx.Done():
		return fmt.Errorf("the replica count of type %s is not in the placement yet", typ)
	}
}

// pinsEvery is how often a member looks how many pinned keys it holds, pinsShare by what part the number must have changed
// to be told again.
const (
	pinsEvery = time.Second
	pinsShare = 10
)

// countPins tells the log how many pinned keys this member holds, so that nobody removes it without knowing.
func (n *Node) countPins() {
	tick := time.NewTicker(pinsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		var have map[string]int
		if n.engine.Do(n.ctx, func(c *core.Core) { have = c.PinnedKeys() }) != nil {
			continue
		}
		if news := n.newPins(have); len(news) > 0 {
			ctx, done := context.WithTimeout(n.ctx, registerTimeout)
			if err := n.coord.ReportPins(ctx, news); err != nil {
				n.log.Debug("pinned keys not told yet", "error", err)
			}
			done()
		}
	}
}

// newPins gives the counts that differ much from what the log has.
func (n *Node) newPins(have map[string]int) (out []membership.Pin) {
	p := n.coord.Placement()
	if _, listed := p.Member(n.id); !listed {
		return nil
	}
	for _, typ := range slices.Sorted(maps.Keys(have)) {
		told := 0
		for _, x := range p.Pins {
			if x.Member == n.id && x.Type == typ {
				told = x.Keys
			}
		}
		keys := have[typ]
		if (keys == 0) != (told == 0) || max(keys-told, told-keys) > told/pinsShare {
			out = append(out, membership.Pin{Member: n.id, Type: typ, Keys: keys})
		}
	}
	return out
}
