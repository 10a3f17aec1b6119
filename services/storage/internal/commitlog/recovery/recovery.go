package recovery

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// BadRecord is a stretch of the log without a sound record at its start, but with one behind it.
type BadRecord struct {
	Offset int64 // of the bad record
	Next   int64 // of the next sound record
	Err    error // *message.CorruptError; nil: zeros
}

// Result is what Find found.
type Result struct {
	End   int64 // first byte not accepted
	Stamp int64 // store timestamp of the last record, ms; 0: none was seen
	Rot   []BadRecord
	// Clean: nothing behind End needs to be looked at.
	Clean bool
}

func checks() message.CheckOptions {
	return message.CheckOptions{CRC: true, Offset: true, FileEnd: true}
}

// firstStamp returns the store timestamp, ms, of the record that a file begins with; false when none does.
func firstStamp(f *mappedfile.File) (int64, bool) {
	var v message.View
	_, kind, err := message.CheckView(f.Bytes(), f.Start(), checks(), &v)
	return v.StoreTimestamp, err == nil && kind == message.Record
}

// slack is what RocketMQ takes off a checkpoint's time, ms.
const slack = 3000

// Known is what is known of a log before it is read.
type Known struct {
	Clean    bool  // the last one who had the folder stopped cleanly
	SameBoot bool  // the machine has not gone down since
	Ours     bool  // Flushed is known
	Flushed  int64 // offset below which the log is durable
	OnDisk   int64 // records of this store timestamp, ms, are durable in log and queues
}

// Find finds the end of a log, and says from which file on it has looked.
func Find(files []*mappedfile.File, k Known) (w Result, from int) {
	trusted, sure := int64(-1), int64(noHoles)
	if k.Clean && k.Ours {
		trusted = k.Flushed // a clean stop of our own has left nothing behind it
	}
	if !k.Clean && !k.SameBoot && k.Ours {
		sure = k.Flushed
	}
	from = start(files, k)
	w = walkFrom(files, from, trusted, sure)
	if k.Ours && w.End < k.Flushed && w.End == files[from].Start() && from > 0 {
		// A disk that has lost what it had called durable may have lost more than this file had.
		from = 0
		w = walkFrom(files, from, -1, noHoles)
	}
	return w, from
}

// start chooses the file whose records are looked at first; those before it are known to be durable. The last flush
// that Tandem noted says it to the byte; without one the rules are RocketMQ's: after a clean stop the last file that has
// records, after a crash the last one whose first record is older than what log and queues had on disk.
func start(files []*mappedfile.File, k Known) int {
	for i := len(files) - 1; i > 0; i-- {
		if k.Ours {
			if files[i].Start() <= k.Flushed {
				return i
			}
			continue
		}
		stamp, ok := firstStamp(files[i])
		if ok && (k.Clean || stamp != 0 && stamp <= k.OnDisk-slack) {
			return i
		}
	}
	return 0
}

// noHoles is what walkFrom takes for sure when every byte was written.
const noHoles = math.MaxInt64

// walkFrom goes from record to record, from the start of files[from] on. trusted is an offset behind which there is nothing
// if the log ends there, as after a clean stop; -1: none. From sure on the log may have holes, as the machine went down before
// it was durable and pages reach a disk in any order: the first one is the end; noHoles: there can be none.
func walkFrom(files []*mappedfile.File, from int, trusted, sure int64) Result {
	w := walk{files: files, i: from, sure: sure, Result: Result{End: files[from].Start()}}
	var v message.View
	for w.i < len(files) {
		f := files[w.i]
		size, kind, err := message.CheckView(f.Bytes()[w.End-f.Start():], w.End, checks(), &v)
		switch {
		case err == nil && kind == message.Record:
			w.Stamp = v.StoreTimestamp
			w.move(w.End + int64(size))
		case err == nil && kind == message.Blank:
			w.move(f.End())
		case err == nil && w.End == trusted:
			w.Clean = true
			return w.Result
		case !w.skip(err):
			return w.Result
		}
	}
	w.Clean = true
	return w.Result
}

// walk stands at End, which files[i] holds.
type walk struct {
	Result
	files []*mappedfile.File
	i     int
	sure  int64
}

func (w *walk) move(to int64) {
	w.End = to
	if to == w.files[w.i].End() {
		w.i++
	}
}

// skip goes on behind bytes that are no record, if a sound record is there. A rest too small for a blank record is no
// rot.
func (w *walk) skip(bad error) bool {
	if w.End >= w.sure {
		return false
	}
	f := w.files[w.i]
	n, ok := message.Next(f.Bytes()[w.End-f.Start():], w.End)
	next, i := w.End+int64(n), w.i
	for !ok && i+1 < len(w.files) {
		i++
		next, ok = firstSound(w.files[i])
	}
	if !ok {
		return false
	}
	if bad != nil || f.End()-w.End >= message.BlankSize || next != f.End() {
		w.Rot = append(w.Rot, BadRecord{Offset: w.End, Next: next, Err: bad})
	}
	w.End, w.i = next, i
	return true
}

func firstSound(f *mappedfile.File) (int64, bool) {
	if _, ok := firstStamp(f); ok {
		return f.Start(), true
	}
	n, ok := message.Next(f.Bytes(), f.Start())
	return f.Start() + int64(n), ok
}

// CutBehind makes everything behind end zeros, durably, so that it can never be taken for records, and returns how many
// bytes that were. Files of zeros stay: RocketMQ makes one ahead, too.
func CutBehind(files []*mappedfile.File, end int64) (int64, error) {
	last := end
	for _, f := range files {
		from := max(end, f.Start())
		if from >= f.End() {
			continue
		}
		n := usedBytes(f.Bytes()[from-f.Start():])
		if n == 0 {
			continue
		}
		last = from + n
		if err := f.Zero(from-f.Start(), n); err != nil {
			return 0, fmt.Errorf("cut torn end: %w", err)
		}
		if err := f.Sync(); err != nil {
			return 0, fmt.Errorf("cut torn end: %w", err)
		}
	}
	return last - end, nil
}

// usedBytes returns the length of b without the zeros at its end.
func usedBytes(b []byte) int64 {
	n := len(b)
	for n >= 8 && binary.NativeEndian.Uint64(b[n-8:]) == 0 {
		n -= 8
	}
	for n > 0 && b[n-1] == 0 {
		n--
	}
	return int64(n)
}

// EndsInside reports whether offset lies inside of the record that begins at end, in f: a slave may have stopped there.
func EndsInside(f *mappedfile.File, end, offset int64) bool {
	if f == nil || offset > f.End() {
		return false
	}
	if offset-end < message.BlankSize {
		return true
	}
	size := binary.BigEndian.Uint32(f.Bytes()[end-f.Start():])
	return offset-end < int64(size)
}

// Whole returns how many bytes of b are whole records. b begins where a record does, at log offset at.
func Whole(b []byte, at int64) int {
	n := 0
	for n < len(b) {
		size, kind, err := message.Check(b[n:], at+int64(n), message.CheckOptions{Offset: true})
		if err == nil && kind != message.End {
			n += size
			continue
		}
		skip, ok := message.Next(b[n:], at+int64(n))
		if !ok {
			break
		}
		n += skip
	}
	return n
}
