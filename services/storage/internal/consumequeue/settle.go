package consumequeue

import (
	"fmt"
	"log/slog"
)

// Resume says where the log must be read from, given the log's first offset and its end: from the result on every
// message has to be gathered, though it may have been before. What the queues have of messages behind the end is cut.
func (s *Set) Resume(first, end int64) (int64, error) {
	s.writing.Lock()
	s.first = first
	from := s.resume
	beyond := from > end
	for _, q := range s.all() {
		beyond = beyond || q.doneEnd > end
	}
	s.writing.Unlock()
	if beyond {
		s.o.Log.Warn("the queues are ahead of the log and are cut", slog.Int64("dispatched", from), slog.Int64("log_end", end))
		if err := s.Truncate(end); err != nil {
			return None, err
		}
	}
	if err := s.CorrectMin(first); err != nil {
		return None, err
	}
	return max(min(from, end), first), nil
}

// Settle is called once when the queues have caught up with the log: whatever lies behind the end of a queue is then no
// part of it and is zeroed. A queue of which the log has no message keeps the units of those that it had, for their
// number.
func (s *Set) Settle() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.spill(); err != nil {
		return err
	}
	for _, q := range s.all() {
		if err := q.settle(); err != nil {
			return fmt.Errorf("settle queue %s/%d: %w", q.topic, q.id, err)
		}
	}
	return nil
}

func (q *Queue) settle() error {
	if !q.old {
		return nil
	}
	q.old = false
	if !q.known {
		if len(q.row.Found) == 0 {
			return nil
		}
		if err := q.outlived(); err != nil || !q.known {
			return err
		}
	}
	return q.shorten(q.next)
}

// outlived finds out how long a queue is of which the log has no message.
func (q *Queue) outlived() error {
	last := q.row.Found[len(q.row.Found)-1]
	if err := q.row.Adopt(last.Lo); err != nil {
		return err //nolint:wrapcheck // says what it did
	}
	lo, at := last.Lo/UnitSize, last.Hi/UnitSize
	for at > lo {
		from := at - q.set.fileSize/UnitSize
		good, err := q.intact(from, at)
		if err != nil {
			return err
		}
		if at = from; good > from {
			at = good
			break
		}
	}
	at, err := q.search(lo, at, q.set.first)
	if err != nil {
		return err
	}
	if at == 0 {
		return q.row.Clear() //nolint:wrapcheck // says what it did
	}
	end, err := q.endBefore(at)
	if err != nil {
		return err
	}
	q.set0(at, at)
	q.lastEnd, q.doneEnd = end, end
	return nil
}

// CorrectMin sets the Min of every queue for a log that begins at first (RocketMQ: correctMinOffset).
func (s *Set) CorrectMin(first int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.first = first
	for _, q := range s.all() {
		if !q.known || q.min == q.max {
			continue
		}
		lo := q.max
		if q.doneEnd > s.first {
			u, err := q.unit(q.min)
			if err != nil {
				return fmt.Errorf("correct first offset of queue %s/%d: %w", q.topic, q.id, err)
			}
			if !u.Blank() && u.Offset >= s.first {
				continue
			}
			if lo, err = q.search(q.min, q.max, s.first); err != nil {
				return fmt.Errorf("correct first offset of queue %s/%d: %w", q.topic, q.id, err)
			}
		}
		q.mu.Lock()
		q.min = lo
		q.mu.Unlock()
	}
	return nil
}

// Truncate removes every unit of a message that ends behind the log offset; the log must have been cut there first. What
// is gathered is forgotten. On return the cut is durable and the summary knows it. 0 removes all queues.
func (s *Set) Truncate(offset int64) error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	s.writing.Lock()
	defer s.writing.Unlock()
	s.discard()
	if err := s.spill(); err != nil {
		return err
	}
	cuts, err := s.planCut(offset)
	if err != nil {
		return err
	}
	lowered := max(s.dispatched, s.saved) > offset // saved alone: the one before could not be saved
	if len(cuts) == 0 && !lowered {
		return nil
	}
	s.dispatched = min(s.dispatched, offset)
	s.resume = min(s.resume, offset)
	if err := s.syncAll(s.takeDirty()); err != nil { // the summary claims what stays
		return s.fail(err)
	}
	if err := s.saveCut(cuts); err != nil {
		return err
	}
	for q, at := range cuts {
		if err := q.cut(at); err != nil {
			return s.fail(fmt.Errorf("cut queue %s/%d: %w", q.topic, q.id, err))
		}
	}
	if err := s.syncAll(s.takeDirty()); err != nil {
		return s.fail(err)
	}
	s.o.Log.Info("consume queues cut", slog.Int64("offset", offset), slog.Int("queues", len(cuts)))
	return nil
}

// planCut finds the new length of every queue that is too long.
func (s *Set) planCut(offset int64) (map[*Queue]int64, error) {
	cuts := map[*Queue]int64{}
	for _, q := range s.all() {
		switch {
		case offset == 0:
			cuts[q] = 0
		case q.known && q.doneEnd > offset:
			at, err := q.search(q.min, q.max, offset)
			if err == nil {
				at, err = q.clear(at, offset)
			}
			if err != nil {
				return nil, fmt.Errorf("cut queue %s/%d: %w", q.topic, q.id, err)
			}
			cuts[q] = at
		}
	}
	return cuts, nil
}

// clear lowers at by the unit of a message that the cut goes through, which should not be.
func (q *Queue) clear(at, offset int64) (int64, error) {
	for at > q.min {
		u, err := q.unit(at - 1)
		if err != nil || (!u.Blank() && u.End() <= offset) {
			return at, err
		}
		at--
	}
	return at, nil
}

// saveCut writes the lengths after the cut before it is made, twice, so that the backup knows it too.
func (s *Set) saveCut(cuts map[*Queue]int64) error {
	u := s.summarize()
	u.Dispatched = max(u.Dispatched, 0)
	kept := u.Queues[:0]
	for _, e := range u.Queues {
		if at, ok := cuts[s.topics[e.Topic][e.ID]]; ok {
			e.Max, e.Min = at, min(e.Min, at)
		}
		if e.Max > 0 {
			kept = append(kept, e)
		}
	}
	u.Queues = kept
	if s.dispatched == None { // nothing to claim yet: the queues are built from the log's start anyway
		return nil
	}
	for range 2 {
		if err := u.Save(s.fsys, s.root); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
	}
	s.saved = u.Dispatched
	return nil
}

func (q *Queue) cut(at int64) error {
	if at == 0 {
		q.next, q.written, q.lastEnd, q.doneEnd, q.searched = 0, 0, 0, 0, None
		q.show(0, 0, false)
		return q.row.Clear() //nolint:wrapcheck // says what it did
	}
	q.next, q.searched = at, None
	q.show(min(q.min, at), at, true)
	if err := q.shorten(at); err != nil {
		return err
	}
	end, err := q.endBefore(at)
	q.lastEnd, q.doneEnd = end, end
	return err
}
