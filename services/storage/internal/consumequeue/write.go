package consumequeue

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tandemlog/tandem/pkg/watermark"
)

// All methods in this file belong to the writer: set.writing is held.

// put gathers a unit that follows.
func (q *Queue) put(u Unit) error {
	if !q.gathered {
		q.gathered = true
		q.set.gathered = append(q.set.gathered, q)
	}
	if q.chunk == nil {
		q.chunk = q.set.takeChunk()
	}
	q.chunk = appendUnit(q.chunk, u)
	q.next++
	if !u.Blank() {
		q.lastEnd = u.End()
	}
	if len(q.chunk)+UnitSize > cap(q.chunk) {
		return q.spill()
	}
	return nil
}

// spill writes the chunk to disk.
func (q *Queue) spill() error {
	if len(q.chunk) == 0 {
		return nil
	}
	err := q.write(q.next-int64(len(q.chunk)/UnitSize), q.chunk)
	q.chunk = q.chunk[:0]
	return err
}

func (q *Queue) write(at int64, b []byte) error {
	if !q.dirty {
		q.dirty, q.unsynced = true, at
		q.set.dirty = append(q.set.dirty, q)
	}
	q.unsynced = min(q.unsynced, at)
	for len(b) > 0 {
		pos := at * UnitSize
		start := q.set.fileStart(pos)
		if err := q.ensure(start); err != nil {
			return err
		}
		n := min(int64(len(b)), start+q.set.fileSize-pos)
		if err := q.writeAt(start, pos-start, b[:n]); err != nil {
			return err
		}
		b = b[n:]
		at += n / UnitSize
		q.written = max(q.written, at)
	}
	return nil
}

func (q *Queue) writeAt(start, off int64, b []byte) error {
	h, err := q.set.handles.acquire(fileKey{q, start})
	if err != nil {
		return err
	}
	if _, err = h.f.WriteAt(b, off); err != nil {
		err = fmt.Errorf("write queue file: %w", err)
	}
	return errors.Join(err, q.set.handles.release(h))
}

// ensure makes the file at start, at its full length and full of zeros, when it is the next one.
func (q *Queue) ensure(start int64) error {
	if !q.files.empty() && start >= q.files.lo && start < q.files.hi {
		return nil
	}
	if err := q.set.fsys.MkdirAll(q.dir, 0o755); err != nil {
		return fmt.Errorf("make queue folder: %w", err)
	}
	q.made = true
	h, err := q.set.handles.create(fileKey{q, start}, q.set.fileSize)
	if err != nil {
		return err
	}
	if err := q.set.handles.release(h); err != nil {
		return err
	}
	if q.files.empty() {
		q.files.lo = start
	}
	q.files.hi = start + q.set.fileSize
	return nil
}

// publish makes what was gathered and spilled visible.
func (q *Queue) publish() {
	q.mu.Lock()
	q.max = q.next
	grown := q.grown
	q.mu.Unlock()
	q.doneEnd = q.lastEnd
	q.release()
	grown.Advance(q.next)
}

// discard takes back what was gathered.
func (q *Queue) discard() {
	q.next, q.lastEnd = q.max, q.doneEnd
	q.release()
}

func (q *Queue) release() {
	q.gathered = false
	if q.chunk != nil {
		q.set.spare = append(q.set.spare, q.chunk[:0])
		q.chunk = nil
	}
}

// begin makes the queue start at a queue offset: the first that the log has of it. Files are kept where they lead up to
// it, else removed; what no unit was ever written to in front of it becomes blank units, back to the file's start.
func (q *Queue) begin(at int64) error {
	start := q.set.fileStart(at * UnitSize)
	if err := q.adopt(start); err != nil {
		return err
	}
	if err := q.fillFront(start, at); err != nil {
		return err
	}
	q.next, q.lastEnd, q.doneEnd, q.searched = at, 0, 0, -1
	q.written = max(q.written, at)
	q.show(at, at, true)
	return nil
}

