package unit

import (
	"encoding/binary"
	"math"
)

// Size of a unit in a file, bytes.
const Size = 20

// Unit is one entry of a queue.
type Unit struct {
	Offset   int64 // of the record in the log, bytes
	Size     int32 // of the record, bytes
	TagsCode int64 // hash of the tags, or when a delayed message is due, ms
}

// Blank returns the unit that fills the place of a message that is not in the log (RocketMQ: fillPreBlank).
func Blank() Unit { return Unit{Size: math.MaxInt32} }

// Blank reports whether there is no message in the unit's place: readers pass it over.
func (u Unit) Blank() bool { return u.Offset == 0 && u.Size == math.MaxInt32 }

// End returns the log offset behind the record.
func (u Unit) End() int64 { return u.Offset + int64(u.Size) }

// Valid is RocketMQ's test of a unit; what was never written fails it.
func (u Unit) Valid() bool { return u.Offset >= 0 && u.Size > 0 }

// Append appends the unit's bytes.
func Append(dst []byte, u Unit) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.Offset))    //nolint:gosec // bit pattern
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.Size))      //nolint:gosec // bit pattern
	return binary.BigEndian.AppendUint64(dst, uint64(u.TagsCode)) //nolint:gosec // bit pattern
}

// Decode decodes the unit that b, of Size bytes at least, begins with.
func Decode(b []byte) Unit {
	return Unit{
		Offset:   int64(binary.BigEndian.Uint64(b)),      //nolint:gosec // bit pattern
		Size:     int32(binary.BigEndian.Uint32(b[8:])),  //nolint:gosec // bit pattern
		TagsCode: int64(binary.BigEndian.Uint64(b[12:])), //nolint:gosec // bit pattern
	}
}
