package role

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// errCopied ends the link of a starting master that has all it wanted.
var errCopied = errdefs.New(errdefs.Canceled, "COPIED", "the log is copied")

// reasonRollbackFull is the reason of the log's error when a range does not fit into the rollback folder.
const reasonRollbackFull = epoch.ReasonRollbackFull

// refusal is an upstream's REFUSE or REVOKE, or a slave's own word against an answer.
type refusal struct{ err *errdefs.Error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refusalOf(reason, remedy string) error {
	return &refusal{errdefs.New(errdefs.FailedPrecondition, reason, "the link was refused").WithRemedy("%s", remedy)}
}

func asRefusal(err error, r **refusal) bool { return errors.As(err, r) }

// cmpReason returns a word for Status for any error.
func cmpReason(err error) string {
	if r := errdefs.ReasonOf(err); r != "" {
		return r
	}
	return "UNREACHABLE"
}

// remedyOf returns what an operator can do about err, else what it says.
func remedyOf(err error) string {
	if e := errdefs.As(err); e != nil && e.Remedy != "" {
		return e.Remedy
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

// session is one Follow to its end: ask, compare where the histories have no epochs in common, do what the answer asks for, and
// stream.
func (m *Manager) session(ctx context.Context, addr string, l epoch.Lineage, copying bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	compared := int64(0)
	for {
		own := epoch.Own{
			Lineage: l, End: m.log.End(), First: m.log.FirstOffset(), FileSize: m.fileSize(), ComparedTo: compared,
			Copying: copying, Path: m.pathOf(ctx),
		}
		fs, a, err := m.ask(ctx, addr, own)
		if err != nil {
			return err
		}
		p := epoch.DecideAnswer(own, a)
		if p.Refused || p.Compare {
			fs.Close()
		}
		switch {
		case p.Refused:
			return refusalOf(p.Reason, p.Remedy)
		case p.Compare:
			if compared, err = m.compare(ctx, addr, p.CompareFrom, p.CompareTo); err != nil {
				return err
			}
			if compared <= p.CompareFrom {
				compared = epoch.NothingEqual
			}
			continue
		}
		if err := m.carryOut(ctx, own, a, p); err != nil {
			fs.Close()
			return err
		}
		return m.stream(ctx, addr, fs, a, p, copying)
	}
}

// fileSize is 0 for a log without files.
func (m *Manager) fileSize() int64 {
	if m.log.End() <= m.log.FirstOffset() {
		return 0
	}
	return m.log.FileSize()
}

// pathOf returns the path of the last upstream; nil when ctx ended, which the next op says too.
func (m *Manager) pathOf(ctx context.Context) (path []int64) {
	_ = m.do(ctx, func() error {
		if len(m.path) > 0 {
			path = m.path[1:]
		}
		return nil
	})
	return path
}

// ask sends the Follow and takes the first answer.
func (m *Manager) ask(ctx context.Context, addr string, own epoch.Own) (FollowStream, epoch.FollowAnswer, error) {
	l := own.Lineage
	if own.Copying {
		l = epoch.CopyLineage(l, own.End)
	}
	req := epoch.FollowRequest{
		Cluster: m.o.Cluster, BrokerName: m.o.BrokerName, NodeID: m.o.NodeID, Address: m.o.Address,
		Epochs: l.Epochs, Promise: l.Promise, End: own.End, First: own.First, FileSize: own.FileSize,
		MaxFrame: m.o.MaxFrame, ComparedTo: own.ComparedTo,
	}
	if err := m.do(ctx, func() error { req.Downstream = m.downstream(); return nil }); err != nil {
		return nil, epoch.FollowAnswer{}, err
	}
	if req.TailSize = min(tailSize, own.End-own.First); req.TailSize > 0 {
		sum, err := m.sum(ctx, own.End-req.TailSize, own.End)
		if err != nil {
			return nil, epoch.FollowAnswer{}, err
		}
		req.TailChecksum = sum
	}
	m.update(func(s *State) { s.Upstream.Address, s.Upstream.State = addr, LinkConnecting })
	fs, err := m.peers.Follow(ctx, addr, req)
	if err != nil {
		return nil, epoch.FollowAnswer{}, fmt.Errorf("follow: %w", err)
	}
	late := time.AfterFunc(m.o.CallTimeout, fs.Close)
	a, err := fs.Recv()
	if !late.Stop() && err != nil {
		err = ErrSilent.With("upstream", addr).With("after", m.o.CallTimeout)
	}
	if err != nil {
		fs.Close()
		return nil, a, fmt.Errorf("follow: %w", err)
	}
	return fs, a, nil
}

// carryOut does what the plan asks for: links below end, what goes is kept and synced, then cut and synced, then the list is
// saved. A crash anywhere leaves a state from which the next Follow comes to the same end.
func (m *Manager) carryOut(ctx context.Context, own epoch.Own, a epoch.FollowAnswer, p epoch.Plan) error {
	if p.DropLinks {
		if err := m.do(ctx, func() error { m.dropFollowers(ErrHistoryChanged); return nil }); err != nil {
			return err
		}
	}
	if p.Keep {
		err := m.log.Rollback(p.KeepFrom, a.Epochs.Last().Epoch, m.o.RollbackKeep)
		switch full := errdefs.ReasonOf(err) == reasonRollbackFull; {
		case full && !m.o.AllowDataLoss:
			return refusalOf(reasonRollbackFull, fmt.Sprintf("[%d, %d) does not fit: raise ha.rollbackKeep, or set allowDataLoss to cut it unkept",
				p.KeepFrom, own.End))
		case full:
			m.slog.Error("range cut without being kept", "from", p.KeepFrom, "to", own.End)
		case err != nil:
			return fmt.Errorf("keep what is cut: %w", err)
		}
	}
	if err := m.cut(p); err != nil {
		return fmt.Errorf("cut log: %w", err)
	}
	if p.Cut || p.Reset {
		m.slog.Warn("log cut", "from", own.End, "to", p.At, "kept", p.Keep, "upstream_epoch", a.Epochs.Last().Epoch)
	}
	return m.do(ctx, func() error {
		m.clean = false
		m.path = append([]int64{m.o.NodeID}, a.Path...)
		return m.save(p.Next)
	})
}

func (m *Manager) cut(p epoch.Plan) error {
	if p.FileSize > 0 {
		if err := m.log.Adopt(p.FileSize); err != nil {
			return err
		}
	}
	switch {
	case p.Cut:
		return m.log.Truncate(p.At)
	case p.Reset:
		return m.log.Reset(p.At)
	}
	return nil
}

// stream receives until the link ends, by whichever side, and returns why.
func (m *Manager) stream(ctx context.Context, addr string, fs FollowStream, a epoch.FollowAnswer, p epoch.Plan, copying bool) error {
	m.linkUp(addr, a)
	m.slog.Info("following", "upstream", addr, "action", a.Action.String(), "from", m.log.End(), "upstream_end", a.End)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer fs.Close()
	learned := watermark.New(a.Readable)
	wg.Go(func() { cancel(m.listen(fs, learned)) })
	args := StreamArgs{Addr: a.HAAddress, Token: &a.Token, Frame: int(a.FrameSize)}
	if copying {
		return m.run(ctx, args, func(ctx context.Context) {
			if m.log.Written().Wait(ctx, a.End) == nil {
				cancel(errCopied)
			}
		})
	}
	return m.run(ctx, args,
		func(ctx context.Context) { m.applyReadable(ctx, learned) },
		func(ctx context.Context) { m.becomeWhole(ctx, p.Next, p.Want) },
		m.watchStall)
}

// run streams beside others until the stream or ctx ends.
func (m *Manager) run(ctx context.Context, args StreamArgs, beside ...func(context.Context)) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, f := range beside {
		wg.Go(func() { f(ctx) })
	}
	err := m.puller.Stream(ctx, args)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	cancel()
	wg.Wait()
	return err
}

// listen takes the later answers of an upstream; it returns why the control stream ended.
func (m *Manager) listen(fs FollowStream, learned *watermark.Mark) error {
	for {
		a, err := fs.Recv()
		if err != nil {
			return ErrLinkEnded.Wrap(err)
		}
		switch a.Action {
		case epoch.ActionProgress:
			learned.Advance(a.Readable)
			m.update(func(s *State) {
				up := &s.Upstream
				up.End, up.Readable, up.LastReceive = max(up.End, a.End), max(up.Readable, a.Readable), time.Now()
			})
		case epoch.ActionRevoke, epoch.ActionRefuse:
			return refusalOf(a.Reason, a.Remedy)
		default:
			return refusalOf(epoch.ReasonBadAnswer, "run the same version on both nodes")
		}
	}
}

// watchStall says so when the link is behind and does not move.
func (m *Manager) watchStall(ctx context.Context) {
	t := time.NewTicker(m.o.StallAfter)
	defer t.Stop()
	last := m.log.End()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		end := m.log.End()
		m.update(func(s *State) {
			up := &s.Upstream
			if end == last && end < up.End {
				up.State, up.Reason, up.Remedy = LinkStalled, "STALLED", "look at the network and at the upstream's Status; the link begins again by itself when it breaks"
			} else {
				up.State, up.Reason, up.Remedy = LinkCatchingUp, "", ""
			}
		})
		last = end
	}
}
