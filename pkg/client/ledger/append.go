package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	ledgerv1 "github.com/tandemlog/tandem/gen/tandem/ledger/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// AppenderOptions say how appends are made; the zero value is usable.
type AppenderOptions struct {
	// NoKey appends without an idempotence key: an append whose outcome is unknown is not sent again.
	NoKey bool
	// Channel is stored with each entry; 54444D00 to 54444DFF (hex) are Tandem's.
	Channel int32
	// RetryFor bounds the time in which an append is tried again, over whatever keeps it from being acknowledged. 0: until the
	// deadline of the call, for a Sender Options.Timeout without progress; negative: only a leader that is named or found at
	// once is tried.
	RetryFor time.Duration
	// OnRetry is told what keeps entries from being acknowledged, and for how long they pause before the next try; may be nil.
	// It is called by the goroutine of the append or of Run.
	OnRetry func(err error, pause time.Duration)

	// MaxInFlight and MaxInFlightBytes bound the entries (and the bytes of their bodies) of a Sender that have no outcome yet;
	// 0: 4,096 and 16 MiB.
	MaxInFlight      int
	MaxInFlightBytes int
	// MaxBatch and MaxBatchBytes bound one request of a Sender; 0: 512 entries and 256 KiB. The node's own limits hold too.
	MaxBatch      int
	MaxBatchBytes int
}

func (o AppenderOptions) withDefaults() AppenderOptions {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.MaxInFlight, 4096)
	set(&o.MaxInFlightBytes, 16<<20)
	set(&o.MaxBatch, 512)
	set(&o.MaxBatchBytes, 256<<10)
	return o
}

// Appender appends entries, each once. All methods may be called concurrently.
type Appender struct {
	c    *Client
	o    AppenderOptions
	id   []byte // nil with NoKey
	last atomic.Uint64
	// committed is the highest index that is known to be committed: what is sent from now on cannot stand at or before it.
	committed atomic.Int64
}

// Appender returns an appender with an id of its own.
func (c *Client) Appender(o AppenderOptions) *Appender {
	a := &Appender{c: c, o: o.withDefaults()}
	a.committed.Store(-1)
	if !o.NoKey {
		a.id = newID()
	}
	return a
}

// newID returns a random id of a client.
func newID() []byte {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails; crypto/rand ends the process instead
	return id
}

// learn notes that an index is committed.
func (a *Appender) learn(committed int64) {
	for {
		old := a.committed.Load()
		if committed <= old || a.committed.CompareAndSwap(old, committed) {
			return
		}
	}
}

