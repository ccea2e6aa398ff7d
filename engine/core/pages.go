package core

import (
	"iter"
	"slices"
	"strings"
)

// pageList holds the pages of a copy, sorted by name. A few are one slice, which is never changed: a commit makes another
// one. Many are in blocks that nobody else is given, and changed where they are: to copy all of them for each commit would
// take longer than the commit.
type pageList struct {
	one  []Page      // all of them while they fit into a block
	many *pageBlocks // else
}

type pageBlocks struct {
	n      int      // pages in all blocks
	blocks [][]Page // none is empty
}

const (
	// blockMost bounds the pages of a block, and what a commit of a small state copies.
	blockMost = 64
	// blockFew is when a block is joined with the one before it, if both fit into one with room to grow.
	blockFew  = blockMost / 4
	blockFill = blockMost * 3 / 4
)

// listOf makes a list of sorted pages, which must not be changed afterwards.
func listOf(ps []Page) pageList {
	if len(ps) <= blockMost {
		return pageList{one: ps}
	}
	return pageList{many: &pageBlocks{len(ps), split(nil, ps)}}
}

// split appends copies of pages as blocks of about the same size.
func split(out [][]Page, ps []Page) [][]Page {
	parts := (len(ps) + blockFill - 1) / blockFill
	for i := range parts {
		lo, hi := i*len(ps)/parts, (i+1)*len(ps)/parts
		out = append(out, append(make([]Page, 0, blockMost), ps[lo:hi]...))
	}
	return out
}

func (l pageList) len() int {
	if l.many != nil {
		return l.many.n
	}
	return len(l.one)
}

// all gives the pages as one slice, which must not be changed, and is not when the list is.
func (l pageList) all() []Page {
	if l.many != nil {
		return slices.Concat(l.many.blocks...)
	}
	return l.one
}

// each gives the pages in order.
func (l pageList) each() iter.Seq[*Page] {
	return func(yield func(*Page) bool) {
		if l.many == nil {
			eachOf(l.one, yield)
			return
		}
		for _, b := range l.many.blocks {
			if !eachOf(b, yield) {
				return
			}
		}
	}
}

func eachOf(ps []Page, yield func(*Page) bool) bool {
	for i := range ps {
		if !yield(&ps[i]) {
			return false
		}
	}
	return true
}

// find gives the page of a name.
func (l pageList) find(name string) (Page, bool) {
	ps := l.one
	if l.many != nil {
		ps = l.many.blocks[l.many.blockOf(name)]
	}
	i, ok := slices.BinarySearchFunc(ps, name, comparePage)
	if !ok {
		return Page{}, false
	}
	return ps[i], true
}

func comparePage(p Page, name string) int { return strings.Compare(p.Name, name) }

// blockOf gives the number of the block that a name belongs to: the last one that does not begin after it.
func (m *pageBlocks) blockOf(name string) int {
	i, ok := slices.BinarySearchFunc(m.blocks, name, func(b []Page, n string) int { return strings.Compare(b[0].Name, n) })
	if !ok && i > 0 {
		i--
	}
	return i
}

// merge gives the list with changed put in, which is sorted, and removed taken out. The list as it was is not to be used any
// more.
func (l pageList) merge(changed []Page, removed []string) pageList {
	if !slices.IsSorted(removed) {
		removed = slices.Sorted(slices.Values(removed))
	}
	if l.many == nil {
		return listOf(mergePages(l.one, changed, removed))
	}
	for len(changed)+len(removed) > 0 {
		b := l.many.blockOf(firstName(changed, removed))
		c, r := len(changed), len(removed)
		if next := b + 1; next < len(l.many.blocks) { // what comes before the next block belongs here
			c, _ = slices.BinarySearchFunc(changed, l.many.blocks[next][0].Name, comparePage)
			r, _ = slices.BinarySearch(removed, l.many.blocks[next][0].Name)
		}
		l.many.mergeBlock(b, changed[:c], removed[:r])
		changed, removed = changed[c:], removed[r:]
	}
	if l.many.n <= blockMost {
		return pageList{one: l.all()}
	}
	return l
}

// mergeBlock merges into one block. Mostly that is one page that is there already.
func (m *pageBlocks) mergeBlock(b int, changed []Page, removed []string) {
	block := m.blocks[b]
	if len(changed) == 1 && len(removed) == 0 {
		if i, ok := slices.BinarySearchFunc(block, changed[0].Name, comparePage); ok {
			block[i] = changed[0]
			return
		}
	}
	merged := mergePages(block, changed, removed)
	m.n += len(merged) - len(block)
	switch {
	case len(merged) > blockMost:
		m.blocks = slices.Replace(m.blocks, b, b+1, split(nil, merged)...)
	case len(merged) == 0 && len(m.blocks) > 1:
		m.blocks = slices.Delete(m.blocks, b, b+1)
	case len(merged) <= blockFew && b > 0 && len(m.blocks[b-1])+len(merged) <= blockFill:
		m.blocks[b-1] = append(m.blocks[b-1], merged...)
		m.blocks = slices.Delete(m.blocks, b, b+1)
	default:
		m.blocks[b] = merged
	}
}

func firstName(changed []Page, removed []string) string {
	if len(removed) == 0 || len(changed) > 0 && changed[0].Name < removed[0] {
		return changed[0].Name
	}
	return removed[0]
}

// mergePages gives old with changed put in and removed taken out; all sorted by name. The old slice stays as it is.
func mergePages(old, changed []Page, removed []string) []Page {
	out := make([]Page, 0, len(old)+len(changed))
	for len(changed)+len(removed) > 0 {
		name := firstName(changed, removed)
		i, found := slices.BinarySearchFunc(old, name, comparePage)
		out = append(out, old[:i]...)
		if old = old[i:]; found {
			old = old[1:]
		}
		if len(removed) > 0 && removed[0] == name {
			removed = removed[1:]
		}
		if len(changed) > 0 && changed[0].Name == name {
			out, changed = append(out, changed[0]), changed[1:]
		}
	}
	return append(out, old...)
}
