package storage

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrBeyondEnd refuses an offset behind the queue's next one.
var ErrBeyondEnd = errdefs.New(errdefs.OutOfRange, "OFFSET_BEYOND_END", "the offset lies behind the end of the queue").
	WithField("offset").WithRemedy("commit at most the queue's next offset, `end`")

// Bounds are the first and the next offset of a queue.
type Bounds struct{ Min, Max int64 }

// Ends are the bounds of queues: by topic, then by queue.
type Ends map[string]map[int32]Bounds

// Max returns the next offset of a queue, 0 where the storage has no such queue.
func (e Ends) Max(topic string, queue int32) int64 { return e[topic][queue].Max }

// Queues asks a storage for its queues and keeps their ends. Safe for concurrent use.
type Queues struct {
	client storagev1.MessageServiceClient

	mu      sync.Mutex
	reign   int64 // grows with Forget: answers from before are not kept
	ends    Ends
	running map[string]*lookup
}

// lookup is one call for a topic that several wait for.
type lookup struct {
	done chan struct{}
	ends map[int32]Bounds
	err  error
}

// NewQueues asks over conn.
func NewQueues(conn grpc.ClientConnInterface) *Queues {
	return &Queues{client: storagev1.NewMessageServiceClient(conn), ends: Ends{}, running: map[string]*lookup{}}
}

// Forget drops what is known: the log may have been cut.
func (q *Queues) Forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reign++
	clear(q.ends)
	clear(q.running)
}

// Allow returns nil when offset is at most the queue's end, and ErrBeyondEnd, with the end, when the storage says that it is not.
func (q *Queues) Allow(ctx context.Context, topic string, queue int32, offset int64) error {
	// A call that was under way already may have been answered before the queue grew: only a later one counts against offset.
	for later := false; ; later = true {
		l, mine, reign := q.join(topic, queue, offset)
		if l == nil {
			return nil
		}
		if mine {
			q.look(ctx, topic, l, reign)
		}
		select {
		case <-l.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		end := l.ends[queue].Max
		switch {
		case l.err == nil && offset <= end:
			return nil
		case l.err != nil && mine:
			return l.err
		case l.err == nil && (mine || later):
			return ErrBeyondEnd.With("topic", topic).With("queue_id", queue).With("offset", offset).With("end", end)
		}
	}
}

// join returns the call for topic to wait for, and whether the caller shall make it; nil where offset is known to be allowed.
func (q *Queues) join(topic string, queue int32, offset int64) (l *lookup, mine bool, reign int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if offset <= q.ends.Max(topic, queue) {
		return nil, false, 0
	}
	if l = q.running[topic]; l == nil {
		l, mine = &lookup{done: make(chan struct{})}, true
		q.running[topic] = l
	}
	return l, mine, q.reign
}

func (q *Queues) look(ctx context.Context, topic string, l *lookup, reign int64) {
	defer close(l.done)
	ends, err := q.List(ctx, topic, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	l.ends, l.err = ends[topic], err
	if q.reign != reign {
		return
	}
	delete(q.running, topic)
	if err == nil {
		q.ends[topic] = l.ends
	}
}

// List asks for the queues of a topic, or of all for "". below restricts it to messages below that offset of the log; 0: all.
func (q *Queues) List(ctx context.Context, topic string, below int64) (Ends, error) {
	ends := Ends{}
	req := &storagev1.ListQueuesRequest{Topic: topic, PageSize: 10000, BelowOffset: below}
	for {
		resp, err := q.client.ListQueues(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, x := range resp.GetQueues() {
			if ends[x.GetTopic()] == nil {
				ends[x.GetTopic()] = map[int32]Bounds{}
			}
			ends[x.GetTopic()][x.GetQueueId()] = Bounds{x.GetMinQueueOffset(), x.GetMaxQueueOffset()}
		}
		if req.PageToken = resp.GetNextPageToken(); req.GetPageToken() == "" {
			return ends, nil
		}
	}
}

// Search returns the queue offset of the first message that was stored at or after a time, ms since 1970.
func (q *Queues) Search(ctx context.Context, topic string, queue int32, storeTime int64) (int64, error) {
	resp, err := q.client.SearchOffset(ctx, &storagev1.SearchOffsetRequest{Topic: topic, QueueId: queue, StoreTimestamp: storeTime})
	return resp.GetQueueOffset(), err
}
