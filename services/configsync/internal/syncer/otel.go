package syncer

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// instrument registers what State tells, read when somebody collects.
func (s *Syncer) instrument(meter metric.Meter) {
	if meter == nil {
		return
	}
	failed := func(err error) {
		if err != nil {
			s.o.Log.Error("metric not registered", slog.Any("error", err))
		}
	}
	counters := func(name, text, label string, of func(State) map[string]int64) {
		_, err := meter.Int64ObservableCounter(name, metric.WithUnit("{answer}"), metric.WithDescription(text),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				for _, k := range entry.Kinds() {
					for value, n := range of(s.State(k)) {
						o.Observe(n, metric.WithAttributes(attribute.String("kind", k.String()), attribute.String(label, value)))
					}
				}
				return nil
			}))
		failed(err)
	}
	counters("tandem.configsync.sync.rounds", "Answers of the master by result.", "result", func(st State) map[string]int64 { return st.Rounds })
	counters("tandem.configsync.sync.refused", "Answers that were not taken, by reason.", "reason", func(st State) map[string]int64 { return st.Refused })
	_, err := meter.Float64ObservableGauge("tandem.configsync.sync.age", metric.WithUnit("s"),
		metric.WithDescription("Time since the last answer that was taken."),
		metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
			for _, k := range entry.Kinds() {
				if st := s.State(k); !st.LastSuccess.IsZero() {
					o.Observe(time.Since(st.LastSuccess).Seconds(), metric.WithAttributes(attribute.String("kind", k.String())))
				}
			}
			return nil
		}))
	failed(err)
}
