package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A list of pages gives after any commits what a plain map of them does, however many blocks it has, and what was
// given of it before stays as it was.
func TestPageListIsAMap(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string { return fmt.Sprintf("p%04d", rapid.IntRange(0, 1500).Draw(t, "n")) })
	rapid.Check(t, func(t *rapid.T) {
		model := map[string]Page{}
		for i := range rapid.IntRange(0, 1200).Draw(t, "at first") {
			n := fmt.Sprintf("p%04d", i*5%1500)
			model[n] = Page{Name: n}
		}
		var list pageList
		list = listOf(sortedPages(model))
		type version struct {
			all  []Page
			want map[string]Page
		}
		var old []version
		check := func(l pageList, want map[string]Page) {
			t.Helper()
			all := l.all()
			if !slices.EqualFunc(all, sortedPages(want), samePage) || l.len() != len(want) {
				t.Fatalf("%d pages (%d said), want %d", len(all), l.len(), len(want))
			}
			i := 0
			for p := range l.each() {
				if !samePage(*p, all[i]) {
					t.Fatalf("page %d is %v, want %v", i, p, all[i])
				}
				i++
			}
			if l.many != nil && (len(want) <= blockMost || slices.ContainsFunc(l.many.blocks, func(b []Page) bool { return len(b) == 0 || len(b) > blockMost })) {
				t.Fatalf("%d pages in blocks %v", len(want), l.many.blocks)
			}
		}
		for seq := range rapid.IntRange(1, 12).Draw(t, "commits") {
			old = append(old, version{list.all(), maps.Clone(model)})
			changed, removed := map[string]Page{}, []string{}
			first, many := rapid.IntRange(0, 1500).Draw(t, "first"), rapid.SampledFrom([]int{0, 0, 1, 70, 1000}).Draw(t, "run")
			if rapid.Bool().Draw(t, "removes a run") {
				for i := range many {
					removed = append(removed, fmt.Sprintf("p%04d", (first+i)%1500))
				}
			} else {
				for i := range many {
					n := fmt.Sprintf("p%04d", (first+i)%1500)
					changed[n] = Page{Name: n, Stamp: Stamp{Seq: uint64(seq) + 1}}
				}
			}
			for _, n := range rapid.SliceOfN(name, 0, 5).Draw(t, "changed") {
				changed[n] = Page{Name: n, Stamp: Stamp{Seq: uint64(seq) + 1}}
			}
			removed = append(removed, rapid.SliceOfN(name, 0, 5).Draw(t, "removed")...)
			removed = slices.DeleteFunc(removed, func(n string) bool { _, ok := changed[n]; return ok })
			for _, n := range removed {
				delete(model, n)
			}
			maps.Copy(model, changed)
			list = list.merge(sortedPages(changed), removed)
			check(list, model)
			for _, n := range append(slices.Collect(maps.Keys(changed)), removed...) {
				p, ok := list.find(n)
				if want, has := model[n]; ok != has || !samePage(p, want) {
					t.Fatalf("%s is %v, %t", n, p, ok)
				}
			}
		}
		for i, v := range old {
			if !slices.EqualFunc(v.all, sortedPages(v.want), samePage) {
				t.Fatalf("what was given before commit %d has changed", i)
			}
		}
	})
}

func samePage(a, b Page) bool { return a.Name == b.Name && a.Stamp == b.Stamp }

func sortedPages(m map[string]Page) []Page {
	return slices.SortedFunc(maps.Values(m), func(a, b Page) int { return cmp.Compare(a.Name, b.Name) })
}

func manyPages(n int) []Page {
	var ps []Page
	for i := range n {
		ps = append(ps, Page{Name: fmt.Sprintf("entries/%08d", i), Data: []byte("value")})
	}
	return ps
}

// A commit of one page costs about the same however many there are: 1,000 of them of 100,000 pages half of what 100
// take that copy all pages.
func TestPageListCostsWhatChanges(t *testing.T) {
	ps := manyPages(100_000)
	list := listOf(ps)
	began := time.Now()
	for range 100 {
		mergePages(ps, ps[500:501], nil)
	}
	whole := time.Since(began)
	began = time.Now()
	for i := range 1000 {
		list = list.merge(ps[i*97:i*97+1], nil)
	}
	if took := time.Since(began); took > whole/2 {
		t.Errorf("1,000 commits took %s, 100 whole copies %s", took, whole)
	}
}

func BenchmarkPageListMerge(b *testing.B) {
	for _, n := range []int{10, 100, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ps := manyPages(n)
			list := listOf(ps)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				i = (i + 7919) % n
				list = list.merge(ps[i:i+1], nil)
			}
		})
	}
}
