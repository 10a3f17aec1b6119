package role

import (
	"context"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
	"github.com/tandemlog/tandem/services/storage/internal/role/slave"
)

// errCandidacy: what a decision was made on has changed since.
var errCandidacy = errdefs.New(errdefs.Aborted, "CANDIDACY_ENDED", "another candidate or a put came in between")

// starting is the work of a master that is not open, be it that it starts or that it is promoted: it returns when it has opened
// or stepped down.
func (m *Manager) starting(ctx context.Context) {
	begun := time.Now()
	pause := m.o.backoff()
	diverged := false
	var told peers.Told
	for {
		done, again, err := m.tryOpen(ctx, time.Since(begun) >= m.o.StartWait, diverged)
		diverged = errdefs.ReasonOf(err) == epoch.ReasonLogDiverges
		switch {
		case ctx.Err() != nil || done:
			return
		case err != nil:
			m.notOpen(ctx, slave.Reason(err), slave.Remedy(err))
			if told.News(err.Error(), time.Now()) {
				m.slog.Warn("opening failed", "error", err)
			}
		case again:
			pause.Reset()
			continue
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// tryOpen asks epoch what to do and does it. again: something has changed, decide anew at once.
func (m *Manager) tryOpen(ctx context.Context, waited, diverged bool) (done, again bool, err error) {
	s, err := m.openState(ctx)
	if err != nil {
		return false, false, err
	}
	if s.Clean {
		if d := epoch.DecideOpen(s); d.Action == epoch.OpenContinue {
			if err := m.links.Prepare(ctx); err != nil {
				return false, false, err
			}
			return true, false, m.do(ctx, func() error { return m.reopen(d.Reign) })
		}
	}
	r := m.set.Hear(ctx, epoch.Promise{})
	s.Heard, s.Waited, s.Diverged = r.Heard, waited || s.Promote, diverged
	d := epoch.DecideOpen(s)
	if d.Action == epoch.OpenAsk {
		if s.Asked, err = m.candidate(ctx, s.Lineage, d.Reign); err != nil {
			return false, false, err
		}
		s.Lineage.Candidate = s.Asked
		r = m.set.Hear(ctx, s.Asked)
		s.Heard = r.Heard
		d = epoch.DecideOpen(s)
	}
	if ctx.Err() != nil {
		return false, false, context.Cause(ctx)
	}
	switch d.Action {
	case epoch.OpenNow:
		return m.openNow(ctx, s.End, d.Reign)
	case epoch.OpenCopy:
		m.waits("COPYING", "wait: the best-ranked log is being copied from "+r.From[d.From])
		err := m.slave.Copy(ctx, r.From[d.From], r.Heard[d.From].NodeID)
		return false, err == nil, err
	case epoch.OpenStepDown:
		err := m.do(ctx, func() error { return m.stepDown(epoch.SteppedDown(m.lin), ErrSteppedDown) })
		return err == nil, false, err
	default:
		m.notOpen(ctx, d.Reason, d.Remedy+r.Absent())
		return false, false, nil
	}
}

func (m *Manager) openState(ctx context.Context) (s epoch.OpenState, err error) {
	err = m.do(ctx, func() error {
		s = epoch.OpenState{
			Lineage: m.lin, End: m.log.End(), First: m.log.FirstOffset(), FileSize: m.log.FileSize(), Sync: m.lin.Role == epoch.RoleSyncMaster,
			N: m.set.N(), Required: m.o.Required, Clean: m.clean, Force: m.o.AllowDataLoss,
		}
		if m.order != nil {
			s.Promote, s.Force = true, m.order.Force
		}
		return nil
	})
	return s, err
}

// candidate saves what the peers are about to be asked to promise, so that a restart knows its own promises again.
func (m *Manager) candidate(ctx context.Context, l epoch.Lineage, p epoch.Promise) (epoch.Promise, error) {
	if p.ID == 0 {
		p.ID = m.o.NewID()
	}
	return p, m.do(ctx, func() error {
		if m.lin.Promise != l.Promise || !m.lin.Role.Master() {
			return errCandidacy
		}
		next := m.lin
		next.Candidate = p
		return m.save(next)
	})
}

// openNow begins reign at the end of the log. A record that a slave's stream left half is cut first: it is on this log's
// end only, as the log ranks best.
func (m *Manager) openNow(ctx context.Context, end int64, reign epoch.Promise) (done, again bool, err error) {
	whole, err := m.log.WholeEnd()
	if err == nil && whole < end {
		m.slog.Info("half record cut before opening", "end", end, "to", whole)
		err = m.log.Truncate(whole)
		end = whole
	}
	if err == nil {
		_, err = m.log.FlushNow(ctx)
	}
	if err == nil {
		err = m.log.MarkWhole()
	}
	if err == nil {
		err = m.links.Prepare(ctx)
	}
	if err != nil {
		return false, false, err
	}
	err = m.do(ctx, func() error { return m.begins(end, reign) })
	if errors.Is(err, errCandidacy) {
		return false, true, nil
	}
	return err == nil, false, err
}

// begins opens a new epoch. It runs as an op.
func (m *Manager) begins(end int64, reign epoch.Promise) error {
	if m.lin.Candidate != reign || !m.lin.Role.Master() || m.log.End() != end {
		return errCandidacy
	}
	m.dropFollowers(ErrNewEpoch)
	if err := m.save(epoch.Opened(m.lin, end, reign, m.lin.Role)); err != nil {
		return err
	}
	m.slog.Info("opened as master", "epoch", reign.Epoch, "start", end, "role", m.lin.Role.String())
	m.opens()
	return nil
}

// reopen goes on with the last epoch after a clean stop. It runs as an op.
func (m *Manager) reopen(reign epoch.Promise) error {
	if err := m.save(m.lin); err != nil {
		return err
	}
	m.slog.Info("goes on as master", "epoch", reign.Epoch, "end", m.log.End(), "role", m.lin.Role.String())
	m.opens()
	return nil
}

func (m *Manager) opens() {
	m.clean = false
	m.path = []int64{m.o.NodeID}
	m.links.Open(m.lin.Epochs[len(m.lin.Epochs)-1].Start)
	m.log.SetAhead(true)
	m.metrics.changed(m.lin.Role)
	m.setOpen(true, "", "")
	m.settle(nil)
}
