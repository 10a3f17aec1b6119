package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// Run drives the node until ctx ends (nil) or the log fails (its error). Then all that waits is ended with ErrStopped.
func (n *Node) Run(ctx context.Context) error {
	upkeep, stop := context.WithCancel(ctx)
	var children sync.WaitGroup
	children.Go(func() { n.upkeep(upkeep) })
	err := n.loop(ctx)
	stop()
	children.Wait()
	if err == nil {
		err = n.checkpoint()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	n.stopped(err)
	return err
}

func (n *Node) loop(ctx context.Context) error {
	tick := time.NewTicker(n.o.TickInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.broken:
			return err
		case <-n.in.wake:
		case <-tick.C:
		}
		if err := n.turn(ctx); err != nil {
			return err
		}
	}
}

// turn is one round: all that has come in, then the clock, then what follows from it.
func (n *Node) turn(ctx context.Context) error {
	n.in.take(&n.round)
	now := n.o.Now()
	for i := range n.round.control {
		if !n.declines(&n.round.control[i]) {
			n.core.Step(now, n.round.control[i])
		}
	}
	for i := range n.round.pushes {
		n.stepPush(now, &n.round.pushes[i])
	}
	if err := n.serve(ctx, now, n.round.calls); err != nil {
		return err
	}
	n.core.Tick(now)
	n.giveWay(now)
	n.expire(now)
	return n.work(ctx)
}

// stepPush takes entries in, unless the disk has no room for them: the leader will send them again.
func (n *Node) stepPush(now raft.Ticks, m *raft.Message) {
	bytes := int64(0)
	for i := range m.Entries {
		bytes += int64(m.Entries[i].Size)
	}
	if n.reserve(len(m.Entries), bytes) != nil {
		return
	}
	n.core.Step(now, *m)
}

// work does Readies until nothing is left to do.
func (n *Node) work(ctx context.Context) error {
	n.unsaved, n.bytes = 0, 0
	for {
		n.ready = n.core.Ready()
		empty := n.core.Empty(&n.ready)
		if !empty {
			if err := n.carryOut(ctx, &n.ready); err != nil {
				return err
			}
		}
		n.core.Advance()
		if empty {
			return nil
		}
	}
}

// carryOut does one Ready, in the order of package consensus.
func (n *Node) carryOut(ctx context.Context, r *consensus.Ready) error {
	if err := n.save(ctx, r); err != nil {
		return err
	}
	if len(r.Messages) > 0 {
		n.net.Send(r.Messages)
	}
	if !n.o.Async && len(r.Entries) > 0 {
		if err := n.log.Sync(); err != nil {
			return fmt.Errorf("sync entries: %w", err)
		}
	}
	if len(r.Promises) > 0 {
		n.net.Send(r.Promises)
	}
	n.publish(r)
	return nil
}

// save writes what must not be forgotten; all but the entries is durable when it returns.
func (n *Node) save(ctx context.Context, r *consensus.Ready) error {
	if r.HardState != nil {
		if err := n.insist(ctx, func() error { return n.log.SaveHard(*r.HardState) }); err != nil {
			return fmt.Errorf("save hard state: %w", err)
		}
	}
	if r.Cut != nil {
		if err := n.insist(ctx, func() error { return n.log.Cut(*r.Cut) }); err != nil {
			return fmt.Errorf("cut log: %w", err)
		}
	}
	if len(r.Entries) == 0 {
		return nil
	}
	err := n.log.Append(r.Entries)
	if errdefs.ClassOf(err) == errdefs.ResourceExhausted {
		err = n.insist(ctx, func() error { return n.log.Append(r.Entries) })
	}
	if err != nil {
		return fmt.Errorf("append entries: %w", err)
	}
	return nil
}

// insist repeats f as long as the disk is full. The node is silent meanwhile: it has promised nothing of it.
func (n *Node) insist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if errdefs.ClassOf(err) != errdefs.ResourceExhausted {
			n.full.Store(nil)
			return err
		}
		if n.full.Swap(&err) == nil {
			n.o.Log.ErrorContext(ctx, "disk is full, the node waits for space", "error", err)
		}
		timer := time.NewTimer(n.o.RetryFull)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// publish tells what is new to those who wait for it.
func (n *Node) publish(r *consensus.Ready) {
	if s := r.Soft; s != nil {
		n.changed(*s, r.Committed)
	}
	if n.epoch.mark != nil {
		n.epoch.mark.Advance(int64(r.Committed))
	}
	n.committed.Advance(int64(r.Committed))
	for _, read := range r.Reads {
		n.confirmed(read.ID, read.Index, read.Refused)
	}
	for _, a := range r.Alarms {
		n.o.Log.Error("the group contradicts itself", "reason", a.Reason.String(), "from", string(a.From), "index", int64(a.Index),
			"committed", int64(a.Committed))
	}
}

// changed begins and ends epochs. What is committed when one ends may be another's entries, so its waiters are not told.
func (n *Node) changed(s consensus.SoftState, committed raft.Index) {
	old := n.Soft()
	n.soft.Store(&s)
	if n.epoch.mark != nil && (s.Role != consensus.Leader || s.Term != n.epoch.term) {
		n.endEpoch(notLeader(s.Leader))
	}
	if s.Role == consensus.Leader && n.epoch.mark == nil {
		n.epoch = epoch{term: s.Term, mark: watermark.New(int64(committed))}
	}
	if c := n.transfer; c != nil && (s.Role != consensus.Leader || s.Transferee == "") {
		n.transfer = nil
		var err error
		if s.Role == consensus.Leader {
			err = ErrTransferFailed.With("target", c.target)
		}
		c.done <- err
	}
	n.gaveWay(old, s)
	if old.Role != s.Role || old.Term != s.Term || old.Leader != s.Leader {
		n.o.Log.Info("role changed", "role", s.Role.String(), "term", int64(s.Term), "leader", string(s.Leader), "voter", s.Voter)
	}
}

func (n *Node) endEpoch(err error) {
	if n.epoch.mark != nil {
		n.epoch.mark.Close(err)
	}
	n.epoch = epoch{}
}

// inEpoch returns the mark of the leadership in which an entry of term was just taken.
func (n *Node) inEpoch(term raft.Term) *watermark.Mark {
	if n.epoch.mark == nil || n.epoch.term != term {
		n.endEpoch(notLeader(""))
		n.epoch = epoch{term: term, mark: watermark.New(n.committed.Load())}
	}
	return n.epoch.mark
}

// stopped ends all waits.
func (n *Node) stopped(cause error) {
	err := error(ErrStopped)
	if cause != nil {
		err = ErrStopped.Wrap(cause)
	}
	for _, c := range n.in.close(err) {
		c.done <- err
	}
	for _, c := range n.round.calls {
		c.refuse(err)
	}
	for _, g := range n.reads.waiting {
		g.end(err)
	}
	if n.transfer != nil {
		n.transfer.done <- err
	}
	n.endEpoch(err)
	n.committed.Close(err)
}
