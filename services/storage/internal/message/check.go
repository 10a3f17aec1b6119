package message

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/tandemlog/tandem/pkg/errdefs"
)

// ErrCorrupt is the class of every *CorruptError.
var ErrCorrupt = errdefs.New(errdefs.DataLoss, "RECORD_CORRUPT", "record is damaged")

// Names of fields in errors.
const (
	fieldTotalSize        = "totalSize"
	fieldMagic            = "magic"
	fieldBodyCRC          = "bodyCRC"
	fieldPhysicalOffset   = "physicalOffset"
	fieldBodyLength       = "bodyLength"
	fieldTopicLength      = "topicLength"
	fieldTopic            = "topic"
	fieldPropertiesLength = "propertiesLength"
	fieldProperties       = "properties"
	fieldRecordCRC        = PropertyCRC32
	fieldBlankSize        = "blankSize"
)

// CorruptError names the first thing that is wrong with a record. errors.Is(err, ErrCorrupt) holds for it.
type CorruptError struct {
	Offset int64  // log offset of the record's first byte
	Field  string // the field at fault
	Want   int64  // what it had to be, or the bound that it broke
	Got    int64  // what it is
	// Size is the record's size, bytes, when all its lengths agree with each other, so that the next record may be
	// looked for behind it; else 0.
	Size int32
	// Short: the record claims more bytes than there are. When more may come this is no damage.
	Short bool
}

// Error returns offset, field and both values.
func (e *CorruptError) Error() string {
	format := "record at %d: %s is %d, want %d"
	switch {
	case e.Short:
		format = "record at %d: %s asks for more bytes than there are: have %d, want %d"
	case e.Field == fieldMagic || e.Field == fieldBodyCRC:
		format = "record at %d: %s is %#x, want %#x"
	case e.Field == fieldTopic:
		return fmt.Sprintf("record at %d: topic cannot be a folder's name", e.Offset)
	case e.Field == fieldBodyLength || e.Field == fieldTopicLength:
		format = "record at %d: %s is %d, outside 0 to %d"
	}
	return fmt.Sprintf(format, e.Offset, e.Field, e.Got, e.Want)
}

// Unwrap returns ErrCorrupt with the offset and the field.
func (e *CorruptError) Unwrap() error {
	return ErrCorrupt.With("offset", e.Offset).WithField(e.Field)
}

func short(field string, want, got int) *CorruptError {
	return &CorruptError{Field: field, Want: int64(want), Got: int64(got), Short: true}
}

// Kind says what Check found.
type Kind uint8

// Kinds.
const (
	End    Kind = iota // zeros, or fewer than 8 bytes, all zero: nothing has been written here
	Record             // a message
	Blank              // the rest of the file is unused
)

// CheckOptions says what Check looks at beyond the lengths.
type CheckOptions struct {
	CRC     bool // the body's checksum, and that of the whole record where it carries `__CRC32#`
	Offset  bool // the record's own PHYSICALOFFSET must be its place
	FileEnd bool // the window ends where the file ends: a blank record must fill it exactly
}

// Check judges the record that window begins with; at is the log offset of window[0]. window is the rest of the file, or
// as much of it as may be read. It returns the record's size and kind. err is a *CorruptError; size is then what may be
// skipped, or 0, and the kind says nothing. Check allocates nothing unless it fails.
//
// Beyond RocketMQ's own check it sees the offset, the whole-record checksum, properties whose end was never written
// (their last byte is 00) and topics that cannot be a folder's name.
func Check(window []byte, at int64, o CheckOptions) (size int, k Kind, err error) {
	var v View
	return CheckView(window, at, o, &v)
}

// CheckView is Check, and fills v when it finds a Record.
func CheckView(window []byte, at int64, o CheckOptions, v *View) (size int, k Kind, err error) {
	if len(window) < headerSize {
		if allZero(window) {
			return 0, End, nil
		}
		return 0, End, &CorruptError{Offset: at, Field: fieldTotalSize, Want: headerSize, Got: int64(len(window)), Short: true}
	}
	header := binary.BigEndian.Uint64(window)
	if header == 0 {
		return 0, End, nil
	}
	if uint32(header) == MagicBlank {
		return checkBlank(window, at, o)
	}
	if c := v.decode(window); c != nil {
		c.Offset = at
		return 0, Record, c
	}
	if c := v.judge(window[:v.Size], at, o); c != nil {
		c.Offset, c.Size = at, v.Size
		return int(v.Size), Record, c
	}
	return int(v.Size), Record, nil
}

