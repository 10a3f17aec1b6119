package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// proxy passes TCP connections on to one target and can be told to cut, stall and delay them.
type proxy struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	refuse bool
	delay  time.Duration // of each piece of at most 32 KiB
	limit  int64         // bytes from target to client before the next cut; below 0: none
	open   chan struct{} // closed while bytes may pass
	closed bool
}

func newProxy(port int, target string) (*proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}, limit: -1, open: make(chan struct{})}
	close(p.open)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// run serves until close and returns when all connections have ended.
func (p *proxy) run() {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() { p.pair(c) })
	}
}

func (p *proxy) pair(client net.Conn) {
	defer p.drop(client)
	if !p.keep(client) {
		return
	}
	target, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(target)
	if !p.keep(target) {
		return
	}
	var both sync.WaitGroup
	pass := func(from, to net.Conn, down bool) {
		defer p.drop(from)
		defer p.drop(to)
		p.pass(from, to, down)
	}
	both.Go(func() { pass(client, target, false) })
	both.Go(func() { pass(target, client, true) })
	both.Wait()
}

// keep takes a connection over; false while they are refused.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) drop(c net.Conn) {
	p.mu.Lock()
	delete(p.conns, c)
	p.mu.Unlock()
	_ = c.Close() // both ends may do so
}

func (p *proxy) pass(from io.Reader, to io.Writer, down bool) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		delay, open := p.delay, p.open
		p.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		<-open
		b, cut := p.take(buf[:n], down)
		if _, werr := to.Write(b); werr != nil || err != nil || cut {
			return
		}
	}
}

// take returns what the limit lets through of b, and whether the connection ends there.
func (p *proxy) take(b []byte, down bool) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !down || p.limit < 0 {
		return b, false
	}
	if int64(len(b)) < p.limit {
		p.limit -= int64(len(b))
		return b, false
	}
	b, p.limit = b[:p.limit], -1
	return b, true
}

// cut ends all connections; no new ones come until heal.
func (p *proxy) cut() {
	p.mu.Lock()
	p.refuse = true
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
}

// cutAfter ends a connection in the middle of what it carries, once, n bytes from now.
func (p *proxy) cutAfter(n int64) {
	p.mu.Lock()
	p.limit = n
	p.mu.Unlock()
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	p.delay = d
	p.mu.Unlock()
}

// stall holds all bytes, as a network that loses every packet does.
func (p *proxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open:
		p.open = make(chan struct{})
	default:
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.delay, p.limit = false, 0, -1
	select {
	case <-p.open:
	default:
		close(p.open)
	}
}

func (p *proxy) close() {
	p.cut()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.heal()
	_ = p.listener.Close()
}
