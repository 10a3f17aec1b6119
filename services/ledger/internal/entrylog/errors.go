package entrylog

import (
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/ledger/internal/entrylog/recovery"
)

// Errors of this package. A full disk is vfs.ErrNoSpace, files that do not fit together are mappedfile's errors, a broken
// small file is durable.ErrCorrupt, a bad entry entry.ErrCorrupt.
var (
	// ErrDamaged: an entry that was durable is gone or not what was written. Open refuses such a log.
	ErrDamaged = recovery.ErrDamaged
	// ErrOrder: the entries do not follow the log's end in index and term. Nothing was written.
	ErrOrder = errdefs.New(errdefs.Internal, "ENTRY_ORDER", "the entries do not follow the log's end")
	// ErrPayload: an entry's payload is not what its size says. Nothing was written.
	ErrPayload = errdefs.New(errdefs.InvalidArgument, "ENTRY_PAYLOAD", "the payload is no entry of the size that is told")
	// ErrTooLarge: the entry is larger than allowed, or than a file. Nothing was written.
	ErrTooLarge = errdefs.New(errdefs.InvalidArgument, "ENTRY_TOO_LARGE", "the entry does not fit into the log")
	// ErrOutOfRange: there is no such entry; first and last are named.
	ErrOutOfRange = errdefs.New(errdefs.OutOfRange, "INDEX_OUT_OF_RANGE", "the index is outside of the log")
	// ErrCommitted: a cut would take committed entries. Nothing was cut.
	ErrCommitted = errdefs.New(errdefs.FailedPrecondition, "CUT_COMMITTED", "the cut would take committed entries")
	// ErrCutting: this part of the log is being cut or removed at this moment. Look again.
	ErrCutting = errdefs.New(errdefs.Unavailable, "LOG_CUTTING", "this part of the log is being cut")
	// ErrNotEmpty: only a node that holds nothing can begin a group.
	ErrNotEmpty = errdefs.New(errdefs.FailedPrecondition, "NOT_EMPTY", "the node holds entries or has promised something already").
			WithRemedy("leave the bootstrap flag out, or begin with an empty folder")
	// ErrFaulted: the disk failed. The log takes nothing more until the process is started again.
	ErrFaulted = errdefs.New(errdefs.DataLoss, "LOG_FAULTED", "the log has failed and takes no more writes").
			WithRemedy("look at the disk, then restart: what is on it is recovered")
	// ErrClosed: the log was closed.
	ErrClosed = errdefs.New(errdefs.Unavailable, "LOG_CLOSED", "the log is closed")
)
