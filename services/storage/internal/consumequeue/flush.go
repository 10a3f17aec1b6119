package consumequeue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/summary"
)

// toSync is what has to be made durable.
type toSync struct {
	rows []rowSync
	dirs []string
}

// rowSync is a stretch of a queue, bytes.
type rowSync struct {
	q        *Queue
	files    queuefile.Run
	from, to int64
}

// Run flushes at every interval until ctx ends; then it returns nil. The error of a flush that failed ends it, unless the
// disk is only full.
func (s *Set) Run(ctx context.Context) error {
	t := time.NewTicker(s.o.FlushInterval)
	defer t.Stop()
	full := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			err := s.Flush()
			if errors.Is(err, vfs.ErrNoSpace) {
				if !full {
					s.o.Log.Warn("no space for queue units or their summary, a restart will read more of the log", slog.Any("error", err))
				}
				full = true
				continue
			}
			if err != nil && !errors.Is(err, ErrClosed) {
				return err
			}
			full = false
		}
	}
}

// Flush makes all visible units durable and then writes the summary, when something has changed.
func (s *Set) Flush() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	return s.flush()
}

func (s *Set) flush() error {
	s.writing.Lock()
	if err := s.spill(); err != nil {
		s.writing.Unlock()
		return err
	}
	work := s.takeDirty()
	var u *summary.Summary
	if s.dispatched != None && s.dispatched != s.saved {
		u = s.summarize()
	}
	stamp := s.stamp
	s.writing.Unlock()

	if err := s.syncAll(work); err != nil {
		s.writing.Lock()
		defer s.writing.Unlock()
		return s.fail(err)
	}
	if u != nil {
		if err := u.Save(s.fsys, s.root); err != nil {
			return err //nolint:wrapcheck // says what it did
		}
		s.saved = u.Dispatched
		if s.o.Checkpoint != nil && stamp > 0 {
			s.o.Checkpoint.SetLogics(stamp)
		}
	}
	return nil
}

// fail makes the set refuse everything from here on. s.writing is held.
func (s *Set) fail(err error) error {
	if s.err == nil {
		s.err = err
	}
	return err
}

// summarize says what is visible. s.writing is held.
func (s *Set) summarize() *summary.Summary {
	u := &summary.Summary{FileSize: s.fileSize, Dispatched: s.dispatched}
	for _, q := range s.all() {
		if q.known {
			u.Queues = append(u.Queues, summary.Extent{Topic: q.topic, ID: q.id, Min: q.min, Max: q.max})
		}
	}
	return u
}

// takeDirty collects what was written since the last time. s.writing is held.
func (s *Set) takeDirty() toSync {
	var w toSync
	for _, q := range s.dirty {
		w.rows = append(w.rows, rowSync{q, q.row.Files, q.unsynced * UnitSize, max(q.written-1, q.unsynced) * UnitSize})
		q.dirty = false
	}
	s.dirty = s.dirty[:0]
	seen := map[string]bool{}
	for _, q := range s.all() {
		if !q.row.Made {
			continue
		}
		q.row.Made = false
		for _, dir := range []string{q.row.Dir(), filepath.Dir(q.row.Dir()), s.dir, s.root} {
			if !seen[dir] {
				seen[dir] = true
				w.dirs = append(w.dirs, dir)
			}
		}
	}
	return w
}

// syncAll makes files and names durable. What was removed in the meantime needs it no more.
func (s *Set) syncAll(w toSync) error {
	for _, r := range w.rows {
		if err := r.q.row.Sync(r.files, r.from, r.to); err != nil {
			return err //nolint:wrapcheck // names the queue
		}
	}
	for _, dir := range w.dirs {
		if err := s.fsys.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ErrSync.With("folder", filepath.Base(dir)).Wrap(err)
		}
	}
	return nil
}

// Close flushes and closes all files. Run must have returned. Queues answer with errors afterwards.
func (s *Set) Close() error {
	s.flushing.Lock()
	defer s.flushing.Unlock()
	err := s.flush()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	s.err = ErrClosed
	for _, q := range s.all() {
		q.mu.RLock()
		q.grown.Close(ErrClosed)
		q.mu.RUnlock()
	}
	if err := errors.Join(err, s.pool.Close(), s.metrics.close()); err != nil {
		return fmt.Errorf("close consume queues: %w", err)
	}
	return nil
}
