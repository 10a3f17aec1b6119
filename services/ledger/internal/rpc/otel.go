package rpc

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/ledger/internal/refusal"
)

// Telemetry is where a service counts.
type Telemetry struct {
	Refused *refusal.Tally
	Meter   metric.Meter
}

// Instruments: ledger.appended ({entry}, repeated) counts the entries that were committed for clients of this node, and those that stood
// already.
type instruments struct {
	entries         metric.Int64Counter
	fresh, repeated metric.MeasurementOption
}

func newInstruments(meter metric.Meter) (i instruments, err error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("rpc")
	}
	i.fresh = metric.WithAttributeSet(attribute.NewSet(attribute.Bool("repeated", false)))
	i.repeated = metric.WithAttributeSet(attribute.NewSet(attribute.Bool("repeated", true)))
	i.entries, err = meter.Int64Counter("ledger.appended", metric.WithUnit("{entry}"))
	return i, err //nolint:wrapcheck // names the instrument
}

func (i *instruments) appended(entries, repeated int) {
	if fresh := entries - repeated; fresh > 0 {
		i.entries.Add(context.Background(), int64(fresh), i.fresh)
	}
	if repeated > 0 {
		i.entries.Add(context.Background(), int64(repeated), i.repeated)
	}
}