// show tells readers what the queue holds.
func (q *Queue) show(lo, hi int64, known bool) {
	q.mu.Lock()
	old := q.grown
	q.known, q.min, q.max = known, lo, hi
	q.cuts++
	q.grown = watermark.New(hi)
	q.mu.Unlock()
	old.Close(watermark.ErrTruncated)
}

// adopt keeps the run of files that holds start or ends at it and removes all others.
func (q *Queue) adopt(start int64) error {
	runs := q.runs
	if runs == nil && !q.files.empty() {
		runs = []run{q.files}
	}
	q.runs, q.files = nil, run{start, start}
	for _, r := range runs {
		if start >= r.lo && start <= r.hi {
			q.files = r
			continue
		}
		if err := q.remove(r); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the files of a run, the last one first.
func (q *Queue) remove(r run) error {
	for start := r.hi - q.set.fileSize; start >= r.lo; start -= q.set.fileSize {
		k := fileKey{q, start}
		q.made = true
		if err := q.set.handles.forget(k); err != nil {
			return err
		}
		if err := q.set.fsys.Remove(k.path()); err != nil && !isMissing(err) {
			return fmt.Errorf("remove queue file: %w", err)
		}
	}
	return nil
}

// fillFront writes blank units wherever [start, at*UnitSize) of a file holds no unit.
func (q *Queue) fillFront(start, at int64) error {
	from := start / UnitSize
	if from == at {
		return nil
	}
	if err := q.ensure(start); err != nil {
		return err
	}
	var units [loadUnits]Unit
	b := make([]byte, 0, loadUnits*UnitSize)
	for from < at {
		n := min(at-from, loadUnits)
		if err := q.load(from, units[:n]); err != nil {
			return err
		}
		b = b[:0]
		holes := false
		for _, u := range units[:n] {
			if !u.valid() {
				u, holes = blank, true
			}
			b = appendUnit(b, u)
		}
		if holes {
			if err := q.write(from, b); err != nil {
				return err
			}
		}
		from += n
	}
	return nil
}

// shorten removes all units from at on: files behind it, and what lies in its file. Open files of readers stay readable.
func (q *Queue) shorten(at int64) error {
	end := max(q.files.hi, q.files.lo)
	keep := q.files.lo // end of the files that stay
	switch pos := at * UnitSize; {
	case q.files.empty():
		return nil
	case at == 0:
	case pos == q.files.lo: // the last trace of the queue's length
		keep += q.set.fileSize
	case pos > q.files.lo:
		keep = min(q.set.fileStart(pos-1)+q.set.fileSize, end)
	}
	if err := q.remove(run{keep, end}); err != nil {
		return err
	}
	q.files.hi = keep
	if at*UnitSize < keep {
		if err := q.zero(at); err != nil {
			return err
		}
	}
	q.written = min(q.written, at)
	return nil
}

// zero clears its file from at on, writing only where there is something.
func (q *Queue) zero(at int64) error {
	pos := at * UnitSize
	start := q.set.fileStart(pos)
	h, err := q.set.handles.acquire(fileKey{q, start})
	if err != nil {
		return err
	}
	changed, err := zeroBehind(h.f, pos-start, q.set.fileSize)
	if changed && !q.dirty {
		q.dirty, q.unsynced = true, at
		q.set.dirty = append(q.set.dirty, q)
	}
	if changed {
		q.unsynced, q.written = min(q.unsynced, at), max(q.written, at)
	}
	return errors.Join(err, q.set.handles.release(h))
}

// removeDirs removes the folders of a queue that has no files left, as far as they are empty.
func (q *Queue) removeDirs() {
	if q.set.fsys.Remove(q.dir) == nil {
		_ = q.set.fsys.Remove(filepath.Dir(q.dir)) // other queues of the topic may be in it
	}
}
