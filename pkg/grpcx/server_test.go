package grpcx_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// logBuffer is a log that may be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// sums returns the values of the counters that a reader knows, summed over attributes, and the number of series.
func sums(t *testing.T, r *metric.ManualReader) (map[string]int64, int) {
	t.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	out, series := make(map[string]int64), 0
	for _, scope := range rm.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					out[m.Name] += p.Value
					series++
				}
			case metricdata.Histogram[float64]:
				series += len(data.DataPoints)
				for _, p := range data.DataPoints {
					out[m.Name] += int64(p.Count) //nolint:gosec // small
				}
			}
		}
	}
	return out, series
}

func TestPanicBecomesInternal(t *testing.T) {
	reader := metric.NewManualReader()
	var log logBuffer
	f := start(t, grpcx.ServerOptions{
		Log: log.logger(), Providers: grpcx.Providers{MeterProvider: metric.NewMeterProvider(metric.WithReader(reader))},
	}, &service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) { panic("at the disco") }}, nil)
	client, _ := f.dial(t, grpcx.ClientOptions{})
	_, err := client.UnaryCall(t.Context(), &pb.SimpleRequest{})
	if errdefs.ClassOf(err) != errdefs.Internal || errdefs.ReasonOf(err) != "PANIC" || strings.Contains(err.Error(), "disco") {
		t.Errorf("got %v", err)
	}
	if got := log.String(); !strings.Contains(got, "at the disco") || !strings.Contains(got, "server_test.go") ||
		strings.Count(got, "level=ERROR") != 1 {
		t.Errorf("log: %s", got)
	}
	if got, _ := sums(t, reader); got["grpcx.panics"] != 1 {
		t.Errorf("counted %v", got)
	}
}

func TestDefaultDeadlines(t *testing.T) {
	left := make(chan time.Duration, 1)
	f := start(t, grpcx.ServerOptions{},
		&service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			at, _ := ctx.Deadline()
			left <- time.Until(at)
			return &pb.SimpleResponse{}, nil
		}}, nil)
	for _, tc := range []struct {
		client, caller, atLeast, atMost time.Duration
	}{
		{-1, 0, 5 * time.Second, 10 * time.Second},                        // the server's
		{30 * time.Second, 0, 20 * time.Second, 30 * time.Second},         // the client's
		{30 * time.Second, 2 * time.Minute, time.Minute, 2 * time.Minute}, // the caller's, longer than either
	} {
		client, _ := f.dial(t, grpcx.ClientOptions{Timeout: tc.client})
		ctx := t.Context()
		if tc.caller > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, tc.caller)
			defer cancel()
		}
		if _, err := client.UnaryCall(ctx, &pb.SimpleRequest{}); err != nil {
			t.Fatal(err)
		}
		if got := <-left; got < tc.atLeast || got > tc.atMost {
			t.Errorf("%+v: the handler had %v", tc, got)
		}
	}
}

func TestHealthFollowsTheServer(t *testing.T) {
	f := start(t, grpcx.ServerOptions{}, &service{}, listen(t))
	addr := f.ln.Addr().String()
	ctx := t.Context()
	if err := grpcx.CheckLocal(ctx, addr, grpcx.TLS{}); err != nil {
		t.Errorf("local: %v", err)
	}
	_, conn := f.dial(t, grpcx.ClientOptions{})
	watch, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{Service: "grpc.testing.TestService"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := watch.Recv(); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("watch: %v %v", r, err)
	}
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = watch.Recv(); err != nil {
			break
		}
	}
	if !errors.Is(err, grpcx.ErrDraining) {
		t.Errorf("watch ended with %v", err)
	}
	if err := grpcx.CheckLocal(ctx, addr, grpcx.TLS{}); errdefs.ReasonOf(err) != grpcx.ReasonUnreachable || !strings.Contains(err.Error(), addr) {
		t.Errorf("after the end: %v", err)
	}
}

func TestReflectionListsServices(t *testing.T) {
	f := start(t, grpcx.ServerOptions{}, &service{}, nil)
	_, conn := f.dial(t, grpcx.ClientOptions{})
	ss, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := ss.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
	r, err := ss.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range r.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	if !slices.Contains(names, "grpc.testing.TestService") || !slices.Contains(names, "grpc.health.v1.Health") {
		t.Errorf("got %v", names)
	}
}

