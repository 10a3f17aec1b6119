package check

import (
	"context"
	"fmt"
)

// Log is the bytes of a log in files of one size.
type Log interface {
	FileSize() int64
	// ReadAt fills p with the bytes from offset on, which lie inside one file.
	ReadAt(ctx context.Context, p []byte, offset int64) error
}

// window reads a log piece by piece. What it returned is valid until the next call.
type window struct {
	log   Log
	to    int64 // nothing behind it is read
	ahead int64 // read at least this much, bytes
	buf   []byte
	at    int64
}

// fileEnd returns where the file that holds offset ends.
func fileEnd(log Log, offset int64) int64 {
	size := log.FileSize()
	return offset - offset%size + size
}

// room returns how many bytes there are from offset to the end of its file and of the log.
func (w *window) room(offset int64) int64 { return min(fileEnd(w.log, offset), w.to) - offset }

// peek returns the n bytes from offset on, fewer at the end of the file or of the log.
func (w *window) peek(ctx context.Context, offset, n int64) ([]byte, error) {
	room := w.room(offset)
	n = max(min(n, room), 0)
	if offset >= w.at && offset+n <= w.at+int64(len(w.buf)) {
		return w.buf[offset-w.at:][:n], nil
	}
	size := min(max(n, w.ahead), room)
	if int64(cap(w.buf)) < size {
		w.buf = make([]byte, 0, size)
	}
	w.at, w.buf = offset, w.buf[:size]
	if err := w.log.ReadAt(ctx, w.buf, offset); err != nil {
		w.buf = w.buf[:0]
		return nil, fmt.Errorf("read log at %d: %w", offset, err)
	}
	return w.buf[:n], nil
}
