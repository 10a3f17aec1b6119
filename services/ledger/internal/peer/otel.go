package peer

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Instruments: ledger.messages.sent and ledger.messages.received ({message}, type, dropped) count what members say to each other;
// ledger.pushed.entries ({entry}) and ledger.pushed.bytes (By) what APPENDs carried; ledger.peer.up (peer) is 1 while both
// connections to a peer are up.
type instruments struct {
	out, in        metric.Int64Counter
	entries, bytes metric.Int64Counter
	// By type and outcome, made once: these are on the path of every push.
	attributes [256][2]metric.MeasurementOption
}

func newInstruments(meter metric.Meter, t *Transport) (i instruments, err error) {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("peer")
	}
	for n := range i.attributes {
		for k := range i.attributes[n] {
			i.attributes[n][k] = metric.WithAttributeSet(attribute.NewSet(
				attribute.String("type", raft.MessageType(n).String()), attribute.Bool("dropped", k == 1))) //nolint:gosec // below 256
		}
	}
	for _, c := range []struct {
		to         *metric.Int64Counter
		name, unit string
	}{
		{&i.out, "ledger.messages.sent", "{message}"},
		{&i.in, "ledger.messages.received", "{message}"},
		{&i.entries, "ledger.pushed.entries", "{entry}"},
		{&i.bytes, "ledger.pushed.bytes", "By"},
	} {
		if *c.to, err = meter.Int64Counter(c.name, metric.WithUnit(c.unit)); err != nil {
			return i, err //nolint:wrapcheck // names the instrument
		}
	}
	up, err := meter.Int64ObservableGauge("ledger.peer.up")
	if err != nil {
		return i, err //nolint:wrapcheck // names the instrument
	}
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for id := range t.links {
			v := int64(0)
			if t.Status(id).Connected {
				v = 1
			}
			o.ObserveInt64(up, v, metric.WithAttributes(attribute.String("peer", string(id))))
		}
		return nil
	}, up)
	return i, err //nolint:wrapcheck // names the instrument
}

func (i *instruments) of(t raft.MessageType, ok bool) metric.MeasurementOption {
	if ok {
		return i.attributes[t][0]
	}
	return i.attributes[t][1]
}

func (i *instruments) sent(t raft.MessageType, ok bool) {
	i.out.Add(context.Background(), 1, i.of(t, ok))
}

func (i *instruments) received(t raft.MessageType, ok bool) {
	i.in.Add(context.Background(), 1, i.of(t, ok))
}

func (i *instruments) pushed(entries, bytes int64) {
	i.entries.Add(context.Background(), entries)
	i.bytes.Add(context.Background(), bytes)
}
