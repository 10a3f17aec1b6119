package folder

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
)

// logFiles reads the files of a log. What is missing or cannot be read is zeros, and was told.
type logFiles struct {
	fsys       vfs.FS
	dir        string
	size       int64
	want       int64 // the size where neighbours or the lineage say it
	first, end int64
	files      int

	short bool // one of them was cut short, which was told

	open  vfs.File // the one read last
	start int64

	bad []check.Finding // pages that the disk does not give
}

const page = 4 << 10

// openLog lists the files and tells what is wrong with their names and lengths.
func (f *folder) openLog() (*logFiles, error) {
	l := &logFiles{fsys: f.fsys, dir: filepath.Join(f.root, "commitlog"), start: -1}
	infos, err := f.fsys.ReadDir(l.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list log files: %w", err)
	}
	counts := map[int64]int{}
	var all []logFile
	for _, info := range infos {
		start, ok := mappedfile.ParseName(info.Name)
		if !ok || info.Dir {
			if err := f.note(filepath.Join("commitlog", info.Name), "is no file of the log: it is left alone"); err != nil {
				return nil, err
			}
			continue
		}
		all = append(all, logFile{start, info.Size})
		counts[info.Size]++
	}
	cut := l.sizes(all, counts, &f.state)
	for i, file := range all {
		name := filepath.Join("commitlog", mappedfile.Name(file.start))
		switch {
		case file.size == 0 && file == all[len(all)-1]:
			err = f.note(name, "is empty: the next start removes it")
		case file.start%max(l.size, 1) != 0:
			err = f.damaged(name, "the name is no multiple of the file size %d", l.size)
		default:
			if i == cut {
				err = f.tellShort(name, file, l.want)
			} else if file.size != l.size {
				err = f.damaged(name, "has %d bytes, the others have %d", file.size, l.size)
			}
			if l.files > 0 && file.start != l.end {
				err = errors.Join(err, f.damaged(filepath.Join("commitlog", mappedfile.Name(l.end)), "is missing; the next file begins at %d", file.start))
			}
			if l.files == 0 {
				l.first = file.start
			}
			l.files++
			l.end = file.start + l.size
		}
		if err != nil {
			return nil, err
		}
	}
	f.r.Files, f.r.First, f.r.FileSize = l.files, l.first, l.size
	return l, nil
}

// sizes finds the length that all files should have, and returns the index of the one that was cut short, or -1.
func (l *logFiles) sizes(all []logFile, counts map[int64]int, s *state) (cut int) {
	for size, n := range counts {
		if size > 0 && (n > counts[l.size] || n == counts[l.size] && size > l.size) {
			l.size = size
		}
	}
	if n := len(all); n > 0 && all[n-1].size == 0 { // a start removes it
		all = all[:n-1]
	}
	cut, l.want = s.short(all)
	if l.short = cut >= 0; l.short && l.want > 0 {
		l.size = l.want
	}
	return cut
}

// FileSize implements Log.
func (l *logFiles) FileSize() int64 { return l.size }

// ReadAt implements Log.
func (l *logFiles) ReadAt(ctx context.Context, p []byte, offset int64) error {
	if err := ctx.Err(); err != nil {
		return err //nolint:wrapcheck // as it is
	}
	start := offset - offset%l.size
	if start != l.start {
		if err := l.Close(); err != nil {
			return err
		}
		f, err := l.fsys.OpenFile(filepath.Join(l.dir, mappedfile.Name(start)), os.O_RDONLY, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("open log file: %w", err)
		}
		if err == nil {
			l.open = f
		}
		l.start = start
	}
	if l.open == nil {
		clear(p)
		return nil
	}
	if readAll(l.open, p, offset-start) == nil {
		return nil
	}
	for len(p) > 0 {
		n := min(int64(len(p)), page-offset%page)
		if err := readAll(l.open, p[:n], offset-start); err != nil {
			clear(p[:n])
			l.cannotRead(offset, offset+n, err)
		}
		p, offset = p[n:], offset+n
	}
	return nil
}

func (l *logFiles) cannotRead(from, to int64, err error) {
	if n := len(l.bad); n > 0 && from <= l.bad[n-1].End && to > l.bad[n-1].End {
		l.bad[n-1].End = to
	} else if n == 0 || from >= l.bad[n-1].End || to <= l.bad[n-1].Offset {
		l.bad = append(l.bad, check.Finding{Kind: check.BadRecord, Offset: from, End: to, Detail: fmt.Sprintf("the disk does not give these bytes: %v", err)})
	}
}

func (l *logFiles) unreadable(emit func(check.Finding) error) error {
	for _, f := range l.bad {
		if err := emit(f); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the open file.
func (l *logFiles) Close() error {
	if l.open == nil {
		return nil
	}
	err := l.open.Close()
	l.open = nil
	if err != nil {
		return fmt.Errorf("close log file: %w", err)
	}
	return nil
}
