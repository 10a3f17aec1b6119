package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// serve hands the calls of a round to the core. One that it has taken over is taken out of the slice.
func (n *Node) serve(ctx context.Context, now raft.Ticks, calls []*call) error {
	var reads []*call
	for i, c := range calls {
		switch c.kind {
		case callRead:
			reads = append(reads, c)
		case callPurge:
			continue
		default:
			n.serveOne(now, c)
		}
		calls[i] = nil
	}
	if len(reads) > 0 {
		n.read(now, reads)
	}
	for i, c := range calls {
		if c == nil {
			continue
		}
		err := n.purge(ctx, now, c.index)
		if errors.Is(err, errFatal) {
			return err
		}
		calls[i] = nil
		c.done <- err
	}
	return nil
}

func (n *Node) serveOne(now raft.Ticks, c *call) {
	switch c.kind {
	case callPropose:
		c.done <- n.propose(now, c)
	case callTransfer:
		if r := n.core.Transfer(now, c.target); r != raft.OK {
			c.done <- refusal(r, n.Soft().Leader)
			return
		}
		n.transfer = c
	case callStatus:
		c.status, c.noSpace = n.core.Status(), n.lookAgain()
		c.done <- nil
	default:
	}
}

func (n *Node) propose(now raft.Ticks, c *call) error {
	s := n.Soft()
	switch {
	case s.Role != consensus.Leader: // no file is made for what others will take
		return notLeader(s.Leader)
	case c.term != raft.NoTerm && c.term != s.Term: // no leadership ends and another begins within one round
		return notLeader("")
	case n.room.handing:
		return ErrTransferring
	}
	bytes := int64(0)
	for i := range c.entries {
		bytes += int64(c.entries[i].Size)
	}
	if err := n.reserve(len(c.entries), bytes); err != nil {
		n.room.refused = true
		return err
	}
	first, r := n.core.Propose(now, c.entries)
	if r != raft.OK {
		n.unsaved -= len(c.entries)
		n.bytes -= bytes
		return refusal(r, n.Soft().Leader)
	}
	c.first, c.mark = first, n.inEpoch(first.Term)
	return nil
}

// errFatal marks an error after which core and log do not agree any more.
var errFatal = errors.New("node: the log has failed")

// purge drops entries in the core, which decides, and then in the log.
func (n *Node) purge(ctx context.Context, now raft.Ticks, i raft.Index) error {
	base, r := n.core.Purge(now, i)
	if r != raft.OK {
		return refusal(r, "")
	}
	err := n.insist(ctx, func() error {
		if err := n.log.Sync(); err != nil { // with Async the base may not be durable yet
			return err
		}
		return n.log.Purge(base)
	})
	if err == nil || errdefs.ClassOf(err) == errdefs.Unavailable { // somebody still reads the files: they go later
		return nil
	}
	return fmt.Errorf("%w: purge up to %d: %w", errFatal, i, err)
}

// refuse answers a call that was not served.
func (c *call) refuse(err error) {
	if c != nil {
		c.done <- err
	}
}

// upkeep syncs, where acks do not wait for it, and notes how far the log is.
func (n *Node) upkeep(ctx context.Context) {
	interval := n.o.CheckpointInterval
	if n.o.Async {
		interval = min(interval, n.o.FlushInterval)
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	noted := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var err error
		if n.o.Async {
			err = n.log.Sync()
		}
		if err == nil && time.Since(noted) >= n.o.CheckpointInterval {
			noted = time.Now()
			err = n.checkpoint()
		}
		if err != nil {
			n.broken <- err
			return
		}
	}
}

// checkpoint notes how far the log is; without room on the disk the last one stays.
func (n *Node) checkpoint() error {
	err := n.log.Checkpoint(raft.Index(n.committed.Load()))
	if err == nil || errdefs.ClassOf(err) == errdefs.ResourceExhausted {
		return nil
	}
	return fmt.Errorf("checkpoint: %w", err)
}
