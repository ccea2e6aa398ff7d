package simtest

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"chainmail/coordinator/membership"
	"chainmail/engine/core"
	"chainmail/internal/bridge"
	"chainmail/ring"
)

// The search runs a few members, one key and one change again and again, from the beginning each time, and differs from the
// order of events by default in at most so many places: delay bounding (Emmi, Qadeer, Rakamarić 2011), over the real core and
// the real log's state. By default messages arrive at once, in the order in which they were sent. At each message a run may
// instead lose it, keep it back until a later placement, cut its receiver off until then, or take its receiver's memory; at
// each placement that a member is to learn it may leave the member behind. What is kept back comes all the same: later
// placements release it, or the end.
//
// States are told apart by what each member has been given, in order and with the times, so that what commutes meets again.

const (
	searchTick = 20 * ms
	searchCall = 400 * ms // deadline of a call
	// searchStall is how long nothing may go on before all that is kept back is released.
	searchStall = 900 * ms
	// searchEnd is how long after the last release everything must be served.
	searchEnd = 12000 * ms
	ms        = core.Time(time.Millisecond)
)

// plot is what happens by default.
type plot struct {
	name           string
	start          []string // on the ring
	replicas       int
	add, remove    []string
	owners         [2]string // of the key, before and after: which picks the key
	abort          bool      // the change is aborted in switch, and submitted again
	crashes        int
	differences    int // that are searched in every build
	about          string
	writers, other string // who calls
}

var plots = []plot{
	{name: "replace", start: []string{"a", "b", "c", "d"}, replicas: 3, remove: []string{"a"}, owners: [2]string{"a", "b"}, differences: 1, writers: "a", other: "c", about: "abc -> bcd, the owner leaves"},
	{name: "join", start: []string{"a", "b", "c"}, replicas: 3, add: []string{"d"}, owners: [2]string{"a", "d"}, differences: 1, writers: "b", other: "d", about: "abc -> dab, the new member owns the key"},
	{name: "lose", start: []string{"a", "b", "c"}, replicas: 3, remove: []string{"c"}, owners: [2]string{"c", "a"}, differences: 1, writers: "c", other: "b", about: "cab -> ab, the owner leaves"},
	{name: "two", start: []string{"a", "b", "c"}, replicas: 2, remove: []string{"a"}, owners: [2]string{"a", "b"}, differences: 1, writers: "a", other: "c", about: "ab -> bc, the owner leaves"},
	{name: "crash", start: []string{"a", "b", "c"}, replicas: 3, owners: [2]string{"a", "a"}, crashes: 1, differences: 1, writers: "a", other: "b", about: "abc, one member loses its memory"},
	{name: "abort", start: []string{"a", "b", "c", "d"}, replicas: 3, remove: []string{"a"}, owners: [2]string{"a", "b"}, abort: true, differences: 1, writers: "a", other: "c", about: "abc -> bcd, aborted, and begun again"},
}

// parcel is an input on its way to a member.
type parcel struct {
	from, to string
	in       core.Input
	id       uint64
	until    uint64 // kept back until this version
}

// player is a member of the search.
type player struct {
	id       string
	core     *core.Core
	inc      uint64
	given    uint64 // stands for all that it was given
	behind   uint64 // it learns no placement until this version
	cut      uint64 // it hears nothing until this version
	restarts int
}

// turn is a place where a run may differ from the default.
type turn struct {
	state uint64
	ways  []string // in which it may, the default first
}

// world is one run.
type world struct {
	plot    *plot
	choices map[int]int // by number of the turn: which way is gone
	turns   []turn
	from    int // the turn after which states are looked up
	seen    map[uint64]int
	left    int // further differences that will be tried
	again   bool

	now     core.Time
	players []*player
	key     core.Key
	p       membership.Placement
	log     uint64
	view    *core.View
	queue   []*parcel
	local   []*parcel
	kept    []*parcel
	moved   core.Time // something last went on
	crashes int
	aborted bool

	hist  *history
	reads int // that were answered
	calls map[uint64]*op
	where map[uint64]string // they were made
	made  uint32
	trace []string
	show  bool
	bad   error
}

