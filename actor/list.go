package actor

import (
	"encoding/binary"
	"fmt"
	"iter"
	"reflect"
)

// List is a list with a page per element: what is appended or replaced is what replicates. Elements have numbers that stay
// theirs: PopFront and Trim remove the first ones, so that a List is also a log or a queue. As a field of an actor's state
// it is kept; elsewhere it is a list in memory. Values that At and All give are copies: to change one, Set it again.
type List[T any] struct {
	p      *pages
	read   bool
	lo, hi uint64 // the elements are lo to hi-1
}

func (l *List[T]) at() *pages { return l.p }
func (l *List[T]) forget()    { l.read = false }

func (l *List[T]) on(p *pages) {
	old := l.p
	if old != nil {
		l.pages() // it may not have read its bounds
	}
	lo, hi := l.lo, l.hi
	l.p, l.read, p.owner = p, false, l
	if old == nil {
		return
	}
	for i := lo; i < hi; i++ {
		if b, ok := old.get(number(i)); ok {
			p.put(number(i), recoded[T](p, old, b))
		}
	}
	l.bounds(lo, hi)
}

func (l *List[T]) elem() reflect.Type { return reflect.TypeFor[T]() }

// to gives the pages for a change.
func (l *List[T]) to() *pages {
	l.pages().mine(l)
	return l.p
}

func number(i uint64) string { return string(binary.BigEndian.AppendUint64(nil, i)) }

// pages reads the bounds, which are a page too: the one without a number.
func (l *List[T]) pages() *pages {
	if l.p == nil {
		l.p = empty()
	}
	if !l.read {
		l.lo, l.hi, l.read = 0, 0, true
		if b, ok := l.p.get(""); ok {
			var n, m int
			l.lo, n = binary.Uvarint(b)
			if n > 0 {
				l.hi, m = binary.Uvarint(b[n:])
			}
			if n <= 0 || m <= 0 || l.hi < l.lo {
				panic(&Error{CodeFailed, fmt.Sprintf("page %s holds no bounds of a list", l.p.prefix)})
			}
		}
	}
	return l.p
}

func (l *List[T]) bounds(lo, hi uint64) {
	l.lo, l.hi, l.read = lo, hi, true
	l.p.put("", binary.AppendUvarint(binary.AppendUvarint(nil, lo), hi))
}

// Len gives the number of elements.
func (l *List[T]) Len() int { l.pages(); return int(l.hi - l.lo) }

// First gives the number of the first element: 0, and one more for each that was removed before it.
func (l *List[T]) First() uint64 { l.pages(); return l.lo }

// Next gives the number that the next element will have.
func (l *List[T]) Next() uint64 { l.pages(); return l.hi }

// Append adds elements at the end.
func (l *List[T]) Append(vs ...T) {
	p := l.to()
	for i := range vs {
		p.put(number(l.hi+uint64(i)), p.encode(&vs[i]))
	}
	if len(vs) > 0 {
		l.bounds(l.lo, l.hi+uint64(len(vs)))
	}
}

// At gives the element with a number from First to Next-1, false for any other number.
func (l *List[T]) At(i uint64) (v T, ok bool) {
	p := l.pages()
	if i < l.lo || i >= l.hi {
		return v, false
	}
	b, ok := p.get(number(i))
	if ok {
		p.decode(number(i), b, &v)
	}
	return v, ok
}

// Set replaces an element and says whether there is one of that number.
func (l *List[T]) Set(i uint64, v T) bool {
	p := l.to()
	if i < l.lo || i >= l.hi {
		return false
	}
	p.replace(number(i), p.encode(&v))
	return true
}

// PopFront removes the first element and gives it, false if there is none.
func (l *List[T]) PopFront() (v T, ok bool) {
	if v, ok = l.At(l.First()); ok {
		l.Trim(l.lo + 1)
	}
	return v, ok
}

// PopBack removes the last element and gives it, false if there is none.
func (l *List[T]) PopBack() (v T, ok bool) {
	if v, ok = l.At(l.Next() - 1); ok {
		l.to().put(number(l.hi-1), nil)
		l.bounds(l.lo, l.hi-1)
	}
	return v, ok
}

// Trim removes the elements before a number.
func (l *List[T]) Trim(before uint64) {
	p := l.to()
	before = min(before, l.hi)
	if before <= l.lo {
		return
	}
	for i := l.lo; i < before; i++ {
		p.put(number(i), nil)
	}
	l.bounds(before, l.hi)
}

// All gives the elements with their numbers. What is appended meanwhile is given too.
func (l *List[T]) All() iter.Seq2[uint64, T] { return l.From(0) }

// From is All from a number on.
func (l *List[T]) From(first uint64) iter.Seq2[uint64, T] {
	return func(yield func(uint64, T) bool) {
		for i := max(first, l.First()); i < l.Next(); i++ {
			if v, ok := l.At(i); ok && !yield(i, v) {
				return
			}
		}
	}
}