// W02: both directions, and both ends' own limit.
func TestMessageLimits(t *testing.T) {
	const limit = 8 << 20
	answer := 0
	f := start(t, grpcx.ServerOptions{MaxMessage: limit},
		&service{unary: func(context.Context, *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			return &pb.SimpleResponse{Payload: &pb.Payload{Body: make([]byte, answer)}}, nil
		}}, nil)
	client, _ := f.dial(t, grpcx.ClientOptions{MaxMessage: limit})
	answer = 6 << 20
	if _, err := client.UnaryCall(t.Context(), payload(6<<20)); err != nil {
		t.Errorf("6 MiB each way: %v", err)
	}
	tooLarge := func(what string, err error) {
		t.Helper()
		if errdefs.ReasonOf(err) != grpcx.ReasonMessageTooLarge || errdefs.As(err).Remedy == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := client.UnaryCall(t.Context(), payload(limit))
	tooLarge("sent", err)
	answer = limit
	_, err = client.UnaryCall(t.Context(), payload(1))
	tooLarge("answered", err)
	small, _ := f.dial(t, grpcx.ClientOptions{})
	answer = grpcx.DefaultMaxMessage
	_, err = small.UnaryCall(t.Context(), payload(1))
	tooLarge("received", err)
	answer = 4<<20 + 40<<10
	if _, err = small.UnaryCall(t.Context(), payload(4<<20+40<<10)); err != nil {
		t.Errorf("a body of 4 MiB with properties: %v", err)
	}
}

func TestLogsOnlyWhatMatters(t *testing.T) {
	var log logBuffer
	var fail error
	var wait time.Duration
	f := start(t, grpcx.ServerOptions{Log: log.logger(), SlowCall: 50 * time.Millisecond},
		&service{unary: func(ctx context.Context, _ *pb.SimpleRequest) (*pb.SimpleResponse, error) {
			<-time.After(wait)
			return &pb.SimpleResponse{}, fail
		}}, nil)
	client, _ := f.dial(t, grpcx.ClientOptions{})
	call := func() { _, _ = client.UnaryCall(t.Context(), &pb.SimpleRequest{}) }
	call()
	if got := log.String(); got != "" {
		t.Errorf("a good call is logged: %s", got)
	}
	wait = 60 * time.Millisecond
	call()
	if got := log.String(); !strings.Contains(got, `level=INFO msg="slow call"`) || !strings.Contains(got, "UnaryCall") {
		t.Errorf("slow call: %s", got)
	}
	wait, fail = 0, errors.New("disk on fire")
	for range 1000 {
		call()
	}
	got := log.String()
	if !strings.Contains(got, `level=ERROR msg="call failed"`) || !strings.Contains(got, "disk on fire") {
		t.Errorf("failed call: %.300s", got)
	}
	if n := strings.Count(got, "\n"); n > 200 {
		t.Errorf("1,000 failures made %d lines", n)
	}
}

// O04: health checks and reflection make no spans and no series.
func TestHealthAndReflectionAreNotTraced(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	reader := metric.NewManualReader()
	p := grpcx.Providers{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)),
		MeterProvider:  metric.NewMeterProvider(metric.WithReader(reader)),
	}
	f := start(t, grpcx.ServerOptions{Providers: p}, &service{}, nil)
	client, conn := f.dial(t, grpcx.ClientOptions{Providers: p})
	for range 60 {
		if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := spans.Ended(); len(got) != 0 {
		t.Errorf("60 health checks made %d spans", len(got))
	}
	if _, err := client.UnaryCall(t.Context(), payload(1)); err != nil {
		t.Fatal(err)
	}
	if err := f.end(); err != nil {
		t.Fatal(err)
	}
	got := spans.Ended()
	if len(got) != 2 || got[0].SpanContext().TraceID() != got[1].SpanContext().TraceID() {
		t.Errorf("one call made %d spans, want two of one trace", len(got))
	}
	if counts, _ := sums(t, reader); counts["rpc.server.call.duration"] != 1 || counts["rpc.client.call.duration"] != 1 {
		t.Errorf("measured %v", counts)
	}
}
