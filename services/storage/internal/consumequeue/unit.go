package consumequeue

import (
	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/unit"
)

// Sizes in bytes.
const (
	UnitSize        = unit.Size
	DefaultFileSize = 300_000 * UnitSize
	maxTopic        = 255 // longest file name
)

// Errors of this package. Those of the file system come through wrapped.
var (
	// ErrQueueGap: a unit does not follow the last one of its queue.
	ErrQueueGap = errdefs.New(errdefs.FailedPrecondition, "QUEUE_GAP", "the unit does not follow the queue's last one")
	// ErrOutOfRange: the queue offset is below the queue's first unit or beyond its end.
	ErrOutOfRange = errdefs.New(errdefs.OutOfRange, "QUEUE_OFFSET_OUT_OF_RANGE", "the queue offset is outside of the queue")
	// ErrNotQueued: no queue can hold such a unit; the field says why.
	ErrNotQueued = errdefs.New(errdefs.InvalidArgument, "NOT_QUEUED", "the message fits into no queue")
	// ErrFileSize: a queue file is longer than all are, or its name is no multiple of their length.
	ErrFileSize = queuefile.ErrSize
	// ErrSync: the disk refused to make a queue durable. Do not try again, restart.
	ErrSync = queuefile.ErrSync
	// ErrClosed: the set was closed.
	ErrClosed = queuefile.ErrClosed
)

// Unit is one entry of a queue.
type Unit = unit.Unit

// DecodeUnit decodes the unit that b, of UnitSize bytes at least, begins with.
func DecodeUnit(b []byte) Unit { return unit.Decode(b) }
