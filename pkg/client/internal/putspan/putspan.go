package putspan

import (
	"context"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Maker starts spans. All methods may be called concurrently.
type Maker struct {
	tracer trace.Tracer
	last   atomic.Pointer[kind] // what was started last is mostly started next
}

// kind is what spans of equal puts have in common.
type kind struct {
	topic    string
	messages int
	name     string
	options  []trace.SpanStartOption
}

// New makes a maker.
func New(t trace.Tracer) *Maker { return &Maker{tracer: t} }

// Start starts the span of a put of that many messages to a topic.
func (m *Maker) Start(ctx context.Context, topic string, messages int) (context.Context, trace.Span) {
	k := m.last.Load()
	if k == nil || k.topic != topic || k.messages != messages {
		k = &kind{topic: topic, messages: messages, name: "put " + topic, options: []trace.SpanStartOption{
			trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(
				attribute.String("messaging.system", "tandem"),
				attribute.String("messaging.operation.type", "send"),
				attribute.String("messaging.destination.name", topic),
				attribute.Int("messaging.batch.message_count", messages),
			),
		}}
		m.last.Store(k)
	}
	return m.tracer.Start(ctx, k.name, k.options...)
}

// End ends a span with what became of the put.
func End(span trace.Span, r *storagev1.PutResult, err error) {
	if span.IsRecording() {
		if err != nil {
			span.RecordError(err)
			span.SetStatus(codes.Error, errdefs.ReasonOf(err))
		} else {
			status := nodes.EnumName(r.GetStatus().String(), "PUT_STATUS_", int32(r.GetStatus()))
			span.SetAttributes(attribute.String("tandem.put.status", status), attribute.Int64("tandem.offset", r.GetOffset()))
		}
	}
	span.End()
}
