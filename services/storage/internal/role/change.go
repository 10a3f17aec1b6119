package role

import (
	"context"
	"fmt"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/change"
)

// Promoted is what came of a Promote.
type Promoted = change.Promoted

// Promote makes this node the open master; see package change.
func (m *Manager) Promote(ctx context.Context, force bool) (Promoted, error) {
	return m.promoter.Promote(ctx, force) //nolint:wrapcheck // sentinels
}

// Reign implements change.Owner.
func (o owner) Reign(ctx context.Context) (at Promoted, open bool, err error) {
	err = o.m.do(ctx, func() error {
		at.Role, open = o.m.lin.Role, o.m.open
		if n := len(o.m.lin.Epochs); n > 0 {
			at.Epoch, at.Start = o.m.lin.Epochs[n-1].Epoch, o.m.lin.Epochs[n-1].Start
		}
		return nil
	})
	return at, open, err
}

// OpenState implements change.Owner.
func (o owner) OpenState(ctx context.Context) (epoch.OpenState, error) {
	s, err := o.m.openState(ctx)
	s.Sync, s.Clean = o.m.o.MasterRole == epoch.RoleSyncMaster, false
	return s, err
}

// Claim implements change.Owner.
func (o owner) Claim(ctx context.Context, s epoch.OpenState, d epoch.OpenDecision, order *change.Order) error {
	m := o.m
	return m.do(ctx, func() error {
		if m.open || m.lin.Promise != s.Lineage.Promise || m.lin.Epochs.Last() != s.Lineage.Epochs.Last() {
			return change.ErrNotPromoted.With("reason", errCandidacy.Reason).WithRemedy("look at Status, then promote again")
		}
		next := m.lin
		next.Role, next.Open = m.o.MasterRole, false
		if d.Action == epoch.OpenAsk {
			if next.Candidate = d.Reign; d.Reign.ID == 0 {
				next.Candidate.ID = m.o.NewID()
			}
		}
		if err := m.save(next); err != nil {
			return err
		}
		m.slog.Info("promotion begins", "force", order.Force, "candidate_epoch", next.Candidate.Epoch)
		m.clean, m.order = false, order
		m.setOpen(false, ErrPromoting.Reason, "wait: this node is about to open")
		m.stopWork(ErrPromoting)
		return nil
	})
}

// Yield implements change.Owner.
func (o owner) Yield(ctx context.Context, order *change.Order) (reason, remedy string, err error) {
	err = o.m.do(ctx, func() error {
		order.Force = false
		st := o.m.State()
		reason, remedy = st.Reason, st.Remedy
		return nil
	})
	return reason, remedy, err
}

// Written implements change.Owner.
func (o owner) Written() *watermark.Mark { return o.m.log.Written() }

// settle ends the promotion that is under way, if any. It runs as an op.
func (m *Manager) settle(err error) {
	if m.order != nil {
		m.order.Settle(err)
		m.order = nil
	}
}

// notOpen says why a master is not open.
func (m *Manager) notOpen(ctx context.Context, reason, remedy string) {
	_ = m.do(ctx, func() error {
		if m.order != nil {
			reason, remedy = change.HalfWay, fmt.Sprintf("%s: %s. It is tried again by itself; demote the node to give it up", reason, remedy)
		}
		m.waits(reason, remedy)
		return nil
	})
}

// Demoted is what came of a Demote.
type Demoted struct {
	End          int64 // of the log, bytes
	AlreadySlave bool
}

// Demote makes a master a slave, durably: puts are refused, those that wait are given a moment, links end. It also gives a
// promotion up that has not opened.
func (m *Manager) Demote(ctx context.Context) (Demoted, error) {
	var h *hold
	err := m.do(ctx, func() (err error) {
		if m.open {
			h, err = m.holdPuts("this node is being demoted: promote another one")
		}
		return err
	})
	if err != nil {
		return Demoted{}, err
	}
	if h != nil {
		defer m.unhold(ctx, h)
		m.quiet(ctx)
	}
	var out Demoted
	err = m.do(ctx, func() error {
		out = Demoted{End: m.log.End(), AlreadySlave: !m.lin.Role.Master()}
		if out.AlreadySlave {
			return nil
		}
		if err := m.stepDown(epoch.SteppedDown(m.lin), ErrDemoted); err != nil {
			return err
		}
		m.stopWork(ErrDemoted)
		return nil
	})
	return out, err
}
