package commitlog

import (
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/commitlog/cut"
)

// Errors of this package. A full disk is vfs.ErrNoSpace, files that do not fit together are mappedfile's errors.
var (
	// ErrTooLarge: the batch does not fit into a file. Nothing was written.
	ErrTooLarge = errdefs.New(errdefs.InvalidArgument, "RECORD_TOO_LARGE", "the records do not fit into one file of the log")
	// ErrGap: raw bytes must follow the log's end; offset and end are named. Nothing was written.
	ErrGap = errdefs.New(errdefs.OutOfRange, "OFFSET_GAP", "the offset does not follow the log's end")
	// ErrOutOfRange: the offset lies outside of the log; first and end are named.
	ErrOutOfRange = errdefs.New(errdefs.OutOfRange, "OFFSET_OUT_OF_RANGE", "the offset is outside of the log")
	// ErrCutting: the file is being cut, removed or dropped at this moment. Look again.
	ErrCutting = errdefs.New(errdefs.Unavailable, "LOG_CUTTING", "this part of the log is being cut")
	// ErrFaulted: the disk failed, or a cut did. The log takes nothing more until the process is started again.
	ErrFaulted = errdefs.New(errdefs.DataLoss, "LOG_FAULTED", "the log has failed and takes no more writes").
			WithRemedy("look at the disk, then restart: what is on it is recovered")
	// ErrClosed: the log was closed.
	ErrClosed = errdefs.New(errdefs.Unavailable, "LOG_CLOSED", "the log is closed")
	// ErrRollbackFull: what a cut would take away does not fit into the space for it. Nothing was cut.
	ErrRollbackFull = cut.ErrFull
	// ErrNotKept: bytes were appended since the range was kept. Nothing was cut.
	ErrNotKept = errdefs.New(errdefs.Aborted, "ROLLBACK_STALE", "the log has changed since the range was kept")
)
