package register

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instrument registers what States tells, read when somebody collects:
//
//	tandem.configsync.nameserver.registered       1 or 0, by name server
//	tandem.configsync.nameserver.registrations    by name server and result
func (r *Registrar) instrument(meter metric.Meter) {
	if meter == nil {
		return
	}
	failed := func(err error) {
		if err != nil {
			r.o.Log.Error("metric not registered", slog.Any("error", err))
		}
	}
	server := func(st State) attribute.KeyValue { return attribute.String("name_server", st.NameServer) }
	_, err := meter.Int64ObservableGauge("tandem.configsync.nameserver.registered",
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, st := range r.States() {
				var n int64
				if st.Registered {
					n = 1
				}
				o.Observe(n, metric.WithAttributes(server(st)))
			}
			return nil
		}))
	failed(err)
	_, err = meter.Int64ObservableCounter("tandem.configsync.nameserver.registrations",
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, st := range r.States() {
				o.Observe(st.Registrations, metric.WithAttributes(server(st), attribute.String("result", "done")))
				o.Observe(st.Failures, metric.WithAttributes(server(st), attribute.String("result", "failed")))
			}
			return nil
		}))
	failed(err)
}
