package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"chainmail/integration/process"
)

const (
	inFlight = 256
	manyKeys = 10_000
	window   = 5 * time.Second
)

// measured is what a closed loop of callers has seen.
type measured struct {
	rate     float64
	p50, p99 time.Duration
}

// loop keeps inFlight calls under way for the window, after a second to warm up.
func loop(call func(r *rand.Rand) error) (measured, error) {
	var from, to atomic.Int64
	lat := make([][]time.Duration, inFlight)
	errs := make(chan error, inFlight)
	from.Store(time.Now().Add(time.Second).UnixNano())
	to.Store(time.Now().Add(time.Second + window).UnixNano())
	var wg sync.WaitGroup
	for i := range inFlight {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for {
				began := time.Now()
				if began.UnixNano() > to.Load() {
					return
				}
				if err := call(r); err != nil {
					errs <- err
					return
				}
				if began.UnixNano() >= from.Load() {
					lat[i] = append(lat[i], time.Since(began))
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	if err := <-errs; err != nil {
		return measured{}, err
	}
	all := slices.Concat(lat...)
	slices.Sort(all)
	at := func(q float64) time.Duration { return all[int(q*float64(len(all)-1))] }
	return measured{float64(len(all)) / window.Seconds(), at(0.5), at(0.99)}, nil
}

// counters prints replicated adds beside Raft's Apply.
func counters() error {
	adds, err := clusterAdds()
	if err != nil {
		return err
	}
	applies, err := raftApplies()
	if err != nil {
		return err
	}
	fmt.Printf("counters: %d in flight over %d keys, 3 replicas in memory\n", inFlight, manyKeys)
	fmt.Printf("  counter add, 3 processes and the caller in a 4th: %.0f/s, p50 %.1f ms, p99 %.1f ms\n", adds.rate, ms(adds.p50), ms(adds.p99))
	fmt.Printf("  hashicorp/raft Apply, 3 nodes in one process:     %.0f/s, p50 %.1f ms, p99 %.1f ms\n", applies.rate, ms(applies.p50), ms(applies.p99))
	fmt.Printf("  ratio %.2f\n", adds.rate/applies.rate)
	return nil
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func clusterAdds() (measured, error) {
	dir, err := os.MkdirTemp("", "cluster-bench-")
	if err != nil {
		return measured{}, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "cluster")
	build := exec.Command("go", "build", "-o", binary, "./cmd/cluster")
	build.Dir = ".." // the module of the command
	if out, err := build.CombinedOutput(); err != nil {
		return measured{}, fmt.Errorf("build: %w: %s", err, out)
	}
	var ms []*process.Member
	var addrs []string
	for i := range 3 {
		m, err := process.New(binary, dir, fmt.Sprintf("m%d", i+1), process.Settings{})
		if err != nil {
			return measured{}, err
		}
		defer m.Stop(time.Second)
		ms, addrs = append(ms, m), append(addrs, m.Cluster)
	}
	for _, m := range ms {
		if err := m.Configure(process.Settings{Store: "none", Join: addrs, Expect: 3, Multiplier: 0.5, Extra: "membership {\n  down_after = \"3s\"\n}\n"}); err != nil {
			return measured{}, err
		}
		if err := m.Start(); err != nil {
			return measured{}, err
		}
	}
	caller, err := node("caller", addrs)
	if err != nil {
		return measured{}, err
	}
	defer caller.Close()
	ctx, done := context.WithTimeout(context.Background(), 30*time.Second)
	defer done()
	if err := caller.WaitReady(ctx); err != nil {
		return measured{}, err
	}
	return loop(func(r *rand.Rand) error {
		_, err := caller.Counter().Add(context.Background(), fmt.Sprint("c", r.IntN(manyKeys)), 1)
		return err
	})
}

// sums is a state machine of counters.
type sums struct{ m map[uint32]int64 }

func (s *sums) Apply(l *raft.Log) any {
	s.m[binary.BigEndian.Uint32(l.Data)]++
	return nil
}
func (s *sums) Snapshot() (raft.FSMSnapshot, error) { return nil, fmt.Errorf("no snapshots here") }
func (s *sums) Restore(r io.ReadCloser) error       { return r.Close() }

// layer is a plain TCP stream layer.
type layer struct{ net.Listener }

func (layer) Dial(a raft.ServerAddress, d time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(a), d)
}

func raftApplies() (measured, error) {
	var nodes []*raft.Raft
	var cfg raft.Configuration
	for i := range 3 {
		c := raft.DefaultConfig()
		c.LocalID = raft.ServerID(fmt.Sprint("r", i))
		c.LogOutput = io.Discard
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return measured{}, err
		}
		t := raft.NewNetworkTransport(layer{l}, 4, time.Second, io.Discard)
		defer t.Close()
		s := raft.NewInmemStore()
		n, err := raft.NewRaft(c, &sums{map[uint32]int64{}}, s, s, raft.NewInmemSnapshotStore(), t)
		if err != nil {
			return measured{}, err
		}
		defer n.Shutdown()
		nodes = append(nodes, n)
		cfg.Servers = append(cfg.Servers, raft.Server{ID: c.LocalID, Address: raft.ServerAddress(l.Addr().String())})
	}
	if err := nodes[0].BootstrapCluster(cfg).Error(); err != nil {
		return measured{}, err
	}
	var leader *raft.Raft
	for end := time.Now().Add(20 * time.Second); leader == nil; {
		for _, n := range nodes {
			if n.State() == raft.Leader {
				leader = n
			}
		}
		if time.Now().After(end) {
			return measured{}, fmt.Errorf("raft elects no leader")
		}
		time.Sleep(10 * time.Millisecond)
	}
	return loop(func(r *rand.Rand) error {
		return leader.Apply(binary.BigEndian.AppendUint32(nil, uint32(r.IntN(manyKeys))), 5*time.Second).Error()
	})
}
