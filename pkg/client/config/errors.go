package config

import (
	"github.com/tandemlog/tandem/pkg/client/internal/attempt"
	"github.com/tandemlog/tandem/pkg/client/internal/nodes"
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/grpcx"
)

// Errors of this package; what a node answers keeps its own class and reason.
var (
	// ErrClosed: the client was closed.
	ErrClosed = nodes.ErrClosed
	// ErrOutcomeUnknown: the change was sent and no answer came; it may have been made or not.
	ErrOutcomeUnknown = errdefs.New(errdefs.Unknown, "CHANGE_UNKNOWN", "no answer came: the change may or may not have been made").
				WithRemedy("look before changing it again")
	// ErrUnreachable: no connection to the address, or it broke.
	ErrUnreachable = errdefs.New(errdefs.Unavailable, grpcx.ReasonUnreachable, "cannot reach the node")
	// ErrNoMaster: none of the nodes that answered takes changes.
	ErrNoMaster = errdefs.New(errdefs.Unavailable, "NO_CONFIG_MASTER", "no node takes changes")
	// ErrNotMaster: the node takes no changes; `master` is who does, where known.
	ErrNotMaster = errdefs.New(errdefs.FailedPrecondition, attempt.ReasonNotMaster, "this node takes no changes")
	// ErrWasReset: the offset was reset since its reset epoch was asked for; `reset_epoch` and `offset` are those that hold.
	ErrWasReset = errdefs.New(errdefs.FailedPrecondition, "OFFSET_WAS_RESET", "the offset was reset since")
	// ErrStalled: a stream that should speak was silent for longer than Options.Timeout.
	ErrStalled = errdefs.New(errdefs.DeadlineExceeded, attempt.ReasonStalled, "the node fell silent in the middle of a stream")
)

// metaMaster is the master's address in a NOT_MASTER error.
const metaMaster = "master"

// named returns the address of the master that err names, or "".
func named(err error) string {
	e := errdefs.As(err)
	if e == nil || e.Reason != attempt.ReasonNotMaster || nodes.CheckAddress(e.Meta[metaMaster]) != nil {
		return ""
	}
	return e.Meta[metaMaster]
}
