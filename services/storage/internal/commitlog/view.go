package commitlog

import "github.com/tandemlog/tandem/pkg/mappedfile"

func nothing() {}

// View returns bytes of one file from offset on, at most limit and at most up to Written. They are valid, and must not be
// changed, until release is called, exactly once; hold them for moments only: a cut waits for it. At the end of the log b
// is empty and err nil. ErrOutOfRange names first and end; ErrCutting means: look again. View allocates nothing unless it
// fails.
func (l *Log) View(offset int64, limit int) (b []byte, release func(), err error) {
	f, n, err := l.acquire(offset, limit)
	if f == nil {
		return nil, nothing, err
	}
	pos := offset - f.Start()
	return f.Bytes()[pos : pos+n : pos+n], f.ReleaseFunc(), nil
}

// FileAt is View for sendfile: the descriptor, the position in the file and the number of bytes. n is 0 without an error
// at the end of the log, and where the file system has no descriptors: then use View.
func (l *Log) FileAt(offset int64, limit int) (fd uintptr, pos int64, n int, release func(), err error) {
	f, m, err := l.acquire(offset, limit)
	if f == nil {
		return 0, 0, 0, nothing, err
	}
	fd, ok := f.Fd()
	if !ok {
		f.Release()
		return 0, 0, 0, nothing, nil
	}
	return fd, offset - f.Start(), int(m), f.ReleaseFunc(), nil
}

// acquire leases the file that holds offset and says how many bytes of it may be used; nil, 0, nil at the end.
func (l *Log) acquire(offset int64, limit int) (*mappedfile.File, int64, error) {
	for {
		m, writes := l.marks.Load(), l.mender.Writes()
		first, end := l.FirstOffset(), m.written.Load()
		if l.closed.Load() {
			return nil, 0, ErrClosed
		}
		if offset < first || offset > end {
			return nil, 0, ErrOutOfRange.With("offset", offset).With("first", first).With("end", end)
		}
		if offset == end || limit <= 0 {
			return nil, 0, nil
		}
		f := l.queue.Find(offset)
		leased := f != nil && f.Acquire()
		// Cut in between: what was there may be zeros now. Or a write was under way, and has ended.
		if m != l.marks.Load() || !leased && l.mender.Wait(writes) {
			if leased {
				f.Release()
			}
			continue
		}
		if !leased {
			return nil, 0, ErrCutting.With("offset", offset).WithRetry(retryCut)
		}
		return f, min(int64(limit), end-offset, f.End()-offset), nil
	}
}
