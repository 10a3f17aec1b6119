package store

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
)

// The instruments of this package:
//
//	storage.put.messages   {message}   messages appended
//	storage.put.bytes      By          bytes of records appended
//	storage.put.duration   s           from Begin to the status, by status
//	storage.get.messages   {message}   messages read
type metrics struct {
	messages, bytes, read metric.Int64Counter
	duration              metric.Float64Histogram
	byStatus              [NotMaster + 1][]metric.RecordOption
	tracer                trace.Tracer
}

var statusNames = [NotMaster + 1]string{
	"unspecified", "put_ok", "flush_disk_timeout", "flush_slave_timeout", "slave_not_available",
	"in_sync_replicas_not_enough", "disk_full", "message_illegal", "not_master",
}

// String returns the status as RocketMQ writes it, in lower case.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return "unknown"
	}
	return statusNames[s]
}

func newMetrics(m metric.Meter, t trace.Tracer) (*metrics, error) {
	if m == nil {
		m = noop.Meter{}
	}
	if t == nil {
		t = tracenoop.Tracer{}
	}
	out := &metrics{tracer: t}
	for i := range out.byStatus {
		set := attribute.NewSet(attribute.String("status", statusNames[i]))
		out.byStatus[i] = []metric.RecordOption{metric.WithAttributeSet(set)}
	}
	var err error
	if out.messages, err = m.Int64Counter("storage.put.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages appended.")); err != nil {
		return nil, err
	}
	if out.bytes, err = m.Int64Counter("storage.put.bytes", metric.WithUnit("By"),
		metric.WithDescription("Bytes of records appended.")); err != nil {
		return nil, err
	}
	if out.read, err = m.Int64Counter("storage.get.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages read.")); err != nil {
		return nil, err
	}
	out.duration, err = m.Float64Histogram("storage.put.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from a put to its status, by status."),
		metric.WithExplicitBucketBoundaries(0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5))
	return out, err
}

func (m *metrics) appended(ctx context.Context, n, bytes int) {
	m.messages.Add(ctx, int64(n))
	m.bytes.Add(ctx, int64(bytes))
}

func (m *metrics) done(ctx context.Context, s Status, d time.Duration) {
	m.duration.Record(ctx, d.Seconds(), m.byStatus[s]...)
}

func (m *metrics) got(ctx context.Context, n int) { m.read.Add(ctx, int64(n)) }
