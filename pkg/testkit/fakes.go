package testkit

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// FakeSlave talks to a master's replication port.
type FakeSlave struct {
	link
	frames []Frame
}

// DialSlave connects to addr and says nothing yet.
func DialSlave(t testing.TB, addr string) *FakeSlave {
	t.Helper()
	d := net.Dialer{Timeout: Patience}
	conn, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("dial master: %v", err)
	}
	return NewFakeSlave(t, conn)
}

// NewFakeSlave speaks over conn, such as one end of net.Pipe.
func NewFakeSlave(t testing.TB, conn net.Conn) *FakeSlave { return &FakeSlave{link: newLink(t, conn)} }

// Report sends offsets, 8 bytes each.
func (s *FakeSlave) Report(offsets ...int64) {
	s.t.Helper()
	var b []byte
	for _, o := range offsets {
		b = append(b, Report(o)...)
	}
	s.Send(b)
}

// Next reads one frame and records it.
func (s *FakeSlave) Next() Frame {
	s.t.Helper()
	s.patient()
	f, err := ReadFrame(s.conn)
	if err != nil {
		s.t.Fatalf("frame %d: %v", len(s.frames)+1, err)
	}
	s.frames = append(s.frames, f)
	return f
}

// NextData reads frames until one has a body.
func (s *FakeSlave) NextData() Frame {
	s.t.Helper()
	for end := s.end("data"); ; end() {
		if f := s.Next(); len(f.Body) > 0 {
			return f
		}
	}
}

// ReadTo reads frames until one ends at or past offset.
func (s *FakeSlave) ReadTo(offset int64) {
	s.t.Helper()
	for end := s.end("the log up to the offset"); ; end() {
		if f := s.Next(); f.Offset+int64(len(f.Body)) >= offset {
			return
		}
	}
}

// AwaitClose reads and records frames until the master closes, and returns how many came.
func (s *FakeSlave) AwaitClose() int {
	s.t.Helper()
	end := s.end("the master's close")
	for n := 0; ; n++ {
		end()
		s.patient()
		f, err := ReadFrame(s.conn)
		if ended(err) {
			return n
		}
		if err != nil {
			s.t.Fatalf("the master does not close: %v", err)
		}
		s.frames = append(s.frames, f)
	}
}

// Silent fails the test if a byte comes or the connection ends within d.
func (s *FakeSlave) Silent(d time.Duration) {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		s.t.Fatalf("set deadline: %v", err)
	}
	if n, err := s.conn.Read(make([]byte, 1)); n > 0 || ended(err) {
		s.t.Fatalf("not silent: %d bytes, %v", n, err)
	}
}

// Frames returns all frames that were read.
func (s *FakeSlave) Frames() []Frame { return slices.Clone(s.frames) }

// Bodies returns the bodies of all frames that were read, joined, and the offset of the first.
func (s *FakeSlave) Bodies() (first int64, joined []byte) {
	var b bytes.Buffer
	for _, f := range s.frames {
		if b.Len() == 0 {
			first = f.Offset
		}
		b.Write(f.Body)
	}
	return first, b.Bytes()
}

// FakeMaster is a replication port.
type FakeMaster struct {
	t  testing.TB
	ln net.Listener
}

// ListenMaster opens a port on the loopback.
func ListenMaster(t testing.TB) *FakeMaster {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return &FakeMaster{t, ln}
}

// Addr returns the port's address.
func (m *FakeMaster) Addr() string { return m.ln.Addr().String() }

// Close closes the port; sessions stay.
func (m *FakeMaster) Close() { _ = m.ln.Close() }

// Accept waits for the next slave.
func (m *FakeMaster) Accept() *MasterSession {
	m.t.Helper()
	if d, ok := m.ln.(*net.TCPListener); ok {
		if err := d.SetDeadline(time.Now().Add(Patience)); err != nil {
			m.t.Fatalf("set deadline: %v", err)
		}
	}
	conn, err := m.ln.Accept()
	if err != nil {
		m.t.Fatalf("no slave came: %v", err)
	}
	return NewMasterSession(m.t, conn)
}

// MasterSession is one slave's connection.
type MasterSession struct{ link }

// NewMasterSession speaks over conn, such as one end of net.Pipe.
func NewMasterSession(t testing.TB, conn net.Conn) *MasterSession {
	return &MasterSession{newLink(t, conn)}
}

// Read reads exactly n bytes: a preamble, say.
func (s *MasterSession) Read(n int) []byte {
	s.t.Helper()
	s.patient()
	b := make([]byte, n)
	if _, err := io.ReadFull(s.conn, b); err != nil {
		s.t.Fatalf("read %d bytes: %v", n, err)
	}
	return b
}

// Report reads the slave's next report.
func (s *MasterSession) Report() int64 {
	s.t.Helper()
	return int64(binary.BigEndian.Uint64(s.Read(8)))
}

// AwaitReport reads reports until one is at least offset, and returns it.
func (s *MasterSession) AwaitReport(offset int64) int64 {
	s.t.Helper()
	for end := s.end("the report"); ; end() {
		if r := s.Report(); r >= offset {
			return r
		}
	}
}

// AwaitClose reads reports until the slave closes, and returns them.
func (s *MasterSession) AwaitClose() []int64 {
	s.t.Helper()
	var reports []int64
	for end := s.end("the slave's close"); ; end() {
		s.patient()
		var b [8]byte
		_, err := io.ReadFull(s.conn, b[:])
		if ended(err) {
			return reports
		}
		if err != nil {
			s.t.Fatalf("the slave does not close: %v", err)
		}
		reports = append(reports, int64(binary.BigEndian.Uint64(b[:])))
	}
}

// SendFrame sends frames, each in one write.
func (s *MasterSession) SendFrame(frames ...Frame) {
	s.t.Helper()
	for _, f := range frames {
		s.Send(f.Bytes())
	}
}
