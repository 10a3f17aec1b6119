package link

import (
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

const (
	// batchBytes is what goes into one writev at most, unless one frame is larger.
	batchBytes = 1 << 20
	// batchFrames bounds the frames of one writev.
	batchFrames = 64
	// sendfileMin is the body from which sendfile is cheaper than a copy.
	sendfileMin = 64 << 10
)

// Source is where the bytes come from. A Source that also is a FileSource is sent from by sendfile where frames are large.
type Source interface {
	// View returns at most limit bytes from offset, at least one, all in one file. They are valid until release.
	View(offset int64, limit int) (b []byte, release func(), err error)
}

// FileSource finds bytes in a file: n of them from offset are in fd at pos until release. n = 0 without an error means that
// View must be used; release may be nil then.
type FileSource interface {
	FileAt(offset int64, limit int) (fd uintptr, pos int64, n int, release func(), err error)
}

// Counters are the traffic of all links of one kind.
type Counters struct {
	Bytes, Frames, Heartbeats, Reports atomic.Int64
}

// Sender writes frames to one connection. One goroutine uses it, except for Sent.
type Sender struct {
	conn  net.Conn
	src   Source
	files FileSource // nil: View only
	raw   syscall.RawConn
	limit time.Duration
	count *Counters
	frame int
	batch int // bodies of one writev, a multiple of the frame

	pos   int64        // next byte to send
	sent  atomic.Int64 // end of what was handed to the connection
	last  time.Time    // of the last byte that went out
	since time.Time    // of the last byte of the send under way, at first its start
	until time.Time    // deadline of the connection
	heads []byte
	parts [][]byte // backing of vec
	vec   net.Buffers
	file  fileStep
}

// NewSender makes a sender of frames with at most frame bytes from start on. A peer that takes no byte for limit is stuck.
func NewSender(conn net.Conn, src Source, start int64, frame int, limit time.Duration, count *Counters) *Sender {
	frames := max(1, min(batchBytes/frame, batchFrames))
	w := &Sender{
		conn: conn, src: src, pos: start, frame: frame, batch: frames * frame, limit: limit, count: count, last: time.Now(),
		heads: make([]byte, frames*wire.HeaderSize), parts: make([][]byte, 0, 2*frames),
	}
	w.sent.Store(start)
	w.useFiles()
	return w
}

// useFiles turns sendfile on where source, connection and frame size allow it.
func (w *Sender) useFiles() {
	files, ok := w.src.(FileSource)
	tcp, isTCP := w.conn.(*net.TCPConn)
	if !ok || !isTCP || !haveSendfile || w.frame < sendfileMin {
		return
	}
	if raw, err := tcp.SyscallConn(); err == nil {
		w.files, w.raw, w.file.run = files, raw, w.file.try
	}
}

// CopyTo turns sendfile off if the peer is on this machine: it would copy from memory what the sender's copy leaves in the
// CPU's cache.
func (w *Sender) CopyTo(peer netip.Addr) {
	if peer.IsLoopback() {
		w.files = nil
	}
}

// Pos returns the offset of the next byte to send.
func (w *Sender) Pos() int64 { return w.pos }

// Last returns when the last bytes went out, at first when the sender was made.
func (w *Sender) Last() time.Time { return w.last }

// Sent returns the end of what was handed to the connection, before it has left. It may be called concurrently.
func (w *Sender) Sent() int64 { return w.sent.Load() }

// Heartbeat sends a frame without a body.
func (w *Sender) Heartbeat() error {
	w.since = time.Time{}
	wire.PutHeader(w.heads, wire.Header{Offset: w.pos})
	w.parts = append(w.parts[:0], w.heads[:wire.HeaderSize])
	w.vec = w.parts
	for done := int64(0); done < wire.HeaderSize; {
		n, err := w.flush()
		if err != nil {
			return err
		}
		done += n
	}
	w.count.Heartbeats.Add(1)
	return nil
}

// Send sends at most n bytes of the log, fewer at the end of a file or when they are more than goes at once, and moves Pos.
func (w *Sender) Send(n int64) error {
	w.since = time.Time{}
	if w.files != nil && n >= sendfileMin {
		return w.sendFile(int(min(n, int64(w.frame))))
	}
	return w.sendView(int(min(n, int64(w.batch))), 0)
}

// sendView sends n bytes, or as many as there are before the end of the file, in frames by writev; done bytes of the first
// frame are out already. A write that is cut short by its deadline gives the view back before it goes on, so that a slow
// peer holds no file for longer than a slice.
func (w *Sender) sendView(n int, done int64) error {
	for whole := done > 0; ; {
		b, release, err := w.src.View(w.pos, n)
		if err != nil {
			return ErrHistoryGone.With("offset", w.pos).Wrap(err)
		}
		if len(b) == 0 || whole && len(b) != n {
			release()
			return ErrHistoryGone.With("offset", w.pos)
		}
		if !whole {
			whole, n = true, len(b)
			w.sent.Store(w.pos + int64(n))
		}
		total := w.frames(b, done)
		k, err := w.flush()
		release()
		if err != nil {
			return err
		}
		if done += k; done == total {
			w.moved(n)
			return nil
		}
	}
}

func (w *Sender) moved(n int) {
	w.pos += int64(n)
	w.count.Bytes.Add(int64(n))
	w.count.Frames.Add(int64((n + w.frame - 1) / w.frame))
}

// frames cuts b into frames and points vec at them, without the first skip bytes. It returns the bytes of all.
func (w *Sender) frames(b []byte, skip int64) (total int64) {
	w.parts = w.parts[:0]
	for i, off := 0, w.pos; len(b) > 0; i++ {
		n := min(len(b), w.frame)
		head := w.heads[i*wire.HeaderSize : (i+1)*wire.HeaderSize]
		wire.PutHeader(head, wire.Header{Offset: off, Size: int32(n)}) // a frame is at most wire.MaxBody
		w.parts = append(w.parts, head, b[:n])
		b, off, total = b[n:], off+int64(n), total+int64(n+wire.HeaderSize)
	}
	w.vec = w.parts
	for skip > 0 && int64(len(w.vec[0])) <= skip {
		skip -= int64(len(w.vec[0]))
		w.vec = w.vec[1:]
	}
	w.vec[0] = w.vec[0][skip:]
	return total
}

// flush writes vec until all is out or the slice is over, and returns how many bytes went.
func (w *Sender) flush() (int64, error) {
	if err := w.arm(); err != nil {
		return 0, err
	}
	n, err := w.vec.WriteTo(w.conn)
	return n, w.judge(n, err)
}

// arm moves the deadline when much of the slice is used up. A slice is how long one write may block.
func (w *Sender) arm() error {
	now, slice := time.Now(), w.limit/4
	if w.since.IsZero() {
		w.since = now
	}
	if w.until.Sub(now) >= slice/2 {
		return nil
	}
	w.until = now.Add(slice)
	if err := w.conn.SetWriteDeadline(w.until); err != nil {
		return Error(err)
	}
	return nil
}

// judge says whether a write that moved n bytes and ended with err is the end of the link.
func (w *Sender) judge(n int64, err error) error {
	now := time.Now()
	if n > 0 || err == nil {
		w.last, w.since = now, now
	}
	switch {
	case err == nil:
		return nil
	case !IsTimeout(err):
		return Error(err)
	case now.Sub(w.since) >= w.limit:
		return ErrStuck.With("interval", w.limit).With("offset", w.pos)
	}
	w.until = time.Time{}
	return nil
}
