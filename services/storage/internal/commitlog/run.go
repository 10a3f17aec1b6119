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

// zeroPiece is how many zeros are written at a time, bytes.
const zeroPiece = 1 << 20

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

// makeAhead makes the file and fills it with written zeros: its pages are in memory then, so that a store costs no more
// than a protection fault, and its blocks need no change of the file system's tables when they are synced. Making pages
// writable as well would have the next flush write the whole file.
func (l *Log) makeAhead(ctx context.Context) error {
	f, err := l.makeNext(ctx)
	if f == nil || !f.Acquire() {
		return err
	}
	defer f.Release()
	// Who appends does not wait for this; the flushes that follow have less to do.
	if serr := f.Sync(); serr != nil {
		return l.fail(serr)
	}
	return err
}

// makeNext returns the file that it made, nil when there is none to make.
func (l *Log) makeNext(ctx context.Context) (*mappedfile.File, error) {
	l.makeMu.Lock()
	defer l.makeMu.Unlock()
	start := l.tailEnd.Load()
	last := l.queue.Last()
	if !l.ahead.Load() || last == nil || last.End() != start {
		return nil, nil //nolint:nilnil // nothing to make, no error
	}
	f, err := l.queue.Create(start, func(f *mappedfile.File) error {
		_, err := l.writable(f)
		return err
	})
	if errors.Is(err, mappedfile.ErrSync) {
		return nil, l.fail(err)
	}
	if err != nil {
		return nil, err
	}
	l.made = start
	zeros := make([]byte, min(l.FileSize(), zeroPiece))
	for pos := int64(0); pos < l.FileSize() && ctx.Err() == nil; pos += zeroPiece {
		if _, err := f.WriteAt(zeros[:min(zeroPiece, l.FileSize()-pos)], pos); err != nil {
			return f, err
		}
	}
	return f, nil
}
