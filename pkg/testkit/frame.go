package testkit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"
)

// Patience is how long anything here waits before it fails the test.
const Patience = 20 * time.Second

// maxBody is the largest body that a fake reads: more is a mistake in the test or its subject.
const maxBody = 64 << 20

// headerSize is the length of a frame's header: an offset of 8 bytes, a size of 4, big-endian.
const headerSize = 12

// Frame is what a master sends: a heartbeat where Body is empty.
type Frame struct {
	Offset int64
	Body   []byte
}

// Bytes returns the frame as it goes over the wire.
func (f Frame) Bytes() []byte { return append(Header(f.Offset, int32(len(f.Body))), f.Body...) }

// Header returns a frame's header with any offset and size.
func Header(offset int64, size int32) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, headerSize), uint64(offset))
	return binary.BigEndian.AppendUint32(b, uint32(size))
}

// Report returns the 8 bytes with which a slave reports offset.
func Report(offset int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(offset)) }

// ReadFrame reads one frame. io.EOF comes only from between frames.
func ReadFrame(r io.Reader) (Frame, error) {
	var head [headerSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Frame{}, err //nolint:wrapcheck // io.EOF as it is
	}
	f := Frame{Offset: int64(binary.BigEndian.Uint64(head[:]))}
	size := int32(binary.BigEndian.Uint32(head[8:]))
	if size < 0 || size > maxBody {
		return Frame{}, fmt.Errorf("frame at %d has a body of %d bytes", f.Offset, size)
	}
	f.Body = make([]byte, size)
	if _, err := io.ReadFull(r, f.Body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Frame{}, fmt.Errorf("body of frame at %d: %w", f.Offset, err)
	}
	return f, nil
}

// link is one end of a connection with the waiting that both fakes need.
type link struct {
	t    testing.TB
	conn net.Conn
}

func newLink(t testing.TB, conn net.Conn) link {
	t.Cleanup(func() { _ = conn.Close() })
	return link{t, conn}
}

// Conn returns the connection, for what the fake has no words for.
func (l link) Conn() net.Conn { return l.conn }

// Close ends the connection.
func (l link) Close() { _ = l.conn.Close() }

// Send writes the chunks one by one, each a segment of its own as far as TCP allows; over a net.Pipe each is at least
// one read of the peer.
func (l link) Send(chunks ...[]byte) {
	l.t.Helper()
	if err := l.TrySend(chunks...); err != nil {
		l.t.Fatalf("send: %v", err)
	}
}

// TrySend is Send for when the peer may be gone.
func (l link) TrySend(chunks ...[]byte) error {
	for _, c := range chunks {
		if err := l.conn.SetWriteDeadline(time.Now().Add(Patience)); err != nil {
			return err //nolint:wrapcheck // for the test's eyes
		}
		if _, err := l.conn.Write(c); err != nil {
			return err //nolint:wrapcheck // for the test's eyes
		}
	}
	return nil
}

// patient bounds the reads that follow.
func (l link) patient() {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(Patience)); err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.ErrClosedPipe) {
		l.t.Fatalf("set deadline: %v", err)
	}
}

// end bounds a loop that what comes in between, such as heartbeats, would keep going: the function fails the test when patience
// is over.
func (l link) end(what string) func() {
	deadline := time.Now().Add(Patience)
	return func() {
		l.t.Helper()
		if time.Now().After(deadline) {
			l.t.Fatalf("%s did not come within %v", what, Patience)
		}
	}
}

// ended tells the end of a connection from impatience.
func ended(err error) bool {
	var ne net.Error
	return err != nil && (!errors.As(err, &ne) || !ne.Timeout())
}

// Cut cuts b at the given places, in ascending order, for Send.
func Cut(b []byte, at ...int) [][]byte {
	var chunks [][]byte
	from := 0
	for _, to := range at {
		to = min(max(to, from), len(b))
		if to > from {
			chunks = append(chunks, b[from:to])
		}
		from = to
	}
	if from < len(b) {
		chunks = append(chunks, b[from:])
	}
	return chunks
}

// Every cuts b into chunks of n bytes, for Send.
func Every(b []byte, n int) [][]byte {
	var chunks [][]byte
	for len(b) > n {
		chunks = append(chunks, b[:n])
		b = b[n:]
	}
	return append(chunks, b)
}