func fold(xs ...uint64) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, x := range xs {
		h = (h ^ x) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

func foldString(s string) uint64 {
	h := uint64(len(s))
	for _, b := range []byte(s) {
		h = (h ^ uint64(b)) * 0x100000001b3
	}
	return h
}

func (w *world) note(format string, args ...any) {
	if w.show {
		w.trace = append(w.trace, at(w.now)+" "+fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.bad == nil {
		w.bad = fmt.Errorf(format, args...)
		w.note("VIOLATION %v", w.bad)
	}
}

func (w *world) player(id string) *player {
	i := slices.IndexFunc(w.players, func(p *player) bool { return p.id == id })
	return w.players[i]
}

// newWorld forms the cluster.
func newWorld(p *plot, key core.Key) *world {
	w := &world{plot: p, key: key, calls: map[uint64]*op{}, where: map[uint64]string{}, hist: newHistory(key)}
	w.apply(membership.Command{Init: &membership.Init{ClusterID: "search", Ring: searchRing, Replicas: p.replicas}})
	for i, id := range slices.Concat(p.start, p.add) {
		w.players = append(w.players, &player{id: id, inc: uint64(i + 1), given: uint64(i + 1)})
		w.apply(membership.Command{Register: &membership.Register{Member: membership.Member{ID: id, Address: id, Weight: 1, Incarnation: uint64(i + 1)}}})
	}
	w.apply(membership.Command{Change: &membership.ChangeCommand{Add: p.start}})
	w.queue = nil
	for _, x := range w.players {
		x.core = core.New(core.Config{Self: x.id, Incarnation: x.inc, Boot: 1}, 0, nil)
		w.give(x, &core.ViewChanged{View: w.view}, 1)
	}
	return w
}

var searchRing = ring.Params{Hash: ring.HashV1, VNodes: 4}

// keyOf finds a key that a plot is about: owned by these, and with the leaver in its set.
func keyOf(p *plot) (core.Key, error) {
	ring1, ring2 := p.start, slices.Concat(p.start, p.add)
	ring2 = slices.DeleteFunc(slices.Clone(ring2), func(id string) bool { return slices.Contains(p.remove, id) })
	members := func(ids []string) (out []ring.Member) {
		for _, id := range ids {
			out = append(out, ring.Member{ID: id, Weight: 1})
		}
		return out
	}
	r1, err := ring.New(searchRing, members(ring1))
	if err != nil {
		return core.Key{}, err
	}
	r2, err := ring.New(searchRing, members(ring2))
	if err != nil {
		return core.Key{}, err
	}
	for i := range 10000 {
		k := core.Key{Type: "list", Name: fmt.Sprint("k", i)}
		t := ring.KeyToken(ring.HashV1, k.Type, k.Name)
		if r1.Replicas(t, p.replicas)[0] == p.owners[0] && r2.Replicas(t, p.replicas)[0] == p.owners[1] {
			return k, nil
		}
	}
	return core.Key{}, fmt.Errorf("plot %s: no key is owned by %v", p.name, p.owners)
}

// apply adds a command to the log and sends everybody the placement.
func (w *world) apply(c membership.Command) {
	p, r := membership.Apply(w.p, c)
	if r.Code != membership.OK {
		return
	}
	old := w.p
	w.p, w.log = p, fold(w.log, uint64(p.Revision), p.Version)
	if p.Version != old.Version || p.Stage != old.Stage {
		w.moved = w.now
	}
	w.view = bridge.View(&w.p)
	w.note("log r%d %s", p.Revision, p.String())
	for _, x := range w.players {
		w.queue = append(w.queue, &parcel{to: x.id, in: &core.ViewChanged{View: w.view}, id: fold(w.log, foldString(x.id))})
	}
	w.held()
}

// give steps a member and carries out what it says, what it tells itself included.
func (w *world) give(x *player, in core.Input, id uint64) {
	w.step(x, in, id)
	for len(w.local) > 0 && w.bad == nil {
		p := w.local[0]
		w.local = w.local[1:]
		w.step(w.player(p.to), p.in, p.id)
	}
}

func (w *world) step(x *player, in core.Input, id uint64) {
	x.given = fold(x.given, id, uint64(w.now))
	changed := false
	for i, e := range x.core.Step(w.now, in, nil) {
		id := fold(x.given, uint64(i))
		switch e := e.(type) {
		case *core.Send:
			p := &parcel{from: x.id, to: e.Msg.To, in: &core.Recv{Msg: e.Msg}, id: id}
			if p.to == x.id {
				w.local = append(w.local, p)
			} else {
				w.queue = append(w.queue, p)
			}
		case *core.Execute:
			w.local = append(w.local, &parcel{to: x.id, in: execute(e, 0), id: id})
		case *core.Reply:
			w.replied(x, e)
		case *core.Report:
			w.note("%s reports %s for %d", x.id, bridge.What(e.What), e.Step)
			w.apply(membership.Command{Report: []membership.Report{{Member: x.id, Incarnation: x.inc, Step: e.Step, What: bridge.What(e.What)}}})
		case *core.Persist:
			changed = changed || len(e.Puts) > 0
		}
	}
	if changed {
		w.held()
	}
}

// held checks that what was answered cannot be lost, as in the simulator: of the set at the newest placement fewer members
// that count lack it than a receiver has to ask.
func (w *world) held() {
	if w.hist.newest.IsZero() || w.bad != nil {
		return
	}
	r, err := ring.New(w.p.Ring, w.p.Base)
	if err != nil {
		w.fail("%v", err)
		return
	}
	set := r.Replicas(ring.KeyToken(ring.HashV1, w.key.Type, w.key.Name), w.plot.replicas)
	var lack []string
	for _, id := range set {
		x := w.player(id)
		if m, ok := w.p.Member(id); !ok || m.Refilling || m.Incarnation != x.inc {
			continue
		}
		if x.core.Explain(w.key).Copy.Stamp.Less(w.hist.newest) {
			lack = append(lack, id)
		}
	}
	if len(lack) >= core.R(len(set)) {
		w.fail("%s was answered, and %v of %v count without it at %s", w.hist.newest, lack, set, w.p.String())
	}
}

// call makes a call at a member.
func (w *world) call(id, method string) {
	x := w.player(id)
	w.made++
	o := &op{id: w.made, key: w.key, method: method, tries: 1, least: len(w.hist.longest), floor: w.hist.newest}
	var body []byte
	if o.writes() {
		body = binary.BigEndian.AppendUint32(nil, o.id)
		w.hist.made[o.id] = true
	}
	w.calls[uint64(o.id)], w.where[uint64(o.id)] = o, id
	w.note("call #%d at %s: %s", o.id, id, method)
	w.give(x, &core.Call{ID: uint64(o.id), Key: w.key, Method: method, Body: body, Deadline: w.now + searchCall}, uint64(o.id))
}

func (w *world) replied(x *player, r *core.Reply) {
	o := w.calls[r.ID]
	if o == nil {
		w.fail("call %d at %s was answered twice", r.ID, x.id)
		return
	}
	delete(w.calls, r.ID)
	w.note("answer to #%d: %s %s %s %s", o.id, r.Result.Code, r.Result.Text, r.Result.Stamp, ids(string(r.Result.Body)))
	if err := w.hist.answered(o, r.Result, 0); err != nil {
		w.fail("%v", err)
	}
	if r.Result.Code == core.CodeOK && o.reads() {
		w.reads++
	}
	if r.Result.Code == core.CodeOK && w.hist.newest.Less(r.Result.Stamp) {
		w.hist.newest = r.Result.Stamp
		w.held()
	}
}

// wipe takes a member's memory: it comes back at once as another incarnation.
func (w *world) wipe(x *player) {
	w.crashes++
	x.restarts++
	seen := x.inc
	x.inc += 100
	x.core = core.New(core.Config{Self: x.id, Incarnation: x.inc, Boot: 1}, w.now, nil)
	x.given = fold(x.given, x.inc)
	for _, id := range slices.Sorted(maps.Keys(w.calls)) {
		if w.where[id] == x.id {
			delete(w.calls, id) // its caller is gone too
		}
	}
	w.note("%s loses its memory", x.id)
	w.apply(membership.Command{Register: &membership.Register{Member: membership.Member{ID: x.id, Address: x.id, Weight: 1, Incarnation: x.inc}, Seen: seen}})
}

// state stands for the world. What callers have seen follows from what members were given.
func (w *world) state() uint64 {
	h := fold(uint64(w.now), w.log, uint64(w.crashes), uint64(w.made))
	for _, x := range w.players {
		h = fold(h, x.given, x.behind, x.cut)
	}
	for _, p := range w.queue {
		h = fold(h, p.id)
	}
	for _, p := range w.kept {
		h = fold(h, p.id, p.until, 1)
	}
	return h
}

// ways lists how the next parcel may be treated.
func (w *world) ways(p *parcel) []string {
	v := w.p.Version
	one, two := fmt.Sprint(v+1), fmt.Sprint(v+2)
	switch in := p.in.(type) {
	case *core.ViewChanged:
		if in.View != w.view || w.player(p.to).behind > 0 {
			return nil
		}
		return []string{"", "behind " + one, "behind " + two}
	case *core.Recv:
		var out []string
		switch in.Msg.Body.(type) {
		case *core.Prepare, *core.Promise, *core.Accept, *core.Accepted, *core.Confirm, *core.Confirmed:
			out = []string{"", "lost", "late " + one, "late " + two, "cut " + one}
		case *core.Pull, *core.Pulled, *core.Fetched, *core.Offer, *core.Offered, *core.Purge:
			out = []string{"", "lost", "late " + one}
		default:
			return nil
		}
		if w.crashes < w.plot.crashes {
			out = append(out, "wipe")
		}
		return out
	}
	return nil
}

// deliver treats the next parcel.
func (w *world) deliver() {
	p := w.queue[0]
	w.queue = w.queue[1:]
	x := w.player(p.to)
	if w.blocked(x, p) {
		return
	}
	if ways := w.ways(p); ways != nil {
		way := w.choose(p, ways)
		if w.again || way != "" && !w.differs(x, p, way) {
			return
		}
	}
	if x.behind > 0 { // nobody tells it
		if r, ok := p.in.(*core.Recv); ok {
			if _, ok := r.Msg.Body.(*core.NewView); ok {
				return
			}
		}
	}
	if w.show {
		w.note("%s", describe(p))
	}
	w.give(x, p.in, p.id)
}

// blocked keeps back what a member that is cut off or behind is not to get yet.
func (w *world) blocked(x *player, p *parcel) bool {
	until := x.cut
	if _, ok := p.in.(*core.ViewChanged); ok {
		until = max(until, x.behind)
	}
	if until > 0 {
		p.until = until
		w.kept = append(w.kept, p)
	}
	return until > 0
}

// differs does what is not the default, and says whether the parcel is delivered all the same.
func (w *world) differs(x *player, p *parcel, way string) bool {
	w.note("%s: %s", describe(p), way)
	what, until, _ := strings.Cut(way, " ")
	var v uint64
	fmt.Sscan(until, &v)
	switch what {
	case "late":
		p.until = v
		w.kept = append(w.kept, p)
	case "behind":
		x.behind = v
		w.blocked(x, p)
	case "cut":
		x.cut = v
		w.blocked(x, p)
	case "wipe":
		w.wipe(x)
	}
	return false
}

func (w *world) choose(p *parcel, ways []string) string {
	n := len(w.turns)
	state := fold(w.state(), p.id)
	w.turns = append(w.turns, turn{state, ways})
	if n >= w.from && w.seen != nil {
		if left, ok := w.seen[state]; ok && left >= w.left {
			w.again = true
			return ""
		}
		w.seen[state] = w.left
	}
	return ways[w.choices[n]]
}

// release gives out what was kept back until the present version, or all of it.
func (w *world) release(all bool) {
	v := w.p.Version
	for _, x := range w.players {
		if all || x.behind <= v {
			x.behind = 0
		}
		if all || x.cut <= v {
			x.cut = 0
		}
	}
	keep := w.kept[:0]
	for _, p := range w.kept {
		if all || p.until <= v {
			w.queue = append(w.queue, p)
		} else {
			keep = append(keep, p)
		}
	}
	w.kept = keep
}

// settle delivers what is on its way, and lets a tick pass.
func (w *world) settle() {
	for len(w.queue) > 0 && w.bad == nil && !w.again {
		w.deliver()
	}
	if w.bad != nil || w.again {
		return
	}
	w.now += searchTick
	for _, x := range w.players {
		w.give(x, &core.Tick{}, 7)
	}
	if w.p.Running != nil && membership.Ready(&w.p) {
		if w.plot.abort && !w.aborted && w.p.Stage == membership.StageSwitch {
			w.aborted = true
			w.apply(membership.Command{Abort: &membership.ChangeRef{ID: w.p.Running.ID}})
		} else {
			w.apply(membership.Command{Advance: &membership.Advance{Version: w.p.Version, Stage: w.p.Stage}})
		}
	}
	w.release(w.now-w.moved > searchStall)
}

// until settles until something is so, or for some time.
func (w *world) until(most core.Time, so func() bool) bool {
	for end := w.now + most; w.now < end && w.bad == nil && !w.again; w.settle() {
		if so() {
			return true
		}
	}
	return so()
}

func (w *world) quiet() bool { return len(w.calls) == 0 }

// run plays the plot.
func (w *world) run() {
	p := w.plot
	pair := func() { // a write, and a read elsewhere
		w.call(p.writers, app)
		w.until(searchCall+100*ms, w.quiet)
		w.call(p.other, get)
		w.until(searchCall+100*ms, w.quiet)
	}
	w.until(200*ms, func() bool { return false })
	w.moved = w.now
	pair()
	for n := range 2 {
		if n == 1 && !p.abort {
			break
		}
		if len(p.add)+len(p.remove) == 0 {
			break
		}
		w.apply(membership.Command{Change: &membership.ChangeCommand{Add: p.add, Remove: p.remove}})
		w.until(3000*ms, func() bool { return w.p.Stage == membership.StageSwitch })
		w.call(p.writers, app)
		w.until(3000*ms, func() bool { return w.p.Stage == membership.StageStable })
		w.until(searchCall+100*ms, w.quiet)
	}
	pair()
	w.release(true)
	w.served()
}

// served has everybody read the key at the end, and the history checked.
func (w *world) served() {
	w.until(1000*ms, func() bool { return w.quiet() && w.p.Running == nil })
	for _, x := range w.players {
		reads := w.reads
		for end := w.now + searchEnd; w.reads == reads && w.now < end && w.going(); {
			w.call(x.id, get)
			w.until(searchCall+100*ms, w.quiet)
		}
		if w.reads == reads && w.going() {
			w.fail("%s cannot read the key at the end: %s", x.id, x.core.Explain(w.key).Why)
		}
	}
	if err := w.hist.whole(); err != nil && w.going() { // its calls have no times for a search
		w.fail("%v", err)
	}
}

func (w *world) going() bool { return w.bad == nil && !w.again }

// describe names a parcel.
func describe(p *parcel) string {
	switch in := p.in.(type) {
	case *core.Recv:
		b := in.Msg.Body
		return fmt.Sprintf("%s to %s at v%d: %s %+v", p.from, p.to, in.Msg.Version, strings.TrimPrefix(fmt.Sprintf("%T", b), "*core."), b)
	case *core.ViewChanged:
		return fmt.Sprintf("%s learns %s", p.to, in.View)
	}
	return fmt.Sprintf("%s: %T", p.to, p.in)
}

// hunt is a search of a plot: all runs that differ from the default in at most so many places.
type hunt struct {
	plot   *plot
	key    core.Key
	seen   map[uint64]int
	until  time.Time // zero: no limit
	runs   int
	cut    bool  // it ran out of time
	bad    error // the first violation
	choice map[int]int
}

func (h *hunt) play(choices map[int]int, from, left int, show bool) *world {
	w := newWorld(h.plot, h.key)
	w.choices, w.from, w.left, w.show = choices, from, left, show
	if !show {
		w.seen = h.seen
	}
	func() {
		defer func() {
			if p := recover(); p != nil {
				w.fail("panic: %v", p)
			}
		}()
		w.run()
	}()
	return w
}

// search tries what may follow some differences.
func (h *hunt) search(choices map[int]int, from, left int) {
	if h.bad != nil || h.cut {
		return
	}
	if !h.until.IsZero() && time.Now().After(h.until) {
		h.cut = true
		return
	}
	w := h.play(choices, from, left, false)
	h.runs++
	if w.bad != nil {
		h.bad, h.choice = w.bad, maps.Clone(choices)
		return
	}
	if left == 0 {
		return
	}
	for n := from; n < len(w.turns); n++ {
		for way := 1; way < len(w.turns[n].ways); way++ {
			choices[n] = way
			h.search(choices, n+1, left-1)
			delete(choices, n)
		}
	}
}

// deepen searches with one difference, then with two, and so on.
func (h *hunt) deepen(most int) {
	for left := 0; left <= most && h.bad == nil && !h.cut; left++ {
		h.seen = map[uint64]int{}
		h.search(map[int]int{}, 0, left)
	}
}

var (
	searchDepth = flag.Int("differences", 0, "the search: in how many places a run may differ from the default; 0: as many as the plot says")
	searchFor   = flag.Duration("search", 0, "all plots together are searched for so long; 0: until all is searched")
	searchPlot  = flag.String("plot", "", "search this plot alone")
)

// TestSearch searches all plots, several at a time.
func TestSearch(t *testing.T) {
	hunts := make([]*hunt, len(plots))
	next := make(chan int, len(plots))
	for i := range plots {
		next <- i
	}
	close(next)
	took := make([]time.Duration, len(plots))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				p := &plots[i]
				if *searchPlot != "" && p.name != *searchPlot {
					continue
				}
				key, err := keyOf(p)
				hunts[i] = &hunt{plot: p, key: key, bad: err}
				begin := time.Now()
				if *searchFor > 0 {
					hunts[i].until = begin.Add(*searchFor * time.Duration(runtime.GOMAXPROCS(0)) / time.Duration(len(plots)**parts))
				}
				most := p.differences
				if *searchDepth > 0 {
					most = *searchDepth
				}
				hunts[i].deepen(most)
				took[i] = time.Since(begin)
			}
		})
	}
	wg.Wait()
	runs, states := 0, 0
	for i, h := range hunts {
		if h == nil {
			continue
		}
		most := plots[i].differences
		if *searchDepth > 0 {
			most = *searchDepth
		}
		cut := ""
		if h.cut {
			cut = ", cut off by time"
		}
		fmt.Printf("search: %-8s differences=%d runs=%d states=%d seconds=%.1f  %s%s\n", plots[i].name, most, h.runs, len(h.seen), took[i].Seconds(), plots[i].about, cut)
		runs, states = runs+h.runs, states+len(h.seen)
		if h.bad != nil {
			t.Errorf("plot %s: %v\n%s", plots[i].name, h.bad, h.story())
		}
	}
	fmt.Printf("search: runs=%d states=%d\n", runs, states)
}

