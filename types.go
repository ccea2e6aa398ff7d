package chainmail

import (
	"context"
	"fmt"
	"time"

	"chainmail/actor"
	"chainmail/coordinator/membership"
)

// Types gives the actor types that this member was started with, beside kv and counter.
func (n *Node) Types() []actor.Registered { return n.cfg.Types }

// Actors gives what runs this member's actors; package actor uses it to answer local reads at once.
func (n *Node) Actors() *actor.Host { return n.host }

// declare puts the replica counts of the types into the placement, where all members have them from. Calls of such a type
// wait for it: a key's replicas must be the same from its first use on.
func (n *Node) declare() {
	defer close(n.declared)
	for _, t := range n.cfg.Types {
		name, want := actor.NameOf(t), actor.SettingsOf(t).Replicas
		if want == 0 {
			continue
		}
		if err := n.declareOne(name, want); err != nil {
			n.log.Error("replica count differs", "type", name, "error", err)
			n.undeclared = err
			return
		}
	}
}

// declareOne has one count set, unless the placement has it already.
func (n *Node) declareOne(name string, want int) error {
	w := n.coord.Watch()
	defer w.Close()
	for {
		p := n.coord.Placement()
		if have, ok := p.Replicas[name]; ok && p.ClusterID != "" {
			if have != want {
				return fmt.Errorf("type %s has %d replicas in this cluster since its first use, %d in the configuration of member %s: set Options.Replicas to %d", name, have, want, n.id, have)
			}
			return nil
		}
		if p.ClusterID != "" && p.Stage == membership.StageStable {
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

// typeReady waits until the replica counts are declared.
func (n *Node) typeReady(ctx context.Context, typ string) error {
	select {
	case <-n.declared:
		return n.undeclared
	default:
	}
	for _, t := range n.cfg.Types {
		if actor.NameOf(t) == typ && actor.SettingsOf(t).Replicas > 0 {
			select {
			case <-n.declared:
				return n.undeclared
			case <-ctx.Done():
				return fmt.Errorf("the replica count of type %s is not in the placement yet", typ)
			}
		}
	}
	return nil
}
