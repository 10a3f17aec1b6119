package role

import (
	"context"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// reigning is the work of an open master.
func (m *Manager) reigning(ctx context.Context) {
	l, err := m.lineage(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { m.moveReadable(ctx, l) })
	if len(m.o.Peers) > 0 {
		m.watchPeers(ctx, l)
		cancel()
	}
	wg.Wait()
}

// watchPeers looks for a newer master, as one that nobody asks would not hear of it; it returns when the reign is over.
func (m *Manager) watchPeers(ctx context.Context, l epoch.Lineage) {
	t := time.NewTicker(m.o.WatchEvery)
	defer t.Stop()
	for ctx.Err() == nil {
		heard := m.set.Hear(ctx, epoch.Promise{}).Heard
		switch {
		case epoch.Outranked(l, heard):
			if m.do(ctx, func() error { return m.stepDown(epoch.SteppedDown(m.lin), ErrSteppedDown) }) == nil {
				return
			}
		case epoch.Contested(l, heard):
			if m.do(ctx, m.closes) == nil {
				return
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

// closes ends a reign whose number another one has too; starting says what an operator can do. It runs as an op.
func (m *Manager) closes() error {
	next := m.lin
	next.Open = false
	if err := m.save(next); err != nil {
		return err
	}
	m.setOpen(false, epoch.ReasonEpochConflict, "promote the node whose log is to be kept")
	m.log.SetAhead(false)
	m.dropFollowers(ErrSteppedDown)
	return nil
}

// moveReadable raises Readable as the log, its flushes and its slaves move.
func (m *Manager) moveReadable(ctx context.Context, l epoch.Lineage) {
	p := epoch.Progress{
		Required: m.o.Required, OwnStart: l.Epochs[len(l.Epochs)-1].Start, SyncFlush: m.o.SyncFlush,
		Sync: l.Role == epoch.RoleSyncMaster && m.o.Required > 0, Refuse: m.o.RefuseWithoutReplicas,
	}
	changes := m.links.InSyncChanged()
	for ctx.Err() == nil {
		// The inner loop waits on one mark; a change of the slaves in sync may make it the wrong one.
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
		m.followMarks(wctx, p)
		cancel()
		wg.Wait()
	}
}

// followMarks raises Readable until ctx ends. Each pass waits for the one mark that holds Readable back.
func (m *Manager) followMarks(ctx context.Context, p epoch.Progress) {
	written, flushed := m.log.Written(), m.log.Flushed()
	acked := written
	if p.Sync {
		acked = m.links.Acked(p.Required)
		p.InSync = m.links.InSync()
	}
	for {
		p.Written, p.Flushed, p.Acked = written.Load(), flushed.Load(), acked.Load()
		n, by := epoch.Readable(p)
		m.log.SetReadable(n)
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
