package replication

import (
	"cmp"
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// session is one slave's connection: RocketMQ's HAConnection. Two goroutines: read takes reports, write sends frames.
type session struct {
	acks.Member
	m           *Master
	conn        net.Conn
	addr        string
	legacy      bool
	start       int64
	frame       int
	connectedAt time.Time
	gone        chan struct{} // closed when the session is in no table any more
	stalled     bool          // guarded by Master.mu

	out     *link.Sender
	written *watermark.Mark
	small   int64        // of write: end of the last small frame
	awaited atomic.Int64 // report that write waits for, 0: none
	wake    link.Nudge   // of write
	stop    atomic.Bool
	once    sync.Once
	err     error // why it ended; read after both goroutines
}

// attach completes a session made by admit.
func (s *session) attach(m *Master, conn net.Conn) {
	s.m, s.conn, s.wake = m, conn, link.NewNudge()
	s.connectedAt = m.o.Now()
	s.addr = cmp.Or(s.addr, conn.RemoteAddr().String())
	s.written = m.src.Written()
	s.out = link.NewSender(conn, m.src, s.start, s.frame, m.o.Housekeeping, &m.count.Counters)
	s.out.CopyTo(link.HostOf(conn))
}

// end closes the session for the first reason given.
func (s *session) end(reason error) {
	s.once.Do(func() {
		s.err = reason
		s.stop.Store(true)
		_ = s.conn.Close() // it ends either way
		s.wake.Poke()
	})
}

// serve runs a session that is in the tables already and takes it out again.
func (m *Master) serve(s *session) {
	peer := s.conn.RemoteAddr().String()
	m.log.Info("slave connected", "node", s.Key.Node, "peer", peer, "legacy", s.legacy, "start", s.start, "frame", s.frame)
	var wg sync.WaitGroup
	wg.Go(func() { s.end(s.read()) })
	s.end(s.write())
	wg.Wait()
	m.acks.Leave(&s.Member)
	m.mu.Lock()
	delete(m.sessions, s)
	m.keepOffline(s)
	m.mu.Unlock()
	close(s.gone)
	m.log.Info("slave disconnected", "node", s.Key.Node, "peer", peer, "acked", s.Ack(), "error", s.err)
}

// read is RocketMQ's ReadSocketService: of the reports that came together the last complete one counts.
func (s *session) read() error {
	in := link.NewReader(s.conn, s.m.o.Housekeeping)
	var buf [512 * wire.ReportSize]byte
	have := 0
	for {
		n, err := in.Read(buf[have:])
		if err != nil {
			return err
		}
		have += n
		whole := have - have%wire.ReportSize
		if whole == 0 {
			continue
		}
		for at := 0; at < whole; at += wire.ReportSize {
			if err := s.check(buf[at:whole]); err != nil {
				return err
			}
		}
		s.m.count.Reports.Add(int64(whole / wire.ReportSize))
		s.report(wire.ParseReport(buf[whole-wire.ReportSize:]))
		have = copy(buf[:], buf[whole:have])
	}
}

// check refuses a report that the slave cannot mean.
func (s *session) check(b []byte) error {
	off := wire.ParseReport(b)
	why := badBeyond
	switch wire.Classify(b) {
	case wire.Text:
		why = badText
	case wire.TLS:
		why = badTLS
	case wire.Negative, wire.Preamble:
		why = badNegative
	case wire.Report:
		if off <= s.out.Sent() {
			return nil
		}
	}
	s.m.count.badReport[why].Add(1)
	return ErrBadReport.With("offset", off).With("sent", s.out.Sent()).With("why", badNames[why])
}

// report passes a legal report on. One below the one before is taken at its word: the slave has less than we thought.
func (s *session) report(off int64) {
	if off < s.Ack() {
		s.m.count.badReport[badWentBack].Add(1)
	}
	s.m.acks.Report(&s.Member, off, s.m.o.Now())
	if want := s.awaited.Load(); want != 0 && off >= want {
		s.wake.Poke()
	}
}

// write is RocketMQ's WriteSocketService. It returns when the session has ended.
func (s *session) write() error {
	for !s.stop.Load() {
		if err := s.step(); err != nil {
			return err
		}
	}
	return link.ErrBroken
}

// step sends what may be sent, or waits. At most one small frame is on its way; the next takes all that has gathered.
func (s *session) step() error {
	select {
	case <-s.written.Done():
		return link.ErrLogClosed.Wrap(s.written.Err())
	default:
	}
	end, frame := s.written.Load(), int64(s.frame)
	n, free := end-s.out.Pos(), s.Ack() >= s.small
	if !free {
		n -= n % frame
	}
	if n <= 0 {
		return s.pause(free)
	}
	from := s.out.Pos()
	if err := s.out.Send(n); err != nil {
		return err
	}
	if s.out.Pos() == end && (end-from)%frame != 0 {
		s.small = end
	}
	return nil
}

// pause waits for the next byte, or, while a small frame is on its way, for a full frame or the confirmation. When it is time
// it sends a heartbeat.
func (s *session) pause(free bool) error {
	want := s.out.Pos() + 1
	if !free {
		want = s.out.Pos() + int64(s.frame)
		s.awaited.Store(s.small)
		if s.Ack() >= s.small {
			return nil
		}
	}
	err := s.written.WaitUntil(s.wake, want, s.out.Last().Add(s.m.o.Heartbeat))
	s.awaited.Store(0)
	switch {
	case err == nil, errors.Is(err, link.ErrNudged):
		runtime.Gosched() // those whom the same report woke put first: one frame takes it all
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return s.out.Heartbeat()
	}
	return link.ErrLogClosed.Wrap(err)
}
