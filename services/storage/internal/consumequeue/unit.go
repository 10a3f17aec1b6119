package consumequeue

import (
	"encoding/binary"
	"math"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/services/storage/internal/consumequeue/queuefile"
)

// Sizes in bytes.
const (
	UnitSize        = 20
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
type Unit struct {
	Offset   int64 // of the record in the log, bytes
	Size     int32 // of the record, bytes
	TagsCode int64 // hash of the tags, or when a delayed message is due, ms
}

// blank fills the place of a message that is not in the log (RocketMQ: fillPreBlank).
var blank = Unit{Size: math.MaxInt32}

// Blank reports whether there is no message in the unit's place: readers pass it over.
func (u Unit) Blank() bool { return u.Offset == 0 && u.Size == math.MaxInt32 }

// End returns the log offset behind the record.
func (u Unit) End() int64 { return u.Offset + int64(u.Size) }

// valid is RocketMQ's test of a unit; what was never written fails it.
func (u Unit) valid() bool { return u.Offset >= 0 && u.Size > 0 }

func appendUnit(dst []byte, u Unit) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.Offset))    //nolint:gosec // bit pattern
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.Size))      //nolint:gosec // bit pattern
	return binary.BigEndian.AppendUint64(dst, uint64(u.TagsCode)) //nolint:gosec // bit pattern
}

// DecodeUnit decodes the unit that b, of UnitSize bytes at least, begins with.
func DecodeUnit(b []byte) Unit { return unitAt(b) }

// unitAt decodes the unit that b begins with.
func unitAt(b []byte) Unit {
	return Unit{
		Offset:   int64(binary.BigEndian.Uint64(b)),      //nolint:gosec // bit pattern
		Size:     int32(binary.BigEndian.Uint32(b[8:])),  //nolint:gosec // bit pattern
		TagsCode: int64(binary.BigEndian.Uint64(b[12:])), //nolint:gosec // bit pattern
	}
}
