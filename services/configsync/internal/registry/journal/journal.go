package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/vfs"
)

// ErrFault says that what is on the disk is not known any more: a sync failed, or a failed write could not be undone.
var ErrFault = errdefs.New(errdefs.DataLoss, "JOURNAL_FAULT", "the journal's state on the disk is not known").
	WithRemedy("start again: what is on the disk then is what was reported done, or more")

const (
	magic      = "TANDEMJ1"
	recordWord = 0x54_4A_52_31 // "TJR1"
	headSize   = 12            // of a record: word, length, checksum
	suffix     = ".journal"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrFormat says that a segment is of a version that is not known here.
var ErrFormat = errdefs.New(errdefs.FailedPrecondition, "JOURNAL_FORMAT", "the journal is of a format that is not known").
	WithRemedy("start the version that wrote it, and stop it cleanly")

// Segment is what Open found in one file.
type Segment struct {
	Number  int64
	Base    []byte   // nil: the crash came before it was durable; there are no records then
	Records [][]byte // in the order of the Appends
	Torn    bool     // an unfinished record was left out
	Damaged bool     // records behind a broken one were left out
}

// Journal is open for writing.
type Journal struct {
	fsys vfs.FS
	dir  string
	name string

	numbers []int64 // of the segments on the disk, ascending
	next    int64
	file    vfs.File // the segment that is written, nil: none yet
	end     int64
	fault   error
}

// Open reads the segments of the journal called name in dir, which exists. The next Rotate begins a new one.
func Open(fsys vfs.FS, dir, name string) (*Journal, []Segment, error) {
	j := &Journal{fsys: fsys, dir: dir, name: name, next: 1}
	infos, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	for _, info := range infos {
		if n, ok := j.parse(info.Name); ok {
			j.numbers = append(j.numbers, n)
		}
	}
	slices.Sort(j.numbers)
	segments := make([]Segment, 0, len(j.numbers))
	for _, n := range j.numbers {
		data, err := readAll(fsys, j.path(n))
		if err != nil {
			return nil, nil, fmt.Errorf("open journal: %w", err)
		}
		if len(data) >= len(magic) && strings.HasPrefix(string(data), magic[:7]) && string(data[:len(magic)]) != magic && data[7] != 0 {
			return nil, nil, ErrFormat.With("file", j.path(n))
		}
		segments = append(segments, parse(n, data))
		j.next = n + 1
	}
	return j, segments, nil
}

// Renew makes what Open has read durable. The process before may have ended over a failed sync: the pages count as written since
// then, though they are not on the disk, and another sync alone would leave them so.
func (j *Journal) Renew() error {
	for _, n := range j.numbers {
		if err := renew(j.fsys, j.path(n)); err != nil {
			return fmt.Errorf("renew segment: %w", err)
		}
	}
	return nil
}

func renew(fsys vfs.FS, name string) (err error) {
	data, err := readAll(fsys, name)
	if err != nil {
		return err
	}
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
}

// FileName is that of a segment of the journal called name.
func FileName(name string, number int64) string { return fmt.Sprintf("%s.%d%s", name, number, suffix) }

func (j *Journal) path(n int64) string { return filepath.Join(j.dir, FileName(j.name, n)) }

func (j *Journal) parse(name string) (int64, bool) {
	rest, ok := strings.CutPrefix(name, j.name+".")
	digits, ok2 := strings.CutSuffix(rest, suffix)
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, ok && ok2 && err == nil && n > 0 && strconv.FormatInt(n, 10) == digits
}

func readAll(fsys vfs.FS, name string) (data []byte, err error) {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil || size == 0 {
		return nil, err
	}
	data = make([]byte, size)
	_, err = f.ReadAt(data, 0)
	return data, err
}

// parse reads a segment as far as it is whole.
func parse(number int64, data []byte) Segment {
	s := Segment{Number: number}
	at := len(magic)
	if len(data) < at || string(data[:at]) != magic {
		s.Torn = true
		s.Damaged = anyRecord(data)
		return s
	}
	for at < len(data) {
		payload, size := record(data[at:])
		if size == 0 {
			s.Torn = true
			s.Damaged = anyRecord(data[at+1:])
			return s
		}
		if s.Base == nil {
			s.Base = payload
		} else {
			s.Records = append(s.Records, payload)
		}
		at += size
	}
	return s
}

// record returns the record at the beginning of data and its size, 0 if there is none that is whole.
func record(data []byte) ([]byte, int) {
	if len(data) < headSize || binary.BigEndian.Uint32(data) != recordWord {
		return nil, 0
	}
	n := int64(binary.BigEndian.Uint32(data[4:]))
	if n > int64(len(data)-headSize) {
		return nil, 0
	}
	payload := data[headSize : headSize+n]
	if checksum(payload) != binary.BigEndian.Uint32(data[8:]) {
		return nil, 0
	}
	return payload, headSize + int(n)
}

// checksum covers the length too, as an empty payload would have none else.
func checksum(payload []byte) uint32 {
	return crc32.Update(crc32.Checksum(binary.BigEndian.AppendUint32(nil, uint32(len(payload))), castagnoli), castagnoli, payload)
}

// anyRecord reports whether a whole record lies somewhere in data.
func anyRecord(data []byte) bool {
	word := binary.BigEndian.AppendUint32(nil, recordWord)
	for {
		at := bytes.Index(data, word)
		if at < 0 {
			return false
		}
		if _, size := record(data[at:]); size > 0 {
			return true
		}
		data = data[at+1:]
	}
}

// Numbers returns the segments on the disk, ascending.
func (j *Journal) Numbers() []int64 { return slices.Clone(j.numbers) }

// Size returns the bytes of the segment that is written.
func (j *Journal) Size() int64 { return j.end }

// Rotate begins the next segment and returns its number; it is durable with its base on return. Never is more than one
// record written and not synced: a broken record with a whole one behind it can be no crash's work.
func (j *Journal) Rotate(base []byte) (int64, error) {
	if j.fault != nil {
		return 0, j.fault
	}
	data := appendRecord([]byte(magic), base)
	number := j.next
	j.next++ // also where it fails: the name may be there
	f, err := j.fsys.OpenFile(j.path(number), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return 0, fmt.Errorf("begin segment: %w", err)
	}
	if _, err := f.WriteAt(data, 0); err != nil {
		return 0, j.undo(fmt.Errorf("begin segment: %w", err), errors.Join(f.Close(), j.remove(number)))
	}
	if err := f.Sync(); err != nil {
		return 0, j.fail(errors.Join(err, f.Close()))
	}
	if err := j.fsys.SyncDir(j.dir); err != nil {
		return 0, j.fail(errors.Join(err, f.Close()))
	}
	if j.file != nil {
		if err := j.file.Close(); err != nil {
			return 0, j.fail(errors.Join(err, f.Close()))
		}
	}
	j.file, j.end = f, int64(len(data))
	j.numbers = append(j.numbers, number)
	return number, nil
}

// Open reports whether a segment is open for Append; else a Rotate has to begin one.
func (j *Journal) Open() bool { return j.file != nil }

// Append makes a record durable.
func (j *Journal) Append(payload []byte) error {
	if j.fault != nil {
		return j.fault
	}
	data := appendRecord(make([]byte, 0, len(payload)+headSize), payload)
	if _, err := j.file.WriteAt(data, j.end); err != nil {
		return j.undo(fmt.Errorf("append to journal: %w", err), j.file.Truncate(j.end))
	}
	if err := j.file.Sync(); err != nil {
		return j.fail(err)
	}
	j.end += int64(len(data))
	return nil
}

func appendRecord(b, payload []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, recordWord)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.BigEndian.AppendUint32(b, checksum(payload))
	return append(b, payload...)
}

