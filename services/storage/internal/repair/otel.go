package repair

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The instruments of this package:
//
//	storage.repair.bytes   By  bytes of the log that were replaced
//	storage.repair.ranges  1   ranges dealt with, by result: repaired, left
type metrics struct {
	bytes  metric.Int64Counter
	ranges metric.Int64Counter
}

func newMetrics(m metric.Meter) (*metrics, error) {
	out := &metrics{}
	var err error
	if out.bytes, err = m.Int64Counter("storage.repair.bytes", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the log that repairs have replaced.")); err == nil {
		out.ranges, err = m.Int64Counter("storage.repair.ranges", metric.WithUnit("1"),
			metric.WithDescription("Ranges that repairs have dealt with, by result: repaired, left."))
	}
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return out, nil
}

func (m *metrics) done(changed int64, failed bool) {
	result := "repaired"
	if failed {
		result = "left"
	}
	m.bytes.Add(context.Background(), changed)
	m.ranges.Add(context.Background(), 1, metric.WithAttributes(attribute.String("result", result)))
}
