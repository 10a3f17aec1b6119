package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/recovery"
)

// maxReports bounds the log lines about bad records.
const maxReports = 20

// Recovery is what Open found.
type Recovery struct {
	Clean       bool  // there was no abort file
	SameBoot    bool  // the abort file had our boot id: only the process had ended, nothing written was lost
	ScannedFrom int64 // offset from which records were checked
	FirstOffset int64
	End         int64
	CutBytes    int64 // behind End, what was there until the last byte that was not zero
	// Lost is how much of what was durable lies behind End: the disk, or somebody, has lost it.
	Lost int64
	// Rot are bad records with sound ones behind them, in order. All is kept.
	Rot []BadRecord
	// CheckpointReadable is Readable as Tandem saved it, at most End; End in a folder that a broker has used since.
	CheckpointReadable int64
	// Foreign are names in the commitlog folder that are no files of the log. They are left alone.
	Foreign []string
}

// BadRecord is a stretch of the log without a sound record at its start.
type BadRecord = recovery.BadRecord

// Open takes the folder, finishes a cut that a crash interrupted, recovers the log and writes the abort file. A folder
// that is only opened and closed keeps every byte of its log, save for what recovery has to cut. On a full disk the log
// opens too, and takes writes once there is space.
func Open(fsys vfs.FS, root string, o Options) (l *Log, r *Recovery, err error) {
	o = o.withDefaults()
	l = &Log{fsys: fsys, root: root, o: o, faulted: make(chan struct{}), kick: make(chan struct{}, 1), made: -1}
	l.mender = &mend.Mender{FS: fsys, Root: root, Grace: o.Grace, Log: o.Log}
	l.ahead.Store(o.Ahead)
	if err := durable.MkdirAll(fsys, root); err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	if l.lock, err = durable.Lock(fsys, l.path(lockFile)); err != nil {
		return nil, nil, fmt.Errorf("open log: %w", err)
	}
	if r, err = l.open(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open log: %w", err), l.release())
	}
	l.report(r)
	return l, r, nil
}

func (l *Log) report(r *Recovery) {
	l.o.Log.Info("log recovered", "clean", r.Clean, "same_boot", r.SameBoot, "first", r.FirstOffset, "end", r.End,
		"scanned_from", r.ScannedFrom, "cut_bytes", r.CutBytes, "foreign_names", len(r.Foreign))
	if r.Lost > 0 {
		l.o.Log.Error("bytes that were durable are gone", "from", r.End, "bytes", r.Lost)
	}
	for _, b := range r.Rot[:min(len(r.Rot), maxReports)] {
		l.o.Log.Error("bad record with sound ones behind it", "offset", b.Offset, "next", b.Next, "error", b.Err)
	}
	if more := len(r.Rot) - maxReports; more > 0 {
		l.o.Log.Error("more bad records", "count", more)
	}
}

func (l *Log) open() (*Recovery, error) {
	r := &Recovery{}
	var err error
	if err = l.readAbort(r); err != nil {
		return nil, err
	}
	l.queue, err = mappedfile.Open(l.fsys, l.path(logDir), mappedfile.Options{
		FileSize: l.o.FileSize, DefaultSize: defaultFileSize, Mapped: true, Reserve: true,
		Temp: l.path(newFile), Grace: l.o.Grace,
	})
	if err != nil {
		return nil, err
	}
	if size := l.queue.FileSize(); size > math.MaxInt32 {
		return nil, mappedfile.ErrSize.With("size", size).With("most", math.MaxInt32).
			WithMsg("a blank record cannot close so large a file")
	}
	r.Foreign = l.queue.Foreign()
	if l.cp, err = checkpoint.Open(l.fsys, l.path(checkpointFile), l.o.Now()); err != nil {
		return nil, err
	}
	if err := l.mender.Finish(l.queue); err != nil {
		return nil, err
	}
	if err := l.finishCut(); err != nil {
		return nil, err
	}
	if err := l.recover(r); err != nil {
		return nil, err
	}
	l.end = r.End
	l.own.Store(r.End)
	l.marks.Store(newMarks(r.End, r.End, r.CheckpointReadable))
	if l.metrics, err = newMetrics(l.o.Meter, l); err != nil {
		return nil, err
	}
	if err := l.cp.Write(); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		return nil, err
	}
	if r.Clean || r.SameBoot {
		if err := l.writeAbort(); err != nil && !errors.Is(err, vfs.ErrNoSpace) {
			return nil, err
		}
	} else {
		l.abort = true // keeps its foreign boot id: see MarkWhole
	}
	return r, nil
}

func (l *Log) readAbort(r *Recovery) error {
	data, err := durable.ReadFile(l.fsys, l.path(abortFile))
	if errors.Is(err, fs.ErrNotExist) {
		r.Clean = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("read abort file: %w", err)
	}
	r.SameBoot = l.o.BootID != "" && string(bytes.TrimSpace(data)) == l.o.BootID
	return nil
}

func (l *Log) writeAbort() error {
	if err := durable.WriteFile(l.fsys, l.path(abortFile), []byte(l.o.BootID+"\n")); err != nil {
		return fmt.Errorf("write abort file: %w", err)
	}
	l.abort = true
	return nil
}

// MarkWhole puts this boot's id into the abort file. After a crash of the machine Open leaves the old id there, so that a
// second crash, of the process alone, does not pass for harmless; the caller says when what was lost has been fetched
// again.
func (l *Log) MarkWhole() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	return l.writeAbort()
}

// Close flushes, saves the checkpoint, removes a file that was made ahead and not used and, when clean, the abort file;
// then it lets go of the folder in any case. After a fault nothing is written and the abort file stays.
func (l *Log) Close(clean bool) error {
	l.mu.Lock()
	again := l.closed.Swap(true)
	l.mu.Unlock()
	if again {
		return nil
	}
	err := l.finish(clean)
	l.marks.Load().close(ErrClosed)
	return errors.Join(err, l.release())
}

func (l *Log) finish(clean bool) error {
	if err := l.Err(); err != nil {
		return nil //nolint:nilerr // Run has returned it
	}
	if err := l.flushAll(); err != nil {
		return err
	}
	if err := l.saveCheckpoint(); err != nil || !clean {
		return err
	}
	l.makeMu.Lock()
	made := l.made
	l.makeMu.Unlock()
	if made >= 0 {
		if err := l.queue.RemoveFrom(made, nil); err != nil {
			return fmt.Errorf("close log: %w", err)
		}
	}
	if err := l.fsys.Remove(l.path(abortFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove abort file: %w", err)
	}
	if err := l.fsys.SyncDir(l.root); err != nil {
		return fmt.Errorf("remove abort file: %w", err)
	}
	return nil
}

// release closes what open opened, as far as it came.
func (l *Log) release() error {
	var errs []error
	if l.metrics != nil {
		errs = append(errs, l.metrics.close())
	}
	if l.queue != nil {
		errs = append(errs, l.queue.Close())
	}
	if l.cp != nil {
		errs = append(errs, l.cp.Close())
	}
	return errors.Join(append(errs, l.lock.Close())...)
}
