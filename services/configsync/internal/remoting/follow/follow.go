package follow

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/configsync/internal/remoting"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// Tables are the node's own.
type Tables interface {
	// FollowJava merges, saves and publishes; an error has changed nothing.
	FollowJava(ctx context.Context, java *table.Table, o table.JavaOptions) (table.Report, error)
}

// Options of a Follower. Zero times get the defaults that are named.
type Options struct {
	Address   string        // remoting port of the Java master, host:port
	Interval  time.Duration // of rounds (60 s)
	Timeout   time.Duration // of one answer (10 s)
	MaxFrame  int           // largest answer, bytes
	TakeLower bool          // offsets of the master that are lower are resets
	// MinBackoff is the first pause after a failure (1 s); it grows up to Interval.
	MinBackoff time.Duration
	// Permit returns nil when the master may be followed now, ErrReign when never again.
	Permit func() error
	Dial   remoting.Dial
	Log    *slog.Logger
	Meter  metric.Meter
}

// Errors.
var (
	// ErrReign: the tables belong to a reign of a Tandem master.
	ErrReign = errdefs.New(errdefs.FailedPrecondition, "LEGACY_WITH_EPOCHS", "this log has had Tandem masters, a RocketMQ broker is followed no more").
			WithRemedy("unset master.legacy, or start with empty folders")
	// ErrLower counts rounds with offsets of the master that are lower and were not taken.
	ErrLower = errdefs.New(errdefs.FailedPrecondition, "LOWER_OFFSET", "offsets of the master are lower than the own ones and were not taken").
			WithRemedy("see them with `tandemctl config diff`; master.takeLowerOffsets takes them")
	errIdle = errdefs.New(errdefs.FailedPrecondition, "NO_MASTER", "this node follows no master now")
)

// Follower keeps the tables of a slave. Follow is for one goroutine at a time; the rest may be called concurrently.
type Follower struct {
	o      Options
	tables Tables
	kinds  map[entry.Kind]*kindState

	mu        sync.Mutex // guards the following
	following chan struct{}
	heard     bool // in the last round

	asked chan chan error
}

// New makes a follower.
func New(o Options, t Tables) *Follower {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&o.Interval, time.Minute)
	set(&o.Timeout, 10*time.Second)
	set(&o.MinBackoff, time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Follower{o: o, tables: t, kinds: map[entry.Kind]*kindState{}, asked: make(chan chan error)}
	for _, k := range entry.Kinds() {
		f.kinds[k] = &kindState{kind: k}
	}
	f.instrument(o.Meter)
	return f
}

// Follow keeps the tables until ctx ends. An error is ErrReign, or that the registry failed for good.
func (f *Follower) Follow(ctx context.Context) error {
	f.mu.Lock()
	f.following = make(chan struct{})
	f.mu.Unlock()
	defer f.ended()
	pause := f.o.MinBackoff
	for {
		err := f.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrReign) || fatal(err):
			return err
		case err != nil:
			pause = min(2*pause, f.o.Interval)
		default:
			pause = f.o.MinBackoff
		}
		next := f.o.Interval
		if err != nil {
			next = pause/2 + rand.N(pause/2+1) //nolint:gosec // spread, not secret
		}
		if !f.rest(ctx, next) {
			return nil
		}
	}
}

// fatal reports whether the registry can save nothing any more.
func fatal(err error) bool { return errdefs.ReasonOf(err) == "REGISTRY_FAULTED" }

func (f *Follower) ended() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.following)
	f.following, f.heard = nil, false
}

// rest waits for d and answers who wants a round meanwhile; false when ctx has ended.
func (f *Follower) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return true
		case reply := <-f.asked:
			reply <- f.round(ctx)
		case <-ctx.Done():
			return false
		}
	}
}

