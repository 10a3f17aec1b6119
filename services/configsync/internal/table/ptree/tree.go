package ptree

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// maxWidth bounds the items of a leaf and the children of an inner node.
const maxWidth = 16

// Item is a key with its value.
type Item[V any] struct {
	Key   string
	Mark  int64
	Value V
}

// Tree is an immutable ordered map. The zero value is empty.
type Tree[V any] struct {
	root *node[V]
	len  int
}

// node is a leaf with items or an inner node with kids.
type node[V any] struct {
	owner *owner // the Editor that may change it; nobody once that is done
	items []Item[V]
	kids  []kid[V]
}

// kid is a node with what has to be known of it before one looks into it: of many kids few are.
type kid[V any] struct {
	*node[V]
	first string
	high  int64 // highest mark below it
}

type owner struct{ _ byte }

// Len returns the number of items.
func (t Tree[V]) Len() int { return t.len }

// Get finds an item.
func (t Tree[V]) Get(key string) (Item[V], bool) {
	for n := t.root; n != nil; {
		if n.kids == nil {
			i, found := n.find(key)
			if !found {
				break
			}
			return n.items[i], true
		}
		n = n.kids[n.kid(key)].node
	}
	var none Item[V]
	return none, false
}

// find returns where key is, or would be, in a leaf.
func (n *node[V]) find(key string) (int, bool) {
	return slices.BinarySearchFunc(n.items, key, func(i Item[V], key string) int { return strings.Compare(i.Key, key) })
}

// kid returns which child key belongs to.
func (n *node[V]) kid(key string) int {
	i, found := slices.BinarySearchFunc(n.kids, key, func(k kid[V], key string) int { return strings.Compare(k.first, key) })
	if !found && i > 0 {
		i--
	}
	return i
}

// Ascend returns the items from key on, in their order.
func (t Tree[V]) Ascend(from string) iter.Seq[Item[V]] {
	return func(yield func(Item[V]) bool) {
		if t.root != nil {
			t.root.ascend(from, yield)
		}
	}
}

func (n *node[V]) ascend(from string, yield func(Item[V]) bool) bool {
	if n.kids == nil {
		i, _ := n.find(from)
		for ; i < len(n.items); i++ {
			if !yield(n.items[i]) {
				return false
			}
		}
		return true
	}
	for i := n.kid(from); i < len(n.kids); i++ {
		if !n.kids[i].ascend(from, yield) {
			return false
		}
	}
	return true
}

// Above returns the items with a mark above the given one, in the order of their keys.
func (t Tree[V]) Above(mark int64) iter.Seq[Item[V]] {
	return func(yield func(Item[V]) bool) {
		if t.root != nil {
			t.root.above(mark, yield)
		}
	}
}

func (n *node[V]) above(mark int64, yield func(Item[V]) bool) bool {
	for i := range n.items {
		if n.items[i].Mark > mark && !yield(n.items[i]) {
			return false
		}
	}
	for i := range n.kids {
		if n.kids[i].high > mark && !n.kids[i].above(mark, yield) {
			return false
		}
	}
	return true
}

// asKid returns n with what has to be known of it.
func (n *node[V]) asKid() kid[V] {
	k := kid[V]{node: n, high: math.MinInt64}
	for i := range n.items {
		k.high = max(k.high, n.items[i].Mark)
	}
	for i := range n.kids {
		k.high = max(k.high, n.kids[i].high)
	}
	if n.kids == nil {
		k.first = n.items[0].Key
	} else {
		k.first = n.kids[0].first
	}
	return k
}
