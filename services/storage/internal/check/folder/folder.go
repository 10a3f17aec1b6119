package folder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/check"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// ErrNoStore says that a folder holds no store.
var ErrNoStore = errdefs.New(errdefs.InvalidArgument, "NO_STORE", "the folder holds no store").
	WithRemedy("name the folder that has commitlog/ in it (storePathRootDir)")

// Options are the settings of Check.
type Options struct {
	Levels   message.DelayLevels
	Now      time.Time
	Emit     func(check.Finding) error
	Progress func(offset, first, end int64) // may be nil
}

// Report sums up what Check has seen.
type Report struct {
	Files      int   `json:"files"` // of the log
	First      int64 `json:"first,string"`
	End        int64 `json:"end,string"`
	Records    int64 `json:"records"`
	Queues     int   `json:"queues"`
	Units      int64 `json:"units"`             // compared
	Undone     int64 `json:"undispatched"`      // records that have no unit yet, and need none
	Clean      bool  `json:"clean"`             // the last stop was clean
	Summary    bool  `json:"summary,omitempty"` // Tandem's summary of queues is there
	Kept       int   `json:"kept"`              // ranges beside the log
	Damages    int64 `json:"damages"`
	Notes      int64 `json:"notes"`
	FileSize   int64 `json:"fileSize"`
	Dispatched int64 `json:"dispatched,string"`
}

// Check checks the store in a folder without changing a byte of it. It holds the folder's lock meanwhile, shared:
// vfs.ErrLocked when a process uses the folder. Damage is told through Emit, an error says that the check was not finished.
func Check(ctx context.Context, fsys vfs.FS, root string, o Options) (r Report, err error) {
	f := &folder{fsys: fsys, root: root, o: o}
	if _, err := fsys.ReadDir(filepath.Join(root, "commitlog")); errors.Is(err, fs.ErrNotExist) {
		if _, err := fsys.ReadDir(filepath.Join(root, "consumequeue")); err != nil {
			if _, err := fsys.ReadDir(root); errors.Is(err, fs.ErrNotExist) {
				return r, ErrNoStore.WithMsg("the folder does not exist").With("folder", root)
			}
			return r, ErrNoStore.With("folder", root)
		}
	}
	lock, err := fsys.LockShared(filepath.Join(root, "lock"))
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, lock.Close()) }()
	case !errors.Is(err, fs.ErrNotExist): // a copy without a lock: nobody can have it
		return r, fmt.Errorf("lock folder: %w", err)
	}
	err = f.check(ctx)
	return f.r, err
}

type folder struct {
	fsys  vfs.FS
	root  string
	o     Options
	r     Report
	state state
	log   *logFiles

	beyond int64 // units that point behind the end of a log whose file is short
}

func (f *folder) emit(x check.Finding) error {
	if x.Kind == check.UnitStray && x.Detail == check.BehindEnd && f.log.short {
		f.beyond++
		return nil
	}
	if x.Kind == check.UnitStray && x.Detail == check.BehindEnd && !f.r.Clean {
		x.Note = true // the queues were ahead of a log that has lost its end: the next start cuts them
	}
	if x.Kind == check.BadRecord && !f.r.Clean && f.state.ours && x.Offset >= f.state.flushed && !slices.Contains(f.log.bad, x) {
		x.Note = true
		x.Detail += "; it was not durable yet: where the machine went down, the next start cuts the log here"
	}
	if x.Note {
		f.r.Notes++
	} else {
		f.r.Damages++
	}
	return f.o.Emit(x)
}

func (f *folder) damaged(file, format string, args ...any) error {
	return f.emit(check.Finding{Kind: check.BadFile, File: file, Detail: fmt.Sprintf(format, args...)})
}

func (f *folder) note(file, format string, args ...any) error {
	return f.emit(check.Finding{Kind: check.BadFile, Note: true, File: file, Detail: fmt.Sprintf(format, args...)})
}

func (f *folder) check(ctx context.Context) (err error) {
	_, err = f.fsys.Stat(filepath.Join(f.root, "abort"))
	f.r.Clean = errors.Is(err, fs.ErrNotExist)
	if err != nil && !f.r.Clean {
		return fmt.Errorf("look for the abort file: %w", err)
	}
	if !f.r.Clean {
		if err := f.note("abort", "the last process did not stop cleanly: the next start recovers the log"); err != nil {
			return err
		}
	}
	if err := f.readState(); err != nil {
		return err
	}
	if f.log, err = f.openLog(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.log.Close()) }()
	queues, err := f.openQueues()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, queues.Close()) }()
	f.r.Queues = len(queues.all)
	res, err := f.records(ctx, queues)
	if err != nil {
		return err
	}
	f.r.End, f.r.Records, f.r.Units, f.r.Undone = res.End, res.Records, res.Units, res.Behind
	for _, judge := range []func() error{
		f.tellBeyond, func() error { return f.judgeEnd(res) }, f.judgeState, func() error { return f.judgeSummary(queues) }, f.listKept,
	} {
		if err := judge(); err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) records(ctx context.Context, queues *queueFiles) (check.Result, error) {
	f.r.Dispatched = int64(math.MaxInt64)
	switch {
	case f.state.summary != nil:
		f.r.Dispatched = f.state.summary.Dispatched
	case len(queues.all) == 0 && f.log.files > 0:
		f.r.Dispatched = 0
		if err := f.note("consumequeue", "there are no queues: the next start builds them from the log"); err != nil {
			return check.Result{}, err
		}
	case !f.r.Clean:
		f.r.Dispatched = 0
	}
	if f.log.files == 0 {
		return check.Result{}, nil
	}
	o := check.Options{
		From: f.log.first, To: f.log.end, Open: true, Whole: true, Queues: queues, Levels: f.o.Levels,
		Dispatched: f.r.Dispatched, Emit: f.emit,
	}
	if f.o.Progress != nil {
		o.Progress = func(offset int64) { f.o.Progress(offset, f.log.first, f.log.end) }
	}
	res, err := check.Records(ctx, f.log, o)
	f.r.Dispatched = min(f.r.Dispatched, res.End)
	if err == nil {
		err = f.log.unreadable(f.emit)
	}
	return res, err
}

// readFile reads all of a small file.
func readAll(file vfs.File, p []byte, pos int64) error {
	n, err := file.ReadAt(p, pos)
	if n == len(p) || errors.Is(err, io.EOF) {
		clear(p[n:])
		return nil
	}
	return err
}
