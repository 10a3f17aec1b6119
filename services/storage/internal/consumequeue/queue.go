package consumequeue

import (
	"sync"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
)

// Queue is the list of one queue's messages. Its methods may be called concurrently.
type Queue struct {
	set   *Set
	topic string
	id    int32

	// The writer's side, guarded by set.writing.
	next     int64  // queue offset of the next gathered unit
	lastEnd  int64  // log offset behind the last gathered message, 0: none known
	doneEnd  int64  // the same for the last visible one
	written  int64  // queue offset behind the last unit on disk, visible or not
	searched int64  // a gap at this queue offset was looked for in the log already; -1: none
	unsynced int64  // lowest queue offset written since the last Flush, where dirty
	chunk    []byte // units [next - len/UnitSize, next), not on disk yet; visible ones are changed no more
	gathered bool   // is in set.gathered
	dirty    bool   // is in set.dirty
	old      bool   // had files at Open: nobody knows what is in them behind the end
	row      queuefile.Row

	// What readers see; changed by the writer only.
	mu    sync.RWMutex
	known bool // false: the log has not been read far enough to say what the queue holds
	min   int64
	max   int64
	tail  []byte // the last units below max, where these are not on disk yet: a part of chunk
	cuts  int
	grown *watermark.Mark // stands at max
}

// Topic returns the topic's name.
func (q *Queue) Topic() string { return q.topic }

// ID returns the queue's number in its topic.
func (q *Queue) ID() int32 { return q.id }

// Min returns the queue offset of the first unit whose message the log still has; it equals Max when there is none.
func (q *Queue) Min() int64 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.min
}

// Max returns the next queue offset: that of the last visible unit plus one.
func (q *Queue) Max() int64 {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.max
}

// Grown returns the mark that follows Max. It is closed with watermark.ErrTruncated, and replaced, when the queue is cut.
func (q *Queue) Grown() *watermark.Mark {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.grown
}

// Read fills dst with the units from queue offset from on and returns how many there were: 0 at the queue's end. Blank
// units are among them. ErrOutOfRange when from is below Min or beyond Max.
func (q *Queue) Read(from int64, dst []Unit) (int, error) {
	for {
		q.mu.RLock()
		lo, hi, cuts, known := q.min, q.max, q.cuts, q.known
		q.mu.RUnlock()
		if !known || from < lo || from > hi {
			return 0, ErrOutOfRange.With("topic", q.topic).With("queue", q.id).With("queue_offset", from).
				With("min", lo).With("max", hi)
		}
		n := int(min(int64(len(dst)), hi-from))
		err := q.load(from, dst[:n])
		q.mu.RLock()
		same := cuts == q.cuts
		q.mu.RUnlock()
		if same {
			return n, err
		}
	}
}

const loadUnits = 100 // units read with one system call

// load reads units that are visible or on disk, whoever may see them.
func (q *Queue) load(at int64, dst []Unit) error {
	if dst = q.fromTail(at, dst); len(dst) == 0 {
		return nil
	}
	b, ok := q.set.scratch.Get().(*[loadUnits * UnitSize]byte)
	if !ok {
		b = new([loadUnits * UnitSize]byte)
	}
	defer q.set.scratch.Put(b)
	for len(dst) > 0 {
		pos := at * UnitSize
		n := int(min(int64(len(dst)), loadUnits, (q.row.Start(pos)+q.set.fileSize-pos)/UnitSize))
		if err := q.row.ReadAt(b[:n*UnitSize], pos); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		for i := range dst[:n] {
			dst[i] = unit.Decode(b[i*UnitSize:])
		}
		at += int64(n)
		dst = dst[n:]
	}
	return nil
}

// fromTail reads what is not on disk yet and returns the part of dst in front of it. What leaves the tail is on disk then.
func (q *Queue) fromTail(at int64, dst []Unit) []Unit {
	q.mu.RLock()
	defer q.mu.RUnlock()
	from := q.max - int64(len(q.tail)/UnitSize)
	for i := max(at, from); i < min(q.max, at+int64(len(dst))); i++ {
		dst[i-at] = unit.Decode(q.tail[(i-from)*UnitSize:])
	}
	if len(q.tail) == 0 || at+int64(len(dst)) <= from {
		return dst
	}
	return dst[:max(from-at, 0)]
}

func (q *Queue) unit(at int64) (Unit, error) {
	var u [1]Unit
	err := q.load(at, u[:])
	return u[0], err
}

// search returns the first queue offset in [lo, hi) from which on all messages start at or behind the log offset; hi when
// none does. Blank units count as the message behind them, what is no unit as one behind the offset.
func (q *Queue) search(lo, hi, offset int64) (int64, error) {
	for lo < hi {
		mid := lo + (hi-lo)/2
		at := mid
		u, err := q.unit(at)
		for err == nil && u.Blank() && at+1 < hi {
			at++
			u, err = q.unit(at)
		}
		if err != nil {
			return 0, err
		}
		if !u.Valid() || u.Blank() || u.Offset >= offset {
			hi = mid
		} else {
			lo = at + 1
		}
	}
	return lo, nil
}

// endBefore returns the log offset behind the last message below the queue offset at; 0 when the files hold none.
func (q *Queue) endBefore(at int64) (int64, error) {
	for at--; at >= q.row.Files.Lo/UnitSize && at*UnitSize < q.row.Files.Hi; at-- {
		u, err := q.unit(at)
		if err != nil {
			return 0, err
		}
		if !u.Valid() {
			return 0, nil
		}
		if !u.Blank() {
			return u.End(), nil
		}
	}
	return 0, nil
}

// intact returns the first queue offset in [lo, hi), inside one file, whose unit cannot be right: never written, or
// before the one in front of it in the log.
func (q *Queue) intact(lo, hi int64) (int64, error) {
	var units [loadUnits]Unit
	last := int64(-1)
	for lo < hi {
		n := min(hi-lo, loadUnits)
		if err := q.load(lo, units[:n]); err != nil {
			return 0, err
		}
		for i, u := range units[:n] {
			if !u.Valid() || (!u.Blank() && u.Offset <= last) {
				return lo + int64(i), nil
			}
			if !u.Blank() {
				last = u.Offset
			}
		}
		lo += n
	}
	return hi, nil
}
