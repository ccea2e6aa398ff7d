package actor

import (
	"slices"
	"strings"
)

// names is a sorted set of names in blocks: one that comes or goes moves those of its block, not all.
type names struct {
	n      int
	blocks [][]string // none is empty
}

// namesMost bounds a block.
const namesMost = 256

func namesOf(all []string) *names {
	slices.Sort(all)
	s := &names{n: len(all)}
	for b := range slices.Chunk(all, namesMost/2) {
		s.blocks = append(s.blocks, slices.Clone(b))
	}
	return s
}

// at gives where a name is, or would be.
func (s *names) at(name string) (block, i int, found bool) {
	block, found = slices.BinarySearchFunc(s.blocks, name, func(b []string, n string) int { return strings.Compare(b[0], n) })
	if found || len(s.blocks) == 0 {
		return block, 0, found
	}
	block = max(block-1, 0)
	i, found = slices.BinarySearch(s.blocks[block], name)
	return block, i, found
}

func (s *names) add(name string) {
	b, i, found := s.at(name)
	switch {
	case found:
		return
	case len(s.blocks) == 0:
		s.blocks = [][]string{{name}}
	default:
		all := slices.Insert(s.blocks[b], i, name)
		s.blocks[b] = all
		if len(all) > namesMost {
			half := len(all) / 2
			s.blocks = slices.Replace(s.blocks, b, b+1, all[:half:half], slices.Clone(all[half:]))
		}
	}
	s.n++
}

func (s *names) remove(name string) {
	b, i, found := s.at(name)
	if !found {
		return
	}
	s.n--
	if s.blocks[b] = slices.Delete(s.blocks[b], i, i+1); len(s.blocks[b]) == 0 {
		s.blocks = slices.Delete(s.blocks, b, b+1)
	}
}

// from gives the first name that is at least, or with after above, another one.
func (s *names) from(name string, after bool) (string, bool) {
	b, i, found := s.at(name)
	if found && after {
		i++
	}
	if b < len(s.blocks) && i == len(s.blocks[b]) {
		b, i = b+1, 0
	}
	if b >= len(s.blocks) {
		return "", false
	}
	return s.blocks[b][i], true
}

// all gives the names in order.
func (s *names) all() []string { return slices.Concat(s.blocks...) }
