package mappedfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// Create makes the file at start: the end of the last one, or any multiple of the file size in an empty queue. prepare,
// where it is not nil, gets the file before anybody sees it. When Create returns, the file is durable under its name; the
// error is vfs.ErrNoSpace when it does not fit on the disk, and then nothing is left of it.
func (q *Queue) Create(start int64, prepare func(*File) error) (*File, error) {
	return q.add(start, q.o.Reserve, prepare)
}

// CreateSparse is Create for a full disk: no blocks are reserved yet. File.Reserve or Writable must come before the first
// byte.
func (q *Queue) CreateSparse(start int64) (*File, error) { return q.add(start, false, nil) }

func (q *Queue) add(start int64, reserve bool, prepare func(*File) error) (*File, error) {
	want := start
	if last := q.Last(); last != nil {
		want = last.End()
	}
	size := q.FileSize()
	if size <= 0 || start < 0 || start != want || start%size != 0 {
		return nil, ErrMisplaced.With("start", start).With("end", want).With("size", size).
			WithMsg("a file cannot be made at this offset")
	}
	if err := q.makeDir(); err != nil {
		return nil, err
	}
	if reserve {
		if err := q.room(); err != nil {
			return nil, err
		}
	}
	f, err := q.create(start, reserve, prepare)
	if err != nil {
		return nil, fmt.Errorf("create file %s: %w", Name(start), err)
	}
	q.change(func(files []*File) []*File { return append(slices.Clone(files), f) })
	return f, nil
}

// room refuses early on a full disk, so that a file is not made and removed at every try.
func (q *Queue) room() error {
	free, err := q.fsys.FreeSpace(q.dir)
	if err != nil {
		return fmt.Errorf("ask for free space: %w", err)
	}
	if free < q.FileSize() {
		return vfs.ErrNoSpace.With("free", free).With("need", q.FileSize()).
			WithRemedy("free space on the disk; writing goes on by itself")
	}
	return nil
}

func (q *Queue) create(start int64, reserve bool, prepare func(*File) error) (*File, error) {
	final := q.path(start)
	name := final
	if q.o.Temp != "" {
		name = q.o.Temp
	}
	h, err := q.fsys.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	f := newFile(final, start, q.FileSize(), h)
	err = q.fill(f, reserve, prepare)
	if err == nil && name != final {
		err = q.fsys.Rename(name, final)
	}
	if err == nil {
		err = q.syncDir()
	}
	if err == nil {
		return f, nil
	}
	err = errors.Join(err, f.close(q.o.Grace))
	for _, n := range []string{name, final} {
		if rerr := q.fsys.Remove(n); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return nil, err
}

// fill gives a new file its length, its map and its durable state.
func (q *Queue) fill(f *File, reserve bool, prepare func(*File) error) error {
	var err error
	if reserve {
		err = f.Reserve()
	} else {
		err = f.file.Truncate(f.size)
	}
	if err == nil && prepare != nil {
		err = prepare(f)
	}
	if err == nil && q.o.Mapped {
		err = f.mapForReading()
	}
	if err != nil {
		return err
	}
	return f.Sync()
}

// RemoveFrom removes the files that start at or past offset, the last one first, and makes that durable. dispose, where it
// is not nil, is called in place of the removal and must take the path away, by a rename.
func (q *Queue) RemoveFrom(offset int64, dispose func(f *File, path string) error) error {
	removed := false
	for f := q.Last(); f != nil && f.start >= offset; f = q.Last() {
		if err := f.close(q.o.Grace); err != nil {
			return err
		}
		q.change(func(files []*File) []*File { return files[: len(files)-1 : len(files)-1] })
		if err := q.dispose(f, dispose); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return q.syncDir()
}

func (q *Queue) dispose(f *File, dispose func(*File, string) error) error {
	var err error
	if dispose != nil {
		err = dispose(f, f.name)
	} else {
		err = q.fsys.Remove(f.name)
	}
	if err != nil {
		return fmt.Errorf("remove file %s: %w", Name(f.start), err)
	}
	return nil
}

// Cut removes the files that start past offset, zeroes the bytes from offset to the end of the file that holds it, and
// makes all that durable. A file that starts at offset is zeroed, not removed.
func (q *Queue) Cut(offset int64) error {
	if err := q.RemoveFrom(offset+1, nil); err != nil {
		return err
	}
	f := q.Find(offset)
	if f == nil {
		return nil
	}
	if err := f.Drain(q.o.Grace); err != nil {
		return err
	}
	defer f.Admit()
	if err := f.Zero(offset-f.start, f.End()-offset); err != nil {
		return err
	}
	return f.Sync()
}

// DropBefore removes the files that end at or before offset, the first one first and never the last of the queue, and
// returns how many went.
func (q *Queue) DropBefore(offset int64) (int, error) {
	dropped := 0
	for files := q.Files(); len(files) > 1 && files[0].End() <= offset; files = q.Files() {
		if err := files[0].close(q.o.Grace); err != nil {
			return dropped, err
		}
		q.change(func(files []*File) []*File { return files[1:] })
		if err := q.dispose(files[0], nil); err != nil {
			return dropped, err
		}
		dropped++
	}
	if dropped == 0 {
		return 0, nil
	}
	return dropped, q.syncDir()
}
