package testkit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
)

// Direction is a way through a Proxy.
type Direction int

// Directions.
const (
	Up   Direction = iota // from who dialled to the target
	Down                  // from the target back
)

const (
	proxyChunk  = 32 << 10
	proxyQueued = 128 // chunks on their way, per connection and direction; then the sender is held back
)

// Proxy is a TCP proxy with bad habits. Its settings hold for all connections, also those that are open.
type Proxy struct {
	t    testing.TB
	ln   net.Listener
	wg   sync.WaitGroup
	dirs [2]*way

	mu     sync.Mutex
	target string
	refuse bool
	closed bool
	cuts   int // CutAlls so far
	pairs  map[*pair]struct{}
}

// way is one direction of all connections.
type way struct {
	delivered *watermark.Mark // bytes

	mu    sync.Mutex
	delay time.Duration
	open  chan struct{} // closed while bytes may pass
	limit int64         // bytes until the cut; -1: none
}

// pair is a connection from the client and the one to the target that belongs to it.
type pair struct {
	client, target net.Conn
	done           chan struct{} // closed with the connections
	once           sync.Once
}

func (p *pair) close() {
	p.once.Do(func() {
		close(p.done)
		_ = p.client.Close()
		_ = p.target.Close()
	})
}

// NewProxy listens on the loopback and passes what comes to target. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	p := &Proxy{t: t, ln: ln, target: target, pairs: map[*pair]struct{}{}}
	for i := range p.dirs {
		p.dirs[i] = &way{delivered: watermark.New(0), open: make(chan struct{}), limit: -1}
		close(p.dirs[i].open)
	}
	p.wg.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns where the proxy listens.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// SetTarget sends new connections to another address.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// Refuse makes the proxy close new connections at once, or serve them again.
func (p *Proxy) Refuse(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = yes
}

// Delay makes each byte of a direction arrive that much later; order and rate stay.
func (p *Proxy) Delay(d Direction, by time.Duration) {
	w := p.dirs[d]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay = by
}

// Stall makes a direction a black hole: nothing arrives any more, neither bytes nor the end of a connection, and no one is
// told. Resume lets what was held go on, as TCP does when a network heals in time.
func (p *Proxy) Stall(d Direction) {
	w := p.dirs[d]
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.open:
		w.open = make(chan struct{})
	default:
	}
}

// Resume ends a Stall.
func (p *Proxy) Resume(d Direction) {
	w := p.dirs[d]
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.open:
	default:
		close(w.open)
	}
}

// CutAfter lets n more bytes of a direction pass, over all connections, and then closes the connection of the last one,
// once. The n bytes do arrive.
func (p *Proxy) CutAfter(d Direction, n int64) {
	w := p.dirs[d]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.limit = n
}

// CutAll closes all connections that are open, also those that are still on their way to the target.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts++
	for pr := range p.pairs {
		pr.close()
	}
}

// Bytes returns how many bytes of a direction have arrived.
func (p *Proxy) Bytes(d Direction) int64 { return p.dirs[d].delivered.Load() }

// AwaitBytes waits until n bytes of a direction have arrived.
func (p *Proxy) AwaitBytes(d Direction, n int64) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), Patience)
	defer cancel()
	if err := p.dirs[d].delivered.Wait(ctx, n); err != nil {
		p.t.Fatalf("%d of %d bytes passed the proxy: %v", p.Bytes(d), n, err)
	}
}

// Close ends all connections and waits for its goroutines.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.ln.Close()
	p.CutAll()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			p.wg.Go(func() { p.serve(conn) })
		}
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	addr, refuse, cuts := p.target, p.refuse, p.cuts
	p.mu.Unlock()
	if refuse {
		_ = client.Close()
		return
	}
	d := net.Dialer{Timeout: Patience}
	target, err := d.DialContext(context.Background(), "tcp", addr)
	if err != nil {
		_ = client.Close()
		return
	}
	pr := &pair{client: client, target: target, done: make(chan struct{})}
	defer pr.close()
	p.mu.Lock()
	if p.closed || p.cuts != cuts {
		p.mu.Unlock()
		return
	}
	p.pairs[pr] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.dirs[Up].pass(pr, client, target) })
	both.Go(func() { p.dirs[Down].pass(pr, target, client) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, pr)
	p.mu.Unlock()
}

// chunk is bytes on their way, or why no more come.
type chunk struct {
	data []byte
	err  error
	read time.Time
}

// pass carries one direction of one connection.
func (w *way) pass(pr *pair, from, to net.Conn) {
	queue := make(chan chunk, proxyQueued)
	var reader sync.WaitGroup
	defer reader.Wait()
	reader.Go(func() {
		for err := error(nil); err == nil; {
			buf := make([]byte, proxyChunk)
			var n int
			n, err = from.Read(buf)
			select {
			case queue <- chunk{buf[:n], err, time.Now()}:
			case <-pr.done:
				return
			}
		}
	})
	for {
		var c chunk
		select {
		case c = <-queue:
		case <-pr.done:
			return
		}
		if !w.hold(pr, c.read) || !w.deliver(pr, to, c.data) {
			return
		}
		if errors.Is(c.err, io.EOF) {
			half, ok := to.(interface{ CloseWrite() error })
			if ok && half.CloseWrite() == nil {
				return
			}
		}
		if c.err != nil {
			pr.close()
			return
		}
	}
}

// hold waits out the delay and a stall; false when the connection ended meanwhile.
func (w *way) hold(pr *pair, read time.Time) bool {
	w.mu.Lock()
	delay := w.delay
	w.mu.Unlock()
	if rest := time.Until(read.Add(delay)); delay > 0 && rest > 0 {
		timer := time.NewTimer(rest)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-pr.done:
			return false
		}
	}
	w.mu.Lock()
	open := w.open
	w.mu.Unlock()
	select {
	case <-open:
		return true
	case <-pr.done:
		return false
	}
}

// deliver writes as much of b as the limit lets through; false when the connection ended.
func (w *way) deliver(pr *pair, to net.Conn, b []byte) bool {
	w.mu.Lock()
	cut := w.limit >= 0 && int64(len(b)) >= w.limit
	if cut {
		b = b[:w.limit]
		w.limit = -1
	} else if w.limit >= 0 {
		w.limit -= int64(len(b))
	}
	w.mu.Unlock()
	n, err := to.Write(b)
	w.arrived(int64(n))
	if cut || err != nil {
		pr.close()
		return false
	}
	return true
}

// arrived counts; several connections may do so at once.
func (w *way) arrived(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delivered.Advance(w.delivered.Load() + n)
}
