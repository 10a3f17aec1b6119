package link_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

func taken(t *testing.T) (taken net.Conn, peer *net.TCPConn) {
	t.Helper()
	a, b := tcpPair(t)
	c := link.Take(a)
	if c == net.Conn(a) {
		t.Fatal("the connection was not taken")
	}
	if _, err := a.Write([]byte{1}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection that was taken: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, b
}

func TestTakenConnection(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	c, peer := taken(t)
	if link.HostOf(c) != link.HostOf(peer) || c.LocalAddr().String() != peer.RemoteAddr().String() {
		t.Errorf("addresses %v and %v", c.LocalAddr(), c.RemoteAddr())
	}
	big := numbered(8 << 20) // more than the sockets hold
	go func() {
		if _, err := c.Write(big); err != nil {
			t.Error(err)
		}
	}()
	got := make([]byte, len(big))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("other bytes arrived: %v", err)
	}
	go func() {
		if _, err := peer.Write(big); err != nil || peer.CloseWrite() != nil {
			t.Error(err)
		}
	}()
	if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, big) {
		t.Fatalf("other bytes came: %v", err)
	}
}

// TestTakenConnectionEndsWaits: Close ends a read and a write that wait, and so does a deadline.
func TestTakenConnectionEndsWaits(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	c, peer := taken(t)
	if err := errors.Join(c.SetDeadline(time.Now().Add(50*time.Millisecond)), peer.SetReadBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	if _, err := c.Read(b[:]); !link.IsTimeout(err) {
		t.Errorf("a read after its time: %v", err)
	}
	full := make([]byte, 1<<20)
	var err error
	for range 64 {
		if _, err = c.Write(full); err != nil {
			break
		}
	}
	if !link.IsTimeout(err) {
		t.Errorf("a write after its time: %v", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { _, err := c.Read(b[:]); ended <- err }()
	go func() { _, err := c.Write(full); ended <- err }()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("a wait on a closed connection: %v", err)
		}
	}
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed again: %v", err)
	}
	if err := c.SetReadDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a deadline of a closed connection: %v", err)
	}
}

// TestTakenConnectionsErrors: what ends a link is named as with other connections.
func TestTakenConnectionsErrors(t *testing.T) {
	c, peer := taken(t)
	in := link.NewReader(c, 100*time.Millisecond)
	var b [8]byte
	if _, err := in.Read(b[:]); !errors.Is(err, link.ErrSilent) {
		t.Errorf("a silent peer: %v", err)
	}
	if err := errors.Join(peer.SetLinger(0), peer.Close()); err != nil {
		t.Fatal(err)
	}
	in = link.NewReader(c, time.Minute)
	if _, err := in.Read(b[:]); !errors.Is(err, link.ErrPeerClosed) {
		t.Errorf("a peer that reset the connection: %v", err)
	}
	if p, _ := net.Pipe(); link.Take(p) != p {
		t.Error("a pipe was taken")
	}
}
