package registry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/disk"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/journal"
	"github.com/tandemlog/tandem/services/configsync/internal/registry/whole"
	"github.com/tandemlog/tandem/services/configsync/internal/table"
	"github.com/tandemlog/tandem/services/configsync/internal/table/entry"
)

const (
	maxWaiting = 10_000 // changes of a kind that wait for the disk
	maxBatch   = 1_000  // changes in one record
)

// store is one kind.
type store struct {
	r    *Registry
	kind entry.Kind

	table    atomic.Pointer[table.Table]
	revision *watermark.Mark
	broken   atomic.Pointer[error] // why it is not whole

	mu      sync.Mutex
	waiting []*change

	writer chan struct{} // capacity 1: who has put a token in may use what follows
	disk   *disk.Disk

	size int         // of the JSON file, for the next one; belongs to flush
	full whole.Cache // for slaves

	stateMu sync.Mutex
	state   KindState
}

// change is what one caller wants.
type change struct {
	// apply returns the next table, or t itself.
	apply func(t *table.Table) (*table.Table, error)
	// heals says that it makes a table whole that is not; nil: it never does.
	heals func(own *table.Table) bool
	done  chan struct{}
	err   error
}

func (s *store) whole() error {
	if err := s.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// do has a change applied and saved. When ctx ends before its turn came nothing has happened.
func (s *store) do(ctx context.Context, c change) error {
	c.done = make(chan struct{})
	if err := s.enqueue(&c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return c.err
	case s.writer <- struct{}{}:
	case <-ctx.Done():
		if s.withdraw(&c) {
			return ctx.Err()
		}
		<-c.done
		return c.err
	}
	// Whoever had the turn before may have done it already; else it is in the next batches.
	for s.write() {
		select {
		case <-c.done:
			<-s.writer
			return c.err
		default:
		}
	}
	<-s.writer
	<-c.done
	return c.err
}

func (s *store) enqueue(c *change) error {
	if err := s.r.usable(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) >= maxWaiting {
		return ErrBusy.With("kind", s.kind).With("waiting", len(s.waiting)).WithRetry(100 * time.Millisecond)
	}
	s.waiting = append(s.waiting, c)
	return nil
}

// withdraw takes a change back; false: it is being done.
func (s *store) withdraw(c *change) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.waiting {
		if w == c {
			s.waiting = append(s.waiting[:i], s.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// write does the changes that wait, up to maxBatch, and answers them; false: there were none. The caller has the turn.
func (s *store) write() bool {
	s.mu.Lock()
	n := min(len(s.waiting), maxBatch)
	batch := s.waiting[:n:n]
	s.waiting = append([]*change(nil), s.waiting[n:]...)
	s.mu.Unlock()
	if n == 0 {
		return false
	}
	start := s.table.Load()
	next, healed := s.apply(start, batch)
	if err := s.save(start, next, healed); err != nil {
		for _, c := range batch {
			if c.err == nil {
				c.err = err
			}
		}
	}
	for _, c := range batch {
		close(c.done)
	}
	return true
}

func (s *store) apply(t *table.Table, batch []*change) (next *table.Table, healed bool) {
	for _, c := range batch {
		heals := false
		if err := s.whole(); err != nil && !healed {
			if c.heals == nil || !c.heals(t) {
				c.err = err
				continue
			}
			heals = true
		}
		after, err := c.apply(t)
		if err != nil {
			c.err = err
			continue
		}
		t = after
		healed = healed || heals
	}
	return t, healed
}

// save makes next durable and publishes it.
func (s *store) save(start, next *table.Table, healed bool) error {
	if next == start && !healed {
		return nil
	}
	if err := s.r.usable(); err != nil {
		return err
	}
	if next.Version() != start.Version() || next.Sum() != start.Sum() || healed {
		if err := s.record(start, next, healed); err != nil {
			if errors.Is(err, journal.ErrFault) {
				return s.r.fail(err)
			}
			return err
		}
	}
	size := s.disk.Size()
	s.note(func(k *KindState) { k.JournalBytes = size })
	s.table.Store(next)
	if healed {
		s.broken.Store(nil)
		s.kick()
	}
	s.revision.Advance(s.revision.Load() + 1)
	return nil
}

// record makes what leads from start to next durable.
func (s *store) record(start, next *table.Table, healed bool) error {
	if err := s.disk.Record(start, next, healed); err != nil {
		return err
	}
	if s.disk.Size() > maxSegment {
		s.kick()
	}
	return nil
}

// kick has Run write the files soon.
func (s *store) kick() {
	select {
	case s.r.kick <- struct{}{}:
	default:
	}
}

// maxSegment is the size of a segment beyond which the file is written before its time.
const maxSegment = 64 << 20

func (s *store) close() error {
	s.writer <- struct{}{}
	defer func() { <-s.writer }()
	return s.disk.Close()
}
