package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"sync"
	"syscall"
	"time"

	"chainmail"
	"chainmail/coordinator"
	"chainmail/coordinator/membership"
)

const loaders = 64

// handoff prints the bytes a second that a joining member gains, as a share of the plain copy, and the bytes on the wire
// for each byte gained.
func handoff() error {
	fmt.Println("handoff: {m1,m2,m3} -> {m1,m2,m3,m4}, 3 replicas, one process, in memory")
	for _, c := range []struct {
		keys, size          int
		wantRate, wantBytes float64
	}{{100_000, 256, 0.15, 1.3}, {1500, 64 << 10, 0.3, 1.05}} {
		var rates, floors, shares, wires, works []float64
		for i := range *runs {
			gained, took, work, wire, err := handoffOnce(c.keys, c.size, i)
			if err != nil {
				return err
			}
			floor, err := plainCopy(gained/c.size, c.size)
			if err != nil {
				return err
			}
			rate := float64(gained) / took.Seconds()
			plain := float64(gained) / floor.Seconds()
			rates, floors = append(rates, rate/1e6), append(floors, plain/1e6)
			works = append(works, work.Seconds())
			shares, wires = append(shares, rate/plain), append(wires, float64(wire)/float64(gained))
		}
		fmt.Printf("  %6d keys of %5d B: %.0f MB/s, plain copy %.0f MB/s, ratio %.2f (wanted >= %.2f); wire/gained %.2f (wanted <= %.2f); processor %.2f s\n",
			c.keys, c.size, median(rates), median(floors), median(shares), c.wantRate, median(wires), c.wantBytes, median(works))
	}
	return nil
}

func node(id string, join []string) (*chainmail.Node, error) {
	c := chainmail.Config{NodeID: id, BindAddr: "127.0.0.1:0", Store: chainmail.StoreMemory, RetryJoin: join, RetryInterval: 100 * time.Millisecond,
		Raft: chainmail.Raft{Heartbeat: time.Second}, Membership: chainmail.Membership{RemoveDownAfter: -1}}
	return chainmail.Start(context.Background(), c)
}

// three starts three members.
func three() ([]*chainmail.Node, error) {
	var nodes []*chainmail.Node
	voters := map[string]string{}
	for i := range 3 {
		n, err := node(fmt.Sprintf("m%d", i+1), nil)
		if err != nil {
			return nodes, err
		}
		nodes, voters[n.ID()] = append(nodes, n), n.Addr()
	}
	for _, n := range nodes {
		if err := n.Coordinator().Bootstrap(voters, true); err != nil {
			return nodes, err
		}
	}
	for _, n := range nodes {
		if err := n.WaitReady(context.Background()); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// handoffOnce gives the bytes gained, how long the change took and how much of the processors, and the bytes that came.
func handoffOnce(keys, size, run int) (gained int, took, work time.Duration, wire uint64, err error) {
	nodes, err := three()
	defer func() {
		for _, n := range nodes {
			n.Close()
		}
	}()
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if err := fill(nodes[0], keys, size); err != nil {
		return 0, 0, 0, 0, err
	}
	joiner, err := node("m4", []string{nodes[0].Addr()})
	if err != nil {
		return 0, 0, 0, 0, err
	}
	nodes = append(nodes, joiner)
	ctx, done := context.WithTimeout(context.Background(), 2*time.Minute)
	defer done()
	for {
		if m, ok := nodes[0].Coordinator().Placement().Member("m4"); ok && m.Incarnation != 0 {
			break
		}
		if err := pause(ctx); err != nil {
			return 0, 0, 0, 0, err
		}
	}
	lead := leader(nodes)
	runtime.GC() // what the load left is not the handoff's
	stop, err := profiled(size, run)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	defer stop()
	began, worked := time.Now(), processor()
	ch, err := lead.Coordinator().Submit(ctx, coordinator.ChangeRequest{Add: []string{"m4"}})
	for err == nil && ch.Outcome == membership.Running {
		if err = pause(ctx); err == nil {
			ch, err = lead.Coordinator().Change(ctx, ch.ID)
		}
	}
	if err != nil {
		return 0, 0, 0, 0, err
	}
	took, work = time.Since(began), processor()-worked
	for _, m := range nodes[0].Members(ctx) {
		if m.ID == "m4" {
			return int(m.TakenKeys) * size, took, work, m.BytesIn, nil
		}
	}
	return 0, 0, 0, 0, fmt.Errorf("m4 is not listed")
}

// processor is the time that this process has had of processors.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// leader gives the node that hears of the log's entries first, any of them while none leads.
func leader(nodes []*chainmail.Node) *chainmail.Node {
	for _, n := range nodes {
		if n.Coordinator().IsLeader() {
			return n
		}
	}
	return nodes[0]
}

// profiled writes a CPU profile, if that is wanted, until stop is called: one file for each size of values and run.
func profiled(size, run int) (stop func(), err error) {
	if *profile == "" {
		return func() {}, nil
	}
	f, err := os.Create(fmt.Sprintf("%s.%d.%d", *profile, size, run))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(2 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func key(i int) string { return fmt.Sprintf("key%09d", i) }

func fill(n *chainmail.Node, keys, size int) error {
	errs := make(chan error, loaders)
	var wg sync.WaitGroup
	for w := range loaders {
		wg.Go(func() {
			value := make([]byte, size)
			for i := w; i < keys; i += loaders {
				if _, err := n.KV().Put(context.Background(), key(i), value); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// plainCopy sends a map over a TCP connection into another map.
func plainCopy(keys, size int) (time.Duration, error) {
	m := make(map[string][]byte, keys)
	for i := range keys {
		m[key(i)] = make([]byte, size)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	got := make(chan error, 1)
	go func() { got <- receive(l, keys) }()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	began := time.Now()
	w := bufio.NewWriterSize(c, 256<<10)
	var h [8]byte
	for k, v := range m {
		binary.BigEndian.PutUint32(h[:], uint32(len(k)))
		binary.BigEndian.PutUint32(h[4:], uint32(len(v)))
		w.Write(h[:])
		w.WriteString(k)
		w.Write(v)
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	err = <-got
	return time.Since(began), err
}

func receive(l net.Listener, keys int) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReaderSize(c, 256<<10)
	m := map[string][]byte{}
	var h [8]byte
	for len(m) < keys {
		if _, err := io.ReadFull(r, h[:]); err != nil {
			return err
		}
		kl := binary.BigEndian.Uint32(h[:])
		b := make([]byte, kl+binary.BigEndian.Uint32(h[4:]))
		if _, err := io.ReadFull(r, b); err != nil {
			return err
		}
		m[string(b[:kl])] = b[kl:]
	}
	return nil
}
