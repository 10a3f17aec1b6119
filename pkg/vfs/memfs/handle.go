package memfs

import (
	"errors"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"

	"github.com/tandemlog/tandem/pkg/vfs"
)

const spoiled = 0xDB // fills memory whose mapping was closed

var (
	errNotReserved   = errors.New("writable mapping of bytes that were neither allocated nor written: a full disk would be a SIGBUS")
	errMappedSmaller = errors.New("the file is mapped already and has grown since; memfs cannot extend that")
)

// handle is an open file.
type handle struct {
	fs          *FS
	file        *file
	name        string
	read, write bool
	closed      atomic.Bool
}

// check refuses what the handle is not open for.
func (h *handle) check(op string, write bool) error {
	switch {
	case h.closed.Load():
		return pathError(op, h.name, fs.ErrClosed)
	case write && !h.write, !write && !h.read:
		return pathError(op, h.name, syscall.EBADF)
	}
	return nil
}

// begin checks the handle and starts a mutating operation.
func (h *handle) begin(kind Kind, off, n int64) (Action, error) {
	if err := h.check(kind.String(), true); err != nil {
		return Proceed, err
	}
	if off < 0 || n < 0 {
		return Proceed, pathError(kind.String(), h.name, syscall.EINVAL)
	}
	return h.fs.begin(Op{Kind: kind, Name: h.name, Off: off, N: n})
}

func (h *handle) ReadAt(p []byte, off int64) (int, error) {
	if err := h.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("readat", h.name, errors.New("negative offset"))
	}
	act, err := h.fs.begin(Op{Kind: KindRead, Name: h.name, Off: off, N: int64(len(p))})
	if err != nil {
		return 0, err
	}
	n := h.file.read(p, off)
	if n < len(p) {
		return n, act.end(io.EOF)
	}
	return n, act.end(nil)
}

func (h *handle) WriteAt(p []byte, off int64) (int, error) {
	act, err := h.begin(KindWrite, off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	n := h.file.write(h.fs, p, off)
	if n < len(p) {
		return n, noSpace("write", h.name)
	}
	return n, act.end(nil)
}

func (h *handle) WritevAt(bufs [][]byte, off int64) (int, error) {
	length := 0
	for _, b := range bufs {
		length += len(b)
	}
	act, err := h.begin(KindWritev, off, int64(length))
	if err != nil {
		return 0, err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	total := 0
	for _, b := range bufs {
		n := h.file.write(h.fs, b, off+int64(total))
		total += n
		if n < len(b) {
			return total, noSpace("writev", h.name)
		}
	}
	return total, act.end(nil)
}

func (h *handle) Size() (int64, error) {
	if h.closed.Load() {
		return 0, pathError("stat", h.name, fs.ErrClosed)
	}
	h.file.mu.RLock()
	defer h.file.mu.RUnlock()
	return h.file.live.size, nil
}

func (h *handle) Truncate(size int64) error {
	act, err := h.begin(KindTruncate, 0, size)
	if err != nil {
		return err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	return act.end(pathError("truncate", h.name, h.file.truncate(h.fs, size)))
}

func (h *handle) Allocate(size int64) error {
	act, err := h.begin(KindAllocate, 0, max(0, size))
	if err != nil {
		return err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	if size > 0 && !h.file.allocate(h.fs, size) {
		return noSpace("allocate", h.name)
	}
	return act.end(nil)
}

func (h *handle) Zero(off, n int64) error {
	act, err := h.begin(KindZero, off, n)
	if err != nil {
		return err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	if !h.file.zero(h.fs, off, n) {
		return noSpace("zero", h.name)
	}
	return act.end(nil)
}

// Sync works on a handle for reading too, as fdatasync does.
func (h *handle) Sync() error {
	if h.closed.Load() {
		return pathError("sync", h.name, fs.ErrClosed)
	}
	act, err := h.fs.begin(Op{Kind: KindSync, Name: h.name})
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	if err != nil {
		h.file.syncFailed()
		return err
	}
	h.file.sync()
	return act.end(nil)
}

func (h *handle) Map(size int64, write bool) (vfs.Mapping, error) {
	if err := h.check("map", false); err != nil {
		return nil, err
	}
	if write && !h.write {
		return nil, pathError("map", h.name, syscall.EACCES)
	}
	act, err := h.fs.begin(Op{Kind: KindMap, Name: h.name, N: size})
	if err != nil {
		return nil, err
	}
	if err := act.end(nil); err != nil {
		return nil, err
	}
	h.fs.mu.RLock()
	defer h.fs.mu.RUnlock()
	mem, err := h.file.mapPages(size, write)
	if err != nil {
		return nil, pathError("map", h.name, err)
	}
	return &mapping{fs: h.fs, file: h.file, name: h.name, write: write, mem: mem}, nil
}

func (h *handle) Fd() (uintptr, bool) { return 0, false }

func (h *handle) Close() error {
	if h.closed.Swap(true) {
		return pathError("close", h.name, fs.ErrClosed)
	}
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.file.opens--
	h.fs.reap(h.file)
	return nil
}

// mapping shares its memory with the file.
type mapping struct {
	fs    *FS
	file  *file
	name  string
	write bool
	mem   []byte // nil once closed
}

func (m *mapping) Bytes() []byte { return m.mem }

func (m *mapping) Populate(off, n int64) error {
	switch {
	case m.mem == nil:
		return pathError("populate", m.name, fs.ErrClosed)
	case !m.write:
		return pathError("populate", m.name, syscall.EACCES)
	case off < 0 || n < 0:
		return pathError("populate", m.name, syscall.EINVAL)
	}
	return nil
}

func (m *mapping) Close() error {
	if m.mem == nil {
		return pathError("munmap", m.name, fs.ErrClosed)
	}
	m.mem = nil
	m.fs.mu.RLock()
	defer m.fs.mu.RUnlock()
	m.file.unmap()
	return nil
}
