package store

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// Log is the commitlog. Append is durable only when Flushed passes the result's Next; View's bytes belong to the log
// until release is called.
type Log interface {
	Append(b *commitlog.Batch) (commitlog.Appended, error)
	View(offset int64, limit int) (b []byte, release func(), err error)
	Flushed() *watermark.Mark
	Readable() *watermark.Mark
}

// Replicas is what replication knows of the slaves.
type Replicas interface {
	// Acked is the offset that k slaves have confirmed; closed when the reign ends.
	Acked(k int) *watermark.Mark
	// InSync counts the slaves that are worth waiting for.
	InSync() int
	// CountAt counts the slaves that have confirmed offset, and those among them that confirm after a flush.
	CountAt(offset int64) (acked, flushed int)
}

// Queues are the consume queues.
type Queues interface {
	Lookup(topic string, queueID int32) *consumequeue.Queue
	List() []*consumequeue.Queue
}

// Topics knows which topics there are, how many queues each has, and who may do what with it. Errors are typed.
type Topics interface {
	// WriteQueues is how many queues of the topic take puts, from 0 on. For a topic that is to be created first it waits.
	WriteQueues(ctx context.Context, topic string) (int, error)
	// CheckRead returns nil when the queue may be read.
	CheckRead(topic string, queueID int32) error
}

// Guard says whether this node takes puts. Between an Enter that returned nil and its Leave that stays true: who ends a
// reign waits. The error of Enter names the reason, the remedy and, where known, the master.
type Guard interface {
	Enter() error
	Leave()
}

// Options of a Store; zero values get the defaults that are named.
type Options struct {
	StoreHost  netip.AddrPort // stored in each record and in offset message ids
	SyncMaster bool           // PUT_OK needs Required slaves
	SyncFlush  bool           // PUT_OK needs the flush
	Required   int            // slaves that a put on a sync master waits for (default 1)
	MaxAcks    int            // largest acks of a put (default 8)
	// SlaveTimeout and FlushTimeout bound the waits of a put (5 s each).
	SlaveTimeout, FlushTimeout time.Duration
	// RefuseWithoutReplicas refuses puts while fewer than Required slaves are in sync.
	RefuseWithoutReplicas bool
	AppendPropCRC         bool // records carry __CRC32# (RocketMQ 5.2+)
	Limits                message.Limits
	Now                   func() time.Time
	Log                   *slog.Logger
	Meter                 metric.Meter
	Tracer                trace.Tracer
}

// Errors of this package.
var (
	// ErrNoReign: the queue offsets could not be read when this node opened.
	ErrNoReign = errdefs.New(errdefs.Unavailable, "NO_QUEUE_OFFSETS", "this node has opened without knowing its queue offsets").
			WithRemedy("see its log, then restart it")
	// ErrStopping: this node takes no more puts.
	ErrStopping = errdefs.New(errdefs.Unavailable, "STOPPING", "this node is stopping and takes no more puts").
			WithRemedy("put to the master that opens next, or to this node when it is back")
	// ErrNotBuilt: the message asks for a service that Tandem does not have yet.
	ErrNotBuilt = errdefs.New(errdefs.Unimplemented, "NOT_BUILT", "delayed, timed and transactional messages are not served")
	// ErrNoRecord: no record starts at the offset.
	ErrNoRecord = errdefs.New(errdefs.InvalidArgument, "NO_RECORD", "no record starts at this offset")
	// ErrRotten: a record starts at the offset and is damaged.
	ErrRotten = errdefs.New(errdefs.DataLoss, message.ErrCorrupt.Reason, "the record at this offset is damaged").
			WithRemedy("read it from another node; `tandemctl repair NODE --from PEER` takes its bytes, `tandemctl scrub NODE` looks for more")
	// ErrNotReadable: the offset lies outside of what readers may see.
	ErrNotReadable = errdefs.New(errdefs.OutOfRange, "NOT_READABLE", "the offset is outside of the readable log")
)

// Store applies the put rule and the get rule. All methods may be called concurrently.
type Store struct {
	o        Options
	log      Log
	replicas Replicas
	queues   Queues
	topics   Topics
	guard    Guard
	metrics  *metrics
	ids      idSource
	since    func(time.Time) time.Duration

	turn atomic.Uint32 // the next queue of a message that names none

	reign   atomic.Pointer[reign] // set by BeginReign, while Guard lets nobody in
	stopped atomic.Bool
}

// Stop ends the taking of puts for good; those that are in the log are still waited for.
func (s *Store) Stop() { s.stopped.Store(true) }

// reign is one opening of this node as master.
type reign struct {
	mu      sync.RWMutex // guards cursors
	cursors map[queueKey]*commitlog.Cursor
}

type queueKey struct {
	topic string
	id    int32
}

// New makes a Store. It takes puts after BeginReign.
func New(o Options, log Log, replicas Replicas, queues Queues, topics Topics, guard Guard) (*Store, error) {
	if o.Required == 0 {
		o.Required = 1
	}
	if o.MaxAcks == 0 {
		o.MaxAcks = 8
	}
	if o.SlaveTimeout == 0 {
		o.SlaveTimeout = 5 * time.Second
	}
	if o.FlushTimeout == 0 {
		o.FlushTimeout = 5 * time.Second
	}
	since := time.Since // asks one clock of the kernel's, where time.Now asks two
	if o.Now == nil {
		o.Now = time.Now
	} else {
		since = func(t time.Time) time.Duration { return o.Now().Sub(t) }
	}
	o.Limits.NoCRC = !o.AppendPropCRC
	m, err := newMetrics(o.Meter, o.Tracer)
	if err != nil {
		return nil, err
	}
	return &Store{
		o: o, log: log, replicas: replicas, queues: queues, topics: topics, guard: guard, metrics: m,
		ids: newIDSource(o.StoreHost, o.Now()), since: since,
	}, nil
}
