package commitlog

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// The instruments of this package:
//
//	storage.log.first, written, flushed, readable  By  the watermarks
//	storage.log.flush.duration                     s   of one flush
type metrics struct {
	flush    metric.Float64Histogram
	registry metric.Registration
}

func newMetrics(m metric.Meter, l *Log) (*metrics, error) {
	out := &metrics{}
	var err error
	out.flush, err = m.Float64Histogram("storage.log.flush.duration", metric.WithUnit("s"), metric.WithDescription("Time of one flush of the log."),
		metric.WithExplicitBucketBoundaries(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5))
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	values := []struct {
		name, text string
		value      func() int64
	}{
		{"storage.log.first", "Offset of the log's first byte.", l.FirstOffset},
		{"storage.log.written", "Offset behind the log's last byte.", l.End},
		{"storage.log.flushed", "Offset below which the log is durable.", func() int64 { return l.Flushed().Load() }},
		{"storage.log.readable", "Offset below which readers may look.", func() int64 { return l.Readable().Load() }},
	}
	gauges := make([]metric.Int64ObservableGauge, len(values))
	all := make([]metric.Observable, len(values))
	for i, v := range values {
		if gauges[i], err = m.Int64ObservableGauge(v.name, metric.WithUnit("By"), metric.WithDescription(v.text)); err != nil {
			return nil, fmt.Errorf("make instruments: %w", err)
		}
		all[i] = gauges[i]
	}
	out.registry, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, v := range values {
			o.ObserveInt64(gauges[i], v.value())
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return out, nil
}

func (m *metrics) flushed(d time.Duration) { m.flush.Record(context.Background(), d.Seconds()) }

func (m *metrics) close() error {
	if err := m.registry.Unregister(); err != nil {
		return fmt.Errorf("unregister instruments: %w", err)
	}
	return nil
}
