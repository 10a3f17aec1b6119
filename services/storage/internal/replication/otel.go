package replication

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// badReason says why first bytes or a report were not accepted.
type badReason uint8

const (
	badNone       badReason = iota
	badSilent               // nothing, or not enough, before the interval was over
	badShort                // closed before eight bytes
	badText                 // printable characters
	badTLS                  // a TLS record
	badNegative             // a negative offset
	badBeyond               // beyond what was sent, the first one beyond the log's end
	badBelowFirst           // the log does not begin that early any more
	badToken                // unknown, used or expired
	badStart                // not the start that was granted
	badLegacy               // a plain slave while these are not served
	badNotOpen              // a plain slave while this node is no open master
	badTooMany              // no place left
	badCrowded              // pushed out by later connections that had not spoken either
	badStopping             // this node is stopping
	badWentBack             // below the report before; counted, but taken
	numBadReasons
)

var badNames = [numBadReasons]string{
	"none", "silent", "short", "text", "tls", "negative", "beyond", "below_first", "token", "start", "legacy_refused",
	"not_open", "too_many", "crowded_out", "stopping", "went_back",
}

// masterCounters are those of the Master. The metrics read them, so counting costs one atomic addition.
type masterCounters struct {
	link.Counters
	badFirst, badReport [numBadReasons]atomic.Int64
}

// instruments reads counters when somebody collects. Every name, unit and attribute of this package is in this file.
type instruments struct {
	meter metric.Meter
	log   *slog.Logger
}

func newInstruments(meter metric.Meter, log *slog.Logger) instruments {
	if meter == nil {
		meter = noop.NewMeterProvider().Meter("")
	}
	return instruments{meter: meter, log: log}
}

func (i instruments) failed(err error) {
	if err != nil {
		i.log.Error("metric not registered", "error", err)
	}
}

func (i instruments) counter(name, unit, text string, f metric.Int64Callback) {
	_, err := i.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithInt64Callback(f))
	i.failed(err)
}

func (i instruments) gauge(name, unit, text string, f metric.Int64Callback) {
	_, err := i.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(text), metric.WithInt64Callback(f))
	i.failed(err)
}

// traffic registers what both ends count; side is "master" or "slave".
func (i instruments) traffic(side string, c *link.Counters) {
	for _, x := range []struct {
		name, unit, text string
		n                *atomic.Int64
	}{
		{"bytes", "By", "Bytes of the log that went over replication links.", &c.Bytes},
		{"frames", "{frame}", "Frames with a body.", &c.Frames},
		{"heartbeats", "{frame}", "Frames without a body.", &c.Heartbeats},
		{"reports", "{report}", "Reports of slaves.", &c.Reports},
	} {
		i.counter("storage.replication."+side+"."+x.name, x.unit, x.text, func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(x.n.Load())
			return nil
		})
	}
}

func (m *Master) registerMetrics(meter metric.Meter) {
	i := newInstruments(meter, m.log)
	i.traffic("master", &m.count.Counters)
	i.counter("storage.replication.master.bad_firsts", "{connection}", "Connections whose first bytes were not accepted, by reason.",
		observeBad(&m.count.badFirst))
	i.counter("storage.replication.master.bad_reports", "{report}", "Reports of sessions that were not accepted, by reason.",
		observeBad(&m.count.badReport))
	i.gauge("storage.replication.master.sessions", "{session}", "Slaves that are connected.",
		func(_ context.Context, o metric.Int64Observer) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			o.Observe(int64(len(m.sessions)))
			return nil
		})
	i.gauge("storage.replication.master.in_sync", "{slave}", "Slaves that are in sync.",
		func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(int64(m.InSync()))
			return nil
		})
	i.gauge("storage.replication.master.lag", "By", "How far a slave is behind; plain RocketMQ slaves share node -1, the worst counts.",
		func(_ context.Context, o metric.Int64Observer) error {
			lags := make(map[int64]int64)
			for _, s := range m.Slaves() {
				lags[s.NodeID] = max(lags[s.NodeID], s.LagBytes)
			}
			for node, lag := range lags {
				o.Observe(lag, metric.WithAttributes(attribute.Int64("node", node)))
			}
			return nil
		})
}

func observeBad(by *[numBadReasons]atomic.Int64) metric.Int64Callback {
	return func(_ context.Context, o metric.Int64Observer) error {
		for r := badNone + 1; r < numBadReasons; r++ {
			if n := by[r].Load(); n > 0 {
				o.Observe(n, metric.WithAttributes(attribute.String("reason", badNames[r])))
			}
		}
		return nil
	}
}

func (s *Slave) registerMetrics(meter metric.Meter) {
	i := newInstruments(meter, s.log)
	i.traffic("slave", &s.count)
	i.counter("storage.replication.slave.connects", "{link}", "Links to the upstream that came about.",
		func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(s.connects.Load())
			return nil
		})
	i.counter("storage.replication.slave.link_ends", "{link}", "Ends of links to the upstream, by reason.",
		func(_ context.Context, o metric.Int64Observer) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			for reason, n := range s.ends {
				o.Observe(n, metric.WithAttributes(attribute.String("reason", reason)))
			}
			return nil
		})
}
