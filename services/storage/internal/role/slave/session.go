package slave

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
	"github.com/tandemlog/tandem/services/storage/internal/role/feed"
	"github.com/tandemlog/tandem/services/storage/internal/role/peers"
)

// reasonRollbackFull is the reason of the log's error when a range does not fit into the rollback folder.
const reasonRollbackFull = epoch.ReasonRollbackFull

// reasonUnrelated: a slave whose log is somebody else's.
const reasonUnrelated = "UNRELATED_LOG"

// refusal is an upstream's REFUSE or REVOKE, or a slave's own word against an answer.
type refusal struct{ err *errdefs.Error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refusalOf(reason, remedy string) error {
	return &refusal{errdefs.New(errdefs.FailedPrecondition, reason, "the link was refused").WithRemedy("%s", remedy)}
}

// session is one Follow to its end: ask, compare where the histories have no epochs in common, do what the answer asks for, and
// stream.
func (s *Slave) session(ctx context.Context, addr string, copying bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := s.log.Ready(); err != nil {
		return err
	}
	compared := int64(0)
	for {
		st, err := s.owner.Stand(ctx)
		if err != nil {
			return err
		}
		own := epoch.Own{
			Lineage: st.Lineage, End: s.log.End(), First: s.log.FirstOffset(), FileSize: s.fileSize(), ComparedTo: compared,
			Copying: copying, Path: st.Path,
		}
		fs, a, err := s.ask(ctx, addr, own, st.Downstream)
		if err != nil {
			return err
		}
		p := epoch.DecideAnswer(own, a)
		if want := s.o.FileSize; !p.Refused && own.FileSize == 0 && want != 0 && a.FileSize != want {
			p = epoch.Plan{Refused: true, Reason: epoch.ReasonFileSize, Remedy: fmt.Sprintf(
				"mappedFileSizeCommitLog is %d here, and the upstream's files have %d bytes: set it to that, or leave it out to take that", want, a.FileSize)}
		}
		if p.Refused || p.Compare {
			fs.Close()
		}
		switch {
		case p.Refused:
			return refusalOf(p.Reason, p.Remedy)
		case p.Compare:
			if compared, err = s.compare(ctx, addr, p); err != nil {
				return err
			}
			continue
		}
		if err := s.carryOut(ctx, own, a, p); err != nil {
			fs.Close()
			return err
		}
		return s.stream(ctx, addr, fs, a, p, copying)
	}
}

// fileSize is 0 for a log without files.
func (s *Slave) fileSize() int64 {
	if s.log.End() <= s.log.FirstOffset() {
		return 0
	}
	return s.log.FileSize()
}

// ask sends the Follow and takes the first answer.
func (s *Slave) ask(ctx context.Context, addr string, own epoch.Own, below []int64) (peers.FollowStream, epoch.FollowAnswer, error) {
	l := own.Lineage
	if own.Copying {
		l = epoch.CopyLineage(l, own.End)
	}
	self := s.o.Set.Self
	req := epoch.FollowRequest{
		Cluster: self.Cluster, BrokerName: self.BrokerName, NodeID: self.NodeID, Address: s.o.Address, Downstream: below,
		Epochs: l.Epochs, Promise: l.Promise, End: own.End, First: own.First, FileSize: own.FileSize,
		MaxFrame: s.o.MaxFrame, Flushes: s.o.SyncFlush, ComparedTo: own.ComparedTo,
	}
	var err error
	if req.TailChecksum, req.TailSize, err = s.sums.Last(ctx, own.First, own.End); err != nil {
		return nil, epoch.FollowAnswer{}, err
	}
	s.owner.Show(func(up *Upstream) { up.Address, up.State = addr, LinkConnecting }, "")
	fs, err := s.o.Set.Follow(ctx, addr, req)
	if err != nil {
		return nil, epoch.FollowAnswer{}, fmt.Errorf("follow: %w", err)
	}
	late := time.AfterFunc(s.o.Set.Timeout, fs.Close)
	a, err := fs.Recv()
	if !late.Stop() && err != nil {
		err = ErrSilent.With("upstream", addr).With("after", s.o.Set.Timeout)
	}
	if err != nil {
		fs.Close()
		return nil, a, fmt.Errorf("follow: %w", err)
	}
	return fs, a, nil
}

// carryOut does what the plan asks for: links below end, what goes is kept and synced, then cut and synced, then the list is
// saved. A crash anywhere leaves a state from which the next Follow comes to the same end.
func (s *Slave) carryOut(ctx context.Context, own epoch.Own, a epoch.FollowAnswer, p epoch.Plan) error {
	if p.DropLinks {
		if err := s.owner.DropLinks(ctx, ErrHistoryChanged); err != nil {
			return err
		}
	}
	if p.Keep {
		err := s.log.Rollback(p.KeepFrom, a.Epochs.Last().Epoch, s.o.RollbackKeep)
		switch full := errdefs.ReasonOf(err) == reasonRollbackFull; {
		case full && !s.o.AllowDataLoss:
			return refusalOf(reasonRollbackFull, fmt.Sprintf("[%d, %d) has to be cut and does not fit: raise ha.rollbackKeep, or make room in rollback/. Only where these bytes may be lost: allowDataLoss",
				p.KeepFrom, own.End))
		case full:
			s.slog.Error("range cut without being kept", "from", p.KeepFrom, "to", own.End)
		case err != nil:
			return fmt.Errorf("keep what is cut: %w", err)
		}
	}
	if err := s.cut(p); err != nil {
		return fmt.Errorf("cut log: %w", err)
	}
	if (p.Cut || p.Reset) && own.End > own.First {
		s.slog.Warn("log cut", "from", own.End, "to", p.At, "reset", p.Reset, "kept", p.Keep, "upstream_epoch", a.Epochs.Last().Epoch)
	}
	return s.owner.Adopt(ctx, p.Next, a.Path)
}

// compare finds by checksums how far this log and that of addr are equal.
func (s *Slave) compare(ctx context.Context, addr string, p epoch.Plan) (int64, error) {
	s.slog.Info("comparing logs", "upstream", addr, "from", p.CompareFrom, "to", p.CompareTo)
	equal, err := s.sums.Compare(ctx, p.CompareFrom, p.CompareTo, func(ctx context.Context, from, to, stretch int64) ([]uint32, int64, error) {
		ctx, cancel := context.WithTimeout(ctx, s.o.SumTimeout)
		defer cancel()
		return s.o.Set.RangeChecksum(ctx, addr, from, to, stretch)
	})
	if err != nil {
		return 0, err
	}
	s.slog.Info("logs compared", "upstream", addr, "equal_to", equal)
	if equal == p.CompareTo {
		return equal, nil
	}
	// Records that differ have leading bytes in common: the logs part where the record begins.
	if equal, err = s.log.RecordStart(equal); err != nil {
		return 0, err
	}
	if equal > p.CompareFrom {
		return equal, nil
	}
	if !s.o.AllowDataLoss {
		return 0, refusalOf(reasonUnrelated, "not one record is the same: this folder belongs to another log. Start in an empty folder; "+
			"only where what is here may go, set allowDataLoss")
	}
	return epoch.NothingEqual, nil
}

func (s *Slave) cut(p epoch.Plan) error {
	if p.FileSize > 0 {
		if err := s.log.Adopt(p.FileSize); err != nil {
			return err
		}
	}
	switch {
	case p.Cut:
		return s.log.Truncate(p.At)
	case p.Reset:
		return s.log.Reset(p.At)
	}
	return nil
}

// stream receives until the link ends, by whichever side, and returns why.
func (s *Slave) stream(ctx context.Context, addr string, fs peers.FollowStream, a epoch.FollowAnswer, p epoch.Plan, copying bool) error {
	s.linkUp(addr, a)
	s.slog.Info("following", "upstream", addr, "action", a.Action.String(), "from", s.log.End(), "upstream_end", a.End)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer fs.Close()
	learned := watermark.New(a.Readable)
	wg.Go(func() { cancel(s.listen(fs, learned)) })
	args := StreamArgs{Addr: a.HAAddress, Token: &a.Token, Frame: int(a.FrameSize)}
	if copying {
		return s.run(ctx, args, func(ctx context.Context) {
			if s.log.Written().Wait(ctx, a.End) == nil {
				cancel(errCopied)
			}
		})
	}
	return s.run(ctx, args,
		func(ctx context.Context) { feed.Apply(ctx, s.log, learned) },
		func(ctx context.Context) { s.becomeWhole(ctx, p.Next, p.Want) },
		s.watchStall)
}

// run streams beside others until the stream or ctx ends.
func (s *Slave) run(ctx context.Context, args StreamArgs, beside ...func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, f := range beside {
		wg.Go(func() { f(ctx) })
	}
	err := s.puller.Stream(ctx, args)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel()
	wg.Wait()
	return err
}

// listen takes the later answers of an upstream; it returns why the control stream ended.
func (s *Slave) listen(fs peers.FollowStream, learned *watermark.Mark) error {
	for {
		a, err := fs.Recv()
		if err != nil {
			return ErrLinkEnded.Wrap(err)
		}
		switch a.Action {
		case epoch.ActionProgress:
			learned.Advance(a.Readable)
			s.owner.Show(func(up *Upstream) {
				up.End, up.Readable, up.LastReceive = max(up.End, a.End), max(up.Readable, a.Readable), time.Now()
			}, "")
		case epoch.ActionRevoke, epoch.ActionRefuse:
			return refusalOf(a.Reason, a.Remedy)
		default:
			return refusalOf(epoch.ReasonBadAnswer, "run the same version on both nodes")
		}
	}
}

// watchStall says so when the link is behind and does not move.
func (s *Slave) watchStall(ctx context.Context) {
	t := time.NewTicker(s.o.StallAfter)
	defer t.Stop()
	last := s.log.End()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		end := s.log.End()
		s.owner.Show(func(up *Upstream) {
			if end == last && end < up.End {
				up.State, up.Reason, up.Remedy = LinkStalled, "STALLED", "look at the network and at the upstream's Status; the link begins again by itself when it breaks"
			} else {
				up.State, up.Reason, up.Remedy = LinkCatchingUp, "", ""
			}
		}, "")
		last = end
	}
}
