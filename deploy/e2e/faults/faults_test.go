package faults

import (
	"bufio"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const patience = 20 * time.Second

// rig is a link before a target that the test speaks for.
type rig struct {
	t      *testing.T
	link   *Link
	target net.Listener
}

func newRig(t *testing.T) *rig {
	t.Helper()
	target, err := net.Listen("tcp", Loopback(0))
	if err != nil {
		t.Fatal(err)
	}
	link, err := NewLink(0, target.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(link.Run)
	t.Cleanup(func() { link.Close(); served.Wait(); _ = target.Close() })
	return &rig{t, link, target}
}

// pair is a connection through the link, and its other end.
func (r *rig) pair() (near, far net.Conn) {
	r.t.Helper()
	near = r.dial()
	far, err := r.target.Accept()
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = far.Close() })
	return near, far
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.link.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

func send(t *testing.T, to net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(to, s); err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, from net.Conn, want string) {
	t.Helper()
	within(t, from, patience)
	b := make([]byte, len(want))
	if _, err := io.ReadFull(from, b); err != nil || string(b) != want {
		t.Fatalf("%q, %v, want %q", b, err, want)
	}
}

func hearsNothing(t *testing.T, from net.Conn) {
	t.Helper()
	within(t, from, 50*time.Millisecond)
	if n, err := from.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

// ends reads to the end and returns what came before it.
func ends(t *testing.T, c net.Conn) string {
	t.Helper()
	within(t, c, patience)
	b, err := io.ReadAll(c)
	if os.IsTimeout(err) {
		t.Fatal("the connection lives")
	}
	return string(b)
}

func within(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		t.Fatal(err)
	}
}

func TestLinkHoldsOneWay(t *testing.T) {
	r := newRig(t)
	near, far := r.pair()
	send(t, near, "a")
	receive(t, far, "a")
	r.link.Hold(Up)
	send(t, near, "b")
	hearsNothing(t, far)
	send(t, far, "c")
	receive(t, near, "c")
	r.link.Heal()
	receive(t, far, "b")
	r.link.Hold(Down)
	send(t, far, "d")
	send(t, near, "e")
	receive(t, far, "e")
	hearsNothing(t, near)
	r.link.Hold(Up, Down)
	send(t, near, "f")
	hearsNothing(t, far)
	r.link.Heal()
	receive(t, near, "d")
	receive(t, far, "f")
}

func TestLinkCuts(t *testing.T) {
	r := newRig(t)
	near, far := r.pair()
	send(t, near, "up")
	receive(t, far, "up")
	r.link.Cut()
	if ends(t, near) != "" || ends(t, far) != "" || ends(t, r.dial()) != "" {
		t.Error("bytes after a cut")
	}
	r.link.Heal()
	near, far = r.pair()
	send(t, far, "down")
	receive(t, near, "down")
}

func TestLinkTears(t *testing.T) {
	r := newRig(t)
	near, far := r.pair()
	r.link.CutAfter(3)
	send(t, near, "upwards it does not count")
	receive(t, far, "upwards it does not count")
	send(t, far, "down")
	if got := ends(t, near); got != "dow" {
		t.Errorf("%q", got)
	}
}

func TestLinkDelays(t *testing.T) {
	r := newRig(t)
	near, far := r.pair()
	const delay = 40 * time.Millisecond
	r.link.Slow(delay)
	began := time.Now()
	send(t, near, "up")
	receive(t, far, "up")
	if d := time.Since(began); d < delay {
		t.Errorf("arrived after %v", d)
	}
}

// script makes a program of it and a Process of that. What the program writes to "$UP" comes out of up.
func script(t *testing.T, text string) (p *Process, up *os.File) {
	t.Helper()
	dir := t.TempDir()
	bin, pipe := filepath.Join(dir, "program"), filepath.Join(dir, "up")
	if err := os.WriteFile(bin, []byte("#!/bin/sh\nUP="+pipe+"\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	up, err := os.OpenFile(pipe, os.O_RDWR, 0) // also for writing, so that neither end waits for the other to open
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	p = &Process{Name: "n0", Bin: bin, Config: filepath.Join(dir, "config"), Log: filepath.Join(dir, "log")}
	t.Cleanup(p.Kill)
	return p, up
}

// await waits for the line that a program writes when it runs.
func await(t *testing.T, up *os.File, want string) {
	t.Helper()
	if err := up.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(up).ReadString('\n'); err != nil || line != want+"\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestProcess(t *testing.T) {
	p, up := script(t, "trap 'exit 0' TERM\necho started $2 >$UP\nwhile :; do sleep 0.01; done\n")
	for range 2 { // the second one is there already
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, up, "started "+p.Config)
	if err := p.Terminate(patience); err != nil {
		t.Error(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.Freeze(true)
	p.Kill()
	if err := p.Terminate(patience); err != nil { // it is gone
		t.Error(err)
	}
	if err := p.Death(); err != nil {
		t.Errorf("a death that was asked for: %v", err)
	}
}

func TestProcessThatEndsByItself(t *testing.T) {
	p, _ := script(t, "echo last words\nexit 3\n")
	p.Excuse(true)
	end := func() {
		t.Helper()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		<-p.exited
	}
	end()
	if err := p.Death(); err != nil {
		t.Errorf("excused: %v", err)
	}
	p.Excuse(false)
	end()
	if err := p.Death(); err == nil || !strings.Contains(err.Error(), "n0 ended by itself (exit status 3)") || !strings.Contains(err.Error(), p.Log) {
		t.Errorf("%v", err)
	}
	stubborn, up := script(t, "trap 'exit 7' TERM\necho started >$UP\nwhile :; do sleep 0.01; done\n")
	if err := stubborn.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, up, "started")
	if err := stubborn.Terminate(patience); err == nil || !strings.Contains(err.Error(), "exits with 7") {
		t.Errorf("%v", err)
	}
}
