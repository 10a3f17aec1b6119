package queuefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/mappedfile"
)

// Run is a row of files without a gap: the byte offset of the first and the one behind the last. Lo == Hi: none.
type Run struct{ Lo, Hi int64 }

// Empty reports whether there is no file.
func (r Run) Empty() bool { return r.Lo == r.Hi }

// Row is the files of one queue. See the package for who may call what.
type Row struct {
	pool *Pool
	dir  string
	size int64

	Files Run
	// Found are the runs that were there at the start; one of them becomes Files by Adopt.
	Found []Run
	// Made says that names have changed since the caller cleared it.
	Made bool
}

// NewRow makes a row without files in a folder that need not exist. size is the length of its files, bytes.
func NewRow(p *Pool, dir string, size int64) Row { return Row{pool: p, dir: dir, size: size} }

// Dir returns the folder.
func (r *Row) Dir() string { return r.dir }

// name is topic/queueId.
func (r *Row) name() string {
	return filepath.Join(filepath.Base(filepath.Dir(r.dir)), filepath.Base(r.dir))
}

// Start returns the start of the file that holds byte pos.
func (r *Row) Start(pos int64) int64 { return pos - pos%r.size }

// Add counts a file as found, in the order of the starts. One of another length, which a crash leaves behind, is given its
// length.
func (r *Row) Add(start, length int64) error {
	if length < r.size {
		if err := r.lengthen(start); err != nil {
			return err
		}
	}
	if n := len(r.Found); n > 0 && r.Found[n-1].Hi == start {
		r.Found[n-1].Hi += r.size
	} else {
		r.Found = append(r.Found, Run{start, start + r.size})
	}
	return nil
}

func (r *Row) lengthen(start int64) error {
	f, err := r.pool.fsys.OpenFile(fileKey{r, start}.path(), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open queue file: %w", err)
	}
	if err := errors.Join(f.Truncate(r.size), f.Close()); err != nil {
		return fmt.Errorf("lengthen queue file: %w", err)
	}
	r.Made = true
	return nil
}

// ReadAt reads bytes that lie inside one file.
func (r *Row) ReadAt(b []byte, pos int64) error {
	start := r.Start(pos)
	h, err := r.pool.acquire(fileKey{r, start})
	if err != nil {
		return err
	}
	if _, err = h.f.ReadAt(b, pos-start); err != nil {
		err = fmt.Errorf("read queue file: %w", err)
	}
	return errors.Join(err, r.pool.release(h))
}

// WriteAt writes bytes over files, the next of which it makes.
func (r *Row) WriteAt(b []byte, pos int64) error {
	for len(b) > 0 {
		start := r.Start(pos)
		if err := r.Ensure(start); err != nil {
			return err
		}
		n := min(int64(len(b)), start+r.size-pos)
		h, err := r.pool.acquire(fileKey{r, start})
		if err != nil {
			return err
		}
		if _, err = h.f.WriteAt(b[:n], pos-start); err != nil {
			err = fmt.Errorf("write queue file: %w", err)
		}
		if err := errors.Join(err, r.pool.release(h)); err != nil {
			return err
		}
		b = b[n:]
		pos += n
	}
	return nil
}

// Ensure makes the file at start, full of zeros, when it is not there.
func (r *Row) Ensure(start int64) error {
	if !r.Files.Empty() && start >= r.Files.Lo && start < r.Files.Hi {
		return nil
	}
	if err := r.pool.fsys.MkdirAll(r.dir, 0o755); err != nil {
		return fmt.Errorf("make queue folder: %w", err)
	}
	r.Made = true
	h, err := r.pool.create(fileKey{r, start}, r.size)
	if err != nil {
		return err
	}
	if err := r.pool.release(h); err != nil {
		return err
	}
	if r.Files.Empty() {
		r.Files.Lo = start
	}
	r.Files.Hi = start + r.size
	return nil
}

// Adopt makes that run the row's files which holds the file at start or ends there, and removes all others.
func (r *Row) Adopt(start int64) error {
	runs := r.all()
	r.Found, r.Files = nil, Run{start, start}
	for _, run := range runs {
		if start >= run.Lo && start <= run.Hi {
			r.Files = run
			continue
		}
		if err := r.remove(run); err != nil {
			return err
		}
	}
	return nil
}

// Disown makes the files one of the found runs again.
func (r *Row) Disown() { r.Found, r.Files = r.all(), Run{} }

// Clear removes all files, and the folder and the one above it where they are empty then.
func (r *Row) Clear() error {
	runs := r.all()
	r.Found, r.Files = nil, Run{}
	for _, run := range runs {
		if err := r.remove(run); err != nil {
			return err
		}
	}
	if r.pool.fsys.Remove(r.dir) == nil {
		_ = r.pool.fsys.Remove(filepath.Dir(r.dir)) // other queues of the topic may be in it
	}
	return nil
}

func (r *Row) all() []Run {
	if r.Files.Empty() {
		return r.Found
	}
	return append(r.Found, r.Files)
}

// remove removes the files of a run, the last one first. Who has one open can go on reading it.
func (r *Row) remove(run Run) error {
	for start := run.Hi - r.size; start >= run.Lo; start -= r.size {
		k := fileKey{r, start}
		r.Made = true
		err := r.pool.fsys.Remove(k.path())
		if isMissing(err) {
			err = nil
		}
		// Only now: whoever opened it in between must not leave it in the pool for the file that comes next.
		if err := errors.Join(err, r.pool.forget(k)); err != nil {
			return fmt.Errorf("remove queue file: %w", err)
		}
	}
	return nil
}

// Shorten ends the row at pos, which is above 0: files behind it go, and what lies behind it in its own file becomes zeros.
// A file that begins at pos stays only when it is the first: it is the last trace of where the row has got to. The result
// says whether bytes were changed.
func (r *Row) Shorten(pos int64) (changed bool, err error) {
	if r.Files.Empty() {
		return false, nil
	}
	end := r.Files.Hi
	keep := r.Files.Lo
	if pos == r.Files.Lo {
		keep += r.size
	} else if pos > r.Files.Lo {
		keep = min(r.Start(pos-1)+r.size, end)
	}
	if err := r.remove(Run{keep, end}); err != nil {
		return false, err
	}
	r.Files.Hi = keep
	if pos >= keep {
		return false, nil
	}
	start := r.Start(pos)
	h, err := r.pool.acquire(fileKey{r, start})
	if err != nil {
		return false, err
	}
	changed, err = zeroBehind(h.f, pos-start, r.size)
	return changed, errors.Join(err, r.pool.release(h))
}

// Sync makes the bytes of [from, to] durable in the files that Files was when the caller had the row to itself. Files that
// were removed since need it no more.
func (r *Row) Sync(files Run, from, to int64) error {
	last := min(r.Start(to), files.Hi-r.size)
	for start := max(r.Start(from), files.Lo); start <= last; start += r.size {
		h, err := r.pool.acquire(fileKey{r, start})
		if isMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := h.f.Sync(); err != nil {
			return ErrSync.With("queue", r.name()).With("file", mappedfile.Name(start)).Wrap(errors.Join(err, r.pool.release(h)))
		}
		if err := r.pool.release(h); err != nil {
			return err
		}
	}
	return nil
}
