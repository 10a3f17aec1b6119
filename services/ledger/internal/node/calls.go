package node

import (
	"context"
	"errors"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

type callKind uint8

const (
	callPropose callKind = iota
	callRead
	callTransfer
	callPurge
	callStatus
)

// call is what a client wants; the loop answers it by one send to done.
type call struct {
	kind    callKind
	entries []raft.Entry
	term    raft.Term // propose: only in this leadership; NoTerm: in any
	target  raft.NodeID
	index   raft.Index

	first   raft.Mark
	mark    *watermark.Mark
	status  consensus.Status
	noSpace error
	done    chan error // capacity 1
}

func (n *Node) newCall(kind callKind) *call {
	c, ok := n.calls.Get().(*call)
	if !ok {
		c = &call{done: make(chan error, 1)}
	}
	c.kind = kind
	return c
}

// free gives c back; only who has received its answer may.
func (n *Node) free(c *call) {
	*c = call{done: c.done}
	n.calls.Put(c)
}

// do hands c to the loop and waits for its answer. After ctx's error c belongs to the loop.
func (n *Node) do(ctx context.Context, c *call) error {
	if err := n.in.call(c); err != nil {
		return err
	}
	select {
	case err := <-c.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Proposal is a batch of entries that a leader has taken.
type Proposal struct {
	First raft.Mark // of its first entry
	Last  raft.Index
	mark  *watermark.Mark
}

// Wait blocks until the entries are committed. ErrNotLeader, ErrStopped and ctx's error mean that this is not known: they
// may be committed yet, or be gone.
func (p *Proposal) Wait(ctx context.Context) error { return p.mark.Wait(ctx, int64(p.Last)) }

// Propose gives entries, whose payloads are whole and belong to the node from now on, to the leader's log, all or none.
// Index and term are filled in. After ctx's error it is not known whether they were taken; every other error means that
// they were not.
func (n *Node) Propose(ctx context.Context, entries []raft.Entry) (Proposal, error) {
	return n.ProposeIn(ctx, raft.NoTerm, entries)
}

// ProposeIn is Propose in the leadership of one term: ErrNotLeader when this node leads in another one by now.
func (n *Node) ProposeIn(ctx context.Context, term raft.Term, entries []raft.Entry) (Proposal, error) {
	c := n.newCall(callPropose)
	c.entries, c.term = entries, term
	if err := n.do(ctx, c); err != nil {
		return Proposal{}, n.ended(ctx, c, err)
	}
	p := Proposal{First: c.first, Last: c.first.Index + raft.Index(len(entries)) - 1, mark: c.mark}
	n.free(c)
	return p, nil
}

// ended frees a call that was answered by an error.
func (n *Node) ended(ctx context.Context, c *call, err error) error {
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) {
		n.free(c)
	}
	return err
}

// Read returns an index: a reader that looks at the entries up to it sees everything that was acknowledged by anybody
// before the call. They are committed here when it returns. Leaders and followers may be asked. ErrReadLost after ReadTimeout,
// whatever it waits for: a leader, the node itself, or entries that do not come or find no room.
func (n *Node) Read(ctx context.Context) (raft.Index, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.o.ReadTimeout, ErrReadLost)
	defer cancel()
	index, err := n.readIndex(ctx)
	if errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), ErrReadLost) {
		err = ErrReadLost
	}
	return index, err
}

func (n *Node) readIndex(ctx context.Context) (raft.Index, error) {
	c := n.newCall(callRead)
	if err := n.do(ctx, c); err != nil {
		return raft.NoIndex, n.ended(ctx, c, err)
	}
	index := c.index
	n.free(c)
	if err := n.committed.Wait(ctx, int64(index)); err != nil {
		return raft.NoIndex, err
	}
	return index, nil
}

// Transfer hands leadership to another member and returns when this node does not lead any more. ErrTransferFailed: it
// leads on.
func (n *Node) Transfer(ctx context.Context, to raft.NodeID) error {
	c := n.newCall(callTransfer)
	c.target = to
	return n.finish(ctx, c)
}

// Purge removes the entries up to i, which must be committed.
func (n *Node) Purge(ctx context.Context, i raft.Index) error {
	c := n.newCall(callPurge)
	c.index = i
	return n.finish(ctx, c)
}

func (n *Node) finish(ctx context.Context, c *call) error {
	if err := n.do(ctx, c); err != nil {
		return n.ended(ctx, c, err)
	}
	n.free(c)
	return nil
}

// Status is the group as this node sees it.
type Status struct {
	consensus.Status
	Async    bool   // entries are acknowledged from the page cache
	Dropped  uint64 // messages that found the inbox full
	NoRoom   uint64 // pushes and proposals that found the disk full
	DiskFull error  // the node is silent until there is space; nil when it is not
	NoSpace  error  // entries are refused until there is space, all else goes on; nil when they are not
	// HandedOver counts leaderships that were given away for want of space.
	HandedOver uint64
}

// Status asks the loop. On a node that waits for space it is what was known when that began.
func (n *Node) Status(ctx context.Context) (Status, error) {
	s := Status{Async: n.o.Async, Dropped: n.in.drops(), NoRoom: n.noRoom.Load(), HandedOver: n.HandedOver()}
	if full := n.full.Load(); full != nil {
		s.DiskFull, s.Status = *full, consensus.Status{SoftState: n.Soft(), ID: n.o.Core.ID, Committed: raft.Index(n.committed.Load())}
		return s, nil
	}
	c := n.newCall(callStatus)
	if err := n.do(ctx, c); err != nil {
		return s, n.ended(ctx, c, err)
	}
	s.Status, s.NoSpace = c.status, c.noSpace
	n.free(c)
	return s, nil
}
