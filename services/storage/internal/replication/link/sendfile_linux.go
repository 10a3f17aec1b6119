package link

import (
	"errors"
	"io"
	"syscall"

	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

const haveSendfile = true

// try writes until all is out (true), the socket is full (false: it is called again) or an error (true).
func (f *fileStep) try(fd uintptr) bool {
	for f.done < f.size {
		var n int
		var err error
		if f.done < wire.HeaderSize {
			n, err = syscall.SendmsgN(int(fd), f.head[f.done:], nil, nil, syscall.MSG_MORE)
		} else {
			off := f.pos + f.done - wire.HeaderSize
			n, err = syscall.Sendfile(int(fd), int(f.fd), &off, int(f.size-f.done))
		}
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			return false
		case err != nil:
			f.err = err
			return true
		case n <= 0:
			f.err = io.ErrUnexpectedEOF // the file is shorter than FileAt said
			return true
		}
		f.done += int64(n)
	}
	return true
}

// setCongestion sets TCP_CONGESTION.
func setCongestion(fd uintptr, name string) error {
	return syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, name)
}
