package consumequeue

import (
	"fmt"

	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
)

// Mend writes u where the unit with queueOffset belongs, unless it is there, and reports whether it did: over another unit, or a
// blank one, that keep does not want to stay, or behind the last one. What Flush does makes it durable. ErrQueueGap when units in
// front of it are missing; ErrNotQueued when no queue can hold it. Nothing may be gathered.
func (s *Set) Mend(topic []byte, queueID int32, queueOffset int64, u Unit, keep func(Unit) bool) (bool, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	q, err := s.writable(topic, queueID, queueOffset)
	if err != nil {
		return false, err
	}
	if err := q.spill(); err != nil { // what is mended are files
		return false, fmt.Errorf("mend queue %s/%d: %w", q.topic, q.id, err)
	}
	lo := q.row.Files.Lo / UnitSize
	switch {
	case q.known && queueOffset > q.next && q.lastEnd > s.first:
		return false, ErrQueueGap.With("topic", q.topic).With("queue", q.id).With("want", q.next).With("got", queueOffset)
	case !q.known || queueOffset >= q.next:
		if _, err := s.gather(q, queueOffset, u); err != nil {
			return false, err
		}
		return true, s.commit()
	case queueOffset < lo:
		return false, nil // its file has gone
	}
	there, err := q.unit(queueOffset)
	if err != nil || there == u {
		return false, err
	}
	if there.Valid() && !there.Blank() && keep(there) {
		return false, nil
	}
	if err := q.write(queueOffset, unit.Append(nil, u)); err != nil {
		return false, fmt.Errorf("mend queue %s/%d: %w", q.topic, q.id, err)
	}
	if queueOffset == q.next-1 {
		q.lastEnd, q.doneEnd = u.End(), u.End()
	}
	q.mu.Lock()
	q.min = min(q.min, queueOffset) // what lies between is blank, or was there
	q.mu.Unlock()
	return true, nil
}
