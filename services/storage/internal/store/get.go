package store

import (
	"cmp"
	"context"
	"errors"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// GetStatus says what a read met; the numbers are those of the proto's GetStatus.
type GetStatus int32

// Statuses of a read.
const (
	Found            GetStatus = 1
	NoMatchedMessage GetStatus = 2
	NoNewMessage     GetStatus = 3
	OffsetTooSmall   GetStatus = 4
	OffsetOverflow   GetStatus = 5
	NoQueue          GetStatus = 6
)

// Get asks for messages of a queue.
type Get struct {
	Topic       string
	QueueID     int32
	QueueOffset int64
	MaxMessages int // above 0
	MaxBytes    int // of records, above 0; the first message may exceed it
	// HardBytes is the most that the first message may have, bytes.
	HardBytes int
	Filter    message.TagFilter
}

// GetResult is what a read found. Each record is a copy that belongs to the caller.
type GetResult struct {
	Status   GetStatus
	Records  []Record
	Next     int64 // queue offset to read on from
	Min, Max int64 // first and next queue offset that readers may see
}

// Record is a copy of a record and its decoded view, whose slices point into it.
type Record struct {
	Offset int64
	Bytes  []byte
	View   message.View
}

// maxScan bounds the units that one Get looks at, so that a filter that matches nothing ends.
const maxScan = 16384

// ErrTooLargeForReply says that the next message alone exceeds the caller's limit.
var ErrTooLargeForReply = errdefs.New(errdefs.ResourceExhausted, "MESSAGE_LARGER_THAN_REPLY",
	"the next message is larger than the reply may be").WithRemedy("raise the message size limit of the caller, or skip the message")

// Get reads messages from a queue. It does not wait.
func (s *Store) Get(ctx context.Context, g *Get) (GetResult, error) {
	if err := s.topics.CheckRead(g.Topic, g.QueueID); err != nil {
		return GetResult{}, err
	}
	q := s.queues.Lookup(g.Topic, g.QueueID)
	if q == nil {
		return GetResult{Status: NoQueue}, nil
	}
	readable := s.log.Readable().Load()
	lo, hi, err := bounds(q, readable)
	if err != nil {
		return GetResult{}, err
	}
	r := GetResult{Next: g.QueueOffset, Min: lo, Max: hi}
	switch {
	case g.QueueOffset < lo:
		r.Status, r.Next = OffsetTooSmall, lo
		return r, nil
	case g.QueueOffset > hi:
		r.Status, r.Next = OffsetOverflow, hi
		return r, nil
	case g.QueueOffset == hi:
		r.Status = NoNewMessage
		return r, nil
	}
	if err := s.collect(ctx, q, g, &r); err != nil {
		return GetResult{}, err
	}
	r.Status = NoMatchedMessage
	if len(r.Records) > 0 {
		r.Status = Found
	}
	s.metrics.got(ctx, len(r.Records))
	return r, nil
}

// collect fills r.Records and moves r.Next.
func (s *Store) collect(ctx context.Context, q *consumequeue.Queue, g *Get, r *GetResult) error {
	var units [64]consumequeue.Unit
	used := 0
	for scanned := 0; scanned < maxScan && r.Next < r.Max && ctx.Err() == nil; {
		want := min(int64(len(units)), r.Max-r.Next)
		n, err := q.Read(r.Next, units[:want])
		if err != nil {
			return err
		}
		if n == 0 {
			break
		}
		for _, u := range units[:n] {
			scanned++
			if u.Blank() || !g.Filter.MatchCode(u.TagsCode) {
				r.Next++
				continue
			}
			size := int(u.Size)
			if len(r.Records) > 0 && (used+size > g.MaxBytes || len(r.Records) == g.MaxMessages) {
				return nil
			}
			if size > g.HardBytes {
				return ErrTooLargeForReply.With("queue_offset", r.Next).With("size", size).With("limit", g.HardBytes)
			}
			rec, err := s.record(u.Offset, size)
			if err != nil {
				return fmtQueue(err, q, r.Next)
			}
			r.Next++
			if tag, _ := rec.View.Property(message.PropertyTags); !g.Filter.Match(tag) {
				continue // another tag of the same hash
			}
			used += size
			r.Records = append(r.Records, rec)
		}
	}
	return ctx.Err()
}

func fmtQueue(err error, q *consumequeue.Queue, at int64) error {
	if e := errdefs.As(err); e != nil {
		return e.With("topic", q.Topic()).With("queue_id", q.ID()).With("queue_offset", at)
	}
	return err
}

// record copies the record of size bytes at offset and decodes it.
func (s *Store) record(offset int64, size int) (Record, error) {
	r := Record{Offset: offset, Bytes: make([]byte, 0, size)}
	b, release, err := s.log.View(offset, size)
	if err != nil {
		return r, err
	}
	r.Bytes = append(r.Bytes, b...)
	release()
	if _, kind, err := message.Check(r.Bytes, offset, message.CheckOptions{CRC: true, Offset: true}); err != nil {
		return r, err
	} else if kind != message.Record || len(r.Bytes) < size {
		return r, ErrNoRecord.With("offset", offset)
	}
	return r, message.Decode(r.Bytes, &r.View)
}

// bounds are the first and the next queue offset of what lies wholly below readable. Right after a restart a queue may
// hold units beyond it.
func bounds(q *consumequeue.Queue, readable int64) (lo, hi int64, err error) {
	lo, hi = q.Min(), q.Max()
	if hi <= lo {
		return lo, hi, nil
	}
	end, err := unitEnd(q, hi-1)
	if err != nil || end <= readable {
		return lo, hi, err
	}
	first, last := lo, hi-1 // the unit at last ends beyond readable
	for first < last {
		mid := first + (last-first)/2
		if end, err = unitEnd(q, mid); err != nil {
			return lo, lo, err
		}
		if end > readable {
			last = mid
		} else {
			first = mid + 1
		}
	}
	return lo, first, nil
}

// unitEnd is the log offset behind the message of the unit, 0 where there is none.
func unitEnd(q *consumequeue.Queue, at int64) (int64, error) {
	var u [1]consumequeue.Unit
	if _, err := q.Read(at, u[:]); err != nil || u[0].Blank() {
		return 0, err
	}
	return u[0].End(), nil
}

// WaitNew blocks until a reader may see a message at or behind queueOffset of the queue, or ctx ends. dispatched is the
// mark of what is built into queues; it serves for a queue that does not exist yet.
func (s *Store) WaitNew(ctx context.Context, topic string, queueID int32, queueOffset int64, dispatched func() *watermark.Mark) error {
	for {
		built := dispatched()
		seen := built.Load()
		readable := s.log.Readable()
		seenReadable := readable.Load()
		var err error
		if q := s.queues.Lookup(topic, queueID); q == nil {
			err = built.Wait(ctx, seen+1)
		} else if grown := q.Grown(); grown.Load() <= queueOffset {
			err = grown.Wait(ctx, queueOffset+1)
		} else {
			_, hi, berr := bounds(q, seenReadable)
			if berr != nil {
				return berr
			}
			if hi > queueOffset {
				return nil
			}
			err = readable.Wait(ctx, seenReadable+1)
		}
		if err != nil && !errors.Is(err, watermark.ErrTruncated) {
			return err
		}
	}
}

// GetByOffset reads the record that starts at offset; size is its size where known, else 0.
func (s *Store) GetByOffset(offset int64, size int) (Record, error) {
	readable := s.log.Readable().Load()
	if offset < 0 || offset >= readable {
		return Record{}, ErrNotReadable.With("offset", offset).With("readable", readable)
	}
	b, release, err := s.log.View(offset, int(min(readable-offset, int64(s.maxBody()+recordRoom))))
	if err != nil {
		return Record{}, err
	}
	defer release()
	n, kind, err := message.Check(b, offset, message.CheckOptions{CRC: true, Offset: true})
	switch {
	case err != nil:
		if message.Begins(b, offset) {
			return Record{}, ErrRotten.WithMsg("%s: %v", ErrRotten.Msg, err).With("offset", offset)
		}
		return Record{}, ErrNoRecord.With("offset", offset)
	case kind != message.Record:
		return Record{}, ErrNoRecord.With("offset", offset)
	case size > 0 && size != n:
		return Record{}, ErrNoRecord.With("offset", offset).With("size", n).WithMsg("the record there has another size")
	}
	r := Record{Offset: offset, Bytes: append([]byte(nil), b[:n]...)}
	return r, message.Decode(r.Bytes, &r.View)
}

// recordRoom is what a record has besides its body at most, bytes (RocketMQ: maxMessageSize + 64 KiB).
const recordRoom = 64 << 10

// maxBody is the largest body, bytes.
func (s *Store) maxBody() int {
	if s.o.Limits.MaxBody > 0 {
		return s.o.Limits.MaxBody
	}
	return message.DefaultMaxBody
}

// QueueInfo is one line of the list of queues.
type QueueInfo struct {
	Topic    string
	ID       int32
	Min, Max int64
}

// ListQueues returns up to limit queues in the order of topic and id, behind the given one; topic restricts the list. below
// bounds the messages that count to those that lie wholly below that offset of the log; 0: all that are readable.
func (s *Store) ListQueues(topic string, after QueueInfo, below int64, limit int) ([]QueueInfo, error) {
	readable := s.log.Readable().Load()
	if below > 0 {
		readable = min(readable, below)
	}
	var out []QueueInfo
	for _, q := range s.queues.List() {
		if topic != "" && q.Topic() != topic {
			continue
		}
		if c := cmp.Or(cmp.Compare(q.Topic(), after.Topic), cmp.Compare(q.ID(), after.ID)); after.Topic != "" && c <= 0 {
			continue
		}
		lo, hi, err := bounds(q, readable)
		if err != nil {
			return nil, err
		}
		out = append(out, QueueInfo{q.Topic(), q.ID(), lo, hi})
		if len(out) == limit {
			break
		}
	}
	return out, nil
}
