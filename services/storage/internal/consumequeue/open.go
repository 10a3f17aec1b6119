package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/summary"
)

// Open opens the queues of a store folder, which must exist; there need not be any queues. Nothing is believed but what the summary says and the
// files bear out: the dispatcher has to go on from Resume, and to call Settle when it has caught up. Of a folder that is
// whole no byte is changed.
func Open(fsys vfs.FS, root string, o Options) (*Set, error) {
	o.setDefaults()
	s := &Set{
		fsys: fsys, root: root, dir: filepath.Join(root, "consumequeue"), o: o, pool: queuefile.NewPool(fsys, o.OpenFiles),
		topics: map[string]map[int32]*Queue{}, resume: None, dispatched: None, saved: None,
	}
	u, err := s.loadSummary()
	if err != nil {
		return nil, err
	}
	if err := s.load(u); err != nil {
		return nil, errors.Join(err, s.pool.Close())
	}
	s.o.Log.Info("consume queues opened", slog.Int("queues", len(s.all())), slog.Bool("summary", u != nil),
		slog.Int64("dispatched", s.dispatched), slog.Int64("resume", s.resume), slog.Int64("file_size", s.fileSize))
	return s, nil
}

// loadSummary returns nil when there is none that can be believed.
func (s *Set) loadSummary() (*summary.Summary, error) {
	u, err := summary.Load(s.fsys, s.root)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil //nolint:nilnil // no summary is no error
	case errors.Is(err, durable.ErrCorrupt), errors.Is(err, summary.ErrFormat):
		s.o.Log.Warn("summary of queues is broken, all queues are built anew", slog.Any("error", err))
		return nil, nil //nolint:nilnil // it can be made again
	}
	return u, err //nolint:wrapcheck // summary says what it is
}

// load makes entries for the queues on disk and in the summary.
func (s *Set) load(u *summary.Summary) error {
	found, foreign, err := queuefile.Scan(s.fsys, s.dir, func(topic string) bool { return legal([]byte(topic)) == nil })
	if err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	if foreign > 0 {
		s.o.Log.Warn("foreign names among the consume queues are left alone", slog.Int("count", foreign))
	}
	remembered := int64(0)
	if u != nil {
		remembered = u.FileSize
	}
	if s.fileSize, err = queuefile.Length(found, s.o.FileSize, remembered, UnitSize); err != nil {
		return err //nolint:wrapcheck // names the file
	}
	if s.fileSize == 0 {
		s.fileSize = DefaultFileSize
	}
	for _, d := range found {
		q := s.add(d.Topic, d.ID)
		q.old = true
		for _, f := range d.Files {
			if f.Size < s.fileSize {
				s.o.Log.Warn("queue file was short", slog.String("topic", q.topic), slog.Int("queue", int(q.id)),
					slog.Int64("start", f.Start), slog.Int64("size", f.Size))
			}
			if err := q.row.Add(f.Start, f.Size); err != nil {
				return err //nolint:wrapcheck // names the file
			}
		}
	}
	if u != nil {
		if err := s.believe(u); err != nil {
			return err
		}
	}
	s.metrics, err = newMetrics(s.o.Meter, s.pool.Count)
	return err
}

// believe takes over what the summary says of each queue as far as its files bear it out.
func (s *Set) believe(u *summary.Summary) error {
	s.dispatched, s.saved, s.resume = u.Dispatched, u.Dispatched, u.Dispatched
	short := 0
	for _, e := range u.Queues {
		q := s.topics[e.Topic][e.ID]
		if err := legal([]byte(e.Topic)); err != nil {
			return err
		}
		if q == nil {
			q = s.add(e.Topic, e.ID)
		}
		whole, err := q.believe(e)
		if err != nil {
			return fmt.Errorf("check queue %s/%d: %w", e.Topic, e.ID, err)
		}
		if !whole {
			short++
			s.o.Log.Warn("queue is shorter than it was, it is built from the log",
				slog.String("topic", e.Topic), slog.Int("queue", int(e.ID)), slog.Int64("want", e.Max),
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
func (q *Queue) believe(e summary.Extent) (bool, error) {
	if e.Min == e.Max {
		if err := q.row.Adopt(q.row.Start(e.Max * UnitSize)); err != nil {
			return false, err
		}
		q.set0(e.Min, e.Max)
		end, err := q.endBefore(min(e.Max, q.row.Files.Hi/UnitSize))
		q.lastEnd, q.doneEnd = end, end
		return true, err
	}
	held := false
	for _, r := range q.row.Found {
		held = held || (e.Min*UnitSize >= r.Lo && e.Min*UnitSize < r.Hi)
	}
	if !held { // its front is gone: as if there were nothing
		return false, nil
	}
	if err := q.row.Adopt(q.row.Start(e.Min * UnitSize)); err != nil {
		return false, err
	}
	at := min(e.Max, q.row.Files.Hi/UnitSize)
	from := at - 1
	if !q.set.o.Clean || at < e.Max {
		from = max(e.Min, q.row.Start((at-1)*UnitSize)/UnitSize)
	}
	at, err := q.intact(from, at)
	if err != nil {
		return false, err
	}
	if at < e.Max && at == from && from > e.Min { // its file is all wrong: what about the one before?
		return false, q.fallBack(e.Min, at)
	}
	return at == e.Max, q.end(e.Min, at)
}

// fallBack looks for the end in the files before at.
func (q *Queue) fallBack(lo, at int64) error {
	for at > lo {
		from := max(lo, q.row.Start((at-1)*UnitSize)/UnitSize)
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
		q.row.Disown()
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
