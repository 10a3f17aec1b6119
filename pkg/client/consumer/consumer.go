package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/client/config"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// none is the offset of a queue of which the group has none.
const none = int64(-1)

// Consumer is one member of a consumer group. Run is called once.
type Consumer struct {
	reader  Reader
	offsets Offsets
	o       Options

	slots chan struct{} // a handler that runs has one; nil: no bound
	look  chan struct{} // capacity 1: commit and compare now

	mu     sync.Mutex // guards the following, and what queues say it guards
	queues map[int32]*queue
}

// queue is one that is consumed; guarded by the consumer's mu.
type queue struct {
	id    int32
	next  int64  // behind the last message that the handler has returned nil for
	held  int64  // what the service has, as far as known
	epoch uint32 // of resets

	life   int // grows when the queue begins anew
	cancel context.CancelFunc
}

// New makes a consumer.
func New(r Reader, offsets Offsets, o Options) (*Consumer, error) {
	o.Queues = slices.Compact(slices.Sorted(slices.Values(o.Queues)))
	if err := o.check(); err != nil {
		return nil, err
	}
	c := &Consumer{reader: r, offsets: offsets, o: o, look: make(chan struct{}, 1), queues: map[int32]*queue{}}
	if o.Concurrency > 0 {
		c.slots = make(chan struct{}, o.Concurrency)
	}
	return c, nil
}

// Run consumes until ctx ends, a handler returns an error, or a node refuses what can never work. It returns when the handlers under
// way have returned and what they handled is committed: nil when ctx has ended and nothing went wrong.
func (c *Consumer) Run(ctx context.Context) error {
	rctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var all sync.WaitGroup
	all.Go(func() { c.commitLoop(rctx) })
	err := c.discoverLoop(rctx, func(q *queue) {
		all.Go(func() {
			if err := c.work(rctx, q); err != nil {
				end(err)
			}
		})
	})
	end(err)
	all.Wait()
	if err = context.Cause(rctx); ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		err = nil
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.StopTimeout)
	defer cancel()
	return nodes.Join(err, c.commit(last))
}

// Positions returns the next offset of each queue: what is before it was handled.
func (c *Consumer) Positions() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[int32]int64{}
	for id, q := range c.queues {
		all[id] = q.next
	}
	return all
}

// discoverLoop starts each queue once. The error is one that trying again does not mend.
func (c *Consumer) discoverLoop(ctx context.Context, start func(*queue)) error {
	first := true
	for try := 0; ; try++ {
		found, err := c.discover(ctx, first)
		pause := c.o.Discover
		switch {
		case final(err):
			return err
		case err != nil:
			if pause = nodes.Backoff(try); ctx.Err() == nil {
				c.retry(err, pause)
			}
		default:
			first, try = false, 0
			for _, q := range found {
				start(q)
			}
			if len(found) > 0 {
				signal(c.look) // so that where they begin is known, should this process end before a message comes
			}
			if len(c.o.Queues) > 0 {
				<-ctx.Done()
				return nil
			}
		}
		if !sleep.For(ctx, pause) {
			return nil
		}
	}
}

// discover finds where queues begin that are new.
func (c *Consumer) discover(ctx context.Context, first bool) ([]*queue, error) {
	there, err := c.reader.Queues(ctx, c.o.Topic)
	if err != nil {
		return nil, err
	}
	bounds := map[int32]*client.Queue{}
	ids := c.o.Queues
	for _, q := range there {
		bounds[q.GetQueueId()] = q
		if len(c.o.Queues) == 0 {
			ids = append(ids, q.GetQueueId())
		}
	}
	c.mu.Lock()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id int32) bool { return c.queues[id] != nil })
	c.mu.Unlock()
	if len(ids) == 0 {
		return nil, nil
	}
	held, err := c.offsets.Query(ctx, c.o.Group, c.o.Topic)
	if err != nil {
		return nil, err
	}
	found := make([]*queue, 0, len(ids))
	for _, id := range ids {
		q := &queue{id: id, held: none}
		if i := slices.IndexFunc(held, func(h *config.HeldOffset) bool { return h.GetQueueId() == id }); i >= 0 {
			q.held, q.epoch = held[i].GetOffset(), held[i].GetResetEpoch()
		}
		if q.next, err = c.begin(ctx, q, bounds[id], first); err != nil {
			return nil, err
		}
		found = append(found, q)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range found {
		c.queues[q.id] = q
	}
	return found, nil
}

