package testkit_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
)

// linked returns both ends of a connection through a proxy.
func linked(t *testing.T) (*testkit.Proxy, *testkit.FakeSlave, *testkit.MasterSession) {
	t.Helper()
	m := testkit.ListenMaster(t)
	p := testkit.NewProxy(t, m.Addr())
	s := testkit.DialSlave(t, p.Addr())
	return p, s, m.Accept()
}

func TestProxyPassesBytesAndEnds(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	p, s, x := linked(t)
	big := bytes.Repeat([]byte("0123456789"), 500_000)
	go func() { _ = x.TrySend(testkit.Frame{Offset: 9, Body: big}.Bytes()) }()
	if f := s.Next(); f.Offset != 9 || !bytes.Equal(f.Body, big) {
		t.Error("other bytes arrived")
	}
	p.AwaitBytes(testkit.Down, int64(len(big))+12)
	s.Report(1, 2)
	if half, ok := s.Conn().(*net.TCPConn); !ok || half.CloseWrite() != nil {
		t.Fatal("cannot close one way")
	}
	if got := x.AwaitClose(); len(got) != 2 {
		t.Errorf("reports %v", got)
	}
	x.SendFrame(testkit.Frame{Offset: 3}) // the other way is still open
	if f := s.Next(); f.Offset != 3 {
		t.Errorf("got %+v", f)
	}
	x.Close()
	s.AwaitClose()
}

func TestProxyDelays(t *testing.T) {
	p, s, x := linked(t)
	const delay = 60 * time.Millisecond
	p.Delay(testkit.Up, delay)
	start := time.Now()
	s.Report(1, 2, 3)
	x.AwaitReport(3)
	if d := time.Since(start); d < delay {
		t.Errorf("arrived after %v", d)
	}
	start = time.Now()
	for range 10 { // later, not slower
		s.Report(4)
	}
	for range 10 {
		x.Report()
	}
	if d := time.Since(start); d < delay || d > 9*delay {
		t.Errorf("ten arrived after %v", d)
	}
}

func TestProxyStallsOneWay(t *testing.T) {
	p, s, x := linked(t)
	p.Stall(testkit.Up)
	p.Stall(testkit.Up)
	s.Report(1)
	x.SendFrame(testkit.Frame{Offset: 5})
	s.Next() // the other way works
	s.Close()
	if err := x.Conn().SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var ne net.Error
	if n, err := x.Conn().Read(make([]byte, 8)); !errors.As(err, &ne) || !ne.Timeout() {
		t.Fatalf("a black hole let %d bytes out: %v", n, err)
	}
	p.Resume(testkit.Up)
	p.Resume(testkit.Up)
	if got := x.AwaitClose(); len(got) != 1 || got[0] != 1 {
		t.Errorf("after the network healed: %v", got)
	}
}

func TestProxyCutsAfterExactlyNBytes(t *testing.T) {
	m := testkit.ListenMaster(t)
	p := testkit.NewProxy(t, m.Addr())
	for _, n := range []int64{0, 1, 13, 40} {
		s := testkit.DialSlave(t, p.Addr())
		x := m.Accept()
		before := p.Bytes(testkit.Down)
		p.CutAfter(testkit.Down, n)
		if err := x.TrySend(make([]byte, 40)); err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(s.Conn())
		if int64(len(got)) != n || p.Bytes(testkit.Down)-before != n {
			t.Errorf("cut after %d: %d arrived", n, len(got))
		}
		x.AwaitClose()
	}
	s := testkit.DialSlave(t, p.Addr()) // the cut happens once
	m.Accept().SendFrame(testkit.Frame{Offset: 1, Body: make([]byte, 100)})
	s.Next()
}

func TestProxyRefusesAndTurns(t *testing.T) {
	first, second := testkit.ListenMaster(t), testkit.ListenMaster(t)
	p := testkit.NewProxy(t, first.Addr())
	s := testkit.DialSlave(t, p.Addr())
	x := first.Accept()
	p.CutAll()
	s.AwaitClose()
	x.AwaitClose()
	p.Refuse(true)
	testkit.DialSlave(t, p.Addr()).AwaitClose()
	p.Refuse(false)
	p.SetTarget(second.Addr())
	s = testkit.DialSlave(t, p.Addr())
	second.Accept().SendFrame(testkit.Frame{Offset: 4})
	if f := s.Next(); f.Offset != 4 {
		t.Errorf("got %+v", f)
	}
	second.Close()
	testkit.DialSlave(t, p.Addr()).AwaitClose() // nobody behind the proxy
}
