package role

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Instruments: storage.role.changes ({change}, role) counts openings and step-downs; storage.follow.answers ({answer}, action,
// reason) the first answers to Follow; storage.role.epoch ({epoch}) is the last epoch of the list; storage.role.open is 1 on
// an open master.
type instruments struct {
	changes metric.Int64Counter
	answers metric.Int64Counter
}

func newInstruments(meter metric.Meter, m *Manager) (i instruments, err error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("role")
	}
	if i.changes, err = meter.Int64Counter("storage.role.changes", metric.WithUnit("{change}")); err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	if i.answers, err = meter.Int64Counter("storage.follow.answers", metric.WithUnit("{answer}")); err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	number, err := meter.Int64ObservableGauge("storage.role.epoch", metric.WithUnit("{epoch}"))
	if err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	open, err := meter.Int64ObservableGauge("storage.role.open")
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
