package ptree

import "slices"

// Editor makes a tree out of another one. It is for one goroutine.
type Editor[V any] struct {
	tree  Tree[V]
	owner *owner
}

// Edit begins with what t has.
func (t Tree[V]) Edit() *Editor[V] { return &Editor[V]{tree: t, owner: &owner{}} }

// Tree returns what the edit has made so far. Later changes do not touch it.
func (e *Editor[V]) Tree() Tree[V] {
	e.owner = &owner{}
	return e.tree
}

// Get finds an item, changes included.
func (e *Editor[V]) Get(key string) (Item[V], bool) { return e.tree.Get(key) }

// Len returns the number of items, changes included.
func (e *Editor[V]) Len() int { return e.tree.len }

// Put puts an item in, in place of one with the same key.
func (e *Editor[V]) Put(item Item[V]) {
	if e.tree.root == nil {
		e.tree = Tree[V]{root: &node[V]{owner: e.owner, items: []Item[V]{item}}, len: 1}
		return
	}
	root, right := e.put(e.tree.root, item)
	if right != nil {
		root = &node[V]{owner: e.owner, kids: []kid[V]{root.asKid(), right.asKid()}}
	}
	e.tree.root = root
}

// mine returns n, or a copy of it that the edit may change.
func (e *Editor[V]) mine(n *node[V]) *node[V] {
	if n.owner == e.owner {
		return n
	}
	c := *n
	c.owner = e.owner
	c.items = slices.Clone(n.items)
	c.kids = slices.Clone(n.kids)
	return &c
}

// put returns the node with the item, and a second one where it had to be split.
func (e *Editor[V]) put(n *node[V], item Item[V]) (*node[V], *node[V]) {
	n = e.mine(n)
	if n.kids == nil {
		i, found := n.find(item.Key)
		if found {
			n.items[i] = item
			return n, nil
		}
		n.items = slices.Insert(n.items, i, item)
		e.tree.len++
		if len(n.items) <= maxWidth {
			return n, nil
		}
		at := splitAt(len(n.items), i)
		right := &node[V]{owner: e.owner, items: slices.Clone(n.items[at:])}
		n.items = slices.Clone(n.items[:at])
		return n, right
	}
	i := n.kid(item.Key)
	below, extra := e.put(n.kids[i].node, item)
	n.kids[i] = below.asKid()
	if extra == nil {
		return n, nil
	}
	n.kids = slices.Insert(n.kids, i+1, extra.asKid())
	if len(n.kids) <= maxWidth {
		return n, nil
	}
	at := splitAt(len(n.kids), i+1)
	right := &node[V]{owner: e.owner, kids: slices.Clone(n.kids[at:])}
	n.kids = slices.Clone(n.kids[:at])
	return n, right
}

// splitAt halves a node, except where the new one came last: keys that come in their order leave full nodes behind.
func splitAt(n, inserted int) int {
	if inserted == n-1 {
		return n - 1
	}
	return n / 2
}

// Delete takes an item out; false if it was not there.
func (e *Editor[V]) Delete(key string) bool {
	if _, found := e.tree.Get(key); !found {
		return false
	}
	e.tree.len--
	root := e.remove(e.tree.root, key)
	for root != nil && len(root.kids) == 1 {
		root = root.kids[0].node
	}
	e.tree.root = root
	return true
}

// remove returns the node without key, which is in it; nil when nothing is left. Neighbours that fit together are joined.
func (e *Editor[V]) remove(n *node[V], key string) *node[V] {
	n = e.mine(n)
	if n.kids == nil {
		i, _ := n.find(key)
		n.items = slices.Delete(n.items, i, i+1)
		if len(n.items) == 0 {
			return nil
		}
		return n
	}
	i := n.kid(key)
	below := e.remove(n.kids[i].node, key)
	switch {
	case below == nil && len(n.kids) == 1:
		return nil
	case below == nil:
		n.kids = slices.Delete(n.kids, i, i+1)
		return n
	}
	n.kids[i] = below.asKid()
	if i > 0 && fits(n.kids[i-1].node, below) {
		i--
	} else if i+1 == len(n.kids) || !fits(below, n.kids[i+1].node) {
		return n
	}
	left := e.mine(n.kids[i].node)
	left.items = append(left.items, n.kids[i+1].items...)
	left.kids = append(left.kids, n.kids[i+1].kids...)
	n.kids[i] = left.asKid()
	n.kids = slices.Delete(n.kids, i+1, i+2)
	return n
}

func fits[V any](a, b *node[V]) bool {
	return len(a.items)+len(b.items) <= maxWidth/2 && len(a.kids)+len(b.kids) <= maxWidth/2
}
