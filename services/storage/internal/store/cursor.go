package store

import (
	"fmt"

	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// maxView bounds one look into the log, bytes; views end at a file's end anyway.
const maxView = 64 << 20

// BeginReign prepares for puts; Guard lets them in. The cursors of all queues start at what the queues hold and at what the log holds beyond
// dispatched, the offset up to which the queues are built, a record's
// first byte. Nothing may be appended while it runs. end is the log's end.
func (s *Store) BeginReign(dispatched, end int64) error {
	s.reign.Store(nil)
	tail := map[queueKey]int64{}
	var v message.View
	for at := dispatched; at < end; {
		b, release, err := s.log.View(at, maxView)
		if err != nil {
			return fmt.Errorf("read queue offsets at %d: %w", at, err)
		}
		at += tailOffsets(b, at, &v, tail)
		release()
	}
	cursors := make(map[queueKey]*commitlog.Cursor, len(tail))
	for k, next := range tail {
		if q := s.queues.Lookup(k.topic, k.id); q != nil {
			next = max(next, q.Max())
		}
		cursors[k] = commitlog.NewCursor(next)
	}
	s.reign.Store(&reign{cursors: cursors})
	return nil
}

// tailOffsets walks the records of b, which lies at offset at, and returns how far it got. What is damaged is stepped
// over as dispatch does: to the next sound record, or else to the end of b.
func tailOffsets(b []byte, at int64, v *message.View, tail map[queueKey]int64) int64 {
	done := 0
	for done < len(b) {
		size, kind, err := message.CheckView(b[done:], at+int64(done), message.CheckOptions{}, v)
		if err != nil {
			skip, ok := message.Next(b[done:], at+int64(done))
			if !ok {
				return int64(len(b))
			}
			done += skip
			continue
		}
		if kind == message.End {
			return int64(len(b))
		}
		if kind == message.Record && message.Queued(v.SysFlag) {
			k := queueKey{string(v.Topic), v.QueueID}
			tail[k] = max(tail[k], v.QueueOffset+1)
		}
		done += size
	}
	return int64(len(b))
}

// cursor returns the cursor of a queue, made on first use.
func (s *Store) cursor(r *reign, topic string, id int32) *commitlog.Cursor {
	k := queueKey{topic, id}
	r.mu.RLock()
	c := r.cursors[k]
	r.mu.RUnlock()
	if c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if c = r.cursors[k]; c != nil {
		return c
	}
	var next int64
	if q := s.queues.Lookup(topic, id); q != nil {
		next = q.Max()
	}
	c = commitlog.NewCursor(next)
	r.cursors[k] = c
	return c
}
