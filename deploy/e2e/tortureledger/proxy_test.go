package main

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// rig is a proxy before a target that the test speaks for.
type rig struct {
	p            *proxy
	near, target net.Conn
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := newProxy(0, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(p.run)
	t.Cleanup(func() { p.close(); served.Wait(); l.Close() })
	r := &rig{p: p}
	if r.near, err = net.Dial("tcp", p.addr()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.near.Close() })
	if r.target, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.target.Close() })
	return r
}

func say1(t *testing.T, to net.Conn, b byte) {
	t.Helper()
	if _, err := to.Write([]byte{b}); err != nil {
		t.Fatal(err)
	}
}

func hears(t *testing.T, from net.Conn, want byte) {
	t.Helper()
	if err := from.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := io.ReadFull(from, b); err != nil || b[0] != want {
		t.Fatalf("%q, %v, want %q", b, err, want)
	}
}

func hearsNothing(t *testing.T, from net.Conn) {
	t.Helper()
	if err := from.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := from.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func TestProxyHoldsOneWay(t *testing.T) {
	r := newRig(t)
	say1(t, r.near, 'a')
	hears(t, r.target, 'a')
	r.p.hold(up)
	say1(t, r.near, 'b')
	hearsNothing(t, r.target)
	say1(t, r.target, 'c')
	hears(t, r.near, 'c')
	r.p.heal()
	hears(t, r.target, 'b')
	r.p.hold(down)
	say1(t, r.target, 'd')
	say1(t, r.near, 'e')
	hears(t, r.target, 'e')
	hearsNothing(t, r.near)
	r.p.heal()
	hears(t, r.near, 'd')
}

func TestProxyCuts(t *testing.T) {
	r := newRig(t)
	say1(t, r.near, 'a')
	hears(t, r.target, 'a')
	r.p.cut()
	for _, c := range []net.Conn{r.near, r.target} {
		if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
			t.Fatalf("the connection lives: %v", err)
		}
	}
	again, err := net.Dial("tcp", r.p.addr())
	if err == nil {
		defer again.Close()
		if err := again.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err = again.Read(make([]byte, 1)); os.IsTimeout(err) {
			t.Fatal("a new connection is kept")
		}
	}
}
