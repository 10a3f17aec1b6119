package consumequeue

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Instruments:
//
//	storage.queue.units      {unit}  counter: units made visible
//	storage.queue.blanks     {unit}  counter: blank units in the places of messages that the log lacks
//	storage.queue.files.open {file}  gauge: open queue files
type metrics struct {
	unitCount  metric.Int64Counter
	blankCount metric.Int64Counter
	open       metric.Registration
}

func newMetrics(m metric.Meter, openFiles func() int) (*metrics, error) {
	if m == nil {
		m = noop.Meter{}
	}
	units, err := m.Int64Counter("storage.queue.units", metric.WithUnit("{unit}"),
		metric.WithDescription("queue units made visible"))
	if err != nil {
		return nil, fmt.Errorf("make instrument: %w", err)
	}
	blanks, err := m.Int64Counter("storage.queue.blanks", metric.WithUnit("{unit}"),
		metric.WithDescription("blank units in the places of messages that the log lacks"))
	if err != nil {
		return nil, fmt.Errorf("make instrument: %w", err)
	}
	open, err := m.Int64ObservableGauge("storage.queue.files.open", metric.WithUnit("{file}"),
		metric.WithDescription("open queue files"))
	if err != nil {
		return nil, fmt.Errorf("make instrument: %w", err)
	}
	reg, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		o.ObserveInt64(open, int64(openFiles()))
		return nil
	}, open)
	if err != nil {
		return nil, fmt.Errorf("make instrument: %w", err)
	}
	return &metrics{unitCount: units, blankCount: blanks, open: reg}, nil
}

func (m *metrics) units(n int64)  { m.unitCount.Add(context.Background(), n) }
func (m *metrics) blanks(n int64) { m.blankCount.Add(context.Background(), n) }

func (m *metrics) close() error {
	if err := m.open.Unregister(); err != nil {
		return fmt.Errorf("unregister instrument: %w", err)
	}
	return nil
}
