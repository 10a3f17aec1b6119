package link

import (
	"errors"
	"syscall"

	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// errNoSendfile: this file cannot be sent that way; nothing of the body is out.
var errNoSendfile = errors.New("link: no sendfile for this file")

// fileStep is one frame on its way by sendfile.
type fileStep struct {
	run  func(fd uintptr) bool // try, made once
	head [wire.HeaderSize]byte
	done int64 // of head and body
	size int64 // of head and body
	fd   uintptr
	pos  int64 // of the body in fd
	err  error
}

// sendFile sends one frame of at most n bytes: the header with MSG_MORE, then the body by sendfile(2), so that both leave in
// full segments and the body is not copied.
func (w *Sender) sendFile(n int) error {
	f := &w.file
	f.done = 0
	for f.size = 0; f.size == 0 || f.done < f.size; {
		fd, pos, k, release, err := w.files.FileAt(w.pos, n)
		if err != nil {
			return ErrHistoryGone.With("offset", w.pos).Wrap(err)
		}
		if k == 0 {
			if release != nil {
				release()
			}
			return w.sendView(n, f.done)
		}
		if f.size > 0 && k != n {
			release()
			return ErrHistoryGone.With("offset", w.pos) // the header has promised more
		}
		if f.size == 0 {
			n = k
			f.size = wire.HeaderSize + int64(n)
			wire.PutHeader(f.head[:], wire.Header{Offset: w.pos, Size: int32(n)}) // a frame is at most wire.MaxBody
			w.sent.Store(w.pos + int64(n))
		}
		f.fd, f.pos = fd, pos
		err = w.stepFile()
		release()
		if errors.Is(err, errNoSendfile) {
			w.files = nil
			return w.sendView(n, f.done)
		}
		if err != nil {
			return err
		}
	}
	w.moved(n)
	return nil
}

// stepFile moves the frame on until it is out or the slice is over.
func (w *Sender) stepFile() error {
	if err := w.arm(); err != nil {
		return err
	}
	f := &w.file
	before := f.done
	f.err = nil
	err := w.raw.Write(f.run)
	if f.err != nil {
		err = f.err
	}
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSYS) {
		if f.done <= wire.HeaderSize {
			return errNoSendfile
		}
	}
	return w.judge(f.done-before, err)
}
