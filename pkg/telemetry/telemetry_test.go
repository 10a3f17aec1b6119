package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	metricscollector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/telemetry"
)

// lines is a writer that hands on each line.
type lines struct {
	mu  sync.Mutex
	all bytes.Buffer
	c   chan string
}

func newLines() *lines { return &lines{c: make(chan string, 4096)} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	for line := range strings.SplitSeq(strings.TrimSpace(string(p)), "\n") {
		select {
		case l.c <- line:
		default:
		}
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

func open(t *testing.T, c telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	if c.LogWriter == nil {
		c.LogWriter = io.Discard
	}
	tel, err := telemetry.Open(t.Context(), "storage", "v1.2.3", c)
	if err != nil {
		t.Fatal(err)
	}
	return tel
}

func spans(tel *telemetry.Telemetry, n int) {
	tracer := tel.TracerProvider.Tracer("test")
	for range n {
		_, span := tracer.Start(context.Background(), "put")
		span.End()
	}
}

func TestStdoutWritesEachSpanPromptly(t *testing.T) {
	out := newLines()
	tel := open(t, telemetry.Config{Exporter: telemetry.Stdout, SampleRatio: 1, SpanWriter: out, Instance: "node-1"})
	for range 3 {
		began := time.Now()
		spans(tel, 1)
		var span struct {
			Name     string
			Resource []struct {
				Key   string
				Value struct{ Value string }
			}
		}
		if err := json.Unmarshal([]byte(<-out.c), &span); err != nil {
			t.Fatal(err)
		}
		attrs := map[string]string{}
		for _, kv := range span.Resource {
			attrs[kv.Key] = kv.Value.Value
		}
		if span.Name != "put" || attrs["service.name"] != "storage" || attrs["service.version"] != "v1.2.3" ||
			attrs["service.instance.id"] != "node-1" {
			t.Errorf("got %+v", span)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("took %v", took)
		}
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if tel.DroppedSpans() != 0 {
		t.Errorf("dropped %d", tel.DroppedSpans())
	}
}

// O06: the last spans are flushed although the context has ended.
func TestShutdownFlushesWithAnEndedContext(t *testing.T) {
	out := newLines()
	tel := open(t, telemetry.Config{Exporter: telemetry.Stdout, SampleRatio: 1, SpanWriter: out})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tel.Run(ctx) }()
	spans(tel, 100)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := strings.Count(out.String(), `"Name":"put"`); n != 100 {
		t.Errorf("%d of 100 spans arrived", n)
	}
}

// traces is a collector whose answer is set per test.
type traces struct {
	collector.UnimplementedTraceServiceServer
	answer func(context.Context) error
}

func (s *traces) Export(ctx context.Context, _ *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// allMetrics is a collector of metrics that takes all of them.
type allMetrics struct {
	metricscollector.UnimplementedMetricsServiceServer
}

func (allMetrics) Export(context.Context, *metricscollector.ExportMetricsServiceRequest) (*metricscollector.ExportMetricsServiceResponse, error) {
	return &metricscollector.ExportMetricsServiceResponse{}, nil
}

func serveCollector(t *testing.T, answer func(context.Context) error) string {
	t.Helper()
	return serveCollectorAt(t, "127.0.0.1:0", answer)
}

func serveCollectorAt(t *testing.T, addr string, answer func(context.Context) error) string {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	metricscollector.RegisterMetricsServiceServer(s, allMetrics{})
	collector.RegisterTraceServiceServer(s, &traces{answer: answer})
	served := make(chan error, 1)
	go func() { served <- s.Serve(ln) }()
	t.Cleanup(func() { s.Stop(); <-served })
	return ln.Addr().String()
}

// T25.1 (O06, O08): a collector that is absent, refuses, never answers, or accepts and says nothing costs the data path nothing,
// the end comes within its budget, and every span that is lost is counted.
func TestT25_BadCollectorsDoNoHarm(t *testing.T) {
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	const n = 10_000
	for name, tc := range map[string]struct {
		endpoint string
		all      bool // every span must be lost
	}{
		"absent":  {closed.Addr().String(), true},
		"mute":    {mute.Addr().String(), true}, // the backlog accepts, nobody reads
		"refuses": {serveCollector(t, func(context.Context) error { return status.Error(codes.PermissionDenied, "no") }), true},
		"hangs":   {serveCollector(t, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), true},
		"good":    {serveCollector(t, func(context.Context) error { return nil }), false},
	} {
		t.Run(name, func(t *testing.T) {
			log := newLines()
			tel := open(t, telemetry.Config{
				Exporter: telemetry.OTLP, Endpoint: tc.endpoint, SampleRatio: 1, LogWriter: log, ShutdownTimeout: 500 * time.Millisecond,
			})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- tel.Run(ctx) }()
			began := time.Now()
			if !tc.all {
				spans(tel, 1000) // fits the queue
			} else {
				spans(tel, n)
			}
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("making spans took %v", took)
			}
			began = time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > 1500*time.Millisecond {
				t.Errorf("the end took %v", took)
			}
			want := int64(0)
			if tc.all {
				want = n
			}
			if got := tel.DroppedSpans(); got != want {
				t.Errorf("counted %d lost spans, want %d", got, want)
			}
			if c := strings.Count(log.String(), "\n"); c > 10 {
				t.Errorf("wrote %d lines:\n%.2000s", c, log)
			}
		})
	}
}

// An absent collector is told once, soon after the start and without a span, and so is that it has come.
func TestAnAbsentCollectorIsToldOnce(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := closed.Addr().String()
	_ = closed.Close()
	log := newLines()
	tel := open(t, telemetry.Config{Exporter: telemetry.OTLP, Endpoint: addr, SampleRatio: 1, LogWriter: log})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tel.Run(ctx) }()
	if line := <-log.c; !strings.Contains(line, "level=WARN") || !strings.Contains(line, addr) || !strings.Contains(line, "telemetry.endpoint") {
		t.Errorf("told: %s", line)
	}
	meters, ok := tel.MeterProvider.(interface {
		ForceFlush(ctx context.Context) error
	})
	if !ok {
		t.Fatal("no way to flush")
	}
	for range 5 {
		if err := meters.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("told in %d lines:\n%s", n, log)
	}

	serveCollectorAt(t, addr, func(context.Context) error { return nil })
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(30 * time.Second); !strings.Contains(log.String(), "exported again") && time.Now().Before(deadline); <-tick.C {
		_ = meters.ForceFlush(t.Context())
	}
	for range 5 {
		_ = meters.ForceFlush(t.Context())
	}
	if got := log.String(); strings.Count(got, "exported again") != 1 || strings.Count(got, "\n") != 2 {
		t.Errorf("told:\n%s", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestSamplingFollowsTheRatioAndTheCaller(t *testing.T) {
	out := newLines()
	tel := open(t, telemetry.Config{Exporter: telemetry.Stdout, SampleRatio: 0, SpanWriter: out})
	spans(tel, 10)
	carrier := propagation.MapCarrier{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier)
	_, span := tel.TracerProvider.Tracer("test").Start(ctx, "joined")
	span.End()
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	got := out.String()
	if strings.Contains(got, `"Name":"put"`) || !strings.Contains(got, "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("got %s", got)
	}
}

func TestDebugListener(t *testing.T) {
	tel := open(t, telemetry.Config{DebugListen: "127.0.0.1:0", Exporter: telemetry.Stdout, SpanWriter: io.Discard})
	counter, err := tel.MeterProvider.Meter("test").Int64Counter("storage.put.count")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 7)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- tel.Run(ctx) }()
	get := func(path string) (int, string) {
		t.Helper()
		resp, err := http.Get("http://" + tel.DebugAddr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	code, body := get("/metrics")
	for _, want := range []string{
		"storage_put_count_total 7", "go_goroutines", "process_open_fds",
		`telemetry_spans_dropped_total{reason="queue_full"} 0`, `service_name="storage"`,
	} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/metrics: %d, no %q", code, want)
		}
	}
	if code, _ := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d", code)
	}
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || body != "starting\n" {
		t.Errorf("/readyz at start: %d %q", code, body)
	}
	tel.SetReady(func(context.Context) error { return nil })
	if code, _ := get("/readyz"); code != http.StatusOK {
		t.Errorf("/readyz: %d", code)
	}
	tel.SetReady(func(context.Context) error { return errors.New("recovering") })
	if code, body := get("/readyz"); code != http.StatusServiceUnavailable || body != "recovering\n" {
		t.Errorf("/readyz when not ready: %d %q", code, body)
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		if code, _ := get(path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	if code, _ := get("/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d", code)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("tcp", tel.DebugAddr().String()); err == nil {
		t.Error("the debug listener still listens")
	}
}

func TestDebugPortTaken(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	_, err = telemetry.Open(t.Context(), "storage", "", telemetry.Config{DebugListen: ln.Addr().String(), LogWriter: io.Discard})
	if e := errdefs.As(err); e == nil || e.Field != "telemetry.debugListen" || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestLogFormats(t *testing.T) {
	out := newLines()
	tel := open(t, telemetry.Config{
		LogFormat: telemetry.JSON, LogLevel: telemetry.Warn, LogWriter: out, Exporter: telemetry.Stdout, SampleRatio: 1, SpanWriter: io.Discard,
	})
	ctx, span := tel.TracerProvider.Tracer("test").Start(t.Context(), "x")
	tel.Logger.InfoContext(ctx, "not shown")
	tel.Logger.With("component", "c").WarnContext(ctx, "shown")
	span.End()
	var record map[string]any
	if err := json.Unmarshal([]byte(out.String()), &record); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if record["msg"] != "shown" || record["component"] != "c" || record["trace_id"] != span.SpanContext().TraceID().String() {
		t.Errorf("got %v", record)
	}
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, c := range map[string]telemetry.Config{
		"telemetry.exporter":        {Exporter: "jaeger"},
		"telemetry.endpoint":        {Exporter: telemetry.OTLP},
		"telemetry.logLevel":        {LogLevel: "loud"},
		"telemetry.logFormat":       {LogFormat: "xml"},
		"telemetry.sampleRatio":     {SampleRatio: 2},
		"telemetry.debugListen":     {DebugListen: "here"},
		"telemetry.shutdownTimeout": {ShutdownTimeout: -1},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
		if e := errdefs.As(c.Validate()); e == nil || e.Field != field {
			t.Errorf("%s: got %v", field, e)
		}
	}
	for _, endpoint := range []string{"collector", "ftp://collector:4317", "http://:x", "a b:4317"} {
		c := telemetry.Config{Exporter: telemetry.OTLP, Endpoint: endpoint}
		if e := errdefs.As(c.Validate()); e == nil || e.Field != "telemetry.endpoint" || !strings.Contains(e.Msg, endpoint) {
			t.Errorf("%s: got %v", endpoint, e)
		}
	}
	for _, endpoint := range []string{"collector:4317", "http://[::1]:4317", "https://collector:4317"} {
		if err := (&telemetry.Config{Exporter: telemetry.OTLP, Endpoint: endpoint}).Validate(); err != nil {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if err := (&telemetry.Config{LogLevel: "loud"}).Validate(); err == nil || err.Error() != `telemetry.logLevel: "loud" is not one of info, debug, warn, error` {
		t.Errorf("got %v", err)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
	if err := (&telemetry.Config{Exporter: telemetry.OTLP}).Validate(); err != nil {
		t.Errorf("named by the environment: %v", err)
	}
	if err := (&telemetry.Config{}).Validate(); err != nil {
		t.Errorf("the zero value: %v", err)
	}
}
