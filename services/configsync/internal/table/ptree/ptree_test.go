package ptree

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// check compares a tree with what it should have, and the tree's own rules.
func check(t *testing.T, tree Tree[int], want map[string]Item[int]) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	if tree.Len() != len(keys) {
		t.Fatalf("%d items, want %d", tree.Len(), len(keys))
	}
	i := 0
	for item := range tree.Ascend("") {
		if i == len(keys) || item != want[keys[i]] {
			t.Fatalf("item %d is %v", i, item)
		}
		i++
	}
	if i != len(keys) {
		t.Fatalf("%d items come, want %d", i, len(keys))
	}
	if tree.root != nil {
		walk(t, tree.root)
	}
}

func walk(t *testing.T, n *node[int]) {
	t.Helper()
	if len(n.items) > maxWidth || len(n.kids) > maxWidth || len(n.items)+len(n.kids) == 0 {
		t.Fatalf("a node with %d items and %d kids", len(n.items), len(n.kids))
	}
	for _, k := range n.kids {
		if want := k.asKid(); k != want {
			t.Fatalf("of a node is known %q and %d, want %q and %d", k.first, k.high, want.first, want.high)
		}
		walk(t, k.node)
	}
}

func TestAgainstAMap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	var tree Tree[int]
	model := map[string]Item[int]{}
	type version struct {
		tree  Tree[int]
		model map[string]Item[int]
	}
	var old []version
	for round := range 60 {
		old = append(old, version{tree, maps.Clone(model)})
		e := tree.Edit()
		space := []int{50, 3000, 3000}[round%3]
		for range rnd.IntN(400) {
			key := fmt.Sprintf("k%05d", rnd.IntN(space))
			if rnd.IntN(3) == 0 || round > 45 && rnd.IntN(10) > 0 {
				_, had := model[key]
				if e.Delete(key) != had {
					t.Fatalf("delete of %s: not %v", key, had)
				}
				delete(model, key)
				continue
			}
			item := Item[int]{Key: key, Mark: int64(round), Value: rnd.Int()}
			model[key] = item
			e.Put(item)
		}
		tree = e.Tree()
		e.Put(Item[int]{Key: "behind the end"}) // must not be seen
		check(t, tree, model)
		from, mark := fmt.Sprintf("k%05d", rnd.IntN(space)), int64(rnd.IntN(round+1))
		lookups(t, tree, model, from, mark)
	}
	for i, v := range old {
		check(t, v.tree, v.model)
		_ = i
	}
}

func lookups(t *testing.T, tree Tree[int], model map[string]Item[int], from string, mark int64) {
	t.Helper()
	got, had := tree.Get(from)
	if want, ok := model[from]; had != ok || got != want {
		t.Fatalf("%s: got %v %v, want %v", from, got, had, want)
	}
	above, behind := 0, 0
	for _, item := range model {
		if item.Mark > mark {
			above++
		}
		if item.Key >= from {
			behind++
		}
	}
	for item := range tree.Above(mark) {
		if above--; item.Mark <= mark {
			t.Fatalf("%v is not above %d", item, mark)
		}
	}
	for item := range tree.Ascend(from) {
		if behind--; item.Key < from {
			t.Fatalf("%v comes before %s", item, from)
		}
	}
	if above != 0 || behind != 0 {
		t.Fatalf("%d above and %d behind are missing", above, behind)
	}
}

func TestKeysInOrderFillTheLeaves(t *testing.T) {
	e := Tree[int]{}.Edit()
	for i := range 10_000 {
		e.Put(Item[int]{Key: fmt.Sprintf("%06d", i)})
	}
	leaves := 0
	var count func(n *node[int])
	count = func(n *node[int]) {
		if n.kids == nil {
			leaves++
		}
		for _, k := range n.kids {
			count(k.node)
		}
	}
	count(e.Tree().root)
	if most := 10_000/maxWidth + 1; leaves > most {
		t.Errorf("%d leaves, want at most %d", leaves, most)
	}
}

func TestIterationsMayEndEarly(t *testing.T) {
	e := Tree[int]{}.Edit()
	for i := range 200 {
		e.Put(Item[int]{Key: fmt.Sprint(i), Mark: 1})
	}
	n := 0
	for range e.Tree().Ascend("") {
		if n++; n == 77 {
			break
		}
	}
	for range e.Tree().Above(0) {
		if n++; n == 154 {
			break
		}
	}
	if n != 154 {
		t.Errorf("%d", n)
	}
}

// TestFiller: as an Editor would, for all sizes around those of nodes, and the tree can be edited then.
func TestFiller(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 63, 64, 65, 1023, 1024, 1025, 32*1024 + 1} {
		var f Filler[int]
		model := map[string]Item[int]{}
		for i := range n {
			item := Item[int]{Key: fmt.Sprintf("%06d", 2*i), Mark: int64(i * 7919 % 100), Value: i}
			if model[item.Key] = item; !f.Put(item) || f.Len() != i+1 {
				t.Fatalf("item %d of %d is not taken", i, n)
			}
			if f.Put(item) || f.Put(Item[int]{Key: fmt.Sprintf("%06d", 2*i-1)}) {
				t.Fatalf("an item that is not above number %d is taken", i)
			}
		}
		tree := f.Tree()
		check(t, tree, model)
		lookups(t, tree, model, fmt.Sprintf("%06d", n), 50)
		e := tree.Edit()
		changed := maps.Clone(model)
		for i := range min(n, 50) {
			key := fmt.Sprintf("%06d", 2*i)
			changed[key] = Item[int]{Key: key, Mark: 1000}
			e.Put(changed[key])
		}
		extra := Item[int]{Key: "behind all"}
		changed[extra.Key] = extra
		e.Put(extra)
		check(t, e.Tree(), changed)
		check(t, tree, model)
	}
	var f Filler[int]
	if !f.Put(Item[int]{}) || f.Put(Item[int]{}) {
		t.Error("the empty key")
	}
}
