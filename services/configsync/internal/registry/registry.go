package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

// Options are all optional.
type Options struct {
	Now    func() time.Time
	Logger *slog.Logger
	Meter  metric.Meter

	SaveInterval   time.Duration // between two writings of a JSON file, 5 s
	CommitInterval time.Duration // the longest that a commit stays unsaved while the disk is well, 200 ms
	MaxQueues      int32         // of a topic, 65,535
	MaxPending     int           // queues with unsaved commits before a commit waits for the disk, 100,000
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Meter == nil {
		o.Meter = noop.Meter{}
	}
	if o.SaveInterval <= 0 {
		o.SaveInterval = 5 * time.Second
	}
	if o.CommitInterval <= 0 {
		o.CommitInterval = 200 * time.Millisecond
	}
	if o.MaxQueues <= 0 {
		o.MaxQueues = entry.MaxQueues
	}
	if o.MaxPending <= 0 {
		o.MaxPending = 100_000
	}
	return o
}

// Registry has the four tables. All methods may be called concurrently.
type Registry struct {
	fsys vfs.FS
	dir  string
	o    Options
	lock io.Closer

	stores  [entry.Groups + 1]*store // by kind
	commits commits
	metrics *metrics
	epoch   atomic.Int64

	resigned atomic.Bool // since then nobody has led

	faultOnce sync.Once
	fault     atomic.Pointer[error]
	faulted   chan struct{} // closed at the fault
	kick      chan struct{} // a journal has grown long
	closed    atomic.Bool
}

// Open loads the tables of dir, which it makes if it is not there. It fails where a file is of an unknown shape, where the
// folder is in use, or where the disk does not say what is there; a table that is broken is no error of Open, see Whole.
func Open(fsys vfs.FS, dir string, o Options) (*Registry, error) {
	r := &Registry{fsys: fsys, dir: dir, o: o.withDefaults(), faulted: make(chan struct{}), kick: make(chan struct{}, 1)}
	own := filepath.Join(dir, disk.OwnDir)
	if err := durable.MkdirAll(fsys, own); err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	lock, err := durable.Lock(fsys, filepath.Join(own, "lock"))
	if err != nil {
		return nil, fmt.Errorf("open registry: %w", err)
	}
	r.lock = lock
	r.commits.init()
	for _, kind := range entry.Kinds() {
		s, err := r.load(kind)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open registry: %w", err), r.Close())
		}
		r.stores[kind] = s
	}
	if r.metrics, err = newMetrics(r.o.Meter, r); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// load reads one kind.
func (r *Registry) load(kind entry.Kind) (*store, error) {
	d, l, err := disk.Open(r.fsys, r.dir, kind)
	if err != nil {
		return nil, err
	}
	s := &store{r: r, kind: kind, revision: watermark.New(1), writer: make(chan struct{}, 1), disk: d}
	s.table.Store(l.Table)
	if l.Broken != nil {
		s.broken.Store(&l.Broken)
	}
	s.state = KindState{Source: l.Source, Replayed: l.Replayed, Foreign: l.Foreign}
	log := r.o.Logger.With("kind", kind.String(), "file", kind.File(), "entries", l.Table.Len())
	switch {
	case l.Broken != nil:
		log.Error("table is not whole, this node must not lead", "error", l.Broken)
	case l.Source == disk.FromBackup:
		log.Warn("table file could not be read, its backup is used", "error", l.Why, "replayed", l.Replayed)
	case l.Foreign:
		log.Warn("table file was written by another program and is believed")
	}
	return s, nil
}

// Close lets go of the folder. What was gathered and not saved is lost: let Run end first.
func (r *Registry) Close() error {
	r.closed.Store(true)
	var errs []error
	for _, s := range r.stores {
		if s != nil {
			s.revision.Close(nil)
			errs = append(errs, s.close())
		}
	}
	if r.metrics != nil {
		errs = append(errs, r.metrics.close())
	}
	return errors.Join(append(errs, r.lock.Close())...)
}

// Snapshot returns the table as it is saved. It never changes; it is never nil.
func (r *Registry) Snapshot(kind entry.Kind) *table.Table { return r.stores[kind].table.Load() }

// Changes is a number of this process that grows with each publication of the kind. Read it, then Snapshot, then wait for
// one more: nothing is missed. It says nothing about versions, whose counter falls when a new master is followed.
func (r *Registry) Changes(kind entry.Kind) *watermark.Mark { return r.stores[kind].revision }

// SetEpoch gives later changes a state version, that of the storage's epoch.
func (r *Registry) SetEpoch(epoch int64) {
	r.epoch.Store(epoch)
	r.resigned.Store(false)
}

// Resign ends what SetEpoch began. Commits that are gathered still, as the disk was full, get no version of the reign any more: versions
// are the next master's.
func (r *Registry) Resign() { r.resigned.Store(true) }

// Whole returns nil, or ErrBroken for a table that must not be served or changed.
func (r *Registry) Whole(kind entry.Kind) error { return r.stores[kind].whole() }

// Lead begins the history of a new master: every kind gets a version of the epoch, if it has none of it yet. It fails, and the node must not lead,
// while a kind is not whole.
func (r *Registry) Lead(ctx context.Context, epoch int64) error {
	for _, kind := range entry.Kinds() {
		if err := r.Whole(kind); err != nil {
			return err
		}
	}
	r.SetEpoch(epoch)
	for _, kind := range entry.Kinds() {
		if r.Snapshot(kind).Version().State == epoch {
			continue // the same reign goes on after a restart
		}
		err := r.edit(ctx, kind, func(e *table.Edit) error {
			e.Touch()
			return nil
		})
		if err != nil {
			return fmt.Errorf("begin to lead: %w", err)
		}
	}
	return nil
}

// nowMS is the time for versions.
func (r *Registry) nowMS() int64 { return r.o.Now().UnixMilli() }

// edit runs f on the next version of a kind and saves it.
func (r *Registry) edit(ctx context.Context, kind entry.Kind, f func(*table.Edit) error) error {
	return r.stores[kind].do(ctx, change{apply: func(t *table.Table) (*table.Table, error) {
		e := t.Edit(r.epoch.Load(), r.nowMS())
		if err := f(e); err != nil {
			return nil, err
		}
		next, _ := e.Done()
		return next, nil
	}})
}

// fail notes the first fault and ends Run.
func (r *Registry) fail(cause error) error {
	r.faultOnce.Do(func() {
		err := error(ErrFaulted.Wrap(cause))
		r.fault.Store(&err)
		close(r.faulted)
	})
	return *r.fault.Load()
}

// Fault returns ErrFaulted once a sync has failed.
func (r *Registry) Fault() error {
	if err := r.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// usable returns why nothing can be saved.
func (r *Registry) usable() error {
	if err := r.Fault(); err != nil {
		return err
	}
	if r.closed.Load() {
		return ErrClosed
	}
	return nil
}
