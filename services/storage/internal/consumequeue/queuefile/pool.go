package queuefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Pool keeps the most recently used files open. Its methods may be called concurrently.
type Pool struct {
	fsys vfs.FS
	max  int

	mu     sync.Mutex
	open   map[fileKey]*handle
	recent handle // ring; next is the most recently used
	idle   int    // open ones that nobody uses
	closed bool
	// removed counts the removals of files.
	removed int64
}

type fileKey struct {
	row   *Row
	start int64 // byte offset of the file in the row
}

// handle is an open file. All fields but f and key are guarded by Pool.mu.
type handle struct {
	key        fileKey
	f          vfs.File
	users      int
	gone       bool // not in open any more: the last user closes it
	prev, next *handle
}

// NewPool makes a pool that keeps at most limit files open besides those in use.
func NewPool(fsys vfs.FS, limit int) *Pool {
	p := &Pool{fsys: fsys, max: limit, open: map[fileKey]*handle{}}
	p.recent.prev, p.recent.next = &p.recent, &p.recent
	return p
}

func (k fileKey) path() string { return filepath.Join(k.row.dir, mappedfile.Name(k.start)) }

// acquire opens a file that exists; release it.
func (p *Pool) acquire(k fileKey) (*handle, error) {
	for {
		p.mu.Lock()
		e, closed, removed := p.use(k), p.closed, p.removed
		p.mu.Unlock()
		if e != nil {
			return e, nil
		}
		if closed {
			return nil, ErrClosed
		}
		f, err := p.fsys.OpenFile(k.path(), os.O_RDWR, 0)
		if err != nil {
			return nil, fmt.Errorf("open queue file: %w", err)
		}
		if e, err := p.admit(k, f, removed); e != nil || err != nil {
			return e, err
		}
	}
}

// create makes a file of size bytes, or gives one that is there that length; release it.
func (p *Pool) create(k fileKey, size int64) (*handle, error) {
	p.mu.Lock()
	removed := p.removed // files are made and removed by one goroutine at a time
	p.mu.Unlock()
	f, err := p.fsys.OpenFile(k.path(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make queue file: %w", err)
	}
	if err := f.Truncate(size); err != nil {
		return nil, errors.Join(fmt.Errorf("make queue file: %w", err), f.Close())
	}
	return p.admit(k, f, removed)
}

// admit takes in a file that was opened when removed files had been removed, unless another has been faster. When files
// have been removed since, f may be one of them that a new one of its name stands for by now: it is closed, and the result
// is nil.
func (p *Pool) admit(k fileKey, f vfs.File, removed int64) (*handle, error) {
	p.mu.Lock()
	if p.removed != removed {
		p.mu.Unlock()
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("close queue file: %w", err)
		}
		return nil, nil //nolint:nilnil // open it again
	}
	e := p.use(k)
	if e == nil {
		e = &handle{key: k, f: f, users: 1}
		p.open[k] = e
		p.link(e)
		f = nil
	}
	victim := p.evict()
	p.mu.Unlock()
	var err error
	if f != nil {
		err = f.Close()
	}
	if victim != nil {
		err = errors.Join(err, victim.f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("close queue file: %w", err), p.release(e))
	}
	return e, nil
}

// use takes a file that is open already. p.mu is held.
func (p *Pool) use(k fileKey) *handle {
	e := p.open[k]
	if e == nil {
		return nil
	}
	if e.users == 0 {
		p.idle--
	}
	e.users++
	if p.recent.next != e {
		e.unlink()
		p.link(e)
	}
	return e
}

func (p *Pool) link(e *handle) {
	e.prev, e.next = &p.recent, p.recent.next
	e.prev.next, e.next.prev = e, e
}

func (e *handle) unlink() {
	e.prev.next, e.next.prev = e.next, e.prev
}

// evict takes out the least recently used file when too many are open; the caller closes it. p.mu is held.
func (p *Pool) evict() *handle {
	if len(p.open) <= p.max || p.idle == 0 {
		return nil
	}
	e := p.recent.prev
	for e.users > 0 {
		e = e.prev
	}
	p.drop(e)
	return e
}

// drop takes e out. p.mu is held.
func (p *Pool) drop(e *handle) {
	e.gone = true
	e.unlink()
	delete(p.open, e.key)
	if e.users == 0 {
		p.idle--
	}
}

func (p *Pool) release(e *handle) error {
	p.mu.Lock()
	e.users--
	closing := e.gone && e.users == 0
	var victim *handle
	if e.users == 0 && !e.gone {
		p.idle++
		victim = p.evict()
	}
	p.mu.Unlock()
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

// forget closes a file that was removed, at once or after its last user.
func (p *Pool) forget(k fileKey) error {
	p.mu.Lock()
	p.removed++
	e := p.open[k]
	closing := e != nil && e.users == 0
	if e != nil {
		p.drop(e)
	}
	p.mu.Unlock()
	if closing {
		return e.f.Close()
	}
	return nil
}

// Close closes all files, those in use after their last user. Nothing can be opened afterwards.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var closing []*handle
	for _, e := range p.open {
		if e.users == 0 {
			closing = append(closing, e)
		}
		p.drop(e)
	}
	p.mu.Unlock()
	var errs []error
	for _, e := range closing {
		errs = append(errs, e.f.Close())
	}
	return errors.Join(errs...)
}

// Count returns how many files are open.
func (p *Pool) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}
