package link

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// ErrNudged is what a wait gets that a Nudge ended.
var ErrNudged = errors.New("link: nudged")

// Nudge is a context for one goroutine that waits on a watermark and must also hear of something else. Its Done channel is
// not closed but carries one wake-up for each Poke, so one value serves any number of waits without an allocation.
type Nudge struct{ ch chan struct{} }

// NewNudge makes a Nudge.
func NewNudge() Nudge { return Nudge{ch: make(chan struct{}, 1)} }

// Poke ends the current wait or, when there is none, the next one.
func (n Nudge) Poke() {
	select {
	case n.ch <- struct{}{}:
	default: // one is on its way
	}
}

// Deadline implements context.Context: none.
func (Nudge) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done implements context.Context, see Nudge.
func (n Nudge) Done() <-chan struct{} { return n.ch }

// Err implements context.Context: ErrNudged.
func (Nudge) Err() error { return ErrNudged }

// Value implements context.Context: none.
func (Nudge) Value(any) any { return nil }

// Reader reads from a connection until the peer has been silent for a limit. It moves the deadline only when much of it is
// used up and looks at the clock again before it gives up, so that a read has no cost of its own.
type Reader struct {
	conn  net.Conn
	limit time.Duration
	last  time.Time // of the last bytes, at first the start
	until time.Time // deadline of the connection
}

// NewReader makes a Reader whose silence begins now.
func NewReader(conn net.Conn, limit time.Duration) Reader {
	return Reader{conn: conn, limit: limit, last: time.Now()}
}

// Last returns when the last bytes came.
func (r *Reader) Last() time.Time { return r.last }

// Read is that of the connection with errors of this package: ErrSilent after the limit without a byte.
func (r *Reader) Read(b []byte) (int, error) {
	for {
		if r.until.Before(r.last.Add(r.limit / 2)) {
			if err := r.extend(); err != nil {
				return 0, err
			}
		}
		n, err := r.conn.Read(b)
		if n > 0 {
			r.last = time.Now()
			return n, nil
		}
		if err != nil && !IsTimeout(err) {
			return 0, Error(err)
		}
		if time.Since(r.last) >= r.limit {
			return 0, ErrSilent.With("interval", r.limit)
		}
		if err := r.extend(); err != nil {
			return 0, err
		}
	}
}

func (r *Reader) extend() error {
	r.until = r.last.Add(r.limit)
	if err := r.conn.SetReadDeadline(r.until); err != nil {
		return Error(err)
	}
	return nil
}

// Tune sets TCP_NODELAY and, where one is named, the kernel's congestion control. Other connections than TCP stay as they are.
func Tune(conn net.Conn, congestion string) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	if err := tcp.SetNoDelay(true); err != nil {
		return Error(err)
	}
	if congestion == "" {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return Error(err)
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = setCongestion(fd, congestion) }); err != nil {
		return Error(err)
	}
	return set
}

// HostOf returns the peer's IP address, the zero Addr where there is none.
func HostOf(conn net.Conn) netip.Addr {
	if ap, err := netip.ParseAddrPort(conn.RemoteAddr().String()); err == nil {
		return ap.Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}
