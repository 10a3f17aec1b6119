package main

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// way is a direction of bytes through a proxy.
type way int

const (
	up   way = iota // from who dialled to the target
	down            // back
	ways
)

// proxy is the link from one node to another: TCP connections that are passed on, and may be cut, held in either direction
// and slowed down.
type proxy struct {
	listener net.Listener
	target   string
	pairs    sync.WaitGroup

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	open   [ways]chan struct{} // closed while bytes may pass
	refuse bool
	delay  time.Duration // of each piece of at most 32 KiB
	closed bool
}

func newProxy(port int, target string) (*proxy, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", loopback(port))
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]struct{}{}}
	for w := range p.open {
		p.open[w] = make(chan struct{})
		close(p.open[w])
	}
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// run serves until close and returns when all connections have ended.
func (p *proxy) run() {
	defer p.pairs.Wait()
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.pairs.Go(func() { p.pair(c) })
	}
}

func (p *proxy) pair(from net.Conn) {
	defer p.drop(from)
	if !p.keep(from) {
		return
	}
	to, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(to)
	if !p.keep(to) {
		return
	}
	var both sync.WaitGroup
	pass := func(from, to net.Conn, w way) {
		defer p.drop(from)
		defer p.drop(to)
		p.pass(from, to, w)
	}
	both.Go(func() { pass(from, to, up) })
	both.Go(func() { pass(to, from, down) })
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

func (p *proxy) pass(from io.Reader, to io.Writer, w way) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		delay, open := p.delay, p.open[w]
		p.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		<-open
		if _, werr := to.Write(buf[:n]); werr != nil || err != nil {
			return
		}
	}
}

// cut ends all connections; no new ones come until heal.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = true
	for c := range p.conns {
		_ = c.Close() // drop does so too
	}
}

// hold keeps all bytes of one direction, as a network that loses every packet does.
func (p *proxy) hold(w way) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.open[w]:
		p.open[w] = make(chan struct{})
	default:
	}
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse, p.delay = false, 0
	for _, open := range p.open {
		select {
		case <-open:
		default:
			close(open)
		}
	}
}

func (p *proxy) close() {
	p.cut()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.heal()
	_ = p.listener.Close() // nobody connects any more
}
