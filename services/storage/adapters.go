package main

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/telemetry"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue"
	"github.com/tandemlog/tandem/services/storage/internal/damage"
	"github.com/tandemlog/tandem/services/storage/internal/dispatch"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/message"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
	"github.com/tandemlog/tandem/services/storage/internal/role"
	"github.com/tandemlog/tandem/services/storage/internal/rpc"
)

// The types of this file let packages that do not know each other meet: each turns one package's values into another's.

// sink is the log that a slave appends to.
type sink struct {
	*commitlog.Log
	sync bool
}

// Report is what the slave may confirm.
func (s sink) Report() *watermark.Mark {
	if s.sync {
		return s.Flushed()
	}
	return s.Written()
}

// roleLog is the log as role cuts it: the queues are cut along, and the book of damages.
type roleLog struct {
	*commitlog.Log
	dispatch *dispatch.Dispatcher
	damage   *damage.Book
}

func (l roleLog) Rollback(to, epoch, keep int64) error {
	_, err := l.Log.Rollback(to, epoch, keep)
	return err
}

func (l roleLog) RecordStart(offset int64) (int64, error) { return l.dispatch.RecordStart(offset) }

func (l roleLog) Ready() error { return l.dispatch.Ready() }

func (l roleLog) Truncate(to int64) error {
	if err := l.Log.Truncate(to); err != nil {
		return err
	}
	l.damage.Cut(to)
	return l.dispatch.Truncated(to)
}

func (l roleLog) Reset(start int64) error {
	if err := l.Log.Reset(start); err != nil {
		return err
	}
	l.damage.Cut(0)
	return l.dispatch.Reset(start)
}

// links are the links to slaves as role opens and ends them.
type links app

// Prepare builds the queues from all that is readable: a folder that RocketMQ wrote is read through once.
func (l *links) Prepare(ctx context.Context) error {
	return l.dispatch.CatchUp(ctx, l.log.Readable().Load())
}

// Open begins a reign: the queue offsets are read before the first put can come.
func (l *links) Open(ownStart int64) {
	if err := l.store.BeginReign(l.dispatch.Dispatched().Load(), l.log.End()); err != nil {
		l.env.Logger.Error("queue offsets cannot be read, puts are refused", slog.Any("error", err))
	}
	l.master.Open(ownStart)
}

func (l *links) Shut(reason error)                 { l.master.Shut(reason) }
func (l *links) Revoke(nodeID int64, reason error) { l.master.Revoke(nodeID, reason) }
func (l *links) Acked(k int) *watermark.Mark       { return l.master.Acked(k) }
func (l *links) InSync() int                       { return l.master.InSync() }
func (l *links) InSyncChanged() *watermark.Mark    { return l.master.InSyncChanged() }
func (l *links) Grant(g role.Grant) (role.Token, <-chan struct{}, error) {
	return l.master.Grant(replication.Grant{NodeID: g.NodeID, Address: g.Address, Start: g.Start, Frame: g.Frame, Flushes: g.Flushes, Outside: g.Outside})
}

// puller receives the raw stream.
type puller struct{ slave *replication.Slave }

func (p puller) Stream(ctx context.Context, a role.StreamArgs) error {
	err := p.slave.Stream(ctx, replication.StreamArgs{Addr: a.Addr, Token: a.Token, Frame: a.Frame, EmptyReport: a.EmptyReport})
	st := p.slave.Status()
	return wrongPort(err, a.Token == nil, st.LastReceive.Before(st.ConnectedAt))
}

// wrongPort gives an error the remedy of an address that is no raw port, where it looks like that: mute says that not a byte
// came before the link ended.
func wrongPort(err error, legacy, mute bool) error {
	e := errdefs.As(err)
	if e == nil {
		return err
	}
	what := ""
	switch e.Reason {
	case link.ErrPeerClosed.Reason:
		if legacy && mute { // so does the remoting port of a broker
			what = "it closed without a word"
		}
	case replication.ErrFrameSize.Reason, replication.ErrFrameOffset.Reason:
		what = speaks(e.Meta["offset"])
	}
	switch {
	case what == "":
		return err
	case legacy:
		return e.WithRemedy("%s: is master.address the raw (HA) port of the broker, its haListenPort, 10912 by default? A Tandem master is followed by "+
			"its gRPC address, without master.legacy", what)
	}
	return e.WithRemedy("%s: is haAdvertise of the upstream its raw (HA) port, 10912 by default?", what)
}

// speaks says what else begins with the bytes that were taken for the offset of a frame; "" where nothing known does.
func speaks(offset string) string {
	n, err := strconv.ParseInt(offset, 10, 64)
	if err != nil {
		return ""
	}
	var b [wire.ReportSize]byte
	wire.PutReport(b[:], n)
	switch {
	case b[3] == 4 && b[4]|b[5]|b[6]|b[7] == 0: // length, type and stream of the SETTINGS that an HTTP/2 server begins with
		return "a gRPC server answers there"
	case wire.Classify(b[:]) == wire.Text:
		return "a server of text, such as HTTP, answers there"
	case b[0] >= 0x14 && b[0] <= 0x17 && b[1] == 3:
		return "a TLS server answers there"
	}
	return ""
}

// peerCalls are the calls to peers.
type peerCalls struct{ *rpc.Peers }

func (p peerCalls) Follow(ctx context.Context, addr string, r epoch.FollowRequest) (role.FollowStream, error) {
	s, err := p.Peers.Follow(ctx, addr, r)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// flusher flushes log and queues.
type flusher struct {
	log    *commitlog.Log
	queues *consumequeue.Set
}

func (f flusher) FlushNow(ctx context.Context) (int64, error) {
	n, err := f.log.FlushNow(ctx)
	return n, errors.Join(err, f.queues.Flush())
}

// traceAge is how long after its put a message's append on a slave belongs to the put's trace: what a slave catches up with
// later is of interest to nobody who looks at the trace, and there may be millions of it.
const traceAge = time.Minute

// observer looks at each record as it is dispatched; nil where nobody collects traces.
func (a *app) observer() func(int64, *message.View) {
	if a.cfg.Telemetry.Exporter == telemetry.None {
		return nil
	}
	return a.joinTrace
}

// joinTrace adds a slave's append to the trace of the put, which came along in the message's properties. What was in the
// log before this process is no append of its own.
func (a *app) joinTrace(offset int64, v *message.View) {
	if offset < a.recovery.End || time.Since(time.UnixMilli(v.StoreTimestamp)) > traceAge {
		return
	}
	parent, ok := v.Property(message.PropertyTraceParent)
	if !ok || a.role.CheckOpen() == nil {
		return
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{message.PropertyTraceParent: string(parent)})
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	_, span := a.tracer().Start(ctx, "slave append", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.Int64("offset", offset), attribute.String("topic", string(v.Topic)), attribute.Int64("node_id", a.cfg.BrokerID),
	))
	span.End()
}
