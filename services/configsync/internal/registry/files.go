package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
	"github.com/tandemlog/tandem/services/configsync/internal/table/jsonfile"
)

// KindState is for operators.
type KindState struct {
	Source   disk.Source // at Open
	Replayed int         // journal records at Open
	Foreign  bool        // the file had been written by another program

	Version      entry.Version
	Entries      int
	Sum          uint64
	Whole        error         // or nil
	SavedVersion entry.Version // in the JSON file
	LastSave     time.Time     // of the JSON file, by this process
	SaveError    error         // of the last try
	JournalBytes int64         // of the segment that is written
}

// State returns what an operator wants to know of a kind.
func (r *Registry) State(kind entry.Kind) KindState {
	s := r.stores[kind]
	s.stateMu.Lock()
	state := s.state
	s.stateMu.Unlock()
	t := s.table.Load()
	state.Version, state.Entries, state.Sum, state.Whole = t.Version(), t.Len(), t.Sum(), s.whole()
	return state
}

func (s *store) note(f func(*KindState)) {
	s.stateMu.Lock()
	defer s.stateMu.Unlock()
	f(&s.state)
}

// turn takes the writer's turn.
func (s *store) turn(ctx context.Context) error {
	select {
	case s.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush writes the JSON file if the table has changed since. One flush of a kind at a time. Readers and changes go on
// while the file is written.
func (s *store) flush(ctx context.Context) error {
	if err := s.turn(ctx); err != nil {
		return err
	}
	t, due, err := s.begin()
	<-s.writer
	if err == nil && !due {
		return nil
	}
	if err == nil {
		err = s.replace(t)
	}
	if err != nil {
		err = fmt.Errorf("save %s: %w", s.kind.File(), err)
	}
	if errors.Is(err, journal.ErrFault) {
		err = s.r.fail(err)
	}
	s.note(func(k *KindState) {
		k.SaveError = err
		if err == nil {
			k.LastSave, k.SavedVersion = s.r.o.Now(), t.Version()
		}
	})
	return err
}

func (s *store) begin() (t *table.Table, due bool, err error) {
	t = s.table.Load()
	if s.broken.Load() != nil || !s.disk.Due(t) {
		return t, false, nil
	}
	if err := s.r.usable(); err != nil {
		return t, true, err
	}
	return t, true, s.disk.Begin(t)
}

func (s *store) replace(t *table.Table) error {
	data := jsonfile.AppendFile(make([]byte, 0, s.size+s.size/8), t)
	s.size = len(data)
	if err := s.disk.WriteTemp(data); err != nil {
		return err
	}
	s.writer <- struct{}{}
	defer func() { <-s.writer }()
	return s.disk.End(t)
}
