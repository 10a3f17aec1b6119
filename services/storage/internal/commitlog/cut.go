package commitlog

import (
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/cut"
)

// retryCut is when to look again at a file that is being cut.
const retryCut = 10 * time.Millisecond

// Truncate makes to the end of the log: whole files behind it go (into the rollback folder when Rollback was called for
// this cut), the rest of its file becomes zeros. When it returns, that is durable and the marks are new ones; a crash
// before leaves the old log or the cut one. Errors before anything is cut: ErrOutOfRange, ErrNotKept, vfs.ErrNoSpace, and
// mappedfile.ErrBusy when a reader kept its view for too long. Any other ends the log, see Err.
func (l *Log) Truncate(to int64) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	first := l.FirstOffset()
	if to < first || to > l.end {
		return ErrOutOfRange.With("offset", to).With("first", first).With("end", l.end)
	}
	if to == l.end {
		l.kept = nil
		return nil
	}
	return l.cut(cut.Cut{To: to, Reset: to == first, End: l.end})
}

// Reset empties the log; the next append begins at start, a multiple of the file size. Otherwise as Truncate.
func (l *Log) Reset(start int64) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(); err != nil {
		return err
	}
	if size := l.FileSize(); start < 0 || start%size != 0 {
		return ErrOutOfRange.With("offset", start).With("file_size", size).WithMsg("a log must begin at a multiple of the file size")
	}
	return l.cut(cut.Cut{To: start, Reset: true, End: l.end})
}

// Adopt gives an empty log another file size, bytes: that of the master it will follow.
func (l *Log) Adopt(fileSize int64) error {
	if fileSize == l.FileSize() {
		return nil
	}
	if first := l.FirstOffset(); first != l.End() {
		return mappedfile.ErrSize.With("size", l.FileSize()).With("want", fileSize).
			WithMsg("a log that is not empty cannot take another file size")
	}
	if err := l.Reset(0); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	return l.queue.SetFileSize(fileSize)
}

// DropBefore removes whole files that end at or before offset, never the last one, and returns the new first offset.
func (l *Log) DropBefore(offset int64) (int64, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.usable(); err != nil {
		return 0, err
	}
	n, err := l.queue.DropBefore(min(offset, l.Flushed().Load()))
	if err != nil {
		if !errors.Is(err, mappedfile.ErrBusy) {
			err = l.fail(err)
		}
		return l.FirstOffset(), err
	}
	if n > 0 {
		l.o.Log.Info("old files removed", "files", n, "first", l.FirstOffset())
	}
	return l.FirstOffset(), nil
}

// cut carries out c. flushMu and mu are held.
func (l *Log) cut(c cut.Cut) error {
	if k := l.kept; k != nil {
		if k.To != l.end || !c.Reset && k.From != c.To {
			return ErrNotKept.With("kept_from", k.From).With("kept_to", k.To).With("to", c.To).With("end", l.end)
		}
		c.Keep, c.KeepFrom, l.kept = k.Name, k.From, nil // should this cut not come about, the next one keeps anew
	}
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	if !c.Reset { // what stays counts as flushed
		if err := l.queue.SyncRange(l.Flushed().Load(), c.To); err != nil {
			return l.fail(err)
		}
	}
	if err := l.drain(c); err != nil {
		return err
	}
	defer l.admit()
	if err := l.announce(c); err != nil {
		return err
	}
	readable := c.To
	if !c.Reset {
		readable = min(c.To, l.Readable().Load())
	}
	l.swapMarks(newMarks(c.To, c.To, readable), watermark.ErrTruncated)
	if err := l.carryOut(c); err != nil {
		return l.fail(err)
	}
	l.own.Store(min(l.own.Load(), c.To))
	l.end, l.tail, l.store, l.lastStamp, l.made = c.To, nil, nil, 0, -1
	return nil
}

// drain waits for the readers of all files that the cut touches.
func (l *Log) drain(c cut.Cut) error {
	deadline := time.Now().Add(l.o.Grace)
	for _, f := range l.queue.Files() {
		if !c.Reset && f.End() <= c.To {
			continue
		}
		if err := f.Drain(time.Until(deadline)); err != nil {
			l.admit()
			return err
		}
	}
	return nil
}

func (l *Log) admit() {
	for _, f := range l.queue.Files() {
		f.Admit()
	}
}

// announce writes the cut down. A full disk is survived: the note is surely not there.
func (l *Log) announce(c cut.Cut) error {
	err := cut.Announce(l.fsys, l.root, c)
	if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		return l.fail(err)
	}
	return err
}

// finishCut carries out a cut that a crash interrupted.
func (l *Log) finishCut() error {
	c, err := cut.Pending(l.fsys, l.root)
	if err != nil || c == nil {
		return err
	}
	if err := l.carryOut(*c); err != nil {
		return err
	}
	l.o.Log.Warn("interrupted cut finished", "reset", c.Reset, "to", c.To, "kept_in", c.Keep)
	return nil
}

// carryOut may be repeated after a crash at any point of it.
func (l *Log) carryOut(c cut.Cut) error {
	l.lowerCheckpoint(c)
	if err := l.cp.Write(); err != nil {
		return err
	}
	if err := cut.Apply(l.fsys, l.root, l.queue, c); err != nil {
		return err
	}
	return cut.Withdraw(l.fsys, l.root)
}

// lowerCheckpoint takes back what the checkpoint says about bytes that go.
func (l *Log) lowerCheckpoint(c cut.Cut) {
	readable := min(l.cp.Get(checkpoint.Confirm), c.To)
	if c.Reset {
		readable = c.To
		for _, field := range []checkpoint.Field{checkpoint.Physic, checkpoint.Logics, checkpoint.Index} {
			l.cp.Set(field, 0)
		}
	}
	l.cp.Set(checkpoint.Confirm, readable)
	l.cp.SetFlushed(c.To, 0)
}
