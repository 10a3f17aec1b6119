package link

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// blocking is a TCP connection outside of the runtime's poller. One goroutine reads and one writes at a time.
type blocking struct {
	local, remote net.Addr
	shut          atomic.Bool

	mu   sync.RWMutex // held for reading while the descriptor is in use
	fd   int
	gone bool
}

// Take makes of a TCP connection one whose calls wait in the kernel: a frame that comes wakes one thread, where the poller
// takes two reads, a poll and a hand-over between threads for it. It is for the one link of a slave: each wait binds a
// thread, and in a process with as many threads at work as there are CPUs the poller is faster. Other connections stay as
// they are. conn itself must not be used any more.
func Take(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	b := &blocking{local: conn.LocalAddr(), remote: conn.RemoteAddr(), fd: -1}
	var failed error
	err = raw.Control(func(fd uintptr) {
		if b.fd, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			failed = unix.SetNonblock(b.fd, false)
		}
	})
	if errors.Join(err, failed) != nil {
		if b.fd >= 0 {
			_ = unix.Close(b.fd)
		}
		return conn
	}
	_ = conn.Close() // the connection lives on in the copy
	return b
}

// use holds the descriptor for one call.
func (b *blocking) use() error {
	b.mu.RLock()
	if b.gone || b.shut.Load() {
		b.mu.RUnlock()
		return net.ErrClosed
	}
	return nil
}

// Read implements net.Conn. Before it waits it lets those run whom its caller has woken: they would be bound to this thread.
func (b *blocking) Read(p []byte) (int, error) {
	if err := b.use(); err != nil {
		return 0, err
	}
	defer b.mu.RUnlock()
	for flags := unix.MSG_DONTWAIT; ; {
		n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(b.fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)),
			uintptr(flags), 0, 0)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && flags != 0:
			runtime.Gosched()
			flags = 0
		case errno != 0:
			return 0, b.failed("read", errno)
		case n == 0 && len(p) > 0 && b.shut.Load():
			return 0, net.ErrClosed
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		default:
			return int(n), nil
		}
	}
}

// Write implements net.Conn.
func (b *blocking) Write(p []byte) (int, error) {
	if err := b.use(); err != nil {
		return 0, err
	}
	defer b.mu.RUnlock()
	done := 0
	for done < len(p) {
		n, err := unix.Write(b.fd, p[done:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return done, b.failed("write", err)
		}
		done += n
	}
	return done, nil
}

func (b *blocking) failed(what string, err error) error {
	switch {
	case b.shut.Load():
		return net.ErrClosed
	case errors.Is(err, unix.EAGAIN):
		return os.ErrDeadlineExceeded
	}
	return os.NewSyscallError(what, err)
}

// Close implements net.Conn; it ends the calls under way.
func (b *blocking) Close() error {
	if b.shut.Swap(true) {
		return net.ErrClosed
	}
	err := unix.Shutdown(b.fd, unix.SHUT_RDWR)
	if errors.Is(err, unix.ENOTCONN) {
		err = nil // the peer was faster
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	return os.NewSyscallError("close", errors.Join(err, unix.Close(b.fd)))
}

// LocalAddr implements net.Conn.
func (b *blocking) LocalAddr() net.Addr { return b.local }

// RemoteAddr implements net.Conn.
func (b *blocking) RemoteAddr() net.Addr { return b.remote }

// SetDeadline implements net.Conn.
func (b *blocking) SetDeadline(t time.Time) error {
	return errors.Join(b.SetReadDeadline(t), b.SetWriteDeadline(t))
}

// SetReadDeadline implements net.Conn, roughly: each later call gets the time that is left now.
func (b *blocking) SetReadDeadline(t time.Time) error { return b.timeout(unix.SO_RCVTIMEO, t) }

// SetWriteDeadline implements net.Conn, as SetReadDeadline does.
func (b *blocking) SetWriteDeadline(t time.Time) error { return b.timeout(unix.SO_SNDTIMEO, t) }

func (b *blocking) timeout(option int, t time.Time) error {
	if err := b.use(); err != nil {
		return err
	}
	defer b.mu.RUnlock()
	var left time.Duration
	if !t.IsZero() {
		left = max(time.Until(t), time.Microsecond)
	}
	tv := unix.NsecToTimeval(int64(left))
	return os.NewSyscallError("set timeout", unix.SetsockoptTimeval(b.fd, unix.SOL_SOCKET, option, &tv))
}
