package consumequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// handles keeps the most recently used queue files open, at most max of them besides those in use.
type handles struct {
	fsys vfs.FS
	max  int

	mu     sync.Mutex
	open   map[fileKey]*handle
	recent handle // ring; next is the most recently used
	idle   int    // open ones that nobody uses
	closed bool
}

type fileKey struct {
	q     *Queue
	start int64 // byte offset of the file in the queue
}

// handle is an open file. All fields but f and key are guarded by handles.mu.
type handle struct {
	key        fileKey
	f          vfs.File
	users      int
	gone       bool // not in open any more: the last user closes it
	prev, next *handle
}

func newHandles(fsys vfs.FS, limit int) *handles {
	h := &handles{fsys: fsys, max: limit, open: map[fileKey]*handle{}}
	h.recent.prev, h.recent.next = &h.recent, &h.recent
	return h
}

func (k fileKey) path() string { return filepath.Join(k.q.dir, mappedfile.Name(k.start)) }

// acquire opens a file that exists; release it.
func (h *handles) acquire(k fileKey) (*handle, error) {
	h.mu.Lock()
	e, closed := h.use(k), h.closed
	h.mu.Unlock()
	if e != nil {
		return e, nil
	}
	if closed {
		return nil, ErrClosed
	}
	f, err := h.fsys.OpenFile(k.path(), os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open queue file: %w", err)
	}
	return h.admit(k, f)
}

// create makes a file of size bytes, or gives one that is there that length; release it.
func (h *handles) create(k fileKey, size int64) (*handle, error) {
	f, err := h.fsys.OpenFile(k.path(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make queue file: %w", err)
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("make queue file: %w", err), f.Close())
	}
	return h.admit(k, f)
}

// admit takes in a file that was just opened, unless another has been faster.
func (h *handles) admit(k fileKey, f vfs.File) (*handle, error) {
	h.mu.Lock()
	e := h.use(k)
	if e == nil {
		e = &handle{key: k, f: f, users: 1}
		h.open[k] = e
		h.link(e)
		f = nil
	}
	victim := h.evict()
	h.mu.Unlock()
	var err error
	if f != nil {
		err = f.Close()
	}
	if victim != nil {
		err = errors.Join(err, victim.f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("close queue file: %w", err), h.release(e))
	}
	return e, nil
}

// use takes a file that is open already. h.mu is held.
func (h *handles) use(k fileKey) *handle {
	e := h.open[k]
	if e == nil {
		return nil
	}
	if e.users == 0 {
		h.idle--
	}
	e.users++
	if h.recent.next != e {
		e.unlink()
		h.link(e)
	}
	return e
}

func (h *handles) link(e *handle) {
	e.prev, e.next = &h.recent, h.recent.next
	e.prev.next, e.next.prev = e, e
}

func (e *handle) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// evict takes out the least recently used file when too many are open; the caller closes it. h.mu is held.
func (h *handles) evict() *handle {
	if len(h.open) <= h.max || h.idle == 0 {
		return nil
	}
	e := h.recent.prev
	for e.users > 0 {
		e = e.prev
	}
	h.drop(e)
	return e
}

// drop takes e out. h.mu is held.
func (h *handles) drop(e *handle) {
	e.gone = true
	e.unlink()
	delete(h.open, e.key)
	if e.users == 0 {
		h.idle--
	}
}

func (h *handles) release(e *handle) error {
	h.mu.Lock()
	e.users--
	closing := e.gone && e.users == 0
	var victim *handle
	if e.users == 0 && !e.gone {
		h.idle++
		victim = h.evict()
	}
	h.mu.Unlock()
	var err error
	if closing {
		err = e.f.Close()
	}
	if victim != nil {
		err = errors.Join(err, victim.f.Close())
	}
	if err != nil {
		return fmt.Errorf("close queue file: %w", err)
	}
	return nil
}

// forget closes a file that is about to be removed, at once or after its last user.
func (h *handles) forget(k fileKey) error {
	h.mu.Lock()
	e := h.open[k]
	closing := e != nil && e.users == 0
	if e != nil {
		h.drop(e)
	}
	h.mu.Unlock()
	if closing {
		return e.f.Close()
	}
	return nil
}

func (h *handles) closeAll() error {
	h.mu.Lock()
	h.closed = true
	var closing []*handle
	for _, e := range h.open {
		if e.users == 0 {
			closing = append(closing, e)
		}
		h.drop(e)
	}
	h.mu.Unlock()
	var errs []error
	for _, e := range closing {
		errs = append(errs, e.f.Close())
	}
	return errors.Join(errs...)
}

// count returns how many files are open.
func (h *handles) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}
