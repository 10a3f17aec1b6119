package dispatch

import (
	"encoding/binary"
	"errors"

	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// foreign reports whether err is a filler that does not fill its file, in a log whose file size is only assumed.
func (d *Dispatcher) foreign(err error) bool {
	if err == nil || !d.o.ForeignFiles {
		return false
	}
	var bad *message.CorruptError
	return errors.As(err, &bad) && bad.Field == "blankSize"
}

// crosses judges what b, the log from pos on, begins with and says of itself that it ends in a later file: records do not
// cross files, so a sound one shows that the master's files are larger. Until all of it can be read, need is above to: no
// record is called bad that may be sound. Where need is 0, it is no such record.
func (d *Dispatcher) crosses(b []byte, to int64) (need int64, err error) {
	if !d.o.ForeignFiles || len(b) < header {
		return 0, nil
	}
	size, end := int64(binary.BigEndian.Uint32(b)), d.fileEnd(d.pos)
	switch magic := binary.BigEndian.Uint32(b[4:]); {
	case magic != message.MagicV1 && magic != message.MagicV2, d.pos+size <= end, size > maxRecord:
		return 0, nil
	case len(b) >= physicalOffset+8 && !d.isPlace(b):
		return 0, nil
	case to < d.pos+size:
		return d.mayCross(b, to, end)
	}
	rec := make([]byte, 0, size)
	for at := d.pos; at < d.pos+size; at = d.pos + int64(len(rec)) {
		part, release, err := d.viewTo(at, to, d.pos+size-at)
		if err != nil {
			return 0, err
		}
		rec = append(rec, part...)
		release()
	}
	if !sound(rec, d.pos) {
		return 0, nil
	}
	return 0, ErrFileSize.With("offset", d.pos).With("record", size).With("rest_of_file", end-d.pos)
}

// mayCross is crosses for a record that is not all there yet: with a record behind it in this file, or one that the next
// file begins with, its size is rotten.
func (d *Dispatcher) mayCross(b []byte, to, end int64) (need int64, err error) {
	if _, ok := message.Next(b, d.pos); ok {
		return 0, nil
	}
	if to >= end+physicalOffset+8 {
		if ok, err := d.recordAt(end); ok || err != nil {
			return 0, err
		}
	}
	return to + 1, nil
}

// tooLong reports whether a sound record of size bytes at pos leaves no room for the filler that each file of a broker ends with.
func (d *Dispatcher) tooLong(size int) bool {
	return d.o.ForeignFiles && d.pos+int64(size) > d.fileEnd(d.pos)-message.BlankSize
}
