package slave

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/feed"
)

// lasting is how long a link has to hold for the next pause to be short again.
const lasting = 10 * time.Second

// Run finds an upstream, follows it, and begins again, until ctx ends.
func (s *Slave) Run(ctx context.Context) {
	pause := s.o.Backoff
	last := ""
	for {
		begun := time.Now()
		err := s.followOnce(ctx)
		if ctx.Err() != nil {
			s.linkDown(context.Cause(ctx))
			return
		}
		s.linkDown(err)
		if s.owner.Unlink(ctx) != nil {
			return
		}
		// What keeps the link away is told once, not at every try.
		if reason := cmp.Or(errdefs.ReasonOf(err), err.Error()); reason != last || time.Since(begun) > lasting {
			s.slog.Warn("no link to the upstream", "error", err)
			last = reason
		}
		if time.Since(begun) > lasting {
			pause.Reset()
		}
		if !pause.Wait(ctx) {
			return
		}
	}
}

// followOnce follows the configured upstream, or the open master that the peers name when there is none or it does not serve.
func (s *Slave) followOnce(ctx context.Context) error {
	if s.o.Legacy {
		return s.followLegacy(ctx)
	}
	err := error(ErrNoUpstream)
	if addr := s.o.MasterAddress; addr != "" {
		if err = s.follow(ctx, addr); ctx.Err() != nil || s.o.Set.N() == 1 {
			return err
		}
	}
	r := s.o.Set.Hear(ctx, epoch.Promise{})
	addr := r.OpenMaster()
	switch {
	case addr != "" && addr != s.o.MasterAddress:
		s.owner.Show(func(*Upstream) {}, addr)
		return s.follow(ctx, addr)
	case s.o.MasterAddress != "":
		return err
	}
	if r.AllEmpty() && s.log.End() == 0 {
		return ErrNoUpstream.WithRemedy("%s%s", neverMaster, r.Absent())
	}
	return ErrNoUpstream.WithRemedy("%s%s", ErrNoUpstream.Remedy, r.Absent())
}

// follow holds one link to addr until it ends; never nil.
func (s *Slave) follow(ctx context.Context, addr string) error {
	st, err := s.owner.Stand(ctx)
	if err != nil {
		return err
	}
	if st.Lineage.Promise.Epoch == 0 {
		if err := s.hearFirst(ctx, st.Lineage); err != nil {
			return err
		}
	}
	return s.session(ctx, addr, false)
}

// hearFirst lets a node that has promised nothing, and may have forgotten a promise, learn what binds it.
func (s *Slave) hearFirst(ctx context.Context, l epoch.Lineage) error {
	r := s.o.Set.Hear(ctx, epoch.Promise{})
	d := epoch.DecideEmptyFollow(l, r.Heard, s.o.Set.N(), s.o.Required)
	if !d.Follow {
		return ErrForgotten.With("missing", d.Missing).WithRemedy("%s%s", ErrForgotten.Remedy, r.Absent())
	}
	if !d.Changed {
		return nil
	}
	return s.owner.Save(ctx, func(epoch.Lineage) epoch.Lineage { return d.Next })
}

// Copy fetches what the better-ranked log of node nodeID has more, as a slave would, up to the end that its node names. Its
// list comes with it. An error of reason LOG_DIVERGES: that log does not extend this one.
func (s *Slave) Copy(ctx context.Context, addr string, nodeID int64) error {
	err := s.session(ctx, addr, true)
	s.linkDown(err)
	switch errdefs.ReasonOf(err) {
	case errCopied.Reason:
		return nil
	case epoch.ReasonLogDiverges, epoch.ReasonBadAnswer:
		d := epoch.Diverges(nodeID)
		return errdefs.New(errdefs.FailedPrecondition, d.Reason, "the best-ranked log does not extend this one").WithRemedy("%s", d.Remedy)
	}
	return err
}

// becomeWhole waits until the log holds, on the disk, all that an open master had at Follow.
func (s *Slave) becomeWhole(ctx context.Context, l epoch.Lineage, want int64) {
	if want < 0 || l.Whole() || s.log.Written().Wait(ctx, want) != nil {
		return
	}
	flushed, err := s.log.FlushNow(ctx)
	if err == nil {
		err = s.log.MarkWhole()
	}
	if err == nil {
		err = s.owner.Save(ctx, func(l epoch.Lineage) epoch.Lineage { return epoch.CaughtUp(l, flushed) })
	}
	if err != nil {
		s.slog.Warn("node stays not whole on this link", "error", err)
		return
	}
	s.slog.Info("node is whole", "end", flushed)
}

// followLegacy holds a link to a RocketMQ master: no control stream, no epochs, Readable is the own end.
func (s *Slave) followLegacy(ctx context.Context) error {
	st, err := s.owner.Stand(ctx)
	if err != nil {
		return err
	}
	l := st.Lineage
	if len(l.Epochs) > 0 || l.Promise.Epoch > 0 {
		return ErrLegacyEpochs.With("last_epoch", l.Known().Epoch)
	}
	if err := s.log.Ready(); err != nil {
		return err
	}
	if empty := s.log.End() <= s.log.FirstOffset(); empty && s.o.LegacyFirst > 0 && s.log.End() != s.o.LegacyFirst {
		if err := s.log.Reset(s.o.LegacyFirst); err != nil {
			return err
		}
	}
	args := StreamArgs{Addr: s.o.MasterAddress}
	if s.log.End() == 0 {
		args.EmptyReport = 1
	}
	s.linkUp(s.o.MasterAddress, epoch.FollowAnswer{End: s.log.End()})
	learned := watermark.New(watermark.Max)
	return s.run(ctx, args, func(ctx context.Context) { feed.Apply(ctx, s.log, learned) })
}

func (s *Slave) linkUp(addr string, a epoch.FollowAnswer) {
	now := time.Now()
	master := ""
	if a.OpenMaster {
		master = addr
	}
	s.owner.Show(func(up *Upstream) {
		up.Address, up.State, up.End, up.Readable = addr, LinkCatchingUp, a.End, a.Readable
		up.ConnectedAt, up.LastReceive, up.Reason, up.Remedy = now, now, "", ""
		up.Connects++
	}, master)
}

// linkDown records why the link ended.
func (s *Slave) linkDown(err error) {
	state := LinkDisconnected
	if r := (*refusal)(nil); errors.As(err, &r) {
		state = LinkRefused
	}
	s.owner.Show(func(up *Upstream) { up.State, up.Reason, up.Remedy = state, Reason(err), Remedy(err) }, "")
}
