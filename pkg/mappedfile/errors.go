package mappedfile

import "github.com/tandemlog/tandem/pkg/errdefs"

// Errors of this package. Those of the file system come through wrapped.
var (
	// ErrSize: a file is longer or shorter than the others, or than the configured size.
	ErrSize = errdefs.New(errdefs.FailedPrecondition, "FILE_SIZE", "a file has another length than it must have")
	// ErrGap: a file in the middle is missing; `missing` is the offset at which it starts.
	ErrGap = errdefs.New(errdefs.DataLoss, "FILE_MISSING", "a file in the middle of the queue is missing")
	// ErrMisplaced: a file starts at an offset that is no multiple of the file size.
	ErrMisplaced = errdefs.New(errdefs.FailedPrecondition, "FILE_MISPLACED", "a file's name is no multiple of the file size")
	// ErrBusy: a reader kept its lease for longer than the owner waits.
	ErrBusy = errdefs.New(errdefs.Unavailable, "FILE_BUSY", "a file is still being read")
	// ErrSync: the disk refused to make something durable. What was written may be lost; do not try again, restart.
	ErrSync = errdefs.New(errdefs.DataLoss, "SYNC_FAILED", "the disk failed to make data durable")
)
