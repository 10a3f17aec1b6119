package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// Open opens the queues of a store folder; there need not be any. Nothing is believed but what the summary says and the
// files bear out: the dispatcher has to go on from Resume, and to call Settle when it has caught up. Of a folder that is
// whole no byte is changed.
func Open(fsys vfs.FS, root string, o Options) (*Set, error) {
	o.setDefaults()
	s := &Set{
		fsys: fsys, root: root, dir: filepath.Join(root, "consumequeue"), o: o, handles: newHandles(fsys, o.OpenFiles),
		topics: map[string]map[int32]*Queue{}, resume: None, dispatched: None, saved: None,
	}
	u, err := s.loadSummary()
	if err != nil {
		return nil, err
	}
	found, err := s.scan()
	if err != nil {
		return nil, err
	}
	if err := s.checkSizes(found, u); err != nil {
		return nil, err
	}
	if err := s.admit(found); err != nil {
		return nil, errors.Join(err, s.handles.closeAll())
	}
	if u != nil {
		if err := s.believe(u); err != nil {
			return nil, errors.Join(err, s.handles.closeAll())
		}
	}
	if s.metrics, err = newMetrics(o.Meter, s.handles.count); err != nil {
		return nil, errors.Join(err, s.handles.closeAll())
	}
	s.o.Log.Info("consume queues opened", slog.Int("queues", len(s.all())), slog.Bool("summary", u != nil),
		slog.Int64("dispatched", s.dispatched), slog.Int64("resume", s.resume), slog.Int64("file_size", s.fileSize))
	return s, nil
}

// folder is one queue's folder as found on disk.
type folder struct {
	topic string
	id    int32
	files []file
}

type file struct{ start, size int64 }

// scan lists all queue files. Other names are left alone and counted.
func (s *Set) scan() ([]folder, error) {
	var found []folder
	foreign := 0
	topics, err := s.list(s.dir)
	if err != nil {
		return nil, err
	}
	for _, t := range topics {
		if !t.Dir || legal([]byte(t.Name)) != nil {
			foreign++
			continue
		}
		ids, err := s.list(filepath.Join(s.dir, t.Name))
		if err != nil {
			return nil, err
		}
		for _, i := range ids {
			id, err := strconv.ParseInt(i.Name, 10, 32)
			if !i.Dir || err != nil || id < 0 || strconv.FormatInt(id, 10) != i.Name {
				foreign++
				continue
			}
			files, err := s.list(filepath.Join(s.dir, t.Name, i.Name))
			if err != nil {
				return nil, err
			}
			f := folder{topic: t.Name, id: int32(id)}
			for _, e := range files {
				start, ok := mappedfile.ParseName(e.Name)
				if !ok || e.Dir {
					foreign++
					continue
				}
				f.files = append(f.files, file{start, e.Size})
			}
			found = append(found, f)
		}
	}
	if foreign > 0 {
		s.o.Log.Warn("foreign names among the consume queues are left alone", slog.Int("count", foreign))
	}
	return found, nil
}

func (s *Set) list(dir string) ([]vfs.Info, error) {
	infos, err := s.fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list consume queues: %w", err)
	}
	return infos, nil
}

// checkSizes adopts the length that queue files have. Shorter ones are what a crash leaves behind.
func (s *Set) checkSizes(found []folder, u *summary) error {
	var size int64
	if u != nil {
		size = u.fileSize
	}
	longest := ""
	for _, d := range found {
		for _, f := range d.files {
			if f.size > size {
				size, longest = f.size, filepath.Join(d.topic, strconv.Itoa(int(d.id)), mappedfile.Name(f.start))
			}
		}
	}
	s.fileSize = s.o.FileSize
	if s.fileSize == 0 {
		if s.fileSize = size; size == 0 {
			s.fileSize = DefaultFileSize
		}
	}
	if s.fileSize < 0 || s.fileSize%UnitSize != 0 || size > s.fileSize || (size != 0 && size != s.fileSize) {
		return ErrFileSize.With("file", longest).With("size", size).With("want", s.fileSize).
			WithRemedy("leave the queue file size out of the config to take that of the files, a multiple of %d", UnitSize)
	}
	for _, d := range found {
		for _, f := range d.files {
			if f.start%s.fileSize != 0 {
				return ErrFileSize.With("file", filepath.Join(d.topic, strconv.Itoa(int(d.id)), mappedfile.Name(f.start))).
					With("want", s.fileSize).WithMsg("a queue file's name is no multiple of the file size").
					WithRemedy("remove the file; the queue is built from the log")
			}
		}
	}
	return nil
}

