package check

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// The instruments of this package:
//
//	storage.scrub.read     By  bytes of the log read by scrubs
//	storage.scrub.damages  1   what they have found, by kind: record, unit
type metrics struct {
	bytes   metric.Int64Counter
	damages metric.Int64Counter
}

func newMetrics(m metric.Meter) (*metrics, error) {
	if m == nil {
		m = noop.Meter{}
	}
	out := &metrics{}
	var err error
	if out.bytes, err = m.Int64Counter("storage.scrub.read", metric.WithUnit("By"),
		metric.WithDescription("Bytes of the log that scrubs have read.")); err == nil {
		out.damages, err = m.Int64Counter("storage.scrub.damages", metric.WithUnit("1"),
			metric.WithDescription("Damages that scrubs have found, by kind: record, unit."))
	}
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return out, nil
}

func (m *metrics) read(n int64) { m.bytes.Add(context.Background(), n) }

func (m *metrics) damage(k Kind) {
	m.damages.Add(context.Background(), 1, metric.WithAttributes(attribute.String("kind", k.String())))
}
