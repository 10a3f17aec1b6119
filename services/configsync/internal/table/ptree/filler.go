package ptree

// Filler makes a tree of items that come in the order of their keys: it looks for no place, and leaves full nodes behind. The zero
// value is empty.
type Filler[V any] struct {
	leaves []kid[V]
	leaf   []Item[V] // the one that is being filled
	high   int64     // of leaf
	last   string
}

// Len returns the number of items.
func (f *Filler[V]) Len() int { return len(f.leaves)*maxWidth + len(f.leaf) }

// Put puts an item behind the others; false, and nothing is done, where its key is not above theirs.
func (f *Filler[V]) Put(item Item[V]) bool {
	if item.Key <= f.last && f.Len() > 0 {
		return false
	}
	if f.leaf == nil {
		f.leaf, f.high = make([]Item[V], 0, maxWidth), item.Mark
	}
	f.leaf = append(f.leaf, item)
	f.high, f.last = max(f.high, item.Mark), item.Key
	if len(f.leaf) == maxWidth {
		f.leaves, f.leaf = append(f.leaves, f.filled()), nil
	}
	return true
}

func (f *Filler[V]) filled() kid[V] {
	return kid[V]{node: &node[V]{items: f.leaf}, first: f.leaf[0].Key, high: f.high}
}

// Tree returns the tree of what is there; nothing may be put in behind it.
func (f *Filler[V]) Tree() Tree[V] {
	t := Tree[V]{len: f.Len()}
	level := f.leaves
	if f.leaf != nil {
		level = append(level, f.filled())
	}
	for len(level) > 1 {
		above := make([]kid[V], 0, (len(level)+maxWidth-1)/maxWidth)
		for len(level) > 0 {
			n := min(len(level), maxWidth)
			above = append(above, (&node[V]{kids: level[:n:n]}).asKid())
			level = level[n:]
		}
		level = above
	}
	if len(level) > 0 {
		t.root = level[0].node
	}
	return t
}
