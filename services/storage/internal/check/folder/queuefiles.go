package folder

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
)

// maxOpen bounds the queue files that are open at a time.
const maxOpen = 256

// queueFiles are all queues of a folder.
type queueFiles struct {
	fsys vfs.FS
	dir  string
	size int64
	all  []*queueFile
	by   map[string]map[int32]*queueFile
	open []*queueFile // in the order in which they were opened
}

// queueFile reads one queue. Where there is no file the units are zeros.
type queueFile struct {
	set    *queueFiles
	topic  string
	id     int32
	starts []int64 // of the files, bytes

	file  vfs.File // the one read last
	start int64
}

// openQueues lists the queue files and tells what is wrong with their names and lengths.
func (f *folder) openQueues() (*queueFiles, error) {
	s := &queueFiles{fsys: f.fsys, dir: filepath.Join(f.root, "consumequeue"), by: map[string]map[int32]*queueFile{}}
	found, foreign, err := queuefile.Scan(f.fsys, s.dir, func(topic string) bool { return topic != "" })
	if err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	if foreign > 0 {
		if err := f.note("consumequeue", "%d names are no queue files: they are left alone", foreign); err != nil {
			return nil, err
		}
	}
	if f.state.summary != nil {
		s.size = f.state.summary.FileSize
	}
	for _, d := range found {
		for _, file := range d.Files {
			s.size = max(s.size, file.Size)
		}
	}
	s.size = max(s.size, consumequeue.UnitSize) // a crash may leave nothing but empty files
	for _, d := range found {
		q := &queueFile{set: s, topic: d.Topic, id: d.ID, start: -1}
		for _, file := range d.Files {
			name := filepath.Join("consumequeue", d.Topic, strconv.Itoa(int(d.ID)), mappedfile.Name(file.Start))
			var err error
			switch {
			case file.Start%s.size != 0 || s.size%consumequeue.UnitSize != 0:
				err = f.damaged(name, "the name or the length does not fit the queue file size %d", s.size)
			case file.Size < s.size && f.r.Clean:
				err = f.damaged(name, "has %d bytes, the others have %d", file.Size, s.size)
			}
			if err != nil {
				return nil, err
			}
			if file.Start%s.size == 0 {
				q.starts = append(q.starts, file.Start)
			}
		}
		s.all = append(s.all, q)
		if s.by[d.Topic] == nil {
			s.by[d.Topic] = map[int32]*queueFile{}
		}
		s.by[d.Topic][d.ID] = q
	}
	return s, nil
}

// Lookup implements Queues.
func (s *queueFiles) Lookup(topic string, id int32) check.Queue {
	if q := s.by[topic][id]; q != nil {
		return q
	}
	return nil
}

// List implements Queues.
func (s *queueFiles) List() []check.Queue {
	all := make([]check.Queue, len(s.all))
	for i, q := range s.all {
		all[i] = q
	}
	return all
}

// Topic, ID, Min and Max implement Queue; Max is where the files end.
func (q *queueFile) Topic() string { return q.topic }

// ID implements Queue.
func (q *queueFile) ID() int32 { return q.id }

// Min implements Queue.
func (q *queueFile) Min() int64 {
	if len(q.starts) == 0 {
		return 0
	}
	return q.starts[0] / consumequeue.UnitSize
}

// Max implements Queue.
func (q *queueFile) Max() int64 {
	if len(q.starts) == 0 {
		return 0
	}
	return (q.starts[len(q.starts)-1] + q.set.size) / consumequeue.UnitSize
}

// Read implements Queue.
func (q *queueFile) Read(from int64, dst []consumequeue.Unit) (int, error) {
	pos := from * consumequeue.UnitSize
	start := pos - pos%max(q.set.size, 1)
	if _, ok := slices.BinarySearch(q.starts, start); !ok {
		return 0, nil
	}
	if err := q.turnTo(start); err != nil || q.file == nil {
		return 0, err
	}
	n := min(int64(len(dst)), (start+q.set.size-pos)/consumequeue.UnitSize)
	b := make([]byte, n*consumequeue.UnitSize)
	if err := readAll(q.file, b, pos-start); err != nil {
		return 0, fmt.Errorf("read queue file: %w", err)
	}
	for i := range n {
		dst[i] = consumequeue.DecodeUnit(b[i*consumequeue.UnitSize:])
	}
	return int(n), nil
}

func (q *queueFile) turnTo(start int64) error {
	if q.file != nil && q.start == start {
		return nil
	}
	if err := q.Close(); err != nil {
		return err
	}
	f, err := q.set.fsys.OpenFile(filepath.Join(q.set.dir, q.topic, strconv.Itoa(int(q.id)), mappedfile.Name(start)), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open queue file: %w", err)
	}
	q.file, q.start = f, start
	q.set.open = append(q.set.open, q)
	if len(q.set.open) > maxOpen {
		return q.set.open[0].Close()
	}
	return nil
}

// Close closes the open file.
func (q *queueFile) Close() error {
	if q.file == nil {
		return nil
	}
	err := q.file.Close()
	q.file = nil
	q.set.open = slices.DeleteFunc(q.set.open, func(o *queueFile) bool { return o == q })
	if err != nil {
		return fmt.Errorf("close queue file: %w", err)
	}
	return nil
}

// Close closes all files.
func (s *queueFiles) Close() error {
	var errs []error
	for len(s.open) > 0 {
		errs = append(errs, s.open[0].Close())
	}
	return errors.Join(errs...)
}
