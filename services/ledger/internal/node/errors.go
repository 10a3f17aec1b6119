package node

import (
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/consensus/raft"
)

// retrySoon is when something that is passing is worth another try.
const retrySoon = 50 * time.Millisecond

// Errors of this package. Those of the log come through.
var (
	// ErrNotLeader: only the leader can do this; `leader`, if it is known, names it. Nothing was done. From a Proposal's Wait
	// it means that leadership ended before the entries were known to be committed: they may be yet.
	ErrNotLeader = errdefs.New(errdefs.FailedPrecondition, "NOT_LEADER", "this node does not lead the group")
	// ErrNoLeader: the group has no leader that this node knows of.
	ErrNoLeader = errdefs.New(errdefs.Unavailable, "NO_LEADER", "no leader is known").WithRetry(retrySoon)
	// ErrBusy: a queue is full. Nothing was done.
	ErrBusy = errdefs.New(errdefs.ResourceExhausted, "NODE_BUSY", "too much waits for this node").WithRetry(retrySoon)
	// ErrPendingFull: too many entries are not committed yet; DLedger's LEADER_PENDING_FULL. Nothing was done.
	ErrPendingFull = errdefs.New(errdefs.ResourceExhausted, "LEADER_PENDING_FULL", "too many entries are not committed yet").WithRetry(retrySoon)
	// ErrTransferring: leadership is being handed over; DLedger's LEADER_TRANSFERRING. Nothing was done.
	ErrTransferring = errdefs.New(errdefs.Unavailable, "LEADER_TRANSFERRING", "leadership is being handed over").WithRetry(retrySoon)
	// ErrTransferFailed: the target did not take over in time; this node leads on. DLedger's TAKE_LEADERSHIP_FAILED.
	ErrTransferFailed = errdefs.New(errdefs.Aborted, "TAKE_LEADERSHIP_FAILED", "the target did not take over in time")
	// ErrRefused: the core refused the call, `why` says for which reason. Nothing was done.
	ErrRefused = errdefs.New(errdefs.FailedPrecondition, "REFUSED", "the request cannot be carried out")
	// ErrReadLost: the answer to a read did not come in time.
	ErrReadLost = errdefs.New(errdefs.Unavailable, "READ_LOST", "no leader confirmed the read in time").WithRetry(retrySoon)
	// ErrStopped: the node has ended; its cause, if there is one, is what ended it.
	ErrStopped = errdefs.New(errdefs.Unavailable, "NODE_STOPPED", "the node has stopped")
)

// refusal is the error for a reason other than OK.
func refusal(r raft.Reason, leader raft.NodeID) error {
	switch r {
	case raft.NotLeader:
		return notLeader(leader)
	case raft.NoLeader:
		return ErrNoLeader
	case raft.PendingFull:
		return ErrPendingFull
	case raft.ReadsFull:
		return ErrBusy
	case raft.Transferring:
		return ErrTransferring
	case raft.BadProposal:
		return errdefs.Invalid("entries", "none, or one whose size is out of bounds")
	case raft.UnknownPeer:
		return errdefs.Invalid("target", "no member of the group, or this node")
	default:
		return ErrRefused.With("why", r)
	}
}

func notLeader(leader raft.NodeID) error {
	if leader == "" {
		return ErrNotLeader.WithRetry(retrySoon)
	}
	return ErrNotLeader.With("leader", leader)
}
