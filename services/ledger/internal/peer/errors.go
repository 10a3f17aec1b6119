package peer

import (
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors of this package, beside entry.ErrCorrupt. Nothing was changed when one of them is returned.
var (
	// ErrGroup: the message is of another group.
	ErrGroup = errdefs.New(errdefs.FailedPrecondition, "WRONG_GROUP", "the message is of another group").
			WithRemedy("check `group` and `peers` in the configurations of both nodes")
	// ErrUnknownPeer: the sender is no other member of the group.
	ErrUnknownPeer = errdefs.New(errdefs.PermissionDenied, "UNKNOWN_PEER", "the sender is not a member of the group").
			WithRemedy("`peers` must be the same on all members")
	// ErrTarget: the message is for another node.
	ErrTarget = errdefs.New(errdefs.FailedPrecondition, "WRONG_TARGET", "the message is for another node").
			WithRemedy("the sender's `peers` has the address of another member")
	// ErrBadMessage: a number that cannot be; `field` names it.
	ErrBadMessage = errdefs.New(errdefs.InvalidArgument, "BAD_MESSAGE", "the message has a number that cannot be")
	// ErrBadBatch: the entries do not follow each other, or the message's index and terms.
	ErrBadBatch = errdefs.New(errdefs.InvalidArgument, "BAD_BATCH", "the entries do not follow from the message")
	// ErrBusy: the node has no room for the message, or has stopped.
	ErrBusy = errdefs.New(errdefs.ResourceExhausted, "INBOX_FULL", "the node takes no message now: too many wait, or it has stopped").WithRetry(50 * time.Millisecond)
	// ErrNoAnswer: the node did not answer in time, or has refused without an answer.
	ErrNoAnswer = errdefs.New(errdefs.DeadlineExceeded, "NO_ANSWER", "the node did not answer in time")
	// ErrReplaced: the sender has opened another stream.
	ErrReplaced = errdefs.New(errdefs.Aborted, "STREAM_REPLACED", "the sender has opened another stream")
)
