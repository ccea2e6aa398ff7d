package chainmail

import (
	"testing"
)

func BenchmarkDevAdd(b *testing.B) {
	n, err := Start(b.Context(), Config{Dev: true})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := n.Counter().Add(b.Context(), "a", 1); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDevAddParallel(b *testing.B) {
	n, err := Start(b.Context(), Config{Dev: true})
	if err != nil {
		b.Fatal(err)
	}
	defer n.Close()
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := n.Counter().Add(b.Context(), "a", 1); err != nil {
				b.Error(err)
			}
		}
	})
}
