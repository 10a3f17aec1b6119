package consumequeue

import (
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
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
		q.set.held = append(q.set.held, q)
	}
	q.chunk = unit.Append(q.chunk, u)
	q.next++
	if !u.Blank() {
		q.lastEnd = u.End()
	}
	if len(q.chunk)+UnitSize > cap(q.chunk) {
		return q.spill()
	}
	return nil
}

// spill writes the chunk to disk. When that fails the units stay in it: the visible ones are nowhere else.
func (q *Queue) spill() error {
	if len(q.chunk) == 0 {
		return nil
	}
	if err := q.write(q.chunkAt(), q.chunk); err != nil {
		return err
	}
	q.mu.Lock()
	q.tail = nil
	q.mu.Unlock()
	q.chunk = q.chunk[:0]
	return nil
}

// chunkAt is the queue offset of the first unit in the chunk.
func (q *Queue) chunkAt() int64 { return q.next - int64(len(q.chunk)/UnitSize) }

func (q *Queue) write(at int64, b []byte) error {
	q.touch(at)
	if err := q.row.WriteAt(b, at*UnitSize); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	q.written = max(q.written, at+int64(len(b)/UnitSize))
	return nil
}

// touch notes that units from at on are not durable.
func (q *Queue) touch(at int64) {
	if !q.dirty {
		q.dirty, q.unsynced = true, at
		q.set.dirty = append(q.set.dirty, q)
	}
	q.unsynced, q.written = min(q.unsynced, at), max(q.written, at)
}

// publish makes what was gathered visible.
func (q *Queue) publish() {
	q.mu.Lock()
	q.max, q.tail = q.next, q.chunk
	grown := q.grown
	q.mu.Unlock()
	q.doneEnd = q.lastEnd
	q.gathered = false
	grown.Advance(q.next)
}

// discard takes back what was gathered.
func (q *Queue) discard() {
	keep := max(q.max-q.chunkAt(), 0)
	q.chunk = q.chunk[:keep*UnitSize]
	q.next, q.lastEnd = q.max, q.doneEnd
	q.gathered = false
}

// begin makes the queue start at a queue offset: the first that the log has of it. Files are kept where they lead up to
// it, else removed; what no unit was ever written to in front of it becomes blank units, back to the file's start.
func (q *Queue) begin(at int64) error {
	if err := q.spill(); err != nil {
		return err
	}
	start := q.row.Start(at * UnitSize)
	if err := q.row.Adopt(start); err != nil {
		return err //nolint:wrapcheck // says what it did
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

// fillFront writes blank units wherever [start, at*UnitSize) of a file holds no unit.
func (q *Queue) fillFront(start, at int64) error {
	from := start / UnitSize
	if from == at {
		return nil
	}
	if err := q.row.Ensure(start); err != nil {
		return err //nolint:wrapcheck // says what it did
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
			if !u.Valid() {
				u, holes = unit.Blank(), true
			}
			b = unit.Append(b, u)
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

// shorten removes all units from at on, which is above 0. Open files of readers stay readable.
func (q *Queue) shorten(at int64) error {
	changed, err := q.row.Shorten(at * UnitSize)
	if changed {
		q.touch(at)
	}
	q.written = min(q.written, at)
	return err //nolint:wrapcheck // says what it did
}
