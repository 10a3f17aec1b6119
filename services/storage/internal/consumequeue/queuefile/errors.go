package queuefile

import (
	"errors"
	"io/fs"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// Errors of this package. Those of the file system come through wrapped.
var (
	// ErrSize: a queue file is longer than all are, or its name is no multiple of their length.
	ErrSize = errdefs.New(errdefs.FailedPrecondition, "QUEUE_FILE_SIZE", "a queue file has another length than the others")
	// ErrSync: the disk refused to make a queue durable. Do not try again, restart.
	ErrSync = errdefs.New(errdefs.DataLoss, "QUEUE_SYNC_FAILED", "the disk failed to make queues durable")
	// ErrClosed: the pool was closed.
	ErrClosed = errdefs.New(errdefs.Unavailable, "QUEUES_CLOSED", "the queues are closed")
)

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
