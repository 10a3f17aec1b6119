package registry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// The instruments of this package, all but the commits by kind:
//
//	configsync.table.entries         entries of a table
//	configsync.table.counter         counter of its version
//	configsync.table.whole           1, or 0 for a table that must not be served
//	configsync.journal.size      By  of the segment that is written
//	configsync.save.failures         writings of a JSON file that failed
//	configsync.commits               offset commits, by outcome
type metrics struct {
	failures     metric.Int64Counter
	commits      metric.Int64Counter
	outcomes     [table.Staled + 1][]metric.AddOption // made once: commits are many
	registration metric.Registration
}

func newMetrics(m metric.Meter, r *Registry) (*metrics, error) {
	out := &metrics{}
	var err error
	if out.failures, err = m.Int64Counter("configsync.save.failures"); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	if out.commits, err = m.Int64Counter("configsync.commits"); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	for outcome, name := range [...]string{table.Taken: "taken", table.Lower: "lower", table.Staled: "stale"} {
		set := attribute.NewSet(attribute.String("outcome", name))
		out.outcomes[outcome] = []metric.AddOption{metric.WithAttributeSet(set)}
	}
	values := []struct {
		name, unit string
		value      func(KindState) int64
	}{
		{"configsync.table.entries", "", func(s KindState) int64 { return int64(s.Entries) }},
		{"configsync.table.counter", "", func(s KindState) int64 { return s.Version.Counter }},
		{"configsync.table.whole", "", func(s KindState) int64 {
			if s.Whole != nil {
				return 0
			}
			return 1
		}},
		{"configsync.journal.size", "By", func(s KindState) int64 { return s.JournalBytes }},
	}
	gauges := make([]metric.Int64ObservableGauge, len(values))
	all := make([]metric.Observable, len(values))
	for i, v := range values {
		if gauges[i], err = m.Int64ObservableGauge(v.name, metric.WithUnit(v.unit)); err != nil {
			return nil, fmt.Errorf("make instruments: %w", err)
		}
		all[i] = gauges[i]
	}
	out.registration, err = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, kind := range entry.Kinds() {
			state := r.State(kind)
			for i, v := range values {
				o.ObserveInt64(gauges[i], v.value(state), ofKind(kind))
			}
		}
		return nil
	}, all...)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return out, nil
}

func ofKind(kind entry.Kind) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("kind", kind.String()))
}

func (m *metrics) saveFailed(kind entry.Kind) { m.failures.Add(context.Background(), 1, ofKind(kind)) }

func (m *metrics) committed(r CommitResult) {
	for outcome, n := range [...]int{table.Taken: r.Taken, table.Lower: r.Lower, table.Staled: r.Staled} {
		if n > 0 {
			m.commits.Add(context.Background(), int64(n), m.outcomes[outcome]...)
		}
	}
}

func (m *metrics) close() error {
	if err := m.registration.Unregister(); err != nil {
		return fmt.Errorf("unregister instruments: %w", err)
	}
	return nil
}
