package commitlog

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
)

// FlushNow makes everything written so far durable and returns the offset up to which that is true.
func (l *Log) FlushNow(ctx context.Context) (int64, error) {
	if err := cmp.Or(ctx.Err(), l.usable()); err != nil {
		return 0, err
	}
	err := l.flushAll()
	return l.Flushed().Load(), err
}

func (l *Log) flushAll() error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	return l.flush()
}

// flush syncs what was written and raises Flushed, file by file from the front, so that a later file is never durable
// before an earlier one. flushMu is held. The first failure is the last: see fail.
func (l *Log) flush() error {
	dispatched := l.cp.Get(checkpoint.Logics) // was written before what follows is looked at
	l.mu.Lock()
	m, to, stamp := l.marks.Load(), l.end, l.lastStamp
	l.mu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	m.written.Advance(to)
	if stamp == 0 {
		stamp = dispatched
	}
	from := m.flushed.Load()
	if from >= to {
		return nil
	}
	began := time.Now()
	for _, f := range l.queue.Files() {
		if f.End() <= from || f.Start() >= to {
			continue
		}
		if err := f.Sync(); err != nil {
			return l.fail(err)
		}
		if l.Err() != nil {
			return l.Err()
		}
		m.flushed.Advance(min(f.End(), to))
	}
	l.metrics.flushed(time.Since(began))
	if l.o.SyncFlush {
		l.raiseReadable(m)
	}
	l.cp.SetFlushed(to, stamp)
	return nil
}

// runFlush is RocketMQ's GroupCommitService with SyncFlush, else its FlushRealTimeService.
func (l *Log) runFlush(ctx context.Context) {
	if l.o.SyncFlush {
		l.runGroupCommit(ctx)
		return
	}
	tick := time.NewTicker(l.o.FlushInterval)
	defer tick.Stop()
	thorough := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			all := now.Sub(thorough) >= l.o.FlushThoroughInterval
			if all {
				thorough = now
			}
			if !all && !l.worthFlushing() {
				continue
			}
			if _, err := l.FlushNow(ctx); err != nil {
				return
			}
		}
	}
}

func (l *Log) worthFlushing() bool {
	m := l.marks.Load()
	return m.written.Load()/pageSize-m.flushed.Load()/pageSize >= l.o.FlushLeastPages
}

// runGroupCommit flushes whenever something was written; what comes meanwhile is one group for the next flush.
func (l *Log) runGroupCommit(ctx context.Context) {
	for {
		m := l.marks.Load()
		err := m.written.Wait(ctx, m.flushed.Load()+1)
		if errors.Is(err, watermark.ErrTruncated) {
			continue
		}
		if err == nil {
			_, err = l.FlushNow(ctx)
		}
		if err != nil {
			return
		}
	}
}
