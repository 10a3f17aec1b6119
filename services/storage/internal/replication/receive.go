package replication

import (
	"errors"
	"net"
	"sync"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// maxBodies bounds the pieces of one append.
const maxBodies = 1024

// upstream is one connection to the node that is followed. receive owns the reading and the appends, out the writing.
type upstream struct {
	s     *Slave
	conn  net.Conn
	in    link.Reader
	out   *link.Reporter
	limit int // largest body

	buf    []byte
	have   int   // bytes of an incomplete header at the start of buf
	pos    int64 // own end, with what is in bodies
	left   int   // bytes of the current frame still to come
	bodies [][]byte
	queued int64 // bytes in bodies
	lead   bool  // byte 0 must be put before the first body

	once sync.Once
	err  error // why the link ended; read after both goroutines
}

func newUpstream(s *Slave, conn net.Conn, mark *watermark.Mark, end int64, a StreamArgs) *upstream {
	u := &upstream{
		s: s, conn: conn, pos: end, limit: s.o.MaxFrame,
		in:     link.NewReader(conn, s.o.Housekeeping),
		buf:    make([]byte, s.o.ReadBuffer),
		bodies: make([][]byte, 0, 64),
	}
	if a.Frame > 0 {
		u.limit = min(a.Frame, wire.MaxBody)
	}
	if end == 0 && a.Token == nil && a.EmptyReport == 1 {
		u.lead, u.pos = true, 1
	}
	u.out = link.NewReporter(conn, mark, u.pos, s.o.Heartbeat, s.o.Housekeeping, &s.count)
	return u
}

// end closes the link for the first reason given.
func (u *upstream) end(reason error) {
	u.once.Do(func() {
		u.err = reason
		_ = u.conn.Close() // it ends either way
		u.out.Stop()
	})
}

// receive reads bursts: what came of all bodies is appended at once, also a part of one, and then reported.
func (u *upstream) receive() error {
	for {
		n, err := u.in.Read(u.buf[u.have:])
		if err != nil {
			return err // what came of the body under way is in the log
		}
		u.s.lastReceive.Store(u.in.Last().UnixNano())
		if err := u.take(u.have + n); err != nil {
			return err
		}
	}
}

// take handles the first n bytes of buf and leaves only an incomplete header in it.
func (u *upstream) take(n int) error {
	b := u.buf[:n]
	for len(b) > 0 {
		if u.left > 0 {
			k := min(u.left, len(b))
			u.bodies = append(u.bodies, b[:k])
			u.left, u.pos, u.queued, b = u.left-k, u.pos+int64(k), u.queued+int64(k), b[k:]
			if len(u.bodies) < maxBodies {
				continue
			}
			if err := u.append(); err != nil {
				return err
			}
			continue
		}
		if len(b) < wire.HeaderSize {
			break
		}
		if err := u.header(wire.ParseHeader(b)); err != nil {
			if failed := u.append(); failed != nil {
				return failed
			}
			return err
		}
		b = b[wire.HeaderSize:]
	}
	if err := u.append(); err != nil {
		return err
	}
	u.have = copy(u.buf, b)
	return nil
}

func (u *upstream) header(h wire.Header) error {
	switch h.Check(u.pos, u.limit) {
	case wire.NegativeSize, wire.TooLarge:
		return ErrFrameSize.With("size", h.Size).With("limit", u.limit).With("offset", h.Offset)
	case wire.WrongOffset:
		return ErrFrameOffset.With("offset", h.Offset).With("end", u.pos)
	case wire.OK:
	}
	if h.Size == 0 {
		u.s.count.Heartbeats.Add(1)
		u.s.lastHeartbeat.Store(u.in.Last().UnixNano())
		return nil
	}
	u.s.count.Frames.Add(1)
	u.left = int(h.Size)
	return nil
}

// append puts bodies into the log and reports.
func (u *upstream) append() error {
	if u.queued == 0 {
		return nil
	}
	if u.lead {
		if _, err := u.s.sink.AppendRaw(0, [][]byte{{0}}); err != nil {
			return appendError(err, 0)
		}
		u.lead = false
	}
	at := u.pos - u.queued
	if _, err := u.s.sink.AppendRaw(at, u.bodies); err != nil {
		return appendError(err, at)
	}
	u.s.count.Bytes.Add(u.queued)
	clear(u.bodies)
	u.bodies, u.queued = u.bodies[:0], 0
	if err := u.out.Appended(u.pos); err != nil && !errors.Is(err, link.ErrPeerClosed) {
		return err
	}
	return nil // a peer that has closed may have sent more before: the reading finds its end
}

// confirm reports in the background until the link ends.
func (u *upstream) confirm() {
	if err := u.out.Run(); !errors.Is(err, link.ErrPeerClosed) {
		u.end(err)
	}
}

func appendError(err error, offset int64) error {
	return ErrAppend.With("offset", offset).Wrap(err)
}
