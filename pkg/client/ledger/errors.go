package ledger

import (
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/group"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors of this package; what a node answers keeps its own class and reason.
var (
	// ErrClosed: the client or sender was closed.
	ErrClosed = nodes.ErrClosed
	// ErrAppendUnknown: the append was sent, and it is not known whether the entry stands, or will. A node says so itself when
	// its leadership ends, or the deadline passes, before the entry is committed.
	ErrAppendUnknown = errdefs.New(errdefs.Unknown, "APPEND_UNKNOWN", "it is not known whether the entry stands or will")
	// ErrUnreachable: no connection to the address, or it broke.
	ErrUnreachable = errdefs.New(errdefs.Unavailable, grpcx.ReasonUnreachable, "cannot reach the node")
	// ErrNoLeader: none of the nodes that answered leads the group, or knows who does.
	ErrNoLeader = group.ErrNoLeader
	// ErrNotLeader: the node does not lead the group.
	ErrNotLeader = group.ErrNotLeader
	// ErrWindowPassed: the group does not remember back to when the entry was first sent, and will not append it: it may stand.
	ErrWindowPassed = errdefs.New(errdefs.FailedPrecondition, "IDEMPOTENCE_WINDOW_PASSED", "the entry may stand already, and the group does not remember that far")
	// ErrNotCommitted: there is no entry of this index yet; `committed` is the last one.
	ErrNotCommitted = errdefs.New(errdefs.OutOfRange, "INDEX_NOT_COMMITTED", "no entry of this index is committed")
	// ErrOutOfRange: the entry has been removed from the beginning of the log; `first` is the first one.
	ErrOutOfRange = errdefs.New(errdefs.OutOfRange, "INDEX_OUT_OF_RANGE", "the log does not reach back to this index")
	// ErrStalled: a stream that should speak was silent for longer than Options.Timeout.
	ErrStalled = errdefs.New(errdefs.DeadlineExceeded, attempt.ReasonStalled, "the node fell silent in the middle of a stream")
)

// judge is attempt.Judge with the ledger's words: an append goes on to another node where this one does not lead.
func judge(err error, left bool) attempt.Verdict {
	switch reason := errdefs.ReasonOf(err); reason {
	case ErrNotLeader.Reason, ErrNoLeader.Reason:
		return attempt.TryAgain
	case ErrAppendUnknown.Reason:
		return attempt.Unknown
	}
	if nodes.Stranger(err) { // the group is elsewhere
		return attempt.TryAgain
	}
	return attempt.Judge(err, left)
}
