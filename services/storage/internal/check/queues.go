package check

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Queue is the units of one queue, as consumequeue.Queue has them.
type Queue interface {
	Topic() string
	ID() int32
	Min() int64
	Max() int64
	// Read returns how many units from a queue offset on it has read; consumequeue.ErrOutOfRange outside of Min and Max.
	Read(from int64, dst []consumequeue.Unit) (int, error)
}

// Queues are all queues of a store.
type Queues interface {
	// Lookup returns nil when there is no such queue.
	Lookup(topic string, id int32) Queue
	List() []Queue
}

// lightQueues is the prefix of RocketMQ's queues whose units point to records of other topics.
const lightQueues = "%LMQ%"

const unitsRead = 100 // at a time

// matcher compares the units with the records, as these come: in each queue both are in the same order.
type matcher struct {
	w      *walk
	tracks map[string]map[int32]*track
}

// track is a queue on the way.
type track struct {
	q    Queue // nil: there is none
	next int64 // units below were looked at
	at   int64 // of units[0]
	n    int
	buf  [unitsRead]consumequeue.Unit
}

func newMatcher(w *walk) *matcher { return &matcher{w: w, tracks: map[string]map[int32]*track{}} }

// record compares the unit of the record in v, at a log offset.
func (m *matcher) record(ctx context.Context, offset int64, v *message.View) error {
	if !message.Queued(v.SysFlag) {
		return nil
	}
	end := offset + int64(v.Size)
	due := end <= m.w.o.Dispatched
	if !due && !m.w.o.Open {
		m.w.res.Behind++
		return nil
	}
	t := m.track(v)
	f := Finding{
		Kind: UnitMissing, Offset: offset, End: end, Topic: string(v.Topic), QueueID: v.QueueID, QueueOffset: v.QueueOffset,
		Detail: "the record has no unit",
	}
	if t.q == nil {
		return m.missing(f, due)
	}
	k := v.QueueOffset
	if k < t.next {
		if k < t.q.Min() {
			return nil // outlived meanwhile
		}
		f.Note, f.Detail = true, "another record in front has the same queue offset: this one cannot be consumed"
		return m.w.o.Emit(f)
	}
	if err := m.strays(ctx, t, k); err != nil {
		return err
	}
	u, err := t.unit(k)
	if err != nil {
		return err
	}
	t.next = k + 1
	m.w.res.Units++
	want := consumequeue.Unit{Offset: offset, Size: v.Size, TagsCode: v.TagsCode(m.w.o.Levels)}
	switch {
	case u == want || k < t.q.Min():
		return nil
	case u.Size <= 0 || u.Offset < 0:
		return m.missing(f, due)
	case u.Blank():
		f.Detail = "a blank unit stands in the record's place"
		return m.missing(f, due)
	case u.Offset != offset:
		f.Kind, f.Field, f.Detail = UnitWrong, "offset", fmt.Sprintf("offset is %d, want %d", u.Offset, offset)
	case u.Size != v.Size:
		f.Kind, f.Field, f.Detail = UnitWrong, "size", fmt.Sprintf("size is %d, want %d", u.Size, v.Size)
	default:
		f.Kind, f.Field, f.Detail = UnitWrong, "tagsCode", fmt.Sprintf("tags code is %d, want %d", u.TagsCode, want.TagsCode)
	}
	f.Note = !due // it will be written anew
	return m.w.o.Emit(f)
}

// missing tells f unless the queues were not built that far.
func (m *matcher) missing(f Finding, due bool) error {
	if !due {
		m.w.res.Behind++
		return nil
	}
	return m.w.o.Emit(f)
}

// track returns the state of the record's queue.
func (m *matcher) track(v *message.View) *track {
	t := m.tracks[string(v.Topic)][v.QueueID]
	if t != nil {
		return t
	}
	t = m.add(string(v.Topic), v.QueueID, m.w.o.Queues.Lookup(string(v.Topic), v.QueueID))
	if !m.w.o.Whole {
		t.next = v.QueueOffset
	}
	return t
}

func (m *matcher) add(topic string, id int32, q Queue) *track {
	t := &track{q: q}
	if q != nil {
		t.next = q.Min()
	}
	ids := m.tracks[topic]
	if ids == nil {
		ids = map[int32]*track{}
		m.tracks[topic] = ids
	}
	ids[id] = t
	return t
}

// unit returns the unit with a queue offset, zeros where there is none.
func (t *track) unit(k int64) (consumequeue.Unit, error) {
	if k < t.at || k >= t.at+int64(t.n) {
		n, err := t.q.Read(k, t.buf[:])
		if err != nil && !errors.Is(err, consumequeue.ErrOutOfRange) {
			return consumequeue.Unit{}, fmt.Errorf("read queue %s/%d: %w", t.q.Topic(), t.q.ID(), err)
		}
		t.at, t.n = k, n
		if n == 0 {
			return consumequeue.Unit{}, nil
		}
	}
	return t.buf[k-t.at], nil
}

// strays looks at the units below to that no record has met.
func (m *matcher) strays(ctx context.Context, t *track, to int64) error {
	for ; t.next < to; t.next++ {
		u, err := t.unit(t.next)
		if err != nil {
			return err
		}
		if u.Size <= 0 || u.Offset < 0 || u.Blank() {
			continue
		}
		if _, err := m.stray(ctx, t, u, false); err != nil {
			return err
		}
	}
	return nil
}

// BehindEnd is the detail of a unit that is ahead of the log.
const BehindEnd = "it points behind the end of the log"

// stray judges a unit that no record has met; last: the whole log was read. more: units behind it may be looked at, too.
func (m *matcher) stray(ctx context.Context, t *track, u consumequeue.Unit, last bool) (more bool, err error) {
	w := m.w
	switch {
	case u.Offset < w.o.From:
		return true, nil // its record is outlived, or out of this walk's range
	case !w.o.Open && u.Offset >= w.o.Dispatched:
		return false, nil // younger than the walk
	}
	if w.isDamaged(u.Offset) {
		return true, nil // the record is what is damaged
	}
	if strings.HasPrefix(t.q.Topic(), lightQueues) {
		if ok, err := w.soundAt(ctx, u.Offset); ok || err != nil {
			return true, err
		}
	}
	f := Finding{
		Kind: UnitStray, Offset: u.Offset, End: u.End(), Field: "offset", Topic: t.q.Topic(), QueueID: t.q.ID(), QueueOffset: t.next,
		Detail: "it points to no record of the queue",
	}
	if last && u.Offset >= w.res.End {
		f.Detail = BehindEnd
	}
	return true, w.o.Emit(f)
}

// finish looks at what is left of every queue.
func (m *matcher) finish(ctx context.Context) error {
	for _, q := range m.w.o.Queues.List() {
		t := m.tracks[q.Topic()][q.ID()]
		if t == nil {
			if !m.w.o.Whole {
				continue
			}
			t = m.add(q.Topic(), q.ID(), q)
		}
		if t.q == nil {
			continue // made since
		}
		for ; ; t.next++ {
			u, err := t.unit(t.next)
			if err != nil {
				return err
			}
			if u.Size <= 0 || u.Offset < 0 {
				break
			}
			if u.Blank() {
				continue
			}
			if more, err := m.stray(ctx, t, u, true); err != nil || !more {
				if err != nil {
					return err
				}
				break
			}
		}
	}
	return nil
}
