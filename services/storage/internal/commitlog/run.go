package commitlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/vfs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/checkpoint"
)

const (
	zeroPiece     = 1 << 20
	populatePiece = 8 << 20
)

// Run flushes, saves the checkpoint every second when it has changed and makes files ahead, until ctx ends (nil) or the log
// fails: then it returns the fault, and every mark is closed with it.
func (l *Log) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { l.runFlush(ctx) })
	wg.Go(func() { l.runAhead(ctx) })
	wg.Go(func() { l.runCheckpoint(ctx) })
	select {
	case <-ctx.Done():
	case <-l.faulted:
	}
	cancel()
	wg.Wait()
	return l.Err()
}

func (l *Log) runCheckpoint(ctx context.Context) {
	tick := time.NewTicker(checkpointEvery)
	defer tick.Stop()
	full := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := l.saveCheckpoint()
		if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
			return
		}
		if err != nil && !full {
			l.o.Log.WarnContext(ctx, "checkpoint not saved", "error", err)
		}
		full = err != nil
	}
}

// saveCheckpoint makes the checkpoint durable. A full disk is an error to try again after, any other is the log's fault.
func (l *Log) saveCheckpoint() error {
	// A cut lowers the checkpoint under flushMu; a value read before must not be written after.
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	l.cp.Set(checkpoint.Confirm, l.Readable().Load())
	return l.writeCheckpoint()
}

func (l *Log) writeCheckpoint() error {
	err := l.cp.Write()
	if err != nil && !errors.Is(err, vfs.ErrNoSpace) {
		return l.fail(err)
	}
	return err
}

// runAhead makes the file behind the one in use.
func (l *Log) runAhead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		}
		if err := l.makeAhead(ctx); err != nil && ctx.Err() == nil {
			l.o.Log.WarnContext(ctx, "next file not made ahead", "error", err)
		}
	}
}

func (l *Log) makeAhead(ctx context.Context) error {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	start := l.tailEnd.Load()
	last := l.queue.Last()
	if !l.ahead.Load() || last == nil || last.End() != start {
		return nil
	}
	_, err := l.queue.Create(start, func(f *mappedfile.File) error { return l.prepare(ctx, f) })
	if errors.Is(err, mappedfile.ErrSync) {
		return l.fail(err)
	}
	if err == nil {
		l.made = start
	}
	return err //nolint:wrapcheck // names the file already
}

// prepare makes a new file quick to write: with SyncFlush its blocks hold written zeros, so that a sync need not change
// the file system's tables; without it its pages are in memory, so that no store faults.
func (l *Log) prepare(ctx context.Context, f *mappedfile.File) error {
	size := f.End() - f.Start()
	if l.o.SyncFlush {
		zeros := make([]byte, min(size, zeroPiece))
		for pos := int64(0); pos < size; pos += zeroPiece {
			if err := ctx.Err(); err != nil {
				return err //nolint:wrapcheck // the context's own
			}
			if _, err := f.WriteAt(zeros[:min(zeroPiece, size-pos)], pos); err != nil {
				return err //nolint:wrapcheck // Create wraps
			}
		}
		return nil
	}
	if _, err := f.Writable(); err != nil {
		return err //nolint:wrapcheck // Create wraps
	}
	for pos := int64(0); pos < size; pos += populatePiece {
		if err := ctx.Err(); err != nil {
			return err //nolint:wrapcheck // the context's own
		}
		if err := f.Populate(pos, min(populatePiece, size-pos)); err != nil {
			return err //nolint:wrapcheck // Create wraps
		}
	}
	return nil
}
