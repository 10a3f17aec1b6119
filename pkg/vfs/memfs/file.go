package memfs

import (
	"math"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// content is the pages of a file and their number of bytes. Pages behind the end of the table, and nil ones, are zeros;
// bytes of the last page behind size are zeros too.
type content struct {
	pages    []*page
	shared   bool // the table is also another content's: copy it before changing it
	size     int64
	reserved bitset // pages that blocks were charged for
}

func (c *content) page(i int) *page {
	if i < len(c.pages) {
		return c.pages[i]
	}
	return nil
}

// table makes the table changeable and at least n long.
func (c *content) table(n int) {
	if c.shared {
		c.pages = append(make([]*page, 0, max(n, len(c.pages))), c.pages...)
		c.shared = false
	}
	for len(c.pages) < n {
		c.pages = append(c.pages, nil)
	}
}

// file has a live content, whose pages it shares with the synced one and with clones as far as they are not owned.
type file struct {
	// Guarded by FS.mu held for writing.
	opens int
	links int // names

	mu        sync.RWMutex // held for reading while bytes are copied, for writing while the rest changes
	live      content
	owned     bitset // pages that only live has: may be written in place
	dirty     []int  // pages that may differ from the synced ones, the mapped ones aside
	dirtyFrom int    // all pages from here on are dirty
	synced    content
	mod       time.Time

	maps  int           // open mappings
	arena []byte        // the memory of the first pages while mapped
	lost  map[int]*page // pages as a failed sync left them: clean, but not durable
}

func newFile() *file { return &file{mod: time.Now(), dirtyFrom: math.MaxInt} }

func (f *file) info(name string) vfs.Info {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return vfs.Info{Name: name, Size: f.live.size, ModTime: f.mod}
}

func (f *file) mapped(i int) bool { return i < len(f.arena)/pageSize }

// own returns page i ready to be written in place, which makes it dirty, whatever is written.
func (f *file) own(i int) *page {
	delete(f.lost, i)
	if f.owned.has(i) {
		return f.live.pages[i]
	}
	f.live.table(i + 1)
	p := new(page)
	if old := f.live.pages[i]; old != nil {
		*p = *old
	}
	f.live.pages[i] = p
	f.owned.set(i)
	f.dirty = append(f.dirty, i)
	return p
}

// reserve charges page i; false when the quota is used up.
func (f *file) reserve(fsys *FS, i int) bool {
	if f.live.reserved.has(i) {
		return true
	}
	if !fsys.charge(1) {
		return false
	}
	f.live.reserved.set(i)
	return true
}

// writable reports whether [off, off+n) can be written in place. mu is held.
func (f *file) writable(off, n int64) bool {
	if off+n > f.live.size {
		return false
	}
	for i := int(off / pageSize); i < pagesFor(off+n); i++ {
		if _, lost := f.lost[i]; lost || !f.owned.has(i) || !f.live.reserved.has(i) {
			return false
		}
	}
	return true
}

// prepare makes as much of [off, off+n) writable as the quota allows and returns how many bytes that is.
func (f *file) prepare(fsys *FS, off, n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := int(off / pageSize); i < pagesFor(off+n); i++ {
		if !f.reserve(fsys, i) {
			n = max(0, int64(i)*pageSize-off)
			break
		}
		f.own(i)
	}
	if n > 0 {
		f.live.size = max(f.live.size, off+n)
	}
	f.mod = time.Now()
	return n
}

// write copies p to off and returns how much of it the quota let in.
func (f *file) write(fsys *FS, p []byte, off int64) int {
	if len(p) == 0 {
		return 0
	}
	for {
		f.mu.RLock()
		if f.writable(off, int64(len(p))) {
			break
		}
		f.mu.RUnlock()
		p = p[:f.prepare(fsys, off, int64(len(p)))]
		if len(p) == 0 {
			return 0
		}
	}
	defer f.mu.RUnlock()
	for n := 0; n < len(p); {
		at := off + int64(n)
		n += copy(f.live.pages[at/pageSize][at%pageSize:], p[n:])
	}
	return len(p)
}

// read copies from off and returns how much was there.
func (f *file) read(p []byte, off int64) int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	p = p[:max(0, min(int64(len(p)), f.live.size-off))]
	for n := 0; n < len(p); {
		at := off + int64(n)
		rest := p[n:min(len(p), n+pageSize-int(at%pageSize))]
		if src := f.live.page(int(at / pageSize)); src != nil {
			n += copy(rest, src[at%pageSize:])
		} else {
			clear(rest)
			n += len(rest)
		}
	}
	return len(p)
}

// wipe makes bytes [from, to) of page i zeros.
func (f *file) wipe(i, from, to int) {
	if f.live.page(i) == nil {
		return
	}
	if to-from == pageSize && !f.mapped(i) {
		f.live.table(i + 1)
		f.live.pages[i] = nil
		f.owned.unset(i)
		f.dirty = append(f.dirty, i)
		return
	}
	clear(f.own(i)[from:to])
}