// admit makes entries for the folders and gives files that a crash left short their length.
func (s *Set) admit(found []folder) error {
	for _, d := range found {
		if len(d.files) == 0 {
			continue
		}
		q := s.add(d.topic, d.id)
		q.old = true
		for _, f := range d.files {
			if f.size < s.fileSize {
				if err := q.lengthen(f.start); err != nil {
					return err
				}
			}
			if n := len(q.runs); n > 0 && q.runs[n-1].hi == f.start {
				q.runs[n-1].hi += s.fileSize
			} else {
				q.runs = append(q.runs, run{f.start, f.start + s.fileSize})
			}
		}
	}
	return nil
}

func (q *Queue) lengthen(start int64) error {
	f, err := q.set.fsys.OpenFile(fileKey{q, start}.path(), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open queue file: %w", err)
	}
	if err := errors.Join(f.Truncate(q.set.fileSize), f.Close()); err != nil {
		return fmt.Errorf("lengthen queue file: %w", err)
	}
	q.made = true
	q.set.o.Log.Warn("queue file was short", slog.String("topic", q.topic), slog.Int("queue", int(q.id)),
		slog.Int64("start", start))
	return nil
}

// believe takes over what the summary says of each queue as far as its files bear it out.
func (s *Set) believe(u *summary) error {
	s.dispatched, s.saved, s.resume = u.dispatched, u.dispatched, u.dispatched
	short := 0
	for _, e := range u.queues {
		q := s.topics[e.topic][e.id]
		if q == nil {
			q = s.add(e.topic, e.id)
		}
		whole, err := q.believe(e)
		if err != nil {
			return fmt.Errorf("check queue %s/%d: %w", e.topic, e.id, err)
		}
		if !whole {
			short++
			s.o.Log.Warn("queue is shorter than it was, it is built from the log",
				slog.String("topic", e.topic), slog.Int("queue", int(e.id)), slog.Int64("want", e.max),
				slog.Int64("have", q.max), slog.Int64("read_from", q.lastEnd))
			s.resume = min(s.resume, q.lastEnd)
		}
	}
	if short > 0 {
		s.dispatched = s.resume
	}
	return nil
}

// believe reports whether the queue has all that the summary says; if not, it ends where the first unit is missing, and
// lastEnd is where the log has to be read from.
func (q *Queue) believe(e extent) (bool, error) {
	if e.min == e.max {
		if err := q.adopt(q.set.fileStart(e.max * UnitSize)); err != nil {
			return false, err
		}
		q.set0(e.min, e.max)
		end, err := q.endBefore(min(e.max, q.files.hi/UnitSize))
		q.lastEnd, q.doneEnd = end, end
		return true, err
	}
	held := false
	for _, r := range q.runs {
		held = held || (e.min*UnitSize >= r.lo && e.min*UnitSize < r.hi)
	}
	if !held { // its front is gone: as if there were nothing
		return false, nil
	}
	if err := q.adopt(q.set.fileStart(e.min * UnitSize)); err != nil {
		return false, err
	}
	at := min(e.max, q.files.hi/UnitSize)
	from := at - 1
	if !q.set.o.Clean || at < e.max {
		from = max(e.min, q.set.fileStart((at-1)*UnitSize)/UnitSize)
	}
	at, err := q.intact(from, at)
	if err != nil {
		return false, err
	}
	if at < e.max && at == from && from > e.min { // its file is all wrong: what about the one before?
		return false, q.fallBack(e.min, at)
	}
	return at == e.max, q.end(e.min, at)
}

// fallBack looks for the end in the files before at.
func (q *Queue) fallBack(lo, at int64) error {
	for at > lo {
		from := max(lo, q.set.fileStart((at-1)*UnitSize)/UnitSize)
		good, err := q.intact(from, at)
		if err != nil {
			return err
		}
		if good > from {
			return q.end(lo, good)
		}
		at = from
	}
	return q.end(lo, lo)
}

// end says that the queue ends at a queue offset. Without a unit it is as good as unknown.
func (q *Queue) end(lo, at int64) error {
	if at == lo {
		q.runs, q.files = append(q.runs, q.files), run{}
		return nil
	}
	end, err := q.endBefore(at)
	if err != nil {
		return err
	}
	q.set0(lo, at)
	q.lastEnd, q.doneEnd = end, end
	return nil
}

// set0 is the state at the start: nobody waits yet.
func (q *Queue) set0(lo, hi int64) {
	q.next, q.written = hi, hi
	q.show(lo, hi, true)
}
