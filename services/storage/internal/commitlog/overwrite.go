package commitlog

import "github.com/tandemlog/tandem/services/storage/internal/commitlog/mend"

// Overwrite replaces the bytes from offset on, below End and in one file, for good: what stood there is kept under repair/, where
// all may take keep bytes; a crash leaves the old bytes or, after the next start, the new ones; no reader sees a half. Errors that
// change nothing: ErrOutOfRange, mend.ErrFull, vfs.ErrNoSpace, mappedfile.ErrBusy (readers kept their views). Of others see Err.
func (l *Log) Overwrite(offset int64, data []byte, keep int64) (mend.Done, error) {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	err := l.usable()
	if err == nil {
		err = l.flush()
	}
	if err != nil {
		return mend.Done{}, err
	}
	r := mend.Repair{From: offset, To: offset + int64(len(data)), Data: data}
	f := l.queue.Find(offset)
	if f == nil || r.To > f.End() || r.To > l.Flushed().Load() {
		return mend.Done{}, ErrOutOfRange.With("offset", offset).With("to", r.To).With("first", l.FirstOffset()).With("end", l.End())
	}
	d, fatal, err := l.mender.Overwrite(f, r, keep)
	if fatal {
		err = l.fail(err)
	}
	return d, err
}
