package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"maps"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/client/internal/putspan"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// propertyUniqKey is the message id that the producer's side gives.
const propertyUniqKey = "UNIQ_KEY"

// ProducerOptions say how puts are made; the zero value is usable.
type ProducerOptions struct {
	// Acks is the number of slaves that must have a message before StatusOK; nil: the store's requiredAcks.
	Acks *int32
	// SlaveTimeout is the longest wait for slaves; 0: the store's slaveTimeout. The wait also ends shortly before the
	// deadline of the call.
	SlaveTimeout time.Duration
	// RetryFor bounds the time in which a message that is certainly not stored is tried again, over whatever keeps it: no
	// connection, no open master. 0: until the deadline of the call, for a Sender Options.Timeout without progress;
	// negative: only a master that is named or found at once is tried.
	RetryFor time.Duration
	// Resend also tries again when the outcome is unknown. A message may then be stored twice; both copies carry the same
	// UNIQ_KEY.
	Resend bool
	// OnRetry is told what keeps messages from being stored, and for how long they pause before the next try; may be nil.
	// It is called by the goroutine of the put or of Run.
	OnRetry func(err error, pause time.Duration)

	// MaxInFlight and MaxInFlightBytes bound the messages (and the bytes of their bodies) of a Sender that have no
	// outcome yet; 0: 4,096 and 16 MiB.
	MaxInFlight      int
	MaxInFlightBytes int
	// MaxBatch and MaxBatchBytes bound one request of a Sender; 0: 256 messages and 256 KiB.
	MaxBatch      int
	MaxBatchBytes int
}

func (o ProducerOptions) withDefaults() ProducerOptions {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&o.MaxInFlight, 4096)
	set(&o.MaxInFlightBytes, 16<<20)
	set(&o.MaxBatch, 256)
	set(&o.MaxBatchBytes, 256<<10)
	return o
}

// Producer puts messages. All methods may be called concurrently.
type Producer struct {
	c *Client
	o ProducerOptions
}

// Producer returns a producer.
func (c *Client) Producer(o ProducerOptions) *Producer {
	return &Producer{c: c, o: o.withDefaults()}
}

// timeout returns SlaveTimeout as the protos want it.
func (p *Producer) timeout() *durationpb.Duration {
	if p.o.SlaveTimeout <= 0 {
		return nil
	}
	return durationpb.New(p.o.SlaveTimeout)
}

// Put stores one message; see the package comment for the three outcomes.
func (p *Producer) Put(ctx context.Context, m *Message) (*Result, error) {
	ctx, span := p.c.spans.Start(ctx, m.GetTopic(), 1)
	req := &storagev1.PutRequest{Message: p.prepare(ctx, m), Acks: p.o.Acks, Timeout: p.timeout()}
	var result *Result
	err := p.do(ctx, func(ctx context.Context, n *nodes.Node, opt grpc.CallOption) (Status, error) {
		resp, err := n.Msg.Put(ctx, req, opt)
		result = resp.GetResult()
		return result.GetStatus(), err
	})
	if err != nil {
		result = nil
	}
	putspan.End(span, result, err)
	return result, err
}

// PutBatch stores messages of one topic and queue, all or none, side by side in one log file. One result a message, in order.
func (p *Producer) PutBatch(ctx context.Context, ms []*Message) ([]*Result, error) {
	if len(ms) == 0 {
		return nil, errdefs.Invalid("messages", "is empty")
	}
	ctx, span := p.c.spans.Start(ctx, ms[0].GetTopic(), len(ms))
	req := &storagev1.PutBatchRequest{Messages: make([]*Message, len(ms)), Acks: p.o.Acks, Timeout: p.timeout()}
	for i, m := range ms {
		req.Messages[i] = p.prepare(ctx, m)
	}
	var results []*Result
	err := p.do(ctx, func(ctx context.Context, n *nodes.Node, opt grpc.CallOption) (Status, error) {
		resp, err := n.Msg.PutBatch(ctx, req, opt)
		results = resp.GetResults()
		if err == nil && len(results) != len(ms) {
			return 0, errdefs.Newf(errdefs.Unknown, "", "%d results for %d messages", len(results), len(ms))
		}
		if err != nil {
			return 0, err
		}
		return results[0].GetStatus(), nil
	})
	if err != nil {
		putspan.End(span, nil, err)
		return nil, err
	}
	putspan.End(span, results[0], nil)
	return results, nil
}

// do carries a put out at the master, found again as often as the options allow while the message is certainly not stored
// or Resend is set.
func (p *Producer) do(ctx context.Context, call func(context.Context, *nodes.Node, grpc.CallOption) (Status, error)) error {
	ctx, cancel := p.c.bounded(ctx)
	defer cancel()
	deadline, _ := ctx.Deadline() // bounded gave it one
	r := p.newRetry(time.Until(deadline))
	n, err := p.c.nodes.Guess()
	maybe := false // an earlier try may have stored it
	for err == nil {
		var to peer.Peer
		var status Status
		status, err = call(ctx, n, grpc.Peer(&to))
		if err == nil && status != StatusNotMaster {
			if maybe && !Stored(status) {
				err = errdefs.New(errdefs.FailedPrecondition, StatusName(status), "a later try was refused")
				break
			}
			p.c.nodes.Moved(n.Addr)
			return nil
		}
		if err == nil {
			err = errNotMaster
		}
		err = nodes.Explain(err, n.Addr)
		v := attempt.Judge(err, attempt.HasLeft(&to))
		maybe = maybe || v == attempt.Unknown
		if v == attempt.NotStored || v == attempt.Unknown && !p.o.Resend {
			break
		}
		n, err = r.Next(ctx, n, err)
	}
	if maybe {
		return ErrOutcomeUnknown.Wrap(err)
	}
	return err
}

// newRetry returns a retry that ends with RetryFor, else after limit.
func (p *Producer) newRetry(limit time.Duration) *attempt.Retry {
	if p.o.RetryFor != 0 {
		limit = p.o.RetryFor
	}
	return attempt.NewRetry(p.c.nodes, limit, p.o.OnRetry)
}

// prepare returns the message as it goes out: with the trace of ctx and, where it may be sent twice, a UNIQ_KEY. The caller's
// message is not changed.
func (p *Producer) prepare(ctx context.Context, m *Message) *Message {
	traced := trace.SpanContextFromContext(ctx).IsValid()
	keyed := p.o.Resend && m.GetProperties()[propertyUniqKey] == ""
	if !traced && !keyed {
		return m
	}
	props := make(map[string]string, len(m.GetProperties())+2)
	maps.Copy(props, m.GetProperties())
	if traced {
		propagation.TraceContext{}.Inject(ctx, propagation.MapCarrier(props))
	}
	if keyed {
		props[propertyUniqKey] = newUniqKey()
	}
	return &Message{
		Topic: m.GetTopic(), QueueId: m.QueueId, Body: m.GetBody(), Properties: props, Tag: m.GetTag(), Keys: m.GetKeys(),
		Flag: m.GetFlag(), BornTimestamp: m.GetBornTimestamp(), SysFlag: m.GetSysFlag(),
	}
}

// newUniqKey returns 32 upper-case hex digits, the form of RocketMQ's client ids.
func newUniqKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails; crypto/rand ends the process instead
	return strings.ToUpper(hex.EncodeToString(b[:]))
}
