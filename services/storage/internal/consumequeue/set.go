package consumequeue

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
)

// Defaults of Options.
const (
	DefaultOpenFiles     = 512
	DefaultFlushInterval = 10 * time.Second
)

const (
	// chunkSize is how much of one queue is kept in memory before it goes to disk, bytes.
	chunkSize = 200 * UnitSize
	// maxHeld bounds the queues that have a chunk after a Commit.
	maxHeld = 4096
	// maxFill bounds the blank units that close a gap, unless the log had room for more messages in between.
	maxFill = 1 << 20
	// minRecord is the length of the shortest record, bytes.
	minRecord = 91
)

// None is what Gather returns when there is nothing to read again.
const None int64 = -1

// Checkpoint takes the store time of the last message whose units are durable; it is called by Flush.
type Checkpoint interface {
	SetLogics(ms int64)
}

// Options are the settings of a Set; zero values get the defaults that are named.
type Options struct {
	// FileSize is the length of every queue file, bytes, a multiple of UnitSize. 0: that of the files that exist, else
	// DefaultFileSize.
	FileSize int64
	// OpenFiles bounds the queue files that are kept open (DefaultOpenFiles).
	OpenFiles int
	// FlushInterval is the pause between two flushes of Run (DefaultFlushInterval).
	FlushInterval time.Duration
	// Clean says that the store was closed in order: of each queue only the last unit is looked at by Open.
	Clean      bool
	Checkpoint Checkpoint   // may be nil
	Log        *slog.Logger // may be nil
	Meter      metric.Meter // may be nil
}

func (o *Options) setDefaults() {
	if o.OpenFiles <= 0 {
		o.OpenFiles = DefaultOpenFiles
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = DefaultFlushInterval
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "consumequeue")
}

// Set is all queues of a store. Readers may call Lookup and List at any time; the methods that write exclude each other.
type Set struct {
	fsys     vfs.FS
	root     string
	dir      string
	fileSize int64
	o        Options
	pool     *queuefile.Pool
	metrics  *metrics
	scratch  sync.Pool // *[loadUnits * UnitSize]byte
	spare    sync.Pool // *[chunkSize]byte

	flushing sync.Mutex // held by Flush, Truncate, Settle and Close, also across fsync; guards saved
	saved    int64      // dispatched of the summary on disk

	writing    sync.Mutex // guards what follows and the writer's side of every queue
	err        error      // not nil: closed or failed
	first      int64      // the log's first offset
	resume     int64      // where Open wants the log read from, None: its first offset
	dispatched int64      // all messages below are in the queues; None: nobody has said so yet
	stamp      int64      // store time of the last message, ms
	gathered   []*Queue
	held       []*Queue // those with a chunk
	dirty      []*Queue

	mu     sync.RWMutex // guards topics; changed with writing held too
	topics map[string]map[int32]*Queue
}

// FileSize returns the length of every queue file, bytes.
func (s *Set) FileSize() int64 { return s.fileSize }

// Lookup returns a queue, nil when there is none, or when the log has not been read far enough yet to say so.
func (s *Set) Lookup(topic string, queueID int32) *Queue {
	s.mu.RLock()
	q := s.topics[topic][queueID]
	s.mu.RUnlock()
	if q == nil || !q.visible() {
		return nil
	}
	return q
}

func (q *Queue) visible() bool {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return q.known
}

// List returns all queues in the order of topic and id.
func (s *Set) List() []*Queue {
	all := s.all()
	return slices.DeleteFunc(all, func(q *Queue) bool { return !q.visible() })
}

func (s *Set) all() []*Queue {
	s.mu.RLock()
	var all []*Queue
	for _, ids := range s.topics {
		for _, q := range ids {
			all = append(all, q)
		}
	}
	s.mu.RUnlock()
	slices.SortFunc(all, func(a, b *Queue) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
	return all
}

// MaxPhysical returns the log offset behind the last message of all queues, 0 when there is none. It does not say that
// everything below is there: Dispatched does.
func (s *Set) MaxPhysical() int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	var end int64
	for _, q := range s.all() {
		end = max(end, q.doneEnd)
	}
	return end
}

// Dispatched returns the log offset below which all messages are in the queues, as of the last Commit or the summary;
// None without either.
func (s *Set) Dispatched() int64 {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.dispatched
}

// Append is Gather and Commit for one unit. A repeat is nil and does nothing; a gap is ErrQueueGap.
func (s *Set) Append(topic []byte, queueID int32, queueOffset int64, u Unit) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	q, err := s.writable(topic, queueID, queueOffset)
	if err != nil {
		return err
	}
	if q.known && queueOffset > q.next && q.lastEnd > s.first {
		return ErrQueueGap.With("topic", q.topic).With("queue", q.id).With("want", q.next).With("got", queueOffset)
	}
	if _, err := s.gather(q, queueOffset, u); err != nil {
		return err
	}
	return s.commit()
}

// Gather takes the unit of the message at a log offset. It counts after the next Commit. The result is None, or, when
// units in front of this one are missing, the log offset from which the log must be read again: then nothing was taken.
// ErrNotQueued: no queue can hold it. After any other error everything gathered since the last Commit is forgotten, and
// the log must be read again from there. Gather keeps no reference to topic and allocates nothing for a queue that exists.
func (s *Set) Gather(topic []byte, queueID int32, queueOffset, offset int64, size int32, tagsCode int64) (int64, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	q, err := s.writable(topic, queueID, queueOffset)
	if err != nil {
		return None, err
	}
	return s.gather(q, queueOffset, Unit{Offset: offset, Size: size, TagsCode: tagsCode})
}

