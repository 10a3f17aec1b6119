package topics

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/topics/chunk"
)

// Options of a View. Zero times get the defaults that are named.
type Options struct {
	Cluster, BrokerName string
	NodeID              int64
	Address             string // of the configsync; empty: none, the view is static
	Queues              int    // of a topic that is created, and of every topic while there is no table
	AutoCreate          bool   // a put to an unknown topic creates it
	// MayCreate returns nil on the open master; else why this node creates nothing.
	MayCreate func() error
	// Dial connects to a configsync; the View closes it.
	Dial func(addr string) (*grpc.ClientConn, error)

	Timeout       time.Duration // longest silence in the middle of an answer (10 s)
	CreateTimeout time.Duration // of a put that waits for its topic (5 s)
	Log           *slog.Logger
	Meter         metric.Meter
}

const (
	minBackoff = 50 * time.Millisecond
	maxBackoff = time.Second
)

// View answers what the topic table says. It is safe for concurrent use; Run is called once.
type View struct {
	o       Options
	metrics *metrics
	table   atomic.Pointer[snapshot] // nil: none yet
	// published grows with each snapshot.
	published *watermark.Mark
	unknown   sync.Once // the warning that there is no table yet

	creations creations

	mu    sync.Mutex // guards the following
	conns map[string]*grpc.ClientConn
	st    State
}

// State is what Status shows.
type State struct {
	Address string
	Current bool // the view follows the table; else Reason and Remedy say why not
	Known   bool // there was a table: the last one holds
	Topics  int
	Version chunk.Version
	Updated time.Time // of the last answer that was taken
	Reason  string
	Remedy  string
}

// NewStatic returns the view in which every topic has that many queues.
func NewStatic(queues int) *View { return &View{o: Options{Queues: queues}} }

// New makes a view of the table at o.Address. Run follows it.
func New(o Options) (*View, error) {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.CreateTimeout == 0 {
		o.CreateTimeout = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "topics")
	v := &View{
		o: o, published: watermark.New(0), conns: map[string]*grpc.ClientConn{},
		creations: creations{running: map[string]*creation{}},
		st:        State{Address: o.Address, Reason: errConnecting.Reason, Remedy: errConnecting.Remedy},
	}
	var err error
	v.metrics, err = newMetrics(o.Meter, v)
	return v, err
}

// WriteQueues returns how many queues of the topic take puts, at least 1; they are numbered from 0. A topic that is not in the
// table is created where that is allowed, which waits, CreateTimeout at most. Errors: ErrNoPermission, ErrNoQueues, ErrNotFound,
// ErrNotCreated, ErrCreations, that of MayCreate, ctx's, or an errdefs.Invalid of field topic.
func (v *View) WriteQueues(ctx context.Context, topic string) (int, error) {
	s := v.table.Load()
	if s == nil {
		return v.standard(topic)
	}
	c, ok := s.get(topic)
	if !ok {
		if err := v.create(ctx, topic); err != nil {
			return 0, v.refused(err)
		}
		if c, ok = v.table.Load().get(topic); !ok { // it was deleted again
			return 0, v.refused(ErrNotFound.With("topic", topic))
		}
	}
	switch {
	case c.perm&chunk.PermWrite == 0:
		return 0, v.refused(ErrNoPermission.WithMsg("the topic takes no puts").With("topic", topic).With("perm", c.perm).
			WithRemedy("permit it: `tandemctl topic update %s --perm rw`", topic))
	case c.write < 1:
		return 0, v.refused(ErrNoQueues.With("topic", topic).With("queues", c.write).
			WithRemedy("give it some: `tandemctl topic update %s --write-queues 8`", topic))
	}
	return int(c.write), nil
}

// CheckRead returns nil when the queue may be read; what is not in the table is not judged. Else it is ErrNoPermission, or an
// errdefs.Invalid of field queue_id.
func (v *View) CheckRead(topic string, queueID int32) error {
	s := v.table.Load()
	if s == nil {
		return nil
	}
	c, ok := s.get(topic)
	switch {
	case !ok:
		return nil
	case c.perm&chunk.PermRead == 0:
		return v.refused(ErrNoPermission.WithMsg("the topic may not be read").With("topic", topic).With("perm", c.perm).
			WithRemedy("permit it: `tandemctl topic update %s --perm rw`", topic))
	case queueID >= c.read:
		return v.refused(errdefs.Invalid("queue_id", "%d is not a read queue of topic %s, which has %d", queueID, topic, c.read).
			WithRemedy("read another queue, or give it more: `tandemctl topic update %s --read-queues %d`", topic, queueID+1))
	}
	return nil
}

// standard is the rule without a table.
func (v *View) standard(topic string) (int, error) {
	if topic == "" {
		return 0, errdefs.Invalid("topic", "is empty")
	}
	if v.o.Queues < 1 {
		return 0, ErrNoQueues.With("topic", topic).With("queues", v.o.Queues).
			WithRemedy("set defaultTopicQueueNums to 1 or more")
	}
	if v.o.Address != "" {
		v.unknown.Do(func() {
			v.o.Log.Warn("the topic table is not known yet: every topic has the default number of queues until the configsync answers",
				slog.String("configsync", v.o.Address), slog.Int("queues", v.o.Queues))
		})
	}
	return v.o.Queues, nil
}

// State returns what Status shows.
func (v *View) State() State {
	v.mu.Lock()
	defer v.mu.Unlock()
	st := v.st
	if s := v.table.Load(); s != nil {
		st.Known, st.Topics, st.Version = true, s.count, s.version
	}
	return st
}

// conn returns the connection to addr, which is made on first use and kept.
func (v *View) conn(addr string) (*grpc.ClientConn, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := v.conns[addr]
	if c == nil {
		var err error
		if c, err = v.o.Dial(addr); err != nil {
			return nil, err
		}
		v.conns[addr] = c
	}
	return c, nil
}

// Close closes the connections, when Run has ended and nobody puts any more.
func (v *View) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	for _, c := range v.conns {
		err = errors.Join(err, c.Close())
	}
	clear(v.conns)
	return err
}
