package refusal

import (
	"context"
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Tally counts errors by reason. All methods may be called concurrently; those of a nil Tally do nothing.
type Tally struct {
	counter metric.Int64Counter

	mu     sync.Mutex
	counts map[string]int64
}

// New makes a tally. Instrument: ledger.refused ({request}, reason).
func New(meter metric.Meter) (*Tally, error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("refusal")
	}
	c, err := meter.Int64Counter("ledger.refused", metric.WithUnit("{request}"))
	return &Tally{counter: c, counts: map[string]int64{}}, err //nolint:wrapcheck // names the instrument
}

// Count counts err and returns it; nil is not counted.
func (t *Tally) Count(err error) error {
	if err == nil || t == nil {
		return err
	}
	reason := errdefs.ReasonOf(err)
	if reason == "" {
		reason = "OTHER"
	}
	t.mu.Lock()
	t.counts[reason]++
	t.mu.Unlock()
	t.counter.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
	return err
}

// Counts returns a copy.
func (t *Tally) Counts() map[string]int64 {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}
