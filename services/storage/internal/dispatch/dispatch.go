package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

const (
	window      = 1 << 20 // bytes of the log looked at in one go, with the lock held
	maxGathered = 1 << 16 // messages between two commits
	pause       = time.Second
	none        = -1
)

// errCut: the log ends before what was readable a moment ago. Truncated is about to be called.
var errCut = errdefs.New(errdefs.Aborted, "LOG_CUT", "the log was cut while it was read")

// ErrFileSize says that the log was written in files of another size than the master's.
var ErrFileSize = errdefs.New(errdefs.FailedPrecondition, "FILE_SIZE_DIFFERS", "FILE_SIZE_DIFFERS: the master's log files have another size than this log's").
	WithRemedy("set mappedFileSizeCommitLog to the broker's and start again in an empty folder")

// Log is the commit log. View's bytes lie inside one file, end at Written at the latest and are valid until release is
// called, exactly once. The marks are replaced when the log is cut; the old ones are closed with watermark.ErrTruncated
// after that.
type Log interface {
	View(offset int64, limit int) (b []byte, release func(), err error)
	FirstOffset() int64
	FileSize() int64
	// OwnFrom returns the offset from which on this process made all records itself.
	OwnFrom() int64
	Written() *watermark.Mark
	Readable() *watermark.Mark
}

// Units takes the units of messages. An error of class InvalidArgument says that no queue can hold this one; others are
// errors of the disk.
type Units interface {
	// Gather takes a unit, which counts after Commit; it keeps no reference to topic. A result other than -1 is the log
	// offset from which the log must be read again before this message.
	Gather(topic []byte, queueID int32, queueOffset, offset int64, size int32, tagsCode int64) (int64, error)
	// Commit makes what was gathered visible, or forgets it and fails. All messages below dispatched are gathered then;
	// storeTime is that of the last one, ms.
	Commit(dispatched, storeTime int64) error
}

// Queues is what the dispatcher feeds; it is called by one goroutine at a time.
type Queues interface {
	Units
	// Resume returns where to start in a log that reaches from first to end.
	Resume(first, end int64) (int64, error)
	// Settle is called once, when the log has been read up to Readable.
	Settle() error
	// Truncate removes durably what belongs to messages that end behind the log offset, and what is gathered.
	Truncate(offset int64) error
}

// Options are the settings of a Dispatcher.
type Options struct {
	// DelayLevels is the table by which the schedule topic's messages are due; it must be the one of the master.
	DelayLevels message.DelayLevels
	// ForeignFiles says that the log comes from a master that does not tell the size of its files: a filler that does not
	// fill its file, or a sound record that crosses files, shows that it is another, and Run ends with ErrFileSize.
	ForeignFiles bool
	// Observe sees each message that gets a unit, at its log offset, by the goroutine that dispatches; it keeps nothing of
	// the view. May be nil.
	Observe func(offset int64, v *message.View)
	// Bad hears of each bad record that is passed over, and where the next sound one begins. May be nil.
	Bad   func(offset, next int64)
	Log   *slog.Logger // may be nil
	Meter metric.Meter // may be nil
}

// Dispatcher builds the queues. Its methods may be called concurrently, CatchUp while Run runs too.
type Dispatcher struct {
	o       Options
	log     Log
	queues  Queues
	metrics *metrics

	mu        sync.Mutex // held for one window of the log; guards what follows
	begun     bool
	settled   bool
	pos       int64 // log offset of the next record
	done      int64 // everything below is committed
	gathered  int   // messages since the last commit
	storeTime int64 // of the last message, ms
	view      message.View
	bad       badSpot
	places    int64 // damaged places and unfit messages met so far
	reported  int64 // the last log offset about which something was reported
	interrupt func()
	owed      func() error // what the queues owe to a cut of the log

	markMu sync.Mutex
	mark   *watermark.Mark
}

// New makes a Dispatcher. Nothing is read before CatchUp or Run.
func New(o Options, log Log, queues Queues) (*Dispatcher, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("component", "dispatch")
	m, err := newMetrics(o.Meter)
	if err != nil {
		return nil, err
	}
	return &Dispatcher{
		o: o, log: log, queues: queues, metrics: m, mark: watermark.New(0), reported: none,
		bad: badSpot{at: none}, interrupt: func() {},
	}, nil
}

// Dispatched returns the mark of the log offset below which every message is in its queue. It is replaced, and the old
// one closed with watermark.ErrTruncated, when the log is cut below it.
func (d *Dispatcher) Dispatched() *watermark.Mark {
	d.markMu.Lock()
	defer d.markMu.Unlock()
	return d.mark
}

// CatchUp dispatches what lies wholly below the log offset to, which must not exceed Readable. A master calls it before
// it takes puts: until then nobody knows how long the queues are. It returns early, without an error, only at a bad record with nothing sound behind.
func (d *Dispatcher) CatchUp(ctx context.Context, to int64) error {
	_, err := d.advance(ctx, to)
	return err
}

