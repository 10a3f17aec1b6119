package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Scope is the name of this package's meter.
const Scope = "github.com/tandemlog/tandem/pkg/telemetry"

const metricPeriod = 15 * time.Second

// Telemetry is what one process logs, traces and measures with.
type Telemetry struct {
	Logger         *slog.Logger
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider

	budget   time.Duration
	log      *slog.Logger
	to       *collector // nil without exporter
	gate     *spanGate  // as above
	tracers  *sdktrace.TracerProvider
	meters   *sdkmetric.MeterProvider
	registry *prometheus.Registry
	debug    net.Listener // nil without debug listener
	ready    atomic.Pointer[func(context.Context) error]

	once    sync.Once
	stopErr error
}

// Open makes the telemetry of a process. It waits for no collector. The debug listener listens from now on and answers
// when Run runs. It fails when the settings are invalid or the debug address cannot be had.
func Open(ctx context.Context, service, version string, c Config) (*Telemetry, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	t := &Telemetry{
		Logger:   NewLogger(&c),
		budget:   c.ShutdownTimeout,
		registry: prometheus.NewRegistry(),
	}
	if t.budget == 0 {
		t.budget = defaultShutdown
	}
	t.log = t.Logger.With(slog.String("component", "telemetry"))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		t.log.Warn("opentelemetry error", slog.String("error", err.Error()))
	}))
	res := resource.NewSchemaless(
		attribute.String("service.name", service),
		attribute.String("service.version", version),
		attribute.String("service.instance.id", instance(c.Instance)),
	)
	if err := t.openTraces(ctx, &c, res); err != nil {
		return nil, err
	}
	if err := t.openMetrics(ctx, &c, res); err != nil {
		return nil, errors.Join(err, t.Shutdown(ctx))
	}
	if c.DebugListen != "" {
		ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.DebugListen)
		if err != nil {
			return nil, errors.Join(errdefs.New(errdefs.Unavailable, "LISTEN", "cannot listen for metrics and health").
				WithField("telemetry.debugListen").With("address", c.DebugListen).Wrap(err), t.Shutdown(ctx))
		}
		t.debug = ln
	}
	return t, nil
}

// instance is unique enough without a name of its own: in a container the host is the container.
func instance(name string) string {
	if name != "" {
		return name
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getpid())
}

func (t *Telemetry) openTraces(ctx context.Context, c *Config, res *resource.Resource) error {
	var export sdktrace.SpanExporter
	var err error
	delay := batchDelay
	switch c.Exporter {
	case Stdout:
		w := c.SpanWriter
		if w == nil {
			w = os.Stdout
		}
		delay, t.to = promptDelay, t.collector(Stdout, "check where standard output goes")
		export, err = stdouttrace.New(stdouttrace.WithWriter(w))
	case OTLP:
		opts := []otlptracegrpc.Option{otlptracegrpc.WithTimeout(exportTimeout)}
		if c.Endpoint != "" {
			opts = append(opts, otlptracegrpc.WithEndpointURL(endpointURL(c.Endpoint)))
		}
		t.to = t.collector(cmp.Or(c.Endpoint, environmentEndpoint()), "check telemetry.endpoint, and that an OTLP collector listens there for gRPC")
		export, err = otlptracegrpc.New(ctx, opts...)
	default:
		t.TracerProvider = noop.NewTracerProvider()
		return nil
	}
	if err != nil {
		return fmt.Errorf("make span exporter: %w", err)
	}
	t.gate = newSpanGate(export, delay, t.to)
	t.tracers = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SampleRatio))),
		sdktrace.WithSpanProcessor(t.gate),
	)
	t.TracerProvider = t.tracers
	return nil
}

func (t *Telemetry) collector(where, remedy string) *collector {
	return &collector{where: where, remedy: remedy, log: t.log, dropped: t.DroppedSpans, failing: make(map[string]bool)}
}