func (s *Set) gather(q *Queue, at int64, u Unit) (int64, error) {
	back, err := s.take(q, at, u)
	if err != nil && !errors.Is(err, ErrNotQueued) {
		s.discard()
	}
	return back, err
}

func (s *Set) take(q *Queue, at int64, u Unit) (int64, error) {
	switch {
	case !q.known, at != q.next && q.lastEnd <= s.first: // nothing that the log still has comes before it
		if err := q.begin(at); err != nil {
			return None, err
		}
	case at < q.next:
		return None, nil
	case at > q.next:
		if back, err := s.mend(q, at, u); back != None || err != nil {
			return back, err
		}
	}
	return None, q.put(u)
}

// mend deals with a gap in front of u: the first time the log is read again, the second time blank units fill it.
func (s *Set) mend(q *Queue, at int64, u Unit) (int64, error) {
	if q.searched != q.next {
		q.searched = q.next
		return max(q.lastEnd, s.first), nil
	}
	missing := at - q.next
	if room := (u.Offset - q.lastEnd) / minRecord; missing > max(room, maxFill) {
		return None, ErrNotQueued.WithField("queueOffset").With("topic", q.topic).With("queue", q.id).
			With("want", q.next).With("got", at).WithMsg("the queue offset is too far beyond the queue's end")
	}
	s.o.Log.Warn("messages missing in the log, blank units fill their places",
		slog.String("topic", q.topic), slog.Int("queue", int(q.id)), slog.Int64("queue_offset", q.next),
		slog.Int64("count", missing), slog.Int64("log_from", q.lastEnd), slog.Int64("log_to", u.Offset))
	s.metrics.blanks(missing)
	for q.next < at {
		if err := q.put(unit.Blank()); err != nil {
			return None, err
		}
	}
	return None, nil
}

// writable returns the queue to write to, a new one where need be.
func (s *Set) writable(topic []byte, id int32, at int64) (*Queue, error) {
	if s.err != nil {
		return nil, s.err
	}
	q := s.topics[string(topic)][id]
	if q == nil {
		if err := legal(topic); err != nil {
			return nil, err
		}
	}
	switch {
	case id < 0:
		return nil, ErrNotQueued.WithField("queueId").With("got", id)
	case at < 0 || at > math.MaxInt64/UnitSize-s.fileSize:
		return nil, ErrNotQueued.WithField("queueOffset").With("got", at)
	case q == nil:
		q = s.add(string(topic), id)
	}
	return q, nil
}

// legal refuses what cannot be a folder's name.
func legal(topic []byte) error {
	ok := len(topic) > 0 && len(topic) <= maxTopic && string(topic) != "." && string(topic) != ".."
	for _, c := range topic {
		ok = ok && c >= 0x20 && c != 0x7f && c != '/'
	}
	if !ok {
		return ErrNotQueued.WithField("topic").With("got", strconv.Quote(string(topic[:min(len(topic), maxTopic)])))
	}
	return nil
}

// add makes an entry for a queue of which nothing is known.
func (s *Set) add(topic string, id int32) *Queue {
	dir := filepath.Join(s.dir, topic, strconv.Itoa(int(id)))
	q := &Queue{
		set: s, topic: topic, id: id, searched: None, grown: watermark.New(0), row: queuefile.NewRow(s.pool, dir, s.fileSize),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := s.topics[topic]
	if ids == nil {
		ids = map[int32]*Queue{}
		s.topics[topic] = ids
	}
	ids[id] = q
	return q
}

// Commit makes the gathered units visible. dispatched is the log offset up to which all messages were gathered, storeTime
// the store time of the last one, ms. On an error nothing is visible, everything gathered since the last Commit is
// forgotten and may be gathered again; vfs.ErrNoSpace may pass, others will not. It allocates nothing.
func (s *Set) Commit(dispatched, storeTime int64) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.err != nil {
		return s.err
	}
	if err := s.commit(); err != nil {
		return err
	}
	s.dispatched, s.stamp = dispatched, storeTime
	return nil
}

func (s *Set) commit() error {
	if len(s.held) > maxHeld {
		if err := s.spill(); err != nil {
			s.discard()
			return err
		}
	}
	var units int64
	for _, q := range s.gathered {
		units += q.next - q.max
		q.publish()
	}
	s.gathered = s.gathered[:0]
	s.metrics.units(units)
	return nil
}

func (s *Set) discard() {
	for _, q := range s.gathered {
		q.discard()
	}
	s.gathered = s.gathered[:0]
}

// spill writes all chunks to disk. After an error the rest of them is as it was.
func (s *Set) spill() error {
	for n := len(s.held); n > 0 && s.err == nil; n = len(s.held) {
		q := s.held[n-1]
		if err := q.spill(); err != nil {
			return fmt.Errorf("write queue %s/%d: %w", q.topic, q.id, err)
		}
		s.spare.Put((*[chunkSize]byte)(q.chunk[:chunkSize]))
		q.chunk, s.held[n-1] = nil, nil
		s.held = s.held[:n-1]
	}
	return s.err
}

func (s *Set) takeChunk() []byte {
	c, ok := s.spare.Get().(*[chunkSize]byte)
	if !ok {
		c = new([chunkSize]byte)
	}
	return c[:0]
}
