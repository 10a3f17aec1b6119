package repair

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Errors.
var (
	// ErrBusy: another scrub or repair runs.
	ErrBusy = errdefs.New(errdefs.Aborted, "ALREADY_CHECKING", "another scrub or repair is under way on this node").
		WithRemedy("wait until it has ended, or end it")
	// ErrDiffers: the source's log is not this one's there.
	ErrDiffers = errdefs.New(errdefs.FailedPrecondition, "HISTORY_DIFFERS", "the source has another history there").
			WithRemedy("name a node that has followed the same master; `tandemctl status` shows the epochs of each")
	// ErrStranger: the source is of another group.
	ErrStranger = errdefs.New(errdefs.FailedPrecondition, epoch.ReasonWrongCluster, "the source belongs to another cluster or broker").
			WithRemedy("name a node of this one's group as the source")
	// ErrLacks: the source does not have the range.
	ErrLacks = errdefs.New(errdefs.OutOfRange, "SOURCE_LACKS", "the source does not have these bytes").
			WithRemedy("name a node that has, or wait until it has caught up")
	// ErrDamaged: the source's bytes are no sound records.
	ErrDamaged = errdefs.New(errdefs.DataLoss, "SOURCE_DAMAGED", "the source's bytes are damaged too").
			WithRemedy("repair the source from a third node, or name that one")
	// ErrChanged: what arrived is not what the source says it has.
	ErrChanged = errdefs.New(errdefs.Aborted, "SOURCE_CHANGED", "what arrived is not what the source has").WithRemedy("run it again")
	// ErrNoRecord: a unit points to no record and the log has none for it.
	ErrNoRecord = errdefs.New(errdefs.DataLoss, "UNIT_WITHOUT_RECORD", "the log has no record for this unit").
			WithRemedy("stop the node, remove the folder of the queue and start it: the queue is built anew from the log")
)

// Source is other storages.
type Source interface {
	// Promise with the zero reign only asks.
	Promise(ctx context.Context, addr string, r epoch.PromiseRequest) (epoch.Heard, error)
	RangeChecksum(ctx context.Context, addr string, from, to, stretch int64) ([]uint32, int64, error)
	// Range returns the bytes [from, to) of the log of addr.
	Range(ctx context.Context, addr string, from, to int64) ([]byte, error)
}

// Log is the log that is repaired.
type Log interface {
	check.Live
	Overwrite(offset int64, data []byte, keep int64) (mend.Done, error)
}

// Queues are what follows from the log.
type Queues interface {
	// Mend writes the units of the records in [from, to) anew where they are not right, durably, and returns how many.
	Mend(from, to int64) (int, error)
}

// Book knows the damages of this node.
type Book interface {
	Found(f check.Finding)
	// Sound: all of [from, to) was read since then, and what is wrong there was Found.
	Sound(from, to int64, since time.Time)
	Repaired(from, to int64)
}

// Options of a Keeper.
type Options struct {
	Self    epoch.PromiseRequest // who asks
	Epochs  func() epoch.List    // of this node
	Keep    int64                // bytes of all that was replaced that may be kept
	Log     *slog.Logger
	Meter   metric.Meter
	Scrubs  *check.Scrubber
	Queues  Queues
	Sources Source
	Book    Book
}

// Keeper scrubs and repairs, one at a time.
type Keeper struct {
	o       Options
	log     Log
	metrics *metrics
	busy    sync.Mutex
}

// New makes a Keeper.
func New(o Options, log Log) (*Keeper, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "repair")
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	m, err := newMetrics(o.Meter)
	if err != nil {
		return nil, err
	}
	return &Keeper{o: o, log: log, metrics: m}, nil
}

// Scrub is check.Scrubber.Run; ErrBusy when another one runs.
func (k *Keeper) Scrub(ctx context.Context, s check.Scrub) (check.Scrubbed, error) {
	if !k.busy.TryLock() {
		return check.Scrubbed{}, ErrBusy
	}
	defer k.busy.Unlock()
	return k.scrub(ctx, s)
}

func (k *Keeper) scrub(ctx context.Context, s check.Scrub) (check.Scrubbed, error) {
	emit, began := s.Emit, time.Now()
	s.Emit = func(f check.Finding) error {
		k.o.Book.Found(f)
		k.o.Log.WarnContext(ctx, "damage found", slog.String("kind", f.Kind.String()), slog.String("place", f.Place()),
			slog.Int64("offset", f.Offset), slog.String("detail", f.Detail))
		return emit(f)
	}
	out, err := k.o.Scrubs.Run(ctx, s)
	if err == nil {
		k.o.Book.Sound(out.From, out.To, began)
		k.o.Log.InfoContext(ctx, "log scrubbed", slog.Int64("from", out.From), slog.Int64("to", out.To),
			slog.Int64("records", out.Records), slog.Int64("damages", out.Damages))
	}
	return out, err
}
