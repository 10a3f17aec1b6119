package replication_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
)

var errGap = errors.New("gap")

// memLog is a log in memory: Source and Sink.
type memLog struct {
	fileSize int64
	sync     bool // Report is flushed
	written  *watermark.Mark
	flushed  *watermark.Mark
	leases   atomic.Int64
	release  func()

	mu      sync.Mutex
	first   int64
	data    []byte // from 0; never moves
	appends int
	fail    error
}

func newLog(size, fileSize int64) *memLog {
	l := &memLog{fileSize: fileSize, data: make([]byte, 0, size), written: watermark.New(0), flushed: watermark.New(0)}
	l.release = func() { l.leases.Add(-1) } // once: a method value would be an allocation a view
	return l
}

// filled is a log of n random bytes.
func filled(n, size, fileSize int64) *memLog {
	l := newLog(size, fileSize)
	l.put(noise(int(n)))
	return l
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(7, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// put appends and returns the new end.
func (l *memLog) put(b []byte) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.data)+len(b) > cap(l.data) {
		panic("memLog: full")
	}
	l.data = append(l.data, b...)
	end := int64(len(l.data))
	l.written.Advance(end)
	return end
}

func (l *memLog) Written() *watermark.Mark { return l.written }
func (l *memLog) FileSize() int64          { return l.fileSize }
func (l *memLog) End() int64               { return l.written.Load() }

func (l *memLog) FirstOffset() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *memLog) Report() *watermark.Mark {
	if l.sync {
		return l.flushed
	}
	return l.written
}

func (l *memLog) View(offset int64, limit int) ([]byte, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end := int64(len(l.data))
	if offset < l.first || offset > end {
		return nil, nil, fmt.Errorf("no byte at %d", offset)
	}
	end = min(end, offset+int64(limit), offset-offset%l.fileSize+l.fileSize)
	l.leases.Add(1)
	return l.data[offset:end], l.release, nil
}

func (l *memLog) AppendRaw(offset int64, bodies [][]byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		return 0, l.fail
	}
	if offset != int64(len(l.data)) {
		return 0, errGap
	}
	l.appends++
	n := 0
	for _, b := range bodies {
		if len(l.data)+len(b) > cap(l.data) {
			return n, io.ErrShortWrite
		}
		l.data = append(l.data, b...)
		n += len(b)
	}
	l.written.Advance(int64(len(l.data)))
	return n, nil
}

func (l *memLog) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data[:len(l.data):len(l.data)]
}

// pipes is a listener and dialer over net.Pipe.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// dial returns the client's end.
func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve runs a master on ln until the test ends.
func serve(t testing.TB, m *replication.Master, ln net.Listener) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, ln) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

// stream runs one link of a Tandem slave in the background.
func stream(t testing.TB, m *replication.Master, s *replication.Slave, sink *memLog, addr string, node int64, frame int) <-chan error {
	t.Helper()
	token, _, err := m.Grant(replication.Grant{NodeID: node, Address: fmt.Sprintf("slave-%d", node), Start: sink.End(), Frame: frame, Flushes: sink.sync})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		done <- s.Stream(ctx, replication.StreamArgs{Addr: addr, Token: &token, Frame: max(frame, 32<<10)})
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return done
}

// await waits for a mark with a bound.
func await(t testing.TB, m *watermark.Mark, n int64) {
	t.Helper()
	if err := m.WaitUntil(t.Context(), n, time.Now().Add(20*time.Second)); err != nil {
		t.Fatalf("stands at %d of %d: %v", m.Load(), n, err)
	}
}

// eventually waits for what has no mark.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// joined returns the log files below dir as one slice.
func joined(t testing.TB, dir string) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	slices.Sort(names)
	var all []byte
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// soak says whether the full length is asked for.
func soak() bool { return os.Getenv("TANDEM_SOAK") != "" }