func (f *file) zero(fsys *FS, off, n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := off + min(n, f.live.size-off)
	f.mod = time.Now()
	for off < end {
		i := int(off / pageSize)
		next := min(end, int64(i+1)*pageSize)
		if !f.reserve(fsys, i) {
			return false
		}
		f.wipe(i, int(off%pageSize), int(next-int64(i)*pageSize))
		off = next
	}
	return true
}

func (f *file) truncate(fsys *FS, size int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size < 0 {
		return syscall.EINVAL
	}
	if f.maps > 0 && size < int64(len(f.arena)) && size < f.live.size {
		return syscall.EBUSY
	}
	f.mod = time.Now()
	if size >= f.live.size {
		f.live.size = size
		return nil
	}
	n := pagesFor(size)
	if rest := int(size % pageSize); rest > 0 {
		f.wipe(n-1, rest, pageSize)
	}
	if n < len(f.live.pages) {
		f.live.table(0)
		clear(f.live.pages[n:])
		f.live.pages = f.live.pages[:n]
	}
	before := f.live.reserved.count()
	f.live.reserved.cut(n)
	fsys.release(before - f.live.reserved.count())
	f.owned.cut(n)
	f.dirtyFrom = min(f.dirtyFrom, n)
	f.live.size = size
	return nil
}

func (f *file) allocate(fsys *FS, size int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	missing := 0
	for i := range pagesFor(size) {
		if !f.live.reserved.has(i) {
			missing++
		}
	}
	if !fsys.charge(missing) {
		return false
	}
	for i := range pagesFor(size) {
		f.live.reserved.set(i)
	}
	f.live.size = max(f.live.size, size)
	f.mod = time.Now()
	return true
}

// sync makes the synced content equal to the live one.
func (f *file) sync() {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.live.pages)
	f.synced.table(n)
	clear(f.synced.pages[n:])
	f.synced.pages = f.synced.pages[:n]
	f.eachDirty(func(i int) {
		f.synced.pages[i] = f.live.pages[i]
		f.owned.unset(i)
	})
	for i := range len(f.arena) / pageSize {
		f.synced.pages[i] = f.durablePage(i)
	}
	f.synced.size = f.live.size
	f.synced.reserved = f.live.reserved.clone()
}

// syncFailed does what Linux does: the dirty pages are clean now, and nothing of them is durable.
func (f *file) syncFailed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.eachDirty(f.owned.unset)
	f.lost = map[int]*page{}
	for i, p := range f.live.pages {
		if !same(p, f.synced.page(i)) {
			f.lost[i] = snapshot(p)
		}
	}
}

// eachDirty calls do for each dirty page that is not mapped and forgets them.
func (f *file) eachDirty(do func(i int)) {
	for _, i := range f.dirty {
		if i < len(f.live.pages) && !f.mapped(i) {
			do(i)
		}
	}
	for i := f.dirtyFrom; i < len(f.live.pages); i++ {
		if !f.mapped(i) {
			do(i)
		}
	}
	f.dirty = f.dirty[:0]
	f.dirtyFrom = math.MaxInt
}

// durablePage returns what a sync makes of mapped page i: the synced page where nothing changed.
func (f *file) durablePage(i int) *page {
	p, old := f.live.pages[i], f.synced.page(i)
	if same(p, old) {
		return old
	}
	if lost, ok := f.lost[i]; ok {
		if same(p, lost) {
			return old
		}
		delete(f.lost, i)
	}
	return snapshot(p)
}

// mapPages puts all pages side by side, if they are not yet, and counts a mapping of size bytes.
func (f *file) mapPages(size int64, write bool) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size <= 0 || size > f.live.size {
		return nil, syscall.EINVAL
	}
	if write {
		for i := range pagesFor(size) {
			if !f.live.reserved.has(i) {
				return nil, errNotReserved
			}
		}
	}
	if f.maps > 0 && size > int64(len(f.arena)) {
		return nil, errMappedSmaller
	}
	if f.maps == 0 {
		f.gather(pagesFor(f.live.size))
	}
	f.maps++
	return f.arena[:size:size], nil
}

func (f *file) gather(n int) {
	pages := make([]page, n)
	f.live.table(n)
	for i := range pages {
		if old := f.live.pages[i]; old != nil {
			pages[i] = *old
		}
		f.live.pages[i] = &pages[i]
		f.owned.set(i)
	}
	f.arena = unsafe.Slice(&pages[0][0], n*pageSize) //nolint:gosec // an array of arrays is their bytes side by side
}

// unmap ends a mapping; the last one scatters the pages again and spoils the memory for who still looks at it.
func (f *file) unmap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.maps--; f.maps > 0 {
		return
	}
	for i := range len(f.arena) / pageSize {
		p, old := f.live.pages[i], f.synced.page(i)
		lost, isLost := f.lost[i]
		switch {
		case same(p, old):
			f.live.pages[i] = old
			f.owned.unset(i)
		case isLost && same(p, lost):
			f.live.pages[i] = lost
			f.owned.unset(i)
		default:
			f.live.pages[i] = snapshot(p)
			f.dirty = append(f.dirty, i)
		}
	}
	for i := range f.arena {
		f.arena[i] = spoiled
	}
	f.arena = nil
	slices.Sort(f.dirty)
	f.dirty = slices.Compact(f.dirty)
}
