package memfs

import (
	"math/bits"
	"slices"
	"unsafe"
)

const (
	pageSize  = 4096
	pageWords = pageSize / 8
)

type page [pageSize]byte

func (p *page) words() *[pageWords]uint64 {
	return (*[pageWords]uint64)(unsafe.Pointer(p)) //nolint:gosec // every page starts at a multiple of 8
}

func pagesFor(size int64) int { return int((size + pageSize - 1) / pageSize) }

// same compares two pages, nil being zeros. It reads as the kernel does: a store into a mapping at the same time is no
// race, the page is just seen before it, after it or between.
//
//go:norace
func same(a, b *page) bool {
	if a == b {
		return true
	}
	if a == nil {
		a, b = b, a
	}
	w := a.words()
	if b == nil {
		for i := range w {
			if w[i] != 0 {
				return false
			}
		}
		return true
	}
	v := b.words()
	for i := range w {
		if w[i] != v[i] {
			return false
		}
	}
	return true
}

// snapshot copies a page as same reads it.
//
//go:norace
func snapshot(src *page) *page {
	dst := new(page)
	if src == nil {
		return dst
	}
	*dst = *src
	return dst
}

// bitset grows as bits are set.
type bitset []uint64

func (b bitset) has(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b *bitset) set(i int) {
	if need := i>>6 + 1; need > len(*b) {
		*b = append(*b, make([]uint64, need-len(*b))...)
	}
	(*b)[i>>6] |= 1 << (i & 63)
}

func (b bitset) unset(i int) {
	if i>>6 < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
}

func (b bitset) count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// cut clears all bits from i on.
func (b *bitset) cut(i int) {
	if i>>6 < len(*b) {
		(*b)[i>>6] &= 1<<(i&63) - 1
		*b = (*b)[:i>>6+1]
	}
}

func (b bitset) clone() bitset { return slices.Clone(b) }