// Append appends one entry and returns when it is committed; see the package comment for the three outcomes.
func (a *Appender) Append(ctx context.Context, body []byte) (*Result, error) {
	var result *Result
	err := a.do(ctx, [][]byte{body}, func(ctx context.Context, n *group.Node, key *ledgerv1.IdempotenceKey, opt grpc.CallOption) (int64, error) {
		resp, err := n.Ledger.Append(ctx, &ledgerv1.AppendRequest{Body: body, Channel: a.o.Channel, Key: key}, opt)
		result = resp
		return resp.GetCommittedIndex(), err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// AppendBatch appends entries in one call and returns when all are committed. After ErrAppendUnknown a first part of them may
// stand, and the rest not.
func (a *Appender) AppendBatch(ctx context.Context, bodies [][]byte) (*BatchResult, error) {
	if len(bodies) == 0 {
		return nil, errdefs.Invalid("bodies", "is empty")
	}
	var result *BatchResult
	err := a.do(ctx, bodies, func(ctx context.Context, n *group.Node, key *ledgerv1.IdempotenceKey, opt grpc.CallOption) (int64, error) {
		resp, err := n.Ledger.AppendBatch(ctx, &ledgerv1.AppendBatchRequest{Bodies: bodies, Channel: a.o.Channel, Key: key}, opt)
		if err == nil && len(resp.GetIndexes()) != len(bodies) {
			return -1, errdefs.Newf(errdefs.Unknown, "", "%d indexes for %d entries", len(resp.GetIndexes()), len(bodies))
		}
		result = resp
		return resp.GetCommittedIndex(), err
	})
	if err != nil {
		return nil, err
	}
	return result, nil
}

// call is one try at a node; it returns the commit index that was told.
type call func(context.Context, *group.Node, *ledgerv1.IdempotenceKey, grpc.CallOption) (int64, error)

// do carries an append out at the leader, found again as often as the options allow.
func (a *Appender) do(ctx context.Context, bodies [][]byte, f call) (err error) {
	ctx, span := a.c.tracer.Start(ctx, "append", trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		attribute.String("messaging.system", "tandem"), attribute.Int("messaging.batch.message_count", len(bodies))))
	defer func() { endSpan(span, err) }()
	ctx, cancel := a.c.bounded(ctx)
	defer cancel()
	bounds, err := a.c.limits(ctx)
	if err != nil {
		return err
	}
	a.learn(bounds.GetCommittedIndex())
	for i, b := range bodies {
		if err := checkBody(b, bounds); err != nil {
			if len(bodies) > 1 {
				err = err.With("entry", i)
			}
			return err
		}
	}
	t := &try{a: a, f: f}
	if a.id != nil {
		n := uint64(len(bodies))
		t.key = &ledgerv1.IdempotenceKey{ClientId: a.id, Sequence: a.last.Add(n) - n + 1, AfterIndex: a.committed.Load()}
	}
	return t.run(ctx)
}

// try is an append on its way.
type try struct {
	a     *Appender
	f     call
	key   *ledgerv1.IdempotenceKey // nil: none
	maybe bool                     // an earlier try may have come through
	fresh bool                     // the key's index has been renewed
}

func (t *try) run(ctx context.Context) error {
	deadline, _ := ctx.Deadline() // the caller gave it one
	limit := time.Until(deadline)
	if t.a.o.RetryFor != 0 {
		limit = t.a.o.RetryFor
	}
	r := group.NewRetry(t.a.c.nodes, limit, t.a.o.OnRetry)
	n, err := t.a.c.nodes.Guess()
	for err == nil {
		var v attempt.Verdict
		if v, err = t.once(ctx, n); err == nil {
			t.a.c.nodes.Moved(n.Addr)
			return nil
		}
		t.maybe = t.maybe || v == attempt.Unknown
		if v == attempt.NotStored || v == attempt.Unknown && t.key == nil {
			break
		}
		n, err = r.Next(ctx, n, err)
	}
	if t.maybe && !errors.Is(err, ErrAppendUnknown) {
		return ErrAppendUnknown.Wrap(err)
	}
	return err
}

// once tries it at a node, and says what a failure means.
func (t *try) once(ctx context.Context, n *group.Node) (attempt.Verdict, error) {
	one, cancel := ctx, context.CancelFunc(func() {})
	if t.key != nil {
		one, cancel = context.WithTimeout(ctx, t.a.c.o.TryTimeout)
	}
	defer cancel()
	var to peer.Peer
	committed, err := t.f(one, n, t.key, grpc.Peer(&to))
	if err == nil {
		t.a.learn(committed)
		return attempt.NotStored, nil
	}
	err = nodes.Explain(err, n.Addr)
	v := judge(err, attempt.HasLeft(&to))
	switch {
	case v == attempt.NotStored && one.Err() != nil && ctx.Err() == nil: // the try's own time was up before it left
		v = attempt.TryAgain
	case t.key != nil && errors.Is(err, ErrWindowPassed) && !t.maybe && !t.fresh:
		// Nothing was sent that could stand: a later index is as true.
		if _, askErr := t.a.ask(ctx, n); askErr != nil {
			return v, err
		}
		t.key.AfterIndex, t.fresh = t.a.committed.Load(), true
		v = attempt.TryAgain
	}
	return v, err
}

// ask asks a node for its bounds, and learns its commit index.
func (a *Appender) ask(ctx context.Context, n *group.Node) (*Bounds, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.o.TryTimeout)
	defer cancel()
	b, err := n.Ledger.GetBounds(ctx, &ledgerv1.GetBoundsRequest{Consistency: Local})
	if err != nil {
		return nil, nodes.Explain(err, n.Addr)
	}
	a.learn(b.GetCommittedIndex())
	a.c.keep(b)
	return b, nil
}

// checkBody holds a body against the limits that a node has told.
func checkBody(body []byte, b *Bounds) *errdefs.Error {
	switch limit := b.GetMaxBodySize(); {
	case len(body) == 0:
		return errdefs.Invalid("body", "is empty")
	case limit > 0 && int64(len(body)) > limit:
		return errdefs.Invalid("body", "has %d bytes, at most %d are taken", len(body), limit).
			WithRemedy("split it, or raise maxBodySize in the configuration of all nodes")
	}
	return nil
}

func endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.RecordError(err)
		span.SetStatus(codes.Error, errdefs.ReasonOf(err))
	}
	span.End()
}
