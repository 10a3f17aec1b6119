package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/telemetry"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// span is a span as the stdout exporter writes it.
type span struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ SpanID string }
	SpanKind    trace.SpanKind
	Attributes  []struct {
		Key   string
		Value struct{ Value any }
	}
	Events   []struct{ Name string }
	Resource []struct {
		Key   string
		Value struct{ Value any }
	}
}

func (s *span) attribute(key string) any {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.Value
		}
	}
	return nil
}

// spanLog is what an exporter writes.
type spanLog struct{ servicetest.Record }

// spans decodes it.
func (r *spanLog) spans(t testing.TB) []span {
	t.Helper()
	var out []span
	for d := json.NewDecoder(strings.NewReader(r.String())); ; {
		var s span
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, s)
	}
}

// traced makes a node export its spans.
func traced(n *node) *spanLog {
	r := &spanLog{}
	n.cfg.Telemetry.Exporter, n.cfg.Telemetry.SpanWriter = telemetry.Stdout, r
	return r
}

// tracedClient is a client that exports its spans.
func tracedClient(t testing.TB, addrs ...string) (*client.Client, *spanLog) {
	t.Helper()
	r := &spanLog{}
	tel, err := telemetry.Open(t.Context(), "client", "test", telemetry.Config{
		Exporter: telemetry.Stdout, SpanWriter: r, SampleRatio: 1, LogWriter: io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), client.Options{Addresses: addrs, TracerProvider: tel.TracerProvider})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), tel.Shutdown(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c, r
}

// TestASyncPutIsOneTrace follows one put from the client through the master to the slave's log.
func TestASyncPutIsOneTrace(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1)
	atMaster, atSlave := traced(g[0]), traced(g[1])
	g[0].start()
	g[1].start()
	g[0].awaitOpen().awaitSlaves(1)
	c, atClient := tracedClient(t, g[0].cfg.Listen)
	res, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), &client.Message{Topic: "TopicTrace", Body: []byte("one")})
	if err != nil || res.GetStatus() != client.StatusOK {
		t.Fatalf("put: %v, %v", res, err)
	}
	g[1].awaitEnd(g[0].end64())

	var put, call, server, wait, appended *span
	find := func(r *spanLog, ok func(*span) bool) *span {
		var found *span
		eventually(t, "the span", func() bool {
			for _, s := range r.spans(t) {
				if ok(&s) {
					found = &s
				}
			}
			return found != nil
		})
		return found
	}
	put = find(atClient, func(s *span) bool { return s.Name == "put TopicTrace" })
	call = find(atClient, func(s *span) bool { return strings.HasSuffix(s.Name, "MessageService/Put") })
	server = find(atMaster, func(s *span) bool { return strings.HasSuffix(s.Name, "MessageService/Put") })
	wait = find(atMaster, func(s *span) bool { return s.Name == "wait for slaves" })
	appended = find(atSlave, func(s *span) bool { return s.Name == "slave append" })
	for name, s := range map[string]*span{"call": call, "server": server, "wait": wait, "slave append": appended} {
		if s.SpanContext.TraceID != put.SpanContext.TraceID {
			t.Errorf("%s is of another trace", name)
		}
	}
	for _, link := range []struct {
		name          string
		child, parent *span
	}{{"client's call", call, put}, {"server span", server, call}, {"wait for slaves", wait, server}, {"slave append", appended, put}} {
		if link.child.Parent.SpanID != link.parent.SpanContext.SpanID {
			t.Errorf("%s is no child of %q", link.name, link.parent.Name)
		}
	}
	if len(server.Events) == 0 || server.Events[0].Name != "appended" {
		t.Errorf("the append is no event of the server's span: %v", server.Events)
	}
	if got := appended.attribute("offset"); got != float64(res.GetOffset()) {
		t.Errorf("the slave appended at %v, the master at %d", got, res.GetOffset())
	}
	for _, s := range atMaster.spans(t) {
		if strings.Contains(s.Name, "grpc.health") || strings.Contains(s.Name, "ServerReflection") {
			t.Errorf("%s is a span", s.Name)
		}
	}
	same(t, g[0], g[1])
}

// TestTracesThatNobodyCollectsCostNothing: neither a slave without an exporter nor one that catches up with what is long past makes
// anything of the trace contexts in the messages.
func TestTracesThatNobodyCollectsCostNothing(t *testing.T) {
	a := &app{cfg: &Config{}, recovery: &commitlog.Recovery{}}
	a.cfg.Telemetry.Exporter = telemetry.None
	if a.observer() != nil {
		t.Error("records are looked at although no traces are collected")
	}
	a.cfg.Telemetry.Exporter = telemetry.OTLP
	props := message.AppendProperty(nil, message.PropertyTraceParent, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	old := &message.View{Properties: props, StoreTimestamp: time.Now().Add(-2 * traceAge).UnixMilli()}
	if n := testing.AllocsPerRun(10, func() { a.observer()(0, old) }); n != 0 {
		t.Errorf("%v allocations for a message of long ago", n)
	}
}
