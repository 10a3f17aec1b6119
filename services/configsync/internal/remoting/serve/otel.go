package serve

import (
	"context"
	"fmt"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting/frame"
)

// reasonTooMany is why a connection was not taken.
const reasonTooMany = "TOO_MANY"

// The instruments of this package:
//
//	tandem.configsync.remoting.requests       frames, by request code (those that are answered, else "other")
//	tandem.configsync.remoting.answers        answers, by request code and answer code
//	tandem.configsync.remoting.closed         connections that were closed, by reason
//	tandem.configsync.remoting.connections    now
type metrics struct {
	requests, answers, closes metric.Int64Counter
}

func newMetrics(m metric.Meter, s *Server) (*metrics, error) {
	if m == nil {
		m = noop.NewMeterProvider().Meter("")
	}
	out := &metrics{}
	var err error
	for name, into := range map[string]*metric.Int64Counter{"requests": &out.requests, "answers": &out.answers, "closed": &out.closes} {
		if *into, err = m.Int64Counter("tandem.configsync.remoting." + name); err != nil {
			return nil, fmt.Errorf("make instruments: %w", err)
		}
	}
	_, err = m.Int64ObservableGauge("tandem.configsync.remoting.connections",
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(s.Connections()))
			return nil
		}))
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	return out, nil
}

// codeOf is a request code as an attribute, of which there are few.
func codeOf(c *frame.Command) attribute.KeyValue {
	name := "other"
	if _, ok := kindOf(c.Code); ok || c.Code == remoting.GetAllMessageRequestMode || c.Code == remoting.ExchangeBrokerHAInfo {
		name = strconv.Itoa(int(c.Code))
	}
	if c.Response() {
		name = "response"
	}
	return attribute.String("code", name)
}

func (m *metrics) asked(req *frame.Command) {
	m.requests.Add(context.Background(), 1, metric.WithAttributes(codeOf(req)))
}

func (m *metrics) answered(req, resp *frame.Command) {
	m.answers.Add(context.Background(), 1, metric.WithAttributes(codeOf(req), attribute.Int("result", int(resp.Code))))
}

func (m *metrics) closed(reason string) {
	m.closes.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}
