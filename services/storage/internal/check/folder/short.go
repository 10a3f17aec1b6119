package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// logFile is a file of the log: the offset that its name says, and its length, bytes.
type logFile struct{ start, size int64 }

// sound is what the length of a log file is a multiple of, unless somebody has cut it or has named an odd size.
const sound = 4 << 10

// CheckSizes refuses a file of the log that was cut short, before a start takes its length for that of all files: a log of smaller
// files would begin on it.
func CheckSizes(fsys vfs.FS, root string) error {
	// What cannot be read says nothing here; the start tells it.
	f := folder{fsys: fsys, root: root}
	if data, _, err := durable.ReadChecked(fsys, filepath.Join(root, filepath.FromSlash(lineageFile))); err == nil {
		var l epoch.Lineage
		if l.UnmarshalText(data) == nil {
			f.state.lineage = &l
		}
	}
	if c, err := checkpoint.Load(fsys, filepath.Join(root, checkpointFile)); err == nil {
		f.state.flushed, f.state.ours = c.Flushed()
	}
	infos, err := fsys.ReadDir(filepath.Join(root, "commitlog"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("list log files: %w", err)
	}
	var files []logFile
	for _, info := range infos {
		if start, ok := mappedfile.ParseName(info.Name); ok && !info.Dir && info.Size > 0 {
			files = append(files, logFile{start, info.Size})
		}
	}
	i, want := f.state.short(files)
	if i < 0 {
		return nil
	}
	e := mappedfile.ErrSize.WithMsg("a file of the log was cut short").With("file", mappedfile.Name(files[i].start)).With("size", files[i].size)
	if want > 0 {
		e = e.With("want", want)
	}
	return e.WithRemedy("bring the file back; or start this node in an empty folder, as a slave of a node that has the log")
}

// held is an end that the log had on the disk, bytes.
func (s *state) held() (end int64) {
	if s.ours {
		end = s.flushed
	}
	if s.lineage != nil {
		end = max(end, s.lineage.Held)
	}
	return end
}

// short returns the first file that was cut short and the length that it must have, 0 where that is not known; -1 where there is
// none.
func (s *state) short(files []logFile) (i int, want int64) {
	if len(files) == 0 {
		return -1, 0
	}
	if s.lineage != nil {
		want = s.lineage.FileSize
	}
	if len(files) > 1 { // neighbours say it, where one of them has this length
		for _, f := range files {
			if f.size == files[1].start-files[0].start {
				want = f.size
			}
		}
	}
	for i, f := range files {
		if f.size < want {
			return i, want
		}
	}
	if f := files[0]; want == 0 && len(files) == 1 && f.size%sound != 0 && s.held() > f.start+f.size {
		return 0, 0
	}
	return -1, want
}

// tellShort tells of a file that was cut short, and has the units that point behind it counted instead of told one by one.
func (f *folder) tellShort(name string, file logFile, want int64) error {
	if want == 0 {
		return f.damaged(name, "was cut short: it has %d bytes, and the log was held up to %d", file.size, f.state.held())
	}
	return f.damaged(name, "was cut short: it has %d bytes and must have %d", file.size, want)
}

// tellBeyond tells of the units that point into what a short file has lost.
func (f *folder) tellBeyond() error {
	if f.beyond == 0 {
		return nil
	}
	return f.damaged("consumequeue", "%d units point behind the end of the log, into what the short file has lost", f.beyond)
}
