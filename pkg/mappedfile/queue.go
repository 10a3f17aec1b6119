package mappedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
)

const (
	nameDigits   = 20
	defaultGrace = 10 * time.Second
)

// Name returns the file name of an offset.
func Name(offset int64) string { return fmt.Sprintf("%0*d", nameDigits, offset) }

// ParseName returns the offset that a file name stands for; false when it is no such name.
func ParseName(name string) (int64, bool) {
	if len(name) != nameDigits || name[0] == '+' || name[0] == '-' {
		return 0, false
	}
	n, err := strconv.ParseInt(name, 10, 64)
	return n, err == nil
}

// Options are the settings of a Queue.
type Options struct {
	// FileSize is the length of every file in bytes; 0: that of the files that exist, or DefaultSize.
	FileSize int64
	// DefaultSize is the file size of an empty folder when FileSize is 0.
	DefaultSize int64
	// Mapped maps each file: Bytes and, on demand, Writable.
	Mapped bool
	// Reserve allocates the blocks of a file when it is made, and of the last one at Open, where a full disk is not an
	// error yet: see File.Reserve. Without it files are sparse and must be written by WriteAt only.
	Reserve bool
	// Temp is the path, on the same file system, under which a new file is made before it is renamed into the folder,
	// so that no short file ever stands there. Empty: files are made in place.
	Temp string
	// Grace bounds the wait for leases of a file that is closed or removed; 0: 10 s.
	Grace time.Duration
}

// Queue is a folder of files. See the package for who may call what.
type Queue struct {
	fsys    vfs.FS
	dir     string
	o       Options
	size    atomic.Int64
	foreign []string

	mu    sync.Mutex // one change of the list at a time
	files atomic.Pointer[[]*File]
}

// change replaces the list by what next makes of it; next must not write into it.
func (q *Queue) change(next func([]*File) []*File) {
	q.mu.Lock()
	defer q.mu.Unlock()
	files := next(q.Files())
	q.files.Store(&files)
}