// story plays a violation again and tells it.
func (h *hunt) story() string {
	w := h.play(h.choice, 0, 0, true)
	return strings.Join(w.trace, "\n")
}

// TestSearchFinds has the search find planted bugs, each with two differences in the plot that is named: what it passes over
// would not be worth much otherwise.
func TestSearchFinds(t *testing.T) {
	if *planted == 0 {
		t.Skip("builds the tests again for each; make planted-known runs it")
	}
	plants := map[string]*plant{}
	for _, p := range readPlants(t) {
		plants[p.name] = p
	}
	for _, x := range []struct{ bug, plot string }{
		{"first-answer", "lose"}, {"stayers-unfilled", "lose"}, {"gainers-suffice", "lose"}, {"base-alone", "lose"},
		{"one-source", "lose"}, {"one-source", "crash"}, {"done-without-pages", "crash"}, {"no-fence", "lose"},
	} {
		p := plants[x.bug]
		if p == nil {
			t.Fatalf("no bug is called %q", x.bug)
		}
		bin, err := p.build(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(bin, "-test.run=TestSearch$", "-plot", x.plot, "-differences", "2").CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte(fmt.Sprintf("plot %s: ", x.plot))) {
			t.Errorf("%s is not found in plot %s: %v\n%s", x.bug, x.plot, err, out)
		}
	}
}
