package store

import (
	"context"
	"sync/atomic"
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
	messages, bytes atomic.Int64 // asked for by the meter: a counter of its own costs a put several times as much
	read            metric.Int64Counter
	duration        metric.Float64Histogram
	byStatus        [NotMaster + 1][]metric.RecordOption
	tracer          trace.Tracer
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
	if err = observe(m, "storage.put.messages", "{message}", "Messages appended.", &out.messages); err != nil {
		return nil, err
	}
	if err = observe(m, "storage.put.bytes", "By", "Bytes of records appended.", &out.bytes); err != nil {
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

func observe(m metric.Meter, name, unit, text string, n *atomic.Int64) error {
	_, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(n.Load())
			return nil
		}))
	return err
}

func (m *metrics) appended(n int, bytes int64) {
	m.messages.Add(int64(n))
	m.bytes.Add(bytes)
}

func (m *metrics) done(ctx context.Context, s Status, d time.Duration) {
	m.duration.Record(ctx, d.Seconds(), m.byStatus[s]...)
}

func (m *metrics) got(ctx context.Context, n int) { m.read.Add(ctx, int64(n)) }