// Run dispatches what becomes readable until ctx ends; then it returns nil. Any other end is an error.
func (d *Dispatcher) Run(ctx context.Context) error {
	waiting, cancel := context.WithCancel(ctx)
	defer func() { cancel() }()
	full := false
	for {
		if waiting.Err() != nil {
			cancel()
			waiting, cancel = context.WithCancel(ctx) //nolint:fatcontext // each one is made of ctx itself
		}
		d.mu.Lock()
		d.interrupt = cancel
		d.mu.Unlock()
		readable := d.log.Readable()
		need, err := d.advance(ctx, readable.Load())
		switch {
		case ctx.Err() != nil:
			return nil
		case errdefs.ClassOf(err) == errdefs.ResourceExhausted:
			if !full {
				d.o.Log.Error("no space for queue units, dispatching waits", slog.Any("error", err))
			}
			full = true
			sleep(ctx, pause)
			continue
		case err != nil && errors.Is(readable.Err(), watermark.ErrTruncated):
			<-waiting.Done() // the log is being cut: Truncated follows
			continue
		case passes(err) > 0:
			sleep(waiting, passes(err))
			continue
		case err != nil:
			return err
		}
		full = false
		err = readable.Wait(waiting, need)
		if err == nil || waiting.Err() != nil || errors.Is(err, watermark.ErrTruncated) {
			continue
		}
		return fmt.Errorf("follow the log: %w", err)
	}
}

// passes returns how soon an error may be gone; 0: never.
func passes(err error) time.Duration {
	if e := errdefs.As(err); e != nil {
		return e.RetryAfter
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// advance dispatches and commits everything up to the log offset to, and returns what Readable must reach to make going
// on worth while.
func (d *Dispatcher) advance(ctx context.Context, to int64) (need int64, err error) {
	for ctx.Err() == nil {
		var more bool
		if need, more, err = d.stretch(to); err != nil || !more {
			return need, err
		}
	}
	return 0, ctx.Err()
}

// stretch does one window with the lock held. more: there is more to do before to.
func (d *Dispatcher) stretch(to int64) (need int64, more bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.ready(); err != nil {
		return 0, false, err
	}
	need, err = d.step(to)
	if err == nil && (need > to || d.gathered >= maxGathered) {
		err = d.commit()
	}
	if err != nil {
		d.pos, d.gathered = d.done, 0
		return 0, false, err
	}
	if need <= to {
		return need, true, nil
	}
	if !d.settled {
		if err := d.queues.Settle(); err != nil {
			return 0, false, fmt.Errorf("settle queues: %w", err)
		}
		d.settled = true
	}
	return need, false, nil
}

func (d *Dispatcher) commit() error {
	if d.pos == d.done && d.gathered == 0 {
		return nil
	}
	if err := d.queues.Commit(d.pos, d.storeTime); err != nil {
		return fmt.Errorf("commit units: %w", err)
	}
	add(d.metrics.messages, int64(d.gathered))
	d.done, d.gathered = d.pos, 0
	d.Dispatched().Advance(d.done)
	return nil
}

// begin finds out where to start.
func (d *Dispatcher) begin() error {
	first, end := d.log.FirstOffset(), d.log.Written().Load()
	from, err := d.queues.Resume(first, end)
	if err != nil {
		return fmt.Errorf("resume queues: %w", err)
	}
	if from > first && from < end {
		ok, err := d.recordAt(from)
		if err != nil {
			return err
		}
		if !ok {
			d.o.Log.Warn("no record begins where the queues end, the log is read from its first offset",
				slog.Int64("offset", from), slog.Int64("first", first))
			from = first
		}
	}
	d.begun, d.pos, d.done = true, from, from
	d.Dispatched().Advance(from)
	return nil
}

// Ready makes good for what could not be done when the log was cut or when its queues were opened: until it returns nil nothing may be
// appended that another node has made, as the queues would take it for what stood there before.
func (d *Dispatcher) Ready() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ready()
}

func (d *Dispatcher) ready() error {
	if err := d.pay(); err != nil || d.begun {
		return err
	}
	return d.begin()
}

// owes has the queues follow a cut of the log, at once or, after an error, later.
func (d *Dispatcher) owes(follow func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.owed = follow
	err := d.pay()
	if err != nil {
		d.interrupt() // Run tries again
	}
	return err
}

func (d *Dispatcher) pay() error {
	if d.owed == nil {
		return nil
	}
	if err := d.owed(); err != nil {
		return err
	}
	d.owed = nil
	return nil
}

// Truncated cuts the queues after the log was cut at the log offset to and before anything is appended to it again. On
// return the cut is durable; after an error Ready does it.
func (d *Dispatcher) Truncated(to int64) error {
	return d.owes(func() error {
		to, err := d.boundary(min(to, d.log.Written().Load())) // less: the log was cut once more since
		if err != nil {
			return err
		}
		if err := d.queues.Truncate(to); err != nil {
			return fmt.Errorf("cut queues at %d: %w", to, err)
		}
		if d.begun {
			d.moveTo(min(d.done, to))
		}
		return nil
	})
}

// RecordStart returns the last log offset at or below offset at which a record begins or the last one ends.
func (d *Dispatcher) RecordStart(offset int64) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.boundary(offset)
}

// Reset removes all queues after the log was emptied; the next record will be at the log offset start. After an error Ready does it.
func (d *Dispatcher) Reset(start int64) error {
	return d.owes(func() error {
		if err := d.queues.Truncate(0); err != nil {
			return fmt.Errorf("remove queues: %w", err)
		}
		if _, err := d.queues.Resume(start, start); err != nil {
			return fmt.Errorf("resume queues: %w", err)
		}
		d.begun = true
		d.moveTo(start)
		return nil
	})
}

// moveTo goes on from another offset. d.mu is held.
func (d *Dispatcher) moveTo(pos int64) {
	d.pos, d.done, d.gathered, d.storeTime = pos, pos, 0, 0
	d.bad, d.reported = badSpot{at: none}, none
	d.markMu.Lock()
	old := d.mark
	if old.Load() != pos {
		d.mark = watermark.New(pos)
	} else {
		old = nil
	}
	d.markMu.Unlock()
	if old != nil {
		old.Close(watermark.ErrTruncated)
	}
	d.interrupt()
}
