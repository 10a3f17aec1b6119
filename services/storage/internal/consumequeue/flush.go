package consumequeue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/tandemlog/tandem/pkg/vfs"
)

// toSync is what has to be made durable.
type toSync struct {
	files []fileKey
	dirs  []string
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
					s.o.Log.Warn("no space for the summary of queues, a restart will read more of the log", slog.Any("error", err))
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
	if s.err != nil {
		defer s.writing.Unlock()
		return s.err
	}
	work := s.takeDirty()
	var u *summary
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
		if err := s.save(u); err != nil {
			return err
		}
		s.saved = u.dispatched
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

// takeDirty collects what was written since the last time. s.writing is held.
func (s *Set) takeDirty() toSync {
	var w toSync
	for _, q := range s.dirty {
		last := min(s.fileStart(max(q.written-1, q.unsynced)*UnitSize), q.files.hi-s.fileSize)
		for start := max(s.fileStart(q.unsynced*UnitSize), q.files.lo); start <= last; start += s.fileSize {
			w.files = append(w.files, fileKey{q, start})
		}
		q.dirty = false
	}
	s.dirty = s.dirty[:0]
	seen := map[string]bool{}
	for _, q := range s.all() {
		if !q.made {
			continue
		}
		q.made = false
		for _, dir := range []string{q.dir, filepath.Dir(q.dir), s.dir, s.root} {
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
	for _, k := range w.files {
		h, err := s.handles.acquire(k)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := h.f.Sync(); err != nil {
			return ErrSync.With("topic", k.q.topic).With("queue", k.q.id).Wrap(errors.Join(err, s.handles.release(h)))
		}
		if err := s.handles.release(h); err != nil {
			return err
		}
	}
	for _, dir := range w.dirs {
		if err := s.fsys.SyncDir(dir); err != nil && !isMissing(err) {
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
	if err := errors.Join(err, s.handles.closeAll(), s.metrics.close()); err != nil {
		return fmt.Errorf("close consume queues: %w", err)
	}
	return nil
}
