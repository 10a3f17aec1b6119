package topics

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Results of an answer of the configsync.
const (
	resultUnchanged = "unchanged"
	resultDelta     = "delta"
	resultFull      = "full"
)

// The instruments of this package:
//
//	storage.topics.known       {topic}      topics in the view
//	storage.topics.current     {view}       1 while the view follows the table, else 0
//	storage.topics.transfers   {transfer}   answers of the configsync that were taken, by result: unchanged, delta, full
//	storage.topics.breaks      {break}      ends of the watch stream and answers that were not taken, by reason
//	storage.topics.created     {topic}      topics that puts have created
//	storage.topics.refused     {request}    puts and gets that the table refuses, by reason
type metrics struct {
	transfers, breaks, creations, refusals metric.Int64Counter
}

func newMetrics(m metric.Meter, v *View) (*metrics, error) {
	if m == nil {
		m = noop.Meter{}
	}
	out := &metrics{}
	var errs []error
	counter := func(to *metric.Int64Counter, name, unit, text string) {
		var err error
		*to, err = m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
	}
	counter(&out.transfers, "storage.topics.transfers", "{transfer}", "Answers of the configsync that were taken, by result.")
	counter(&out.breaks, "storage.topics.breaks", "{break}", "Ends of the watch stream and answers that were not taken, by reason.")
	counter(&out.creations, "storage.topics.created", "{topic}", "Topics that puts have created.")
	counter(&out.refusals, "storage.topics.refused", "{request}", "Puts and gets that the topic table refuses, by reason.")
	gauge := func(name, unit, text string, of func(State) int64) {
		_, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				o.Observe(of(v.State()))
				return nil
			}))
		errs = append(errs, err)
	}
	gauge("storage.topics.known", "{topic}", "Topics in the view of the topic table.", func(st State) int64 { return int64(st.Topics) })
	gauge("storage.topics.current", "{view}", "1 while the view follows the topic table, else 0.", func(st State) int64 {
		if st.Current {
			return 1
		}
		return 0
	})
	return out, errors.Join(errs...)
}

func (m *metrics) took(ctx context.Context, result string) {
	m.transfers.Add(ctx, 1, metric.WithAttributes(attribute.String("result", result)))
}

func (m *metrics) broke(reason string) {
	m.breaks.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", reason)))
}

func (m *metrics) created(ctx context.Context) { m.creations.Add(ctx, 1) }

// refused counts err and returns it.
func (v *View) refused(err error) error {
	v.metrics.refusals.Add(context.Background(), 1, metric.WithAttributes(attribute.String("reason", errdefs.ReasonOf(err))))
	return err
}