// Open opens the files of dir, which need not exist yet.
func Open(fsys vfs.FS, dir string, o Options) (*Queue, error) {
	if o.FileSize < 0 {
		return nil, ErrSize.With("configured", o.FileSize)
	}
	if o.Grace == 0 {
		o.Grace = defaultGrace
	}
	q := &Queue{fsys: fsys, dir: dir, o: o}
	q.size.Store(o.FileSize)
	q.files.Store(&[]*File{})
	if o.Temp != "" {
		if err := fsys.Remove(o.Temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("remove unfinished file: %w", err)
		}
	}
	found, err := q.scan()
	if err != nil {
		return nil, err
	}
	if err := q.check(found); err != nil {
		return nil, err
	}
	if err := q.open(found); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

type found struct{ start, size int64 }

// scan lists the files in the order of their offsets, which is that of their names.
func (q *Queue) scan() ([]found, error) {
	infos, err := q.fsys.ReadDir(q.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list files: %w", err)
	}
	var files []found
	for _, info := range infos {
		start, ok := ParseName(info.Name)
		if !ok || info.Dir {
			q.foreign = append(q.foreign, info.Name)
			continue
		}
		files = append(files, found{start, info.Size})
	}
	if n := len(files); n > 0 && files[n-1].size == 0 {
		if err := q.fsys.Remove(q.path(files[n-1].start)); err != nil {
			return nil, fmt.Errorf("remove empty file: %w", err)
		}
		if err := q.syncDir(); err != nil {
			return nil, err
		}
		files = files[:n-1]
	}
	return files, nil
}

// check adopts the file size and finds what is wrong with the files.
func (q *Queue) check(files []found) error {
	configured := q.o.FileSize != 0
	if len(files) == 0 {
		if !configured {
			q.size.Store(q.o.DefaultSize)
		}
		return nil
	}
	if !configured {
		q.size.Store(files[0].size)
	}
	size := q.FileSize()
	for i, f := range files {
		switch {
		case f.size != size:
			err := ErrSize.With("file", Name(f.start)).With("size", f.size).With("want", size)
			if configured {
				return err.WithRemedy("leave the file size out of the config to take that of the files, or restore the file")
			}
			return err.WithRemedy("restore the file from a replica")
		case f.start%size != 0:
			return ErrMisplaced.With("file", Name(f.start)).With("size", size).WithRemedy("remove the file from the folder")
		case i > 0 && f.start != files[i-1].start+size:
			return ErrGap.With("missing", files[i-1].start+size).With("next", f.start).
				WithRemedy("restore the file, or move all files before the gap away")
		}
	}
	return nil
}

func (q *Queue) open(found []found) error {
	files := make([]*File, 0, len(found))
	var err error
	for _, e := range found {
		var f *File
		if f, err = openFile(q.fsys, q.path(e.start), e.start, q.FileSize(), q.o.Mapped); err != nil {
			break
		}
		files = append(files, f)
	}
	q.files.Store(&files)
	if err == nil && q.o.Reserve && len(files) > 0 {
		if err = files[len(files)-1].Reserve(); errors.Is(err, vfs.ErrNoSpace) {
			err = nil
		}
	}
	return err
}

func (q *Queue) path(start int64) string { return filepath.Join(q.dir, Name(start)) }

// FileSize returns the length of every file, 0 when it was not given and there is no file.
func (q *Queue) FileSize() int64 { return q.size.Load() }

// SetFileSize gives an empty queue another file size.
func (q *Queue) SetFileSize(size int64) error {
	if size <= 0 || len(q.Files()) > 0 {
		return ErrSize.With("size", q.FileSize()).With("want", size).WithMsg("only an empty queue can take another file size")
	}
	q.size.Store(size)
	return nil
}

// Foreign lists the names in the folder that are not files of the queue.
func (q *Queue) Foreign() []string { return q.foreign }

// Files returns the files in order. The slice is shared: do not change it.
func (q *Queue) Files() []*File { return *q.files.Load() }

// First returns the file with the lowest offset, nil when there is none.
func (q *Queue) First() *File {
	if files := q.Files(); len(files) > 0 {
		return files[0]
	}
	return nil
}

// Last returns the file with the highest offset, nil when there is none.
func (q *Queue) Last() *File {
	if files := q.Files(); len(files) > 0 {
		return files[len(files)-1]
	}
	return nil
}

// Find returns the file that holds offset, nil when there is none.
func (q *Queue) Find(offset int64) *File {
	files := q.Files()
	if len(files) == 0 || offset < files[0].start {
		return nil
	}
	if i := (offset - files[0].start) / q.FileSize(); i < int64(len(files)) {
		return files[i]
	}
	return nil
}

// SyncRange makes what was written to [from, to) durable, file by file from the front. An error is ErrSync.
func (q *Queue) SyncRange(from, to int64) error {
	for _, f := range q.Files() {
		if f.End() <= from || f.start >= to {
			continue
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// Renew is SyncRange where a sync may have failed before, in another process too: such a one leaves pages that count as written
// and are not on the disk, of which the next sync says nothing. So the bytes of [from, to) are written once more.
func (q *Queue) Renew(from, to int64) error {
	buf := make([]byte, 64*chunk)
	for _, f := range q.Files() {
		for at, end := max(from, f.start), min(to, f.End()); at < end; {
			part := buf[:min(int64(len(buf)), end-at)]
			if _, err := f.ReadAt(part, at-f.start); err != nil {
				return fmt.Errorf("renew file: %w", err)
			}
			if _, err := f.WriteAt(part, at-f.start); err != nil {
				return fmt.Errorf("renew file: %w", err)
			}
			at += int64(len(part))
		}
	}
	return q.SyncRange(from, to)
}

func (q *Queue) syncDir() error {
	if err := q.fsys.SyncDir(q.dir); err != nil {
		return ErrSync.With("folder", filepath.Base(q.dir)).Wrap(err)
	}
	return nil
}

// Close closes all files. ErrBusy: those with leases stay open, the others are closed.
func (q *Queue) Close() error {
	var errs []error
	for _, f := range q.Files() {
		errs = append(errs, f.close(q.o.Grace))
	}
	q.change(func([]*File) []*File { return nil })
	return errors.Join(errs...)
}

// makeDir makes the folder, durably. A folder that is there although making it failed may vanish in a power cut, with
// all that is put into it: ErrSync.
func (q *Queue) makeDir() error {
	err := durable.MkdirAll(q.fsys, q.dir)
	if err == nil {
		return nil
	}
	if _, serr := q.fsys.Stat(q.dir); serr == nil {
		return ErrSync.With("folder", filepath.Base(q.dir)).Wrap(err)
	}
	return fmt.Errorf("make folder: %w", err)
}
