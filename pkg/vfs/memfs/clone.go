package memfs

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Keep says what a crash leaves.
type Keep uint64

// What a crash leaves; see also Torn.
const (
	// OnlySynced is a power cut that loses whatever was not made durable.
	OnlySynced Keep = iota
	// All is the end of the process: the kernel still has everything.
	All
	torn
)

const sector = 512

// Torn is a power cut that keeps, besides what was synced, a choice by seed of what was not: of each file its old or
// new length, of each page the old or the new bytes or both, parted at a sector; of the names all or none.
func Torn(seed uint32) Keep { return torn + Keep(seed) }

// CrashClone makes an independent file system of what a crash at this moment would leave. Operations in flight are whole
// or not there; locks, open files, mappings, hook and counter are not taken along, the quota is.
func (f *FS) CrashClone(keep Keep) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := cloner{keep: keep, files: map[*file]*file{}, dirs: map[*dir]*dir{}, names: keep == All}
	if keep >= torn {
		c.rnd = rand.New(rand.NewPCG(uint64(keep), 0)) //nolint:gosec // repeatable by its seed
		c.names = c.coin()
	}
	out := New()
	out.root = c.dir(f.root)
	out.quota.Store(f.quota.Load())
	for _, file := range c.files {
		out.used.Add(int64(file.live.reserved.count()) * pageSize)
	}
	return out
}

type cloner struct {
	keep  Keep
	names bool // live names, not the durable ones
	rnd   *rand.Rand
	files map[*file]*file
	dirs  map[*dir]*dir
}

func (c *cloner) coin() bool { return c.rnd.IntN(2) == 0 }

func (c *cloner) dir(d *dir) *dir {
	if out, ok := c.dirs[d]; ok {
		return out
	}
	names := d.durable
	if c.names {
		names = d.entries
	}
	out := &dir{entries: make(map[string]node, len(names)), touched: map[string]struct{}{}, mod: d.mod}
	c.dirs[d] = out
	for _, name := range slices.Sorted(maps.Keys(names)) {
		switch n := names[name].(type) {
		case *dir:
			out.entries[name] = c.dir(n)
		case *file:
			out.entries[name] = c.file(n)
		}
	}
	out.durable = maps.Clone(out.entries)
	return out
}

func (c *cloner) file(f *file) *file {
	if out, ok := c.files[f]; ok {
		out.links++
		return out
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := &file{links: 1, dirtyFrom: math.MaxInt, mod: f.mod}
	c.files[f] = out
	switch c.keep {
	case OnlySynced:
		f.synced.shared = true
		out.live = f.synced
		out.live.reserved = f.synced.reserved.clone()
	case All:
		out.live = f.freeze()
	default:
		out.live = c.tear(f.synced, f.freeze())
	}
	out.live.shared = true
	out.synced = out.live
	out.synced.reserved = out.live.reserved.clone()
	return out
}

// freeze returns the live content with pages that nobody writes in place any more.
func (f *file) freeze() content {
	out := content{pages: slices.Clone(f.live.pages), size: f.live.size, reserved: f.live.reserved.clone()}
	for i := range len(f.arena) / pageSize {
		if old := f.synced.page(i); same(out.pages[i], old) {
			out.pages[i] = old
		} else {
			out.pages[i] = snapshot(out.pages[i])
		}
	}
	// A page that is not owned is copied before it is written; it stays in the list of dirty ones.
	for _, i := range f.dirty {
		if !f.mapped(i) {
			f.owned.unset(i)
		}
	}
	return out
}

// tear mixes what was synced with what was not.
func (c *cloner) tear(synced, live content) content {
	out := synced
	if c.coin() {
		out = live
	}
	n := pagesFor(out.size)
	out.pages = make([]*page, n)
	out.reserved = out.reserved.clone()
	for i := range n {
		out.pages[i] = c.tearPage(synced.page(i), live.page(i))
		if out.pages[i] != nil {
			out.reserved.set(i)
		}
	}
	if rest := int(out.size % pageSize); rest > 0 && out.pages[n-1] != nil {
		out.pages[n-1] = snapshot(out.pages[n-1])
		clear(out.pages[n-1][rest:])
	}
	return out
}

func (c *cloner) tearPage(old, now *page) *page {
	if same(old, now) {
		return old
	}
	switch c.rnd.IntN(4) {
	case 0:
		return old
	case 1:
		return now
	}
	first, second := old, now
	if c.coin() {
		first, second = now, old
	}
	p := snapshot(first)
	at := sector * (1 + c.rnd.IntN(pageSize/sector-1))
	copy(p[at:], snapshot(second)[at:])
	return p
}