// Round runs a round now and returns when it is over.
func (f *Follower) Round(ctx context.Context) error {
	f.mu.Lock()
	over := f.following
	f.mu.Unlock()
	if over == nil {
		return errIdle
	}
	reply := make(chan error, 1)
	select {
	case f.asked <- reply:
		return <-reply
	case <-over:
		return errIdle
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Master returns the address of the master if it answered in the last round, or "".
func (f *Follower) Master() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.heard {
		return ""
	}
	return f.o.Address
}

// Address is that of the master, whether it answers or not.
func (f *Follower) Address() string { return f.o.Address }

// round asks for each kind by itself and returns what failed.
func (f *Follower) round(ctx context.Context) error {
	if f.o.Permit != nil {
		if err := f.o.Permit(); err != nil {
			f.end(ctx, false, map[entry.Kind]error{}, err)
			return err
		}
	}
	var conn *remoting.Conn
	defer func() { hangUp(conn) }()
	heard := false
	failed := map[entry.Kind]error{}
	var errs []error
	for _, k := range [...]entry.Kind{entry.Topics, entry.ConsumerOffsets, entry.DelayOffsets, entry.Groups} {
		t, err := f.ask(ctx, &conn, k)
		heard = heard || err == nil
		if err == nil {
			err = f.take(ctx, k, t)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			failed[k] = err
			errs = append(errs, err)
		}
	}
	f.end(ctx, heard, failed, nil)
	return errors.Join(errs...)
}

// end notes how a round went: all is what failed for all kinds.
func (f *Follower) end(ctx context.Context, heard bool, failed map[entry.Kind]error, all error) {
	f.mu.Lock()
	f.heard = heard
	f.mu.Unlock()
	for k, state := range f.kinds {
		err := all
		if err == nil {
			err = failed[k]
		}
		if err == nil {
			if state.recovered() {
				f.o.Log.InfoContext(ctx, "the table is the RocketMQ master's again", slog.String("kind", k.String()))
			}
			continue
		}
		if state.failed(err) {
			f.o.Log.WarnContext(ctx, "the RocketMQ master's table was not taken", slog.String("kind", k.String()), slog.Any("error", err))
		}
	}
}

func hangUp(conn *remoting.Conn) {
	if conn != nil {
		_ = conn.Close() // nothing is on its way
	}
}

// codes are the requests for the tables.
var codes = map[entry.Kind]int32{
	entry.Topics: remoting.GetAllTopicConfig, entry.ConsumerOffsets: remoting.GetAllConsumerOffset,
	entry.DelayOffsets: remoting.GetAllDelayOffset, entry.Groups: remoting.GetAllSubscriptionGroupConfig,
}

// ask asks for one table over *conn, which is opened where it is nil and nil where it broke.
func (f *Follower) ask(ctx context.Context, conn **remoting.Conn, k entry.Kind) (*table.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, f.o.Timeout)
	defer cancel()
	if *conn == nil {
		c, err := remoting.Connect(ctx, f.o.Dial, f.o.Address, f.o.MaxFrame)
		if err != nil {
			return nil, err
		}
		*conn = c
	}
	_, body, err := (*conn).Call(ctx, codes[k], nil, nil)
	if err != nil {
		if !errors.Is(err, remoting.ErrRefused) {
			hangUp(*conn)
			*conn = nil
		}
		return nil, err
	}
	return jsonfile.Decode(k, body)
}

// take takes the master's table by the rules of its kind.
func (f *Follower) take(ctx context.Context, k entry.Kind, t *table.Table) error {
	report, err := f.tables.FollowJava(ctx, t, table.JavaOptions{TakeLower: f.o.TakeLower})
	if err != nil {
		return err
	}
	lower := report.LowerCount
	if f.o.TakeLower {
		lower = 0
	}
	if f.kinds[k].took(report.Changed, lower) {
		f.o.Log.WarnContext(ctx, "offsets of the RocketMQ master are lower and were not taken", slog.String("kind", k.String()),
			slog.Int("offsets", lower), slog.String("remedy", ErrLower.Remedy))
	}
	return nil
}

// Pull returns the master's table and changes nothing.
func (f *Follower) Pull(ctx context.Context, k entry.Kind) (*table.Table, error) {
	var conn *remoting.Conn
	defer func() { hangUp(conn) }()
	return f.ask(ctx, &conn, k)
}
