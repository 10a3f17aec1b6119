package telemetry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const (
	spanQueue     = 2048
	spanBatch     = 512
	exportTimeout = 5 * time.Second
	batchDelay    = 2 * time.Second
	// promptDelay is the batch delay of the stdout exporter: who reads along waits no longer.
	promptDelay = 50 * time.Millisecond
)

var errShutdownOver = errors.New("the budget of the shutdown is over")

// spanGate bounds and counts what stands before an exporter. It hands the batch processor behind it never more spans than
// that can hold, so every dropped span passes here and is counted.
type spanGate struct {
	sdktrace.SpanProcessor // the batch processor
	export                 sdktrace.SpanExporter
	to                     *collector

	pending                  atomic.Int64
	full, failed, atShutdown atomic.Int64

	closed context.Context //nolint:containedctx // its end is a state of the gate: no export may begin or go on
	close  context.CancelCauseFunc

	mu    sync.Mutex // guards ended
	ended bool       // what is pending was counted as dropped
}

func newSpanGate(export sdktrace.SpanExporter, delay time.Duration, to *collector) *spanGate {
	g := &spanGate{export: export, to: to}
	g.closed, g.close = context.WithCancelCause(context.Background())
	g.SpanProcessor = sdktrace.NewBatchSpanProcessor((*countedExporter)(g),
		sdktrace.WithMaxQueueSize(spanQueue), sdktrace.WithMaxExportBatchSize(spanBatch),
		sdktrace.WithBatchTimeout(delay), sdktrace.WithExportTimeout(exportTimeout))
	return g
}

// OnEnd implements sdktrace.SpanProcessor.
func (g *spanGate) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.pending.Add(1) > spanQueue {
		g.pending.Add(-1)
		g.full.Add(1)
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// Shutdown implements sdktrace.SpanProcessor: what is not out when ctx ends is dropped and counted.
func (g *spanGate) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { g.close(errShutdownOver) })
	defer stop()
	err := g.SpanProcessor.Shutdown(ctx)
	g.end()
	return err
}

// end counts what is still pending as dropped; no export counts from here on.
func (g *spanGate) end() {
	g.close(errShutdownOver)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ended = true
	g.atShutdown.Add(g.pending.Swap(0))
}

func (g *spanGate) dropped() int64 { return g.full.Load() + g.failed.Load() + g.atShutdown.Load() }

// settle counts a batch that left the queue.
func (g *spanGate) settle(n int64, err error) {
	g.mu.Lock()
	ended := g.ended
	if !ended {
		g.pending.Add(-n)
		if err != nil {
			g.failed.Add(n)
		}
	}
	g.mu.Unlock()
	if !ended {
		g.to.settle(signalSpans, err)
	}
}

// countedExporter is the exporter side of a gate.
type countedExporter spanGate

// ExportSpans exports one batch. It returns no error: what happened is counted and reported here.
func (e *countedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	g := (*spanGate)(e)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(g.closed, func() { cancel(errShutdownOver) })()
	g.settle(int64(len(spans)), g.export.ExportSpans(ctx, spans))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *countedExporter) Shutdown(ctx context.Context) error { return e.export.Shutdown(ctx) }
