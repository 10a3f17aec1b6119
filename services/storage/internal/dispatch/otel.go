package dispatch

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// Instruments:
//
//	storage.dispatch.messages {message} counter: messages dispatched, those that their queues had already included
//	storage.dispatch.bad      {record}  counter: bad records met, and messages that fit into no queue
//	storage.dispatch.skipped  By        counter: bytes of the log passed over for them
//	storage.dispatch.rewinds  {rewind}  counter: times the log was read again for a short queue
type metrics struct {
	messages, bad, skipped, rewinds metric.Int64Counter
}

func newMetrics(m metric.Meter) (*metrics, error) {
	if m == nil {
		m = noop.Meter{}
	}
	var out metrics
	for _, c := range []struct {
		to               *metric.Int64Counter
		name, unit, text string
	}{
		{&out.messages, "storage.dispatch.messages", "{message}", "messages dispatched"},
		{&out.bad, "storage.dispatch.bad", "{record}", "bad records met"},
		{&out.skipped, "storage.dispatch.skipped", "By", "bytes of bad records passed over"},
		{&out.rewinds, "storage.dispatch.rewinds", "{rewind}", "times the log was read again for a short queue"},
	} {
		counter, err := m.Int64Counter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.text))
		if err != nil {
			return nil, fmt.Errorf("make instrument: %w", err)
		}
		*c.to = counter
	}
	return &out, nil
}

func add(c metric.Int64Counter, n int64) { c.Add(context.Background(), n) }
