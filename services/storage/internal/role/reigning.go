package role

import (
	"context"
	"sync"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/feed"
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
	wg.Go(func() {
		feed.Raise(ctx, m.log, m.links, epoch.Progress{
			Required: m.o.Required, OwnStart: l.Epochs[len(l.Epochs)-1].Start, SyncFlush: m.o.SyncFlush,
			Sync: l.Role == epoch.RoleSyncMaster && m.o.Required > 0, Refuse: m.o.RefuseWithoutReplicas,
		})
	})
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