// undo returns err, or a fault when what failed could not be taken back.
func (j *Journal) undo(err, undone error) error {
	if undone != nil {
		return j.fail(errors.Join(err, undone))
	}
	return err
}

func (j *Journal) fail(err error) error {
	j.fault = ErrFault.With("journal", j.name).Wrap(err)
	return j.fault
}

func (j *Journal) remove(number int64) error {
	if err := j.fsys.Remove(j.path(number)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove segment: %w", err)
	}
	return nil
}

// Drop removes the segments below number. One that stays after an error goes with the next Drop.
func (j *Journal) Drop(number int64) error {
	for len(j.numbers) > 0 && j.numbers[0] < number {
		if err := j.remove(j.numbers[0]); err != nil {
			return err
		}
		j.numbers = j.numbers[1:]
	}
	return nil
}

// Aside renames the segments that Open found, so that they are kept and not read again.
func (j *Journal) Aside() error {
	for _, n := range j.numbers {
		if err := j.fsys.Rename(j.path(n), j.path(n)+".aside"); err != nil {
			return fmt.Errorf("set segment aside: %w", err)
		}
	}
	j.numbers = nil
	return nil
}

// Close ends the journal.
func (j *Journal) Close() error {
	if j.file == nil {
		return nil
	}
	f := j.file
	j.file = nil
	if err := f.Close(); err != nil {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}
