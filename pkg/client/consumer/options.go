package consumer

import (
	"context"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Message is a record of the log.
type Message = client.StoredMessage

// Reader reads queues: a *client.Reader.
type Reader interface {
	Tail(ctx context.Context, o client.TailOptions, f func(*Message) error) error
	Queues(ctx context.Context, topic string) ([]*client.Queue, error)
	SearchOffset(ctx context.Context, topic string, queueID int32, storeTime int64) (int64, error)
}

// Offsets keep positions: a *config.Offsets.
type Offsets interface {
	CommitBatch(ctx context.Context, offsets []*config.Offset, durable bool) ([]int64, error)
	Query(ctx context.Context, group, topic string) ([]*config.HeldOffset, error)
}

// From says where a queue begins of which the group has no offset.
type From uint8

// Places to begin.
const (
	// First is the queue's first message.
	First From = iota
	// Last is behind the last message that is there when the consumer starts; a queue that comes later begins at its first one.
	Last
	// AtTime is the first message that was stored at or after Options.Time.
	AtTime
)

// Options of a consumer.
type Options struct {
	Group string
	Topic string
	// Queues are those to read; none: all that the topic has, and gets.
	Queues []int32
	// Filter is a tag expression: empty or `*` for all, else tags joined by `||`.
	Filter string

	// From says where queues begin of which the group has no offset; Time goes with AtTime.
	From From
	Time time.Time
	// IgnoreCommitted begins all queues at From. Positions below the committed ones are not committed: offsets go back by a reset
	// only.
	IgnoreCommitted bool

	// Each is called with each message, or Batch with some of one queue that follow each other; exactly one of the two is set. They
	// are called for several queues at once. ctx ends with that of Run, and when the queue's offset is reset.
	Each  func(ctx context.Context, m *Message) error
	Batch func(ctx context.Context, ms []*Message) error
	// MaxBatch is how many messages Batch gets at most; 0: 32.
	MaxBatch int
	// Concurrency is how many handlers run at once; 0: one a queue.
	Concurrency int

	// Prefetch and PrefetchBytes (of records) are how much of a queue waits for its handler; 0: 256 and 1 MiB.
	Prefetch      int
	PrefetchBytes int

	// CommitInterval is the time between two commits; 0: 5 s, which is the most.
	CommitInterval time.Duration
	// Durable waits until commits are on the master's disk.
	Durable bool
	// StopTimeout bounds the last commit, when Run's context has ended; 0: 5 s.
	StopTimeout time.Duration
	// Discover is the time between two looks for new queues; 0: 2 s.
	Discover time.Duration

	// OnRetry is told of what did not work and is tried again after a pause: streams, commits, the look for queues. May be nil, and
	// is called from several goroutines.
	OnRetry func(err error, pause time.Duration)
	// OnMove is told when a queue does not go on where it was: its offset was reset, or its first messages are gone. May be nil, and
	// is called from several goroutines.
	OnMove func(queueID int32, from, to int64)
}

const (
	defaultBatch         = 32
	defaultPrefetch      = 256
	defaultPrefetchBytes = 1 << 20
	mostCommitInterval   = 5 * time.Second
	defaultStopTimeout   = 5 * time.Second
	defaultDiscover      = 2 * time.Second
)

// check fills in what is left open and names what is wrong.
func (o *Options) check() error {
	switch {
	case o.Group == "":
		return errdefs.Invalid("group", "is empty")
	case o.Topic == "":
		return errdefs.Invalid("topic", "is empty")
	case (o.Each == nil) == (o.Batch == nil):
		return errdefs.Invalid("each", "and batch: exactly one of them is to be set")
	case o.From > AtTime:
		return errdefs.Invalid("from", "%d is none of First, Last, AtTime", o.From)
	case (o.From == AtTime) == o.Time.IsZero():
		return errdefs.Invalid("time", "goes with AtTime, and AtTime with it")
	case o.CommitInterval < 0 || o.CommitInterval > mostCommitInterval:
		return errdefs.Invalid("commit_interval", "%v is not within 0 and %v", o.CommitInterval, mostCommitInterval)
	}
	for _, n := range []struct {
		field string
		n     int
	}{{"max_batch", o.MaxBatch}, {"concurrency", o.Concurrency}, {"prefetch", o.Prefetch}, {"prefetch_bytes", o.PrefetchBytes}} {
		if n.n < 0 {
			return errdefs.Invalid(n.field, "%d is negative", n.n)
		}
	}
	for _, id := range o.Queues {
		if id < 0 {
			return errdefs.Invalid("queues", "%d is negative", id)
		}
	}
	o.fill()
	return nil
}

func (o *Options) fill() {
	o.MaxBatch = orDefault(o.MaxBatch, defaultBatch)
	o.Prefetch = orDefault(o.Prefetch, defaultPrefetch)
	o.PrefetchBytes = orDefault(o.PrefetchBytes, defaultPrefetchBytes)
	o.CommitInterval = orDefault(o.CommitInterval, mostCommitInterval)
	o.StopTimeout = orDefault(max(o.StopTimeout, 0), defaultStopTimeout)
	o.Discover = orDefault(max(o.Discover, 0), defaultDiscover)
	if each := o.Each; each != nil {
		o.MaxBatch = 1
		o.Batch = func(ctx context.Context, ms []*Message) error { return each(ctx, ms[0]) }
	}
}

func orDefault[N int | time.Duration](n, otherwise N) N {
	if n == 0 {
		return otherwise
	}
	return n
}
