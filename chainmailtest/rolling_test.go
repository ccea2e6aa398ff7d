package chainmailtest_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chainmail"
	"chainmail/actor"
	"chainmail/chainmailtest"
	"chainmail/coordinator/membership"
	"chainmail/ring"
)

// travels notes where the keys of a type are activated, and what the placements required.
type travels struct {
	t    *testing.T
	c    *chainmailtest.Cluster
	typ  *actor.Type[alarm]
	move *actor.Method[actor.None, actor.None]
	keys []string

	mu        sync.Mutex
	activated map[string][]string              // key -> members, in order
	epochs    map[string]map[string]bool       // key -> those that committed something
	seen      map[uint64]*membership.Placement // by revision
	restarted map[string]int                   // key -> how often its owner came back without having lost it to another
}

func newTravels(t *testing.T, keys int) *travels {
	v := &travels{t: t, activated: map[string][]string{}, epochs: map[string]map[string]bool{}, seen: map[uint64]*membership.Placement{}, restarted: map[string]int{}}
	v.typ = actor.NewType("traveller", actor.Options[alarm]{Idle: -1, OnActivate: func(ctx context.Context, _ *alarm) error {
		v.mu.Lock()
		defer v.mu.Unlock()
		turn := actor.Current(ctx)
		v.activated[turn.Key()] = append(v.activated[turn.Key()], turn.Member())
		return nil
	}})
	v.move = actor.Handle(v.typ, "move", func(_ context.Context, a *alarm, _ actor.None) (actor.None, error) {
		a.Rang = a.Rang.Add(1)
		return actor.None{}, nil
	})
	for i := range keys {
		v.keys = append(v.keys, fmt.Sprint("key-", i))
		v.epochs[v.keys[i]] = map[string]bool{}
	}
	return v
}

// ask has a key commit something, and notes under which epoch. That a caller sees errors is another test's concern.
func (v *travels) ask(n *chainmail.Node, key string) error {
	ctx, done := context.WithTimeout(v.t.Context(), 5*time.Second)
	defer done()
	call, err := v.move.Call(key, actor.None{})
	if err != nil {
		v.t.Fatal(err)
	}
	a, err := n.Once(ctx, call.Type, call.Key, call.Method, call.Body)
	if err != nil {
		return err
	}
	part := strings.FieldsFunc(a.Stamp, func(r rune) bool { return r == '.' || r == '@' }) // version, number, sequence, member
	v.mu.Lock()
	defer v.mu.Unlock()
	v.epochs[key][fmt.Sprint(part[0], ".", part[1], "@", part[3])] = true
	return nil
}

// askAll asks every key once.
func (v *travels) askAll() {
	v.t.Helper()
	for _, key := range v.keys {
		if err := v.ask(v.c.Any(), key); err != nil {
			v.t.Errorf("%s: %v", key, err)
		}
	}
}

// load asks keys until stop is closed.
func (v *travels) load(wg *sync.WaitGroup, stop chan struct{}) {
	for w := range 4 {
		wg.Go(func() {
			for k := w; ; k += 5 {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Millisecond):
				}
				v.ask(v.c.Any(), v.keys[k%len(v.keys)])
			}
		})
	}
}

// watch notes the placements that a member sees.
func (v *travels) watch(wg *sync.WaitGroup, stop chan struct{}, i int) {
	w := v.c.Node(i).Coordinator().Watch()
	wg.Go(func() {
		defer w.Close()
		for {
			select {
			case p := <-w.C():
				if p.ClusterID == "" { // a member that has read nothing yet
					continue
				}
				v.mu.Lock()
				v.seen[p.Revision] = p
				v.mu.Unlock()
			case <-stop:
				return
			}
		}
	})
}

// comesBack notes what a restart of a member costs: the keys that are its own by the placement of now, it has to activate anew.
func (v *travels) comesBack(i int) {
	for _, key := range v.keys {
		if v.c.Owner("traveller", key) == i {
			v.restarted[key]++
		}
	}
}

// owners gives the owners of a key by the placements, in order, each one once.
func (v *travels) owners(key string) (out []string) {
	for _, rev := range slices.Sorted(maps.Keys(v.seen)) {
		p := v.seen[rev]
		r, err := ring.New(p.Ring, p.Base)
		if err != nil {
			v.t.Fatal(err)
		}
		set := r.Replicas(ring.KeyToken(p.Ring.Hash, "traveller", key), p.Replicas[""])
		k := slices.IndexFunc(set, func(id string) bool { m, ok := p.Member(id); return ok && !m.Down && !m.Refilling })
		if k >= 0 && (len(out) == 0 || out[len(out)-1] != set[k]) {
			out = append(out, set[k])
		}
	}
	return out
}

// check holds the activations of each key to those that the placements and the restarts require, and these to what five
// restarts have to cost.
func (v *travels) check(each int) {
	v.t.Helper()
	for _, key := range v.keys {
		owners := v.owners(key)
		need := len(owners) + v.restarted[key]
		if need != 1+each {
			v.t.Errorf("%s: the placements give it to %v and %d times its owner came back: it has to be activated %d times, not %d", key, owners, v.restarted[key], need, 1+each)
		}
		if got := v.activated[key]; len(got) != need {
			v.t.Errorf("%s was activated on %v; the placements give it to %v, and %d times its owner came back", key, got, owners, v.restarted[key])
		}
		if got := v.epochs[key]; len(got) > need {
			v.t.Errorf("%s was written under the epochs %v; %d are enough", key, slices.Sorted(maps.Keys(got)), need)
		}
	}
}

// Five members are restarted one after the other while all keys are in use. No key is activated once more than it has to be:
// when its owner by the rings, or by who is down, has changed, or has lost what it had in memory.
func TestRollingMovesNoKeyTwice(t *testing.T) {
	for name, x := range map[string]struct {
		durable bool
		each    int // activations of a key, beyond the first
		restart func(v *travels, i int)
	}{
		// A key moves away from its own member, and back; it does not move when another one goes.
		"leave and join": {false, 2, func(v *travels, i int) { v.c.Remove(i); v.askAll(); comeBack(v.t, v.c, i) }},
		// It is not missed: no key moves.
		"in place": {true, 1, func(v *travels, i int) { v.c.Kill(i); v.comesBack(i); v.c.Restart(i) }},
		// It is, and the next member of each replica set stands in.
		"in place, slowly": {true, 2, func(v *travels, i int) { v.c.Kill(i); v.c.Settle(); v.askAll(); v.comesBack(i); v.c.Restart(i) }},
	} {
		t.Run(name, func(t *testing.T) {
			v := newTravels(t, 60)
			inBubble(t, chainmailtest.Options{Members: 5, Types: []actor.Registered{v.typ}, Durable: x.durable}, func(t *testing.T, c *chainmailtest.Cluster) {
				v.t, v.c = t, c
				var wg sync.WaitGroup
				stop := make(chan struct{})
				for i := range 5 {
					v.watch(&wg, stop, i)
				}
				v.askAll()
				v.load(&wg, stop)
				for i := range 5 {
					x.restart(v, i)
					v.watch(&wg, stop, i)
					c.Settle()
					v.askAll()
				}
				close(stop)
				wg.Wait()
				v.check(x.each)
			})
		})
	}
}
