package storetest

import (
	"context"
	"fmt"
	"testing"

	"chainmail/engine/core"
)

// Bench writes batches of 64 keys with a page of 100 bytes each.
func Bench(b *testing.B, open Open) {
	s, _, err := open(Owner)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := string(make([]byte, 100))
	seq := uint64(0)
	for b.Loop() {
		seq++
		st := core.Stamp{Epoch: Epoch(1, 1), Seq: seq}
		var puts []core.Put
		for i := range 64 {
			puts = append(puts, core.Put{Key: core.Key{Type: "kv", Name: fmt.Sprint((int(seq)*17 + i) % 5000)}, Meta: core.CopyMeta{Promised: st.Epoch, Stamp: st},
				Pages: []core.Page{Page("v", data, st)}})
		}
		if err := s.Apply(context.Background(), puts, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(64*float64(b.N)/b.Elapsed().Seconds(), "puts/s")
}
