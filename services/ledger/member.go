package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog"
	"github.com/tandemlog/tandem/services/ledger/internal/node"
)

// member is this node's seat in the group. A bootstrap, which is for empty nodes only, puts a new node.Node into it.
type member struct {
	log  *entrylog.Log
	make func(consensus.Start) (*node.Node, error)

	life   atomic.Pointer[life]
	orders chan chan error
	ended  chan struct{} // closed when Run has returned
}

// life is one node.Node in the seat.
type life struct {
	node     *node.Node
	replaced chan struct{}
}

func newMember(log *entrylog.Log) *member {
	return &member{log: log, orders: make(chan chan error), ended: make(chan struct{})}
}

// seat begins a life.
func (m *member) seat(s consensus.Start) error {
	n, err := m.make(s)
	if err != nil {
		return err
	}
	m.life.Store(&life{node: n, replaced: make(chan struct{})})
	return nil
}

func (m *member) node() *node.Node { return m.life.Load().node }

// Run runs the node, and after a bootstrap the one that takes its place.
func (m *member) Run(ctx context.Context) error {
	defer close(m.ended)
	for {
		l := m.life.Load()
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- l.node.Run(running) }()
		select {
		case err := <-done:
			stop()
			return err
		case answer := <-m.orders:
			stop()
			err := <-done
			if err == nil {
				err = m.begin(l, answer)
			} else {
				answer <- err
			}
			if err != nil {
				return err
			}
		}
	}
}

// errNotEmptyAnyMore: entries came between the order and its execution.
var errNotEmptyAnyMore = errdefs.New(errdefs.Aborted, "BOOTSTRAP_RACE", "the node got entries while it was to begin a group").
	WithRemedy("start it again: it is a member of the group that wrote them")

// begin makes the node, which has stopped, a voter of a new group, and starts it again, in any case.
func (m *member) begin(l *life, answer chan<- error) error {
	start := consensus.Start{HardState: raft.HardState{Term: l.node.Soft().Term}}
	start.Base, start.Last, start.Committed = raft.Mark{Index: raft.NoIndex, Term: raft.NoTerm}, raft.NoIndex, raft.NoIndex
	if m.log.Last() != raft.NoIndex {
		answer <- errNotEmptyAnyMore
		return errNotEmptyAnyMore
	}
	err := m.log.Bootstrap()
	if err == nil {
		start.HardState = raft.Bootstrap()
	}
	fatal := m.log.Err()
	if fatal == nil {
		fatal = m.seat(start)
	}
	close(l.replaced)
	answer <- err
	return fatal
}

// Bootstrap makes an empty node a voter of a new group; one that is so already is left as it is.
func (m *member) Bootstrap(ctx context.Context) error {
	s := m.node().Soft()
	switch {
	case m.log.Last() != raft.NoIndex || s.Term != 0:
		return entrylog.ErrNotEmpty.With("last", m.log.Last()).With("term", s.Term)
	case s.Voter:
		return nil
	}
	answer := make(chan error, 1)
	select {
	case m.orders <- answer:
		return <-answer
	case <-m.ended:
		return node.ErrStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Deliver implements peer.Inbox.
func (m *member) Deliver(msg raft.Message) bool { return m.node().Deliver(msg) }

// ProposeIn implements once.Group.
func (m *member) ProposeIn(ctx context.Context, term raft.Term, entries []raft.Entry) (node.Proposal, error) {
	return m.node().ProposeIn(ctx, term, entries)
}

// Read implements once.Group and rpc.Reader.
func (m *member) Read(ctx context.Context) (raft.Index, error) { return m.node().Read(ctx) }

// Soft implements once.Group.
func (m *member) Soft() consensus.SoftState { return m.node().Soft() }

// Committed implements once.Group and rpc.Reader.
func (m *member) Committed() (*watermark.Mark, <-chan struct{}) {
	l := m.life.Load()
	return l.node.Committed(), l.replaced
}

// bootClock is a clock that goes on while the machine sleeps, milliseconds.
func bootClock() raft.Ticks {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return raft.Ticks(time.Since(started).Milliseconds()) // a kernel without it
	}
	return raft.Ticks(ts.Nano() / int64(time.Millisecond))
}
