package main

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// linked returns both ends of a connection through a proxy.
func linked(t *testing.T) (p *proxy, client net.Conn, accept func() net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", loopback(0))
	if err != nil {
		t.Fatal(err)
	}
	if p, err = newProxy(0, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(p.run)
	t.Cleanup(func() { _ = l.Close(); p.close(); served.Wait() })
	accept = func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return p, dial(t, p), accept
}

func dial(t *testing.T, p *proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
		t.Fatalf("%q, %v", b, err)
	}
}

func TestProxyCuts(t *testing.T) {
	p, client, accept := linked(t)
	server := accept()
	send(t, client, "up")
	receive(t, server, "up")
	p.cut()
	if b, err := io.ReadAll(client); len(b) > 0 {
		t.Errorf("%q, %v after a cut", b, err)
	}
	if b, _ := io.ReadAll(dial(t, p)); len(b) > 0 {
		t.Errorf("%q through a refusing proxy", b)
	}
	p.heal()
	client = dial(t, p)
	send(t, accept(), "down")
	receive(t, client, "down")
}

func TestProxyTears(t *testing.T) {
	p, client, accept := linked(t)
	p.cutAfter(3)
	send(t, accept(), "down")
	if b, _ := io.ReadAll(client); string(b) != "dow" {
		t.Errorf("%q", b)
	}
}

func TestProxyStallsAndDelays(t *testing.T) {
	p, client, accept := linked(t)
	server := accept()
	p.stall()
	send(t, server, "down")
	if err := client.SetReadDeadline(time.Now().Add(30 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := client.Read(make([]byte, 4)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes, %v out of a black hole", n, err)
	}
	if err := client.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	p.heal()
	receive(t, client, "down")
	const delay = 40 * time.Millisecond
	p.slow(delay)
	began := time.Now()
	send(t, client, "up")
	receive(t, server, "up")
	if d := time.Since(began); d < delay {
		t.Errorf("arrived after %v", d)
	}
}
