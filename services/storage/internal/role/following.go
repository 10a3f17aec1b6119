package role

import (
	"context"
	"math"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// lasting is how long a link has to hold for the next pause to be short again.
const lasting = 10 * time.Second

// following is the work of a slave: find an upstream, follow it, begin again.
func (m *Manager) following(ctx context.Context) {
	m.waits("SLAVE", "send puts to the open master")
	pause := backoff{least: m.o.BackoffMin, most: m.o.BackoffMax}
	for {
		begun := time.Now()
		err := m.followOnce(ctx)
		if ctx.Err() != nil {
			m.linkDown(context.Cause(ctx))
			return
		}
		m.linkDown(err)
		m.slog.Info("link to upstream ended", "error", err)
		if time.Since(begun) > lasting {
			pause.reset()
		}
		if !pause.wait(ctx) {
			return
		}
	}
}

// followOnce follows the configured upstream, or the open master that the peers name when there is none or it does not serve.
func (m *Manager) followOnce(ctx context.Context) error {
	if m.o.Legacy {
		return m.followLegacy(ctx)
	}
	err := error(ErrNoUpstream)
	if addr := m.o.MasterAddress; addr != "" {
		if err = m.follow(ctx, addr); ctx.Err() != nil || len(m.o.Peers) == 0 {
			return err
		}
	}
	r := m.hear(ctx, epoch.Promise{})
	addr := r.openMaster()
	switch {
	case addr != "" && addr != m.o.MasterAddress:
		m.update(func(s *State) { s.Master = addr })
		return m.follow(ctx, addr)
	case m.o.MasterAddress != "":
		return err
	}
	return ErrNoUpstream.WithRemedy("%s%s", ErrNoUpstream.Remedy, r.absent())
}

// follow holds one link to addr until it ends; never nil.
func (m *Manager) follow(ctx context.Context, addr string) error {
	l, err := m.lineage(ctx)
	if err != nil {
		return err
	}
	if l.Promise.Epoch == 0 {
		if l, err = m.hearFirst(ctx, l); err != nil {
			return err
		}
	}
	return m.session(ctx, addr, l, false)
}

// hearFirst lets a node that has promised nothing, and may have forgotten a promise, learn what binds it.
func (m *Manager) hearFirst(ctx context.Context, l epoch.Lineage) (epoch.Lineage, error) {
	r := m.hear(ctx, epoch.Promise{})
	d := epoch.DecideEmptyFollow(l, r.heard, len(m.o.Peers)+1, m.o.Required)
	if !d.Follow {
		return l, ErrForgotten.With("missing", d.Missing).WithRemedy("%s%s", ErrForgotten.Remedy, r.absent())
	}
	if !d.Changed {
		return l, nil
	}
	return d.Next, m.do(ctx, func() error { return m.save(d.Next) })
}

// copyLog fetches what a better-ranked log has more, as a slave would, up to the end that its node names. Its list comes
// with it.
func (m *Manager) copyLog(ctx context.Context, addr string, nodeID int64) error {
	l, err := m.lineage(ctx)
	if err != nil {
		return err
	}
	m.waits("COPYING", "wait: the best-ranked log is being copied from "+addr)
	err = m.session(ctx, addr, l, true)
	m.linkDown(err)
	switch errdefs.ReasonOf(err) {
	case errCopied.Reason:
		return nil
	case epoch.ReasonLogDiverges, epoch.ReasonBadAnswer:
		if !m.o.AllowDataLoss {
			d := epoch.Diverges(nodeID)
			return errdefs.New(errdefs.FailedPrecondition, d.Reason, "the best-ranked log does not extend this one").WithRemedy("%s", d.Remedy)
		}
	}
	return err
}

// applyReadable raises Readable to what the upstream has told, as far as the log reaches.
func (m *Manager) applyReadable(ctx context.Context, learned *watermark.Mark) {
	written := m.log.Written()
	for {
		l, w := learned.Load(), written.Load()
		m.log.SetReadable(min(l, w))
		mark, at := learned, l
		if w < l {
			mark, at = written, w
		}
		if at == math.MaxInt64 || mark.Wait(ctx, at+1) != nil {
			return
		}
	}
}

// becomeWhole waits until the log holds, on the disk, all that an open master had at Follow.
func (m *Manager) becomeWhole(ctx context.Context, l epoch.Lineage, want int64) {
	if want < 0 || l.Whole() || m.log.Written().Wait(ctx, want) != nil {
		return
	}
	flushed, err := m.log.FlushNow(ctx)
	if err == nil {
		err = m.log.MarkWhole()
	}
	if err == nil {
		err = m.do(ctx, func() error { return m.save(epoch.CaughtUp(m.lin, flushed)) })
	}
	if err != nil {
		m.slog.Warn("node stays not whole on this link", "error", err)
		return
	}
	m.slog.Info("node is whole", "end", flushed)
}

// followLegacy holds a link to a RocketMQ master: no control stream, no epochs, Readable is the own end.
func (m *Manager) followLegacy(ctx context.Context) error {
	l, err := m.lineage(ctx)
	if err != nil {
		return err
	}
	if len(l.Epochs) > 0 || l.Promise.Epoch > 0 {
		return ErrLegacyEpochs.With("last_epoch", l.Known().Epoch)
	}
	if empty := m.log.End() <= m.log.FirstOffset(); empty && m.o.LegacyFirst > 0 && m.log.End() != m.o.LegacyFirst {
		if err := m.log.Reset(m.o.LegacyFirst); err != nil {
			return err
		}
	}
	args := StreamArgs{Addr: m.o.MasterAddress}
	if m.log.End() == 0 {
		args.EmptyReport = 1
	}
	m.linkUp(m.o.MasterAddress, epoch.FollowAnswer{End: m.log.End()})
	learned := watermark.New(math.MaxInt64)
	return m.run(ctx, args, func(ctx context.Context) { m.applyReadable(ctx, learned) })
}

func (m *Manager) linkUp(addr string, a epoch.FollowAnswer) {
	now := time.Now()
	m.update(func(s *State) {
		up := &s.Upstream
		up.Address, up.State, up.End, up.Readable = addr, LinkCatchingUp, a.End, a.Readable
		up.ConnectedAt, up.LastReceive, up.Reason, up.Remedy = now, now, "", ""
		up.Connects++
		if a.OpenMaster {
			s.Master = addr
		}
	})
}

// linkDown records why the link ended.
func (m *Manager) linkDown(err error) {
	m.update(func(s *State) {
		s.Upstream.State = LinkDisconnected
		if r := (*refusal)(nil); asRefusal(err, &r) {
			s.Upstream.State = LinkRefused
		}
		s.Upstream.Reason, s.Upstream.Remedy = cmpReason(err), remedyOf(err)
	})
}
