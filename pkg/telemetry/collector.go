package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// What is exported.
const (
	signalSpans   = "spans"
	signalMetrics = "metrics"
)

// collector is where spans and metrics go. It tells when that stops to work and when it works again, however many exports
// fail in between.
type collector struct {
	where   string // endpoint, or the name of the exporter
	remedy  string
	log     *slog.Logger
	dropped func() int64 // spans

	mu      sync.Mutex
	failing map[string]bool // by signal
}

// settle notes how an export went.
func (c *collector) settle(signal string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.failing)
	if err != nil {
		c.failing[signal] = true
	} else {
		delete(c.failing, signal)
	}
	switch {
	case before == 0 && err != nil:
		c.log.Warn("telemetry cannot be exported; it is tried again, and spans are dropped until then", slog.String("endpoint", c.where),
			slog.String("signal", signal), slog.String("error", err.Error()), slog.String("remedy", c.remedy))
	case before > 0 && len(c.failing) == 0:
		c.log.Info("telemetry is exported again", slog.String("endpoint", c.where), slog.Int64("dropped_spans", c.dropped()))
	}
}

// reportedMetrics is an exporter of metrics whose failures are told by its collector, and by nobody else.
type reportedMetrics struct {
	sdkmetric.Exporter
	to *collector
}

// Export implements sdkmetric.Exporter.
func (r reportedMetrics) Export(ctx context.Context, m *metricdata.ResourceMetrics) error {
	if err := r.Exporter.Export(ctx, m); err == nil || !errors.Is(ctx.Err(), context.Canceled) {
		r.to.settle(signalMetrics, err)
	}
	return nil
}
