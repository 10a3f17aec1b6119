package feed

import (
	"context"
	"sync"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// Reign is an open master's log.
type Reign interface {
	Follower
	Flushed() *watermark.Mark
}

// Acks is what the slaves of a reign confirm: the mark that k of them have reached, how many are in sync, and the count of changes of that.
type Acks interface {
	Acked(k int) *watermark.Mark
	InSync() int
	InSyncChanged() *watermark.Mark
}

// Raise raises Readable of an open master as its log, its flushes and its slaves move, until ctx ends. p says by which rule.
func Raise(ctx context.Context, log Reign, acks Acks, p epoch.Progress) {
	changes := acks.InSyncChanged()
	for ctx.Err() == nil {
		// followMarks waits on one mark; a change of the slaves in sync may make it the wrong one.
		wctx, cancel := context.WithCancel(ctx)
		seen := changes.Load()
		var wg sync.WaitGroup
		if p.Sync {
			wg.Go(func() {
				if changes.Wait(wctx, seen+1) == nil {
					cancel()
				}
			})
		}
		followMarks(wctx, log, acks, p)
		cancel()
		wg.Wait()
	}
}

// followMarks raises Readable until ctx ends. Each pass waits for the one mark that holds Readable back.
func followMarks(ctx context.Context, log Reign, acks Acks, p epoch.Progress) {
	written, flushed := log.Written(), log.Flushed()
	acked := written
	if p.Sync {
		acked = acks.Acked(p.Required)
		p.InSync = acks.InSync()
	}
	for {
		p.Written, p.Flushed, p.Acked = written.Load(), flushed.Load(), acked.Load()
		n, by := epoch.Readable(p)
		log.SetReadable(n)
		var mark *watermark.Mark
		var at int64
		switch by {
		case epoch.LimitWritten:
			mark, at = written, p.Written
		case epoch.LimitFlushed:
			mark, at = flushed, p.Flushed
		case epoch.LimitAcked:
			mark, at = acked, p.Acked
		case epoch.LimitInSync:
			<-ctx.Done()
			return
		}
		if mark.Wait(ctx, at+1) != nil {
			// Either ctx has ended, or the mark: its owner ends the reign then.
			<-ctx.Done()
			return
		}
	}
}