func (t *Telemetry) openMetrics(ctx context.Context, c *Config, res *resource.Resource) error {
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	prom, err := otelprom.New(otelprom.WithRegisterer(t.registry), otelprom.WithoutScopeInfo())
	if err != nil {
		return fmt.Errorf("make metrics exporter: %w", err)
	}
	opts := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(prom)}
	if c.Exporter == OTLP {
		options := []otlpmetricgrpc.Option{
			otlpmetricgrpc.WithTimeout(exportTimeout), otlpmetricgrpc.WithRetry(otlpmetricgrpc.RetryConfig{}), // the next ones come soon
		}
		if c.Endpoint != "" {
			options = append(options, otlpmetricgrpc.WithEndpointURL(endpointURL(c.Endpoint)))
		}
		export, err := otlpmetricgrpc.New(ctx, options...)
		if err != nil {
			return fmt.Errorf("make metrics exporter: %w", err)
		}
		opts = append(opts, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(reportedMetrics{export, t.to},
			sdkmetric.WithInterval(metricPeriod), sdkmetric.WithTimeout(exportTimeout))))
	}
	t.meters = sdkmetric.NewMeterProvider(opts...)
	t.MeterProvider = t.meters
	return t.countDrops()
}

// countDrops makes telemetry.spans.dropped: {span}, reason queue_full, export_failed or shutdown.
func (t *Telemetry) countDrops() error {
	if t.gate == nil {
		return nil
	}
	_, err := t.meters.Meter(Scope).Int64ObservableCounter("telemetry.spans.dropped", metric.WithUnit("{span}"),
		metric.WithDescription("Spans that did not reach the exporter's end"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(t.gate.full.Load(), metric.WithAttributes(attribute.String("reason", "queue_full")))
			o.Observe(t.gate.failed.Load(), metric.WithAttributes(attribute.String("reason", "export_failed")))
			o.Observe(t.gate.atShutdown.Load(), metric.WithAttributes(attribute.String("reason", "shutdown")))
			return nil
		}))
	if err != nil {
		return fmt.Errorf("make instruments: %w", err)
	}
	return nil
}

// SetReady says how /readyz is answered: nil is ready. Before it is set the process is not ready.
func (t *Telemetry) SetReady(ready func(context.Context) error) { t.ready.Store(&ready) }

// ReadySet reports whether SetReady was called.
func (t *Telemetry) ReadySet() bool { return t.ready.Load() != nil }

// DroppedSpans returns how many spans were dropped so far.
func (t *Telemetry) DroppedSpans() int64 {
	if t.gate == nil {
		return 0
	}
	return t.gate.dropped()
}

// Shutdown flushes spans and metrics and releases everything. It takes the budget of the settings at most, whether ctx
// has ended or not, and does its work once. What could not be flushed is counted and reported, and is no error.
func (t *Telemetry) Shutdown(ctx context.Context) error {
	t.once.Do(func() { t.stopErr = t.shutdown(context.WithoutCancel(ctx)) })
	return t.stopErr
}

func (t *Telemetry) shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.budget)
	defer cancel()
	var flushes []func(context.Context) error
	if t.tracers != nil {
		flushes = append(flushes, t.tracers.Shutdown)
	}
	if t.meters != nil {
		flushes = append(flushes, t.meters.Shutdown)
	}
	done := make(chan error, len(flushes))
	for _, f := range flushes {
		go func() { done <- f(ctx) }()
	}
	// The exporters are not ours: one that ignores its context is left behind.
	var failed []error
	for range flushes {
		select {
		case err := <-done:
			failed = append(failed, err)
		case <-ctx.Done():
			failed = append(failed, ctx.Err())
		}
	}
	if t.gate != nil {
		t.gate.end()
	}
	if err := errors.Join(failed...); err != nil || t.DroppedSpans() > 0 {
		attrs := []slog.Attr{slog.Int64("dropped_spans", t.DroppedSpans())}
		if err != nil {
			attrs = append(attrs, slog.String("error", err.Error()))
		}
		t.log.LogAttrs(ctx, slog.LevelWarn, "telemetry was not flushed completely", attrs...)
	}
	if t.debug != nil {
		if err := t.debug.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("close debug listener: %w", err)
		}
	}
	return nil
}
