package role

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Instruments: storage.role.changes ({change}, by role), storage.follow.answers ({answer}, by action and reason),
// storage.role.epoch ({epoch}), storage.role.open ({master}).
type instruments struct {
	changes metric.Int64Counter
	answers metric.Int64Counter
}

func newInstruments(meter metric.Meter, m *Manager) (i instruments, err error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("role")
	}
	if i.changes, err = meter.Int64Counter("storage.role.changes", metric.WithUnit("{change}"),
		metric.WithDescription("Openings and step-downs, by the role that came of it.")); err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	if i.answers, err = meter.Int64Counter("storage.follow.answers", metric.WithUnit("{answer}"),
		metric.WithDescription("First answers to slaves that want to follow, by action and reason.")); err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	number, err := meter.Int64ObservableGauge("storage.role.epoch", metric.WithUnit("{epoch}"),
		metric.WithDescription("The last epoch of this node's log."))
	if err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	open, err := meter.Int64ObservableGauge("storage.role.open", metric.WithUnit("{master}"),
		metric.WithDescription("1 on an open master, else 0."))
	if err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := m.State()
		o.ObserveInt64(number, s.Lineage.Epochs.Last().Epoch)
		v := int64(0)
		if s.Open {
			v = 1
		}
		o.ObserveInt64(open, v)
		return nil
	}, number, open)
	return i, err //nolint:wrapcheck // names the instrument
}

func (i instruments) changed(r epoch.Role) {
	i.changes.Add(context.Background(), 1, metric.WithAttributes(attribute.String("role", r.String())))
}

func (i instruments) answered(a epoch.FollowAnswer) {
	i.answers.Add(context.Background(), 1, metric.WithAttributes(
		attribute.String("action", a.Action.String()), attribute.String("reason", a.Reason)))
}
