package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
	"github.com/tandemlog/tandem/pkg/sleep"
)

// Reader reads messages from the first address that answers, master or slave, and stays with it. All methods may be called
// concurrently.
type Reader struct {
	c *Client

	mu  sync.Mutex
	now int // index of the address that answered last
}

// Reader returns a reader.
func (c *Client) Reader() *Reader { return &Reader{c: c} }

// GetRequest says what to read; the comments of the proto say what zero values mean.
type GetRequest = storagev1.GetRequest

// GetResponse is what was read and where to go on.
type GetResponse = storagev1.GetResponse

// Get reads messages of a queue from a queue offset. It does not wait for new ones.
func (r *Reader) Get(ctx context.Context, req *GetRequest) (resp *GetResponse, err error) {
	err = r.each(ctx, func(ctx context.Context, n *nodes.Node) (err error) {
		resp, err = n.Msg.Get(ctx, req)
		return err
	})
	return resp, err
}

// GetByOffset reads the record that starts at an offset of the log.
func (r *Reader) GetByOffset(ctx context.Context, offset int64) (m *StoredMessage, err error) {
	err = r.each(ctx, func(ctx context.Context, n *nodes.Node) error {
		resp, err := n.Msg.GetByOffset(ctx, &storagev1.GetByOffsetRequest{Offset: offset})
		m = resp.GetMessage()
		return err
	})
	return m, err
}

// Queues lists the queues of a topic, or all for "", with first and next queue offset.
func (r *Reader) Queues(ctx context.Context, topic string) (qs []*Queue, err error) {
	err = r.each(ctx, func(ctx context.Context, n *nodes.Node) (err error) {
		qs, err = n.Queues(ctx, topic)
		return err
	})
	return qs, err
}

// SearchOffset finds the first message of a queue that was stored at or after a time, milliseconds since 1970; else it is the next one.
func (r *Reader) SearchOffset(ctx context.Context, topic string, queueID int32, storeTime int64) (offset int64, err error) {
	err = r.each(ctx, func(ctx context.Context, n *nodes.Node) error {
		resp, err := n.Msg.SearchOffset(ctx, &storagev1.SearchOffsetRequest{Topic: topic, QueueId: queueID, StoreTimestamp: storeTime})
		offset = resp.GetQueueOffset()
		return err
	})
	return offset, err
}

// each calls f with one node after the other until one answers, be it with an error of its own.
func (r *Reader) each(ctx context.Context, f func(context.Context, *nodes.Node) error) error {
	ctx, cancel := r.c.bounded(ctx)
	defer cancel()
	var all error
	for range r.c.nodes.Addresses() {
		n, err := r.node()
		if err != nil {
			return err
		}
		if err = nodes.Explain(f(ctx, n), n.Addr); !elsewhere(err) {
			return err
		}
		all = nodes.Join(all, err)
		r.turn(n)
	}
	return all
}

// elsewhere reports whether another node may do better.
func elsewhere(err error) bool {
	return err != nil && (errdefs.ClassOf(err) == errdefs.Unavailable || errors.Is(err, ErrStalled) || nodes.Stranger(err))
}

func (r *Reader) node() (*nodes.Node, error) {
	r.mu.Lock()
	addr := r.c.nodes.Addresses()[r.now]
	r.mu.Unlock()
	return r.c.nodes.Get(addr)
}

// turn goes on to the next address, unless another call has done so.
func (r *Reader) turn(from *nodes.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.c.nodes.Addresses()[r.now] == from.Addr {
		r.now = (r.now + 1) % len(r.c.nodes.Addresses())
	}
}

// TailOptions say what Tail follows.
type TailOptions struct {
	Topic   string
	QueueID int32
	// From is the queue offset to begin with.
	From int64
	// Filter is a tag expression: empty or `*` for all, else tags joined by `||`.
	Filter string
	// OnRetry is told why the stream broke and how long Tail pauses before the next; may be nil.
	OnRetry func(err error, pause time.Duration)
}

