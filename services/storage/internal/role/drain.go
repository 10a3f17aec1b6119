package role

import (
	"context"
	"fmt"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// reasonHeld is shown while a master hands over.
const reasonHeld = "HANDING_OVER"

var (
	// ErrNotDrained says that this node holds no puts back for the caller.
	ErrNotDrained = errdefs.New(errdefs.FailedPrecondition, "NOT_DRAINED", "this node does not hand over to the caller")
	// ErrHeldTooLong ends a Drain whose caller did not make use of it.
	ErrHeldTooLong = errdefs.New(errdefs.DeadlineExceeded, "HELD_TOO_LONG", "puts were held back too long and are taken again")
)

// hold keeps puts out of an open master. The reign goes on: links, acks and Readable stay.
type hold struct {
	over chan struct{} // closed when the node is not held any more
}

// holdPuts returns when no put is on its way into the log any more. It runs as an op.
func (m *Manager) holdPuts(remedy string) (*hold, error) {
	if m.hold != nil {
		return nil, ErrNotDrained.With("reason", reasonHeld).WithRemedy("another change of the master is under way: look at Status, then try again")
	}
	m.gate.Lock()
	defer m.gate.Unlock()
	m.hold = &hold{over: make(chan struct{})}
	m.update(func(s *State) { s.Open, s.Reason, s.Remedy = false, reasonHeld, remedy })
	return m.hold, nil
}

// unhold takes puts again, unless the reign has ended.
func (m *Manager) unhold(ctx context.Context, h *hold) {
	_ = m.do(context.WithoutCancel(ctx), func() error {
		if m.hold == h {
			m.setOpen(true, "", "")
			m.slog.Info("takes puts again")
		}
		return nil
	})
}

// quiet waits, for a while, until what was put has been confirmed, and returns the end of a log that is held.
func (m *Manager) quiet(ctx context.Context) int64 {
	end := m.log.End()
	if k := m.o.Required; m.o.MasterRole == epoch.RoleSyncMaster && k > 0 && m.links.InSync() >= k {
		_ = m.links.Acked(k).WaitUntil(ctx, end, time.Now().Add(m.o.DrainWait)) // who still waits then ends with the reign
	}
	return end
}

// OnDrain holds puts back for a node that is about to be promoted: send gets the end of the log when the waiting puts have ended.
// It returns when ctx ends, which lets puts in again, or when the reign has ended.
func (m *Manager) OnDrain(ctx context.Context, r epoch.DrainRequest, send func(end int64) error) error {
	if r.Cluster != m.o.Cluster || r.BrokerName != m.o.BrokerName {
		return ErrWrongCluster.With("cluster", m.o.Cluster).With("broker_name", m.o.BrokerName)
	}
	var h *hold
	err := m.do(ctx, func() (err error) {
		if reason, remedy := epoch.DecideDrain(m.lin, m.open, r); reason != "" {
			return ErrNotDrained.With("reason", reason).WithRemedy("%s", remedy)
		}
		h, err = m.holdPuts(fmt.Sprintf("put again in a moment: node %d takes over", r.NodeID))
		return err
	})
	if err != nil {
		return err
	}
	defer m.unhold(ctx, h)
	m.slog.Info("holds puts back", "for_node", r.NodeID)
	if err := send(m.quiet(ctx)); err != nil {
		return err
	}
	late := time.NewTimer(m.o.HoldMost)
	defer late.Stop()
	select {
	case <-h.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return ErrHeldTooLong.With("after", m.o.HoldMost)
	}
}