// begin returns the offset that a queue begins at; there is nil where the storage has no such queue yet.
func (c *Consumer) begin(ctx context.Context, q *queue, there *client.Queue, first bool) (int64, error) {
	switch {
	case q.held != none && !c.o.IgnoreCommitted:
		return q.held, nil
	case there == nil:
		return 0, nil
	case c.o.From == Last && first:
		return there.GetMaxQueueOffset(), nil
	case c.o.From == AtTime:
		return c.reader.SearchOffset(ctx, c.o.Topic, q.id, max(c.o.Time.UnixMilli(), 0))
	}
	return there.GetMinQueueOffset(), nil
}

// work consumes a queue until ctx ends, beginning anew after each reset.
func (c *Consumer) work(ctx context.Context, q *queue) error {
	for ctx.Err() == nil {
		qctx, cancel := context.WithCancel(ctx)
		c.mu.Lock()
		q.cancel = cancel
		from, life := q.next, q.life
		c.mu.Unlock()
		err := c.consume(qctx, q, from, life)
		gone := qctx.Err() != nil
		cancel()
		if err != nil && !gone {
			return err
		}
	}
	return nil
}

// consume reads and handles a queue until ctx ends. An error that comes with the end of ctx is of no interest.
func (c *Consumer) consume(ctx context.Context, q *queue, from int64, life int) error {
	ctx, cancel := context.WithCancel(ctx)
	buf := newBuffer(c.o.Prefetch, c.o.PrefetchBytes)
	var fetching sync.WaitGroup
	fetching.Go(func() { buf.end(c.fetch(ctx, q.id, from, buf)) })
	defer fetching.Wait()
	defer cancel()
	for {
		ms, err := buf.take(ctx, c.o.MaxBatch)
		if err != nil {
			return err
		}
		if err := c.handle(ctx, ms); err != nil {
			return fmt.Errorf("handle %s/%d from %d on: %w", c.o.Topic, q.id, ms[0].GetQueueOffset(), err)
		}
		c.handled(q, life, ms[len(ms)-1].GetQueueOffset()+1)
	}
}

// handle calls the handler, where there is a bound when it is its turn.
func (c *Consumer) handle(ctx context.Context, ms []*Message) error {
	if c.slots != nil {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		defer func() { <-c.slots }()
	}
	return c.o.Batch(ctx, ms)
}

// handled moves a queue's position on, unless it was reset meanwhile.
func (c *Consumer) handled(q *queue, life int, next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.life == life {
		q.next = next
	}
}

// fetch fills the buffer until ctx ends, or the storage refuses for good.
func (c *Consumer) fetch(ctx context.Context, id int32, next int64, buf *buffer) error {
	for try := 0; ; try++ {
		before := next
		err := c.reader.Tail(ctx, client.TailOptions{Topic: c.o.Topic, QueueID: id, From: next, Filter: c.o.Filter, OnRetry: c.o.OnRetry}, func(m *Message) error {
			if err := buf.put(ctx, m); err != nil {
				return err
			}
			next = m.GetQueueOffset() + 1
			return nil
		})
		if next > before {
			try = 0
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errdefs.ClassOf(err) == errdefs.OutOfRange:
			next = c.outside(ctx, id, next)
		case final(err) && !ofTopic(err):
			return err
		}
		pause := nodes.Backoff(try)
		c.retry(err, pause)
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

// ofTopic reports whether it is the topic's configuration that does not let a queue be read now: its permission, or that it has
// fewer queues for readers. An operator who takes that back wants consumers to go on, and the other queues do meanwhile.
func ofTopic(err error) bool {
	e := errdefs.As(err)
	return e != nil && (e.Reason == "NO_PERMISSION" || e.Field == "queue_id")
}

// outside returns where to go on when the storages say that a queue does not have an offset. What lies before the queue is gone. What
// lies behind it comes, where a slave answered that is late, or was cut from the log: then the offset was reset.
func (c *Consumer) outside(ctx context.Context, id int32, next int64) int64 {
	qs, err := c.reader.Queues(ctx, c.o.Topic)
	if err != nil {
		return next // the next try meets the same
	}
	for _, q := range qs {
		if first := q.GetMinQueueOffset(); q.GetQueueId() == id && next < first {
			c.moved(id, next, first)
			return first
		}
	}
	signal(c.look)
	return next
}

// final reports whether an error comes again however often one tries.
func final(err error) bool {
	switch errdefs.ClassOf(err) {
	case errdefs.InvalidArgument, errdefs.Unimplemented, errdefs.Unauthenticated, errdefs.PermissionDenied:
		return err != nil
	default:
		return errors.Is(err, client.ErrClosed) || errors.Is(err, client.ErrTooLarge)
	}
}

func (c *Consumer) retry(err error, pause time.Duration) {
	if c.o.OnRetry != nil {
		c.o.OnRetry(err, pause)
	}
}

func (c *Consumer) moved(id int32, from, to int64) {
	if c.o.OnMove != nil {
		c.o.OnMove(id, from, to)
	}
}