// Tail calls f with each message of a queue, old and new, and goes on over outages: a broken stream is made anew, on the next
// address, from the message after the last one. What ends it:
//   - f returns an error, or ctx ends: that is its result.
//   - A node refuses: the request is wrong, the caller may not, a message is larger than this client takes, or the first
//     one to answer says that the offset is outside of the queue, or later all addresses in turn do.
//   - No address could be reached in the first round. Once a node has taken the stream, be it that no message came, Tail goes on
//     until one takes it again.
func (r *Reader) Tail(ctx context.Context, o TailOptions, f func(*StoredMessage) error) error {
	t := &tail{r: r, o: o, f: f, next: o.From}
	var first error // of all addresses, while none has answered
	for try := 0; ; try++ {
		n, err := r.node()
		if err != nil {
			return err
		}
		progress, err := t.follow(ctx, n)
		switch {
		case t.fErr != nil:
			return t.fErr
		case ctx.Err() != nil:
			return ctx.Err()
		case progress:
			try = 0
		}
		if errdefs.ReasonOf(err) == ErrTooLarge.Reason {
			if t.most == 1 && !progress {
				return ErrTooLarge.Wrap(err).With("topic", o.Topic).With("queue_id", o.QueueID).With("queue_offset", t.next)
			}
			t.most = 1 // several together may be what is too large
			continue
		}
		r.turn(n)
		if !t.connected {
			if first = nodes.Join(first, err); !elsewhere(err) || try+1 >= len(r.c.nodes.Addresses()) {
				return first
			}
			continue
		}
		if !t.mends(err) {
			return err
		}
		pause := nodes.Backoff(try)
		if o.OnRetry != nil {
			o.OnRetry(err, pause)
		}
		if !sleep.For(ctx, pause) {
			return ctx.Err()
		}
	}
}

type tail struct {
	r         *Reader
	o         TailOptions
	f         func(*StoredMessage) error
	fErr      error
	next      int64
	most      int32 // messages an answer; 0: as many as the storage likes
	connected bool  // a node has taken the stream once
	outside   int   // addresses in a row that said OutOfRange, or are another service's
}

// mends reports whether a stream that broke with err is worth making anew. A replica that lags behind the one before says
// OutOfRange: that is final only when all addresses say so in turn.
func (t *tail) mends(err error) bool {
	if errdefs.ClassOf(err) == errdefs.OutOfRange || nodes.Stranger(err) {
		t.outside++
		return t.outside < len(t.r.c.nodes.Addresses())
	}
	t.outside = 0
	return elsewhere(err) || !attempt.Answered(err) && !attempt.Refused(err)
}

// follow reads one stream to its end; progress says whether a message came.
func (t *tail) follow(ctx context.Context, n *nodes.Node) (progress bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := n.Msg.GetStream(ctx, &storagev1.GetStreamRequest{
		Topic: t.o.Topic, QueueId: t.o.QueueID, QueueOffset: t.next, TagFilter: t.o.Filter, MaxMessages: t.most,
	})
	if err != nil {
		return false, nodes.Explain(err, n.Addr)
	}
	for {
		resp, err := stream.Recv()
		// That a stream was taken shows by its breaking where no message comes. That the first offset is outside is an answer of its own.
		said := grpcx.FromStatus(err)
		t.connected = t.connected || errdefs.ClassOf(said) != errdefs.OutOfRange && !nodes.Stranger(said)
		if errors.Is(err, io.EOF) {
			return progress, errdefs.New(errdefs.Unavailable, "STREAM_ENDED", "the storage ended the stream").With("address", n.Addr)
		}
		if err != nil {
			return progress, nodes.Explain(err, n.Addr)
		}
		for _, m := range resp.GetMessages() {
			if m.GetQueueOffset() < t.next {
				continue // asked for nothing before it
			}
			t.next = m.GetQueueOffset() + 1
			progress = true
			if t.fErr = t.f(m); t.fErr != nil {
				return progress, nil
			}
		}
		t.next = max(t.next, resp.GetNextQueueOffset())
	}
}
