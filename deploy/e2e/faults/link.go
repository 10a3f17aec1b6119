package faults

import (
	"context"
	"io"
	"net"
	"sync"
	"time"
)

// Way is a direction of bytes over a link.
type Way int

// Ways.
const (
	Up   Way = iota // from who dialled to the target
	Down            // back
	ways
)

// Link passes TCP connections on to one target. What is done to it holds for all connections, also those that are open.
type Link struct {
	listener net.Listener
	target   string

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	refuse bool
	closed bool
	delay  time.Duration       // of each piece of at most 32 KiB
	limit  int64               // bytes down before the next cut; below 0: none
	open   [ways]chan struct{} // closed while bytes may pass
}

// NewLink listens on a port of this machine, 0 for any.
func NewLink(port int, target string) (*Link, error) {
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", Loopback(port))
	if err != nil {
		return nil, err
	}
	l := &Link{listener: ln, target: target, conns: map[net.Conn]struct{}{}, limit: -1}
	for w := range l.open {
		l.open[w] = make(chan struct{})
		close(l.open[w])
	}
	return l, nil
}

// Addr is what to dial.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Run serves until Close and returns when all connections have ended.
func (l *Link) Run() {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() { l.pair(c) })
	}
}

func (l *Link) pair(from net.Conn) {
	defer l.drop(from)
	if !l.keep(from) {
		return
	}
	to, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", l.target)
	if err != nil {
		return
	}
	defer l.drop(to)
	if !l.keep(to) {
		return
	}
	var both sync.WaitGroup
	pass := func(from, to net.Conn, w Way) {
		defer l.drop(from)
		defer l.drop(to)
		l.pass(from, to, w)
	}
	both.Go(func() { pass(from, to, Up) })
	both.Go(func() { pass(to, from, Down) })
	both.Wait()
}

// keep takes a connection over; false while they are refused.
func (l *Link) keep(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse || l.closed {
		return false
	}
	l.conns[c] = struct{}{}
	return true
}

func (l *Link) drop(c net.Conn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
	_ = c.Close() // both ends may do so
}

func (l *Link) pass(from io.Reader, to io.Writer, w Way) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.mu.Lock()
		delay, open := l.delay, l.open[w]
		l.mu.Unlock()
		if delay > 0 {
			time.Sleep(delay)
		}
		<-open
		b, cut := l.take(buf[:n], w)
		if _, werr := to.Write(b); werr != nil || err != nil || cut {
			return
		}
	}
}

// take returns what the limit lets through of b, and whether the connection ends there.
func (l *Link) take(b []byte, w Way) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w != Down || l.limit < 0 {
		return b, false
	}
	if int64(len(b)) < l.limit {
		l.limit -= int64(len(b))
		return b, false
	}
	b, l.limit = b[:l.limit], -1
	return b, true
}

// Cut ends all connections; no new ones come until Heal.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = true
	for c := range l.conns {
		_ = c.Close() // drop does so too
	}
}

// CutAfter ends a connection in the middle of what comes down, once, n bytes from now.
func (l *Link) CutAfter(n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit = n
}

// Hold keeps all bytes of these ways, as a network that loses every packet does.
func (l *Link) Hold(which ...Way) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range which {
		select {
		case <-l.open[w]:
			l.open[w] = make(chan struct{})
		default:
		}
	}
}

// Slow delays each piece.
func (l *Link) Slow(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// Heal makes all good again: what was held comes, who was cut off may connect.
func (l *Link) Heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse, l.delay, l.limit = false, 0, -1
	for _, open := range l.open {
		select {
		case <-open:
		default:
			close(open)
		}
	}
}

// Close ends it, and all connections.
func (l *Link) Close() {
	l.Cut()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.Heal()
	_ = l.listener.Close() // nobody connects any more
}
