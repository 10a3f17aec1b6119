package grpcx

import (
	"context"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/stats"
)

// Scope is the name of this package's meter.
const Scope = "github.com/tandemlog/tandem/pkg/grpcx"

// Providers are where spans and metrics go; a nil one goes nowhere. Trace context is passed on as the W3C says, without
// both not at all: calls are then spared the cost.
type Providers struct {
	TracerProvider trace.TracerProvider
	MeterProvider  metric.MeterProvider
}

// off reports whether nobody wants spans or metrics.
func (p Providers) off() bool { return p.TracerProvider == nil && p.MeterProvider == nil }

func (p Providers) orDefault() Providers {
	if p.TracerProvider == nil {
		p.TracerProvider = tracenoop.NewTracerProvider()
	}
	if p.MeterProvider == nil {
		p.MeterProvider = metricnoop.NewMeterProvider()
	}
	return p
}

func (p Providers) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(p.TracerProvider),
		otelgrpc.WithMeterProvider(p.MeterProvider),
		otelgrpc.WithPropagators(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})),
		otelgrpc.WithFilter(filters.None(filters.HealthCheck(), filters.ServicePrefix("grpc.reflection"))),
	}
}

func (p Providers) serverHandler() stats.Handler {
	return otelgrpc.NewServerHandler(p.orDefault().options()...)
}

func (p Providers) clientHandler() stats.Handler {
	return otelgrpc.NewClientHandler(p.orDefault().options()...)
}

// instruments are the metrics of this package:
//
//	grpcx.panics               {panic}      rpc.method
//	grpcx.calls.cut            {call}       calls that were still open when their server stopped
//	grpcx.handshake.failures   {handshake}  TLS handshakes that a server could not finish, and callers of a plain port that speak no gRPC
//	grpcx.tls.reload.failures  {reload}     changed TLS files that could not be used
type instruments struct {
	panics     metric.Int64Counter
	cut        metric.Int64Counter
	handshakes metric.Int64Counter
	reloads    metric.Int64Counter

	log   *slog.Logger
	mu    sync.Mutex
	since time.Time // begin of the minute of told
	told  []string  // kinds of failed handshakes, a bounded number
}

func newInstruments(mp metric.MeterProvider, log *slog.Logger) (*instruments, error) {
	m := mp.Meter(Scope)
	in := &instruments{log: log}
	for _, c := range []struct {
		to                *metric.Int64Counter
		name, unit, about string
	}{
		{&in.panics, "grpcx.panics", "{panic}", "Panics of handlers that were turned into INTERNAL"},
		{&in.cut, "grpcx.calls.cut", "{call}", "Calls that were still open when their server stopped"},
		{&in.handshakes, "grpcx.handshake.failures", "{handshake}", "TLS handshakes that a server could not finish, and callers of a plain port that speak no gRPC"},
		{&in.reloads, "grpcx.tls.reload.failures", "{reload}", "Changed TLS files that could not be used"},
	} {
		var err error
		if *c.to, err = m.Int64Counter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.about)); err != nil {
			return nil, err
		}
	}
	return in, nil
}

func (in *instruments) panicked(ctx context.Context, method string) {
	in.panics.Add(ctx, 1, metric.WithAttributes(attribute.String("rpc.method", method)))
}

func (in *instruments) tlsReloadFailed() { in.reloads.Add(context.Background(), 1) }

var numbers = regexp.MustCompile("[0-9]+")

// handshakeFailed counts each failure and reports one of a kind, that is of a text but for its numbers, a minute: port
// scanners come by often, and shall not hide a node that is locked out.
func (in *instruments) handshakeFailed(raw net.Conn, err error) {
	in.handshakes.Add(context.Background(), 1)
	const maxKinds = 8
	kind := numbers.ReplaceAllString(err.Error(), "")
	in.mu.Lock()
	if time.Since(in.since) >= time.Minute {
		in.since, in.told = time.Now(), nil
	}
	tell := len(in.told) < maxKinds && !slices.Contains(in.told, kind)
	if tell {
		in.told = append(in.told, kind)
	}
	in.mu.Unlock()
	if tell {
		in.log.Warn("handshake failed, further ones of this kind within a minute are only counted",
			slog.String("peer", raw.RemoteAddr().String()), slog.String("error", err.Error()))
	}
}
