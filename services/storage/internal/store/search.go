package store

import (
	"errors"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// ErrNoQueue says that there is no such queue.
var ErrNoQueue = errdefs.New(errdefs.NotFound, "NO_QUEUE", "no such queue").WithField("topic")

// SearchOffset returns the queue offset of the first message that was stored at or after storeTime, ms since 1970, or the next
// offset where there is none. Store times of one queue grow, as far as the clock of its masters did.
func (s *Store) SearchOffset(topic string, queueID int32, storeTime int64) (offset int64, info QueueInfo, err error) {
	info = QueueInfo{Topic: topic, ID: queueID}
	q := s.queues.Lookup(topic, queueID)
	if q == nil {
		return 0, info, ErrNoQueue.With("topic", topic).With("queue_id", queueID)
	}
	if info.Min, info.Max, err = bounds(q, s.log.Readable().Load()); err != nil {
		return 0, info, err
	}
	first, last := info.Min, info.Max
	for first < last {
		mid := first + (last-first)/2
		at, stored, err := s.storedFrom(q, mid, last)
		switch {
		case err != nil:
			return 0, info, err
		case at == last || stored >= storeTime:
			last = mid
		default:
			first = at + 1
		}
	}
	offset, _, err = s.storedFrom(q, first, info.Max)
	return offset, info, err
}

// storedFrom returns the first unit of [at, end) whose message can be read, and its store time; end where there is none.
func (s *Store) storedFrom(q *consumequeue.Queue, at, end int64) (int64, int64, error) {
	var units [16]consumequeue.Unit
	for at < end {
		n, err := q.Read(at, units[:min(int64(len(units)), end-at)])
		if err != nil {
			return end, 0, err
		}
		if n == 0 {
			break
		}
		for _, u := range units[:n] {
			if stored, ok, err := s.storeTime(u); ok || err != nil {
				return at, stored, fmtQueue(err, q, at)
			}
			at++
		}
	}
	return end, 0, nil
}

// storeTime reads when the unit's message was stored; false where it is not in the log any more, or is damaged.
func (s *Store) storeTime(u consumequeue.Unit) (int64, bool, error) {
	if u.Blank() {
		return 0, false, nil
	}
	b, release, err := s.log.View(u.Offset, int(u.Size))
	if errors.Is(err, commitlog.ErrOutOfRange) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer release()
	var v message.View
	if message.Decode(b, &v) != nil {
		return 0, false, nil
	}
	return v.StoreTimestamp, true, nil
}