func checkBlank(window []byte, at int64, o CheckOptions) (int, Kind, error) {
	size := int(int32(binary.BigEndian.Uint32(window)))
	switch {
	case size < BlankSize, o.FileEnd && size != len(window):
		return 0, Blank, &CorruptError{Offset: at, Field: fieldBlankSize, Want: int64(len(window)), Got: int64(size)}
	case size > len(window):
		return 0, Blank, &CorruptError{Offset: at, Field: fieldBlankSize, Want: int64(size), Got: int64(len(window)), Short: true}
	}
	return size, Blank, nil
}

// judge looks at the contents of a record whose lengths agree.
func (v *View) judge(rec []byte, at int64, o CheckOptions) *CorruptError {
	if o.Offset && v.PhysicalOffset != at {
		return &CorruptError{Field: fieldPhysicalOffset, Want: at, Got: v.PhysicalOffset}
	}
	if !folderName(v.Topic) {
		return &CorruptError{Field: fieldTopic}
	}
	if n := len(v.Properties); n > 0 && v.Properties[n-1] == 0 {
		return &CorruptError{Field: fieldProperties, Want: int64(pairSeparator), Got: 0}
	}
	if !o.CRC {
		return nil
	}
	sealed := endsInCRC(v.Properties)
	body, record := v.sums(rec, sealed)
	switch {
	case body != v.BodyCRC:
		return &CorruptError{Field: fieldBodyCRC, Want: int64(body), Got: int64(v.BodyCRC)}
	case sealed && record != storedCRC(rec):
		return &CorruptError{Field: fieldRecordCRC, Want: int64(record), Got: int64(storedCRC(rec))}
	case !sealed && crcDamaged(v.Properties):
		return &CorruptError{Field: fieldRecordCRC, Want: int64(recordCRC(rec)), Got: -1}
	}
	return nil
}

// Next looks for proof that a bad record is rot in the middle of the log and not its torn end: a sound record behind
// it, with its own PHYSICALOFFSET and checksums. window begins with the bad record, at is its log offset. It returns how
// far the sound record lies behind. Candidates are found by their magic, so the damage may have any size; inside a
// record whose lengths agree none is looked for, as a body may hold anything.
func Next(window []byte, at int64) (skip int, ok bool) {
	var v View
	from := 1
	if v.decode(window) == nil && v.PhysicalOffset == at {
		from = int(v.Size)
	}
	for pos := from + posMagic; pos < len(window); pos++ {
		i := bytes.Index(window[pos:], magicPrefix)
		if i < 0 {
			return 0, false
		}
		pos += i
		start := pos - posMagic
		if size, k, err := probe(window[start:], at+int64(start), &v); err == nil && k == Record && size > 0 {
			return start, true
		}
	}
	return 0, false
}

// magicPrefix is what both record magics begin with.
var magicPrefix = []byte{0xDA, 0xA3, 0x20}

// probe is CheckView with the cheapest test first: most candidates in a body fail it.
func probe(window []byte, at int64, v *View) (int, Kind, error) {
	if len(window) < posSysFlag || int64(binary.BigEndian.Uint64(window[posPhysicalOffset:])) != at {
		return 0, End, ErrCorrupt
	}
	return CheckView(window, at, CheckOptions{CRC: true, Offset: true}, v)
}

// Begins reports whether window, from log offset at on, begins with a record, sound or not: with its magic, or with its own offset.
func Begins(window []byte, at int64) bool {
	return len(window) >= posMagic+4 && bytes.HasPrefix(window[posMagic:], magicPrefix) ||
		len(window) >= posSysFlag && at > 0 && int64(binary.BigEndian.Uint64(window[posPhysicalOffset:])) == at
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// folderName reports whether the topic can be the name of its queues' folder and nothing more.
func folderName(topic []byte) bool {
	for _, c := range topic {
		if c < 0x20 || c == '/' {
			return false
		}
	}
	return len(topic) > 0 && string(topic) != "." && string(topic) != ".."
}
