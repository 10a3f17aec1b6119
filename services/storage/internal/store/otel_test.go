package store_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tandemlog/tandem/services/storage/internal/store"
)

func TestPutsAreCounted(t *testing.T) {
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	r := newRig(t, store.Options{Meter: meter}, newSlaves(0))
	if _, err := r.Put(t.Context(), msg("one"), byStore); err != nil {
		t.Fatal(err)
	}
	if _, err := r.PutBatch(t.Context(), []store.Message{*msg("two"), *msg("three")}, byStore); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Put(t.Context(), msg(""), byStore); err == nil {
		t.Fatal("an empty body was taken")
	}
	want := map[string]int64{"storage.put.messages": 3, "storage.put.bytes": r.log.End()}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && want[m.Name] != 0 {
			if got := sum.DataPoints[0].Value; got != want[m.Name] || !sum.IsMonotonic {
				t.Errorf("%s is %d, want %d", m.Name, got, want[m.Name])
			}
			delete(want, m.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}
