package check

import "fmt"

// Kind says what is wrong.
type Kind uint8

// Kinds. The numbers of the first four are those of the wire.
const (
	// BadRecord: a stretch of the log begins with no sound record.
	BadRecord Kind = iota + 1
	// UnitWrong: a queue's unit is not that of the record with its queue offset.
	UnitWrong
	// UnitMissing: a record has no unit in its queue.
	UnitMissing
	// UnitStray: a unit points to no record of its queue, and the log has none with its queue offset.
	UnitStray
	// BadFile: a file of the folder is missing, has the wrong length, cannot be read, or contradicts another.
	BadFile
	// TornEnd: what a crash left behind the last whole record.
	TornEnd
	// Kept: a range that was cut or replaced, kept beside the log.
	Kept
)

var kindNames = [...]string{"", "record", "unit", "unit", "unit", "file", "end", "kept"}

// String returns the thing that is wrong in one word.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "unknown"
}

// Finding is one thing that an operator must know. Offsets are of the log, bytes.
type Finding struct {
	Kind Kind
	// Note: no damage; nothing has to be done.
	Note bool
	// Offset of the bad record, or of the record that the unit is or should be of; End is where the next sound record
	// begins, or the end of the unit's record.
	Offset, End int64
	Field       string // the field at fault; empty where there is none
	Detail      string // what was found and what it had to be

	Topic       string // of units
	QueueID     int32
	QueueOffset int64

	File string // path below the folder
}

// Place says where it is.
func (f Finding) Place() string {
	switch f.Kind {
	case UnitWrong, UnitMissing, UnitStray:
		return fmt.Sprintf("%s/%d unit %d", f.Topic, f.QueueID, f.QueueOffset)
	case BadFile, Kept:
		return f.File
	default:
	}
	if f.End > f.Offset {
		return fmt.Sprintf("%d..%d", f.Offset, f.End)
	}
	return fmt.Sprint(f.Offset)
}
