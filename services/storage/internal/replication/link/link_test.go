package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

const limit = 20 * time.Second

// source is a log in memory that counts its leases.
type source struct {
	data     []byte
	fileSize int64
	leases   atomic.Int64
	views    atomic.Int64
	gone     atomic.Int64 // bytes before it are gone
}

func (s *source) View(offset int64, limit int) ([]byte, func(), error) {
	if offset < s.gone.Load() || offset >= int64(len(s.data)) {
		return nil, nil, fmt.Errorf("nothing at %d", offset)
	}
	end := min(offset+int64(limit), offset-offset%s.fileSize+s.fileSize, int64(len(s.data)))
	s.leases.Add(1)
	s.views.Add(1)
	return s.data[offset:end], func() { s.leases.Add(-1) }, nil
}

// files is a source that is in a file too.
type files struct {
	source
	f     *os.File
	asked atomic.Int64
	none  bool
}

func (s *files) FileAt(offset int64, limit int) (uintptr, int64, int, func(), error) {
	if s.none {
		return 0, 0, 0, nil, nil
	}
	s.asked.Add(1)
	s.leases.Add(1)
	end := min(offset+int64(limit), offset-offset%s.fileSize+s.fileSize, int64(len(s.data)))
	return s.f.Fd(), offset, int(end - offset), func() { s.leases.Add(-1) }, nil
}

func numbered(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// frames reads frames from r until to and returns them.
func frames(t *testing.T, r io.Reader, to int64) []testkit.Frame {
	var all []testkit.Frame
	for {
		f, err := testkit.ReadFrame(r)
		if err != nil {
			t.Errorf("after %d frames: %v", len(all), err)
			return all
		}
		all = append(all, f)
		if f.Offset+int64(len(f.Body)) >= to {
			return all
		}
	}
}

func check(t *testing.T, all []testkit.Frame, data []byte, start, fileSize int64, frame int) {
	t.Helper()
	pos := start
	for i, f := range all {
		end := f.Offset + int64(len(f.Body))
		if f.Offset != pos || len(f.Body) > frame || f.Offset/fileSize != (end-1)/fileSize {
			t.Fatalf("frame %d: %d bytes at %d, want %d", i, len(f.Body), f.Offset, pos)
		}
		if !bytes.Equal(f.Body, data[pos:end]) {
			t.Fatalf("frame %d at %d has other bytes", i, pos)
		}
		pos = end
	}
	if pos != int64(len(data)) {
		t.Fatalf("frames end at %d of %d", pos, len(data))
	}
}

func tcpPair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	a, _ = c.(*net.TCPConn)
	b, _ = s.(*net.TCPConn)
	return a, b
}

// TestSenderFrames: bytes, sizes and file ends, by writev and by sendfile, over real sockets.
func TestSenderFrames(t *testing.T) {
	data := numbered(3_000_001)
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name     string
		frame    int
		fileSize int64
		start    int64
		files    bool
		none     bool
		sendfile bool
	}{
		{name: "32 KiB", frame: 32 << 10, fileSize: 1 << 20},
		{name: "odd files", frame: 32 << 10, fileSize: 99_991, start: 12_345},
		{name: "tiny frames", frame: 100, fileSize: 1 << 20, start: 2_900_000},
		{name: "huge frames", frame: 2 << 20, fileSize: 1 << 30},
		{name: "small grants are copied", frame: 32 << 10, fileSize: 1 << 20, files: true},
		{name: "sendfile", frame: 256 << 10, fileSize: 1 << 20, files: true, sendfile: true},
		{name: "sendfile, odd files", frame: 256 << 10, fileSize: 299_993, start: 777, files: true, sendfile: true},
		{name: "no descriptor", frame: 256 << 10, fileSize: 1 << 20, files: true, none: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, b := tcpPair(t)
			mem := &files{source: source{data: data, fileSize: tc.fileSize}, f: f, none: tc.none}
			var src link.Source = &mem.source
			if tc.files {
				src = mem
			}
			var count link.Counters
			w := link.NewSender(a, src, tc.start, tc.frame, limit, &count)
			got := make(chan []testkit.Frame, 1)
			go func() { got <- frames(t, b, int64(len(data))) }()
			for w.Pos() < int64(len(data)) {
				if err := w.Send(int64(len(data)) - w.Pos()); err != nil {
					t.Fatal(err)
				}
				if w.Sent() != w.Pos() {
					t.Fatalf("sent %d, pos %d", w.Sent(), w.Pos())
				}
			}
			all := <-got
			check(t, all, data, tc.start, tc.fileSize, tc.frame)
			if used := mem.asked.Load() > 0; used != tc.sendfile {
				t.Errorf("sendfile was used: %v", used)
			}
			if n := mem.leases.Load(); n != 0 {
				t.Errorf("%d leases were not returned", n)
			}
			if count.Bytes.Load() != int64(len(data))-tc.start || count.Frames.Load() != int64(len(all)) {
				t.Errorf("counted %d bytes, %d frames of %d", count.Bytes.Load(), count.Frames.Load(), len(all))
			}
		})
	}
}

// fileOf makes a file of data.
func fileOf(t *testing.T, data []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestSendfileToASlowPeer goes through full sockets and deadlines in the middle of a body.
func TestSendfileToASlowPeer(t *testing.T) {
	data := numbered(6 << 20)
	f := fileOf(t, data)
	a, b := tcpPair(t)
	if err := errors.Join(a.SetWriteBuffer(64<<10), b.SetReadBuffer(64<<10)); err != nil {
		t.Fatal(err)
	}
	src := &files{source: source{data: data, fileSize: 1 << 30}, f: f}
	var count link.Counters
	w := link.NewSender(a, src, 0, 2<<20, 400*time.Millisecond, &count) // slices of 100 ms
	got := make(chan []testkit.Frame, 1)
	go func() {
		pauses := 0
		got <- frames(t, readerFunc(func(p []byte) (int, error) {
			if pauses++; pauses%40 == 0 {
				<-time.After(150 * time.Millisecond)
			}
			return b.Read(p[:min(len(p), 64<<10)])
		}), int64(len(data)))
	}()
	for w.Pos() < int64(len(data)) {
		if err := w.Send(int64(len(data)) - w.Pos()); err != nil {
			t.Fatal(err)
		}
	}
	check(t, <-got, data, 0, 1<<30, 2<<20)
	if src.leases.Load() != 0 || src.asked.Load() < 4 {
		t.Errorf("%d leases, asked %d times", src.leases.Load(), src.asked.Load())
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestSenderGivesLeasesBack: a peer that takes one byte every 15 s is slow, not stuck, and no view is held over a slice.
func TestSenderGivesLeasesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		src := &source{data: numbered(8), fileSize: 1 << 20}
		var count link.Counters
		w := link.NewSender(a, src, 0, 32<<10, limit, &count)
		done := make(chan error, 1)
		go func() { done <- w.Send(8) }()
		var got []byte
		for len(got) < 20 {
			<-time.After(15 * time.Second)
			one := make([]byte, 1)
			if _, err := b.Read(one); err != nil {
				t.Fatal(err)
			}
			got = append(got, one...)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want := testkit.Frame{Body: src.data}.Bytes()
		if !bytes.Equal(got, want) {
			t.Errorf("got %x, want %x", got, want)
		}
		if src.views.Load() < 50 {
			t.Errorf("%d views in 300 s of slices of 5 s", src.views.Load())
		}
	})
}

// TestSenderStuckPeer: 20 s without a byte, give or take a slice, is the end, wherever the write stands.
func TestSenderStuckPeer(t *testing.T) {
	for _, taken := range []int{0, 5, 12, 15} {
		synctest.Test(t, func(t *testing.T) {
			a, b := net.Pipe()
			defer b.Close()
			src := &source{data: numbered(100), fileSize: 1 << 20}
			var count link.Counters
			w := link.NewSender(a, src, 0, 32<<10, limit, &count)
			start := time.Now()
			done := make(chan error, 1)
			go func() { done <- w.Send(100) }()
			if _, err := io.ReadFull(b, make([]byte, taken)); err != nil {
				t.Fatal(err)
			}
			err := <-done
			if d := time.Since(start); !errors.Is(err, link.ErrStuck) || d < limit || d > limit*5/4 || src.leases.Load() != 0 {
				t.Errorf("after %v: %v, %d leases", d, err, src.leases.Load())
			}
		})
	}
}

func TestSenderHistoryGoneInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		src := &source{data: numbered(100), fileSize: 1 << 20}
		var count link.Counters
		w := link.NewSender(a, src, 0, 32<<10, limit, &count)
		done := make(chan error, 1)
		go func() { done <- w.Send(100) }()
		if _, err := io.ReadFull(b, make([]byte, 20)); err != nil {
			t.Fatal(err)
		}
		src.gone.Store(50)
		if err := <-done; !errors.Is(err, link.ErrHistoryGone) {
			t.Errorf("got %v", err)
		}
	})
}

// TestReaderPatience: the limit is exact, and a byte every 0.9 of it keeps the link (bugs H08, H09).
func TestReaderPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		in := link.NewReader(a, limit)
		go func() {
			for range 10 {
				<-time.After(limit * 9 / 10)
				_, _ = b.Write([]byte{1})
			}
		}()
		one := make([]byte, 1)
		for i := range 10 {
			if _, err := in.Read(one); err != nil {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		last := time.Now()
		if !in.Last().Equal(last) {
			t.Errorf("last byte at %v, not %v", in.Last(), last)
		}
		if _, err := in.Read(one); !errors.Is(err, link.ErrSilent) || time.Since(last) != limit {
			t.Errorf("after %v: %v", time.Since(last), err)
		}
	})
}

func TestReaderEnds(t *testing.T) {
	a, b := net.Pipe()
	in := link.NewReader(a, limit)
	b.Close()
	if _, err := in.Read(make([]byte, 1)); !errors.Is(err, link.ErrPeerClosed) || !strings.HasPrefix(errdefs.As(err).Remedy, "start the peer") {
		t.Errorf("closed: %v", err)
	}
	a.Close()
	if _, err := in.Read(make([]byte, 1)); err == nil || errors.Is(err, link.ErrSilent) {
		t.Errorf("own close: %v", err)
	}
}

// TestReporter: what is confirmed at once is reported at once; a flush is reported when it ends, with no time passing; every
// five seconds the last report is repeated.
func TestReporter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		s := testkit.NewMasterSession(t, b)
		mark := watermark.New(100)
		var count link.Counters
		r := link.NewReporter(a, mark, 100, 5*time.Second, limit, &count)
		token := [16]byte{7}
		opened := make(chan error, 1)
		go func() { opened <- r.Open(&token) }()
		first := s.Read(wire.PreambleSize + wire.ReportSize)
		if err := <-opened; err != nil || !bytes.Equal(first, append(wire.AppendPreamble(nil, token), testkit.Report(100)...)) {
			t.Fatalf("%x, %v", first, err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run() }()
		start := time.Now()
		next := func(what string, want int64, at time.Duration) {
			t.Helper()
			if got := s.Report(); got != want || time.Since(start) != at {
				t.Errorf("%s: %d after %v, want %d after %v", what, got, time.Since(start), want, at)
			}
		}
		go func() { mark.Advance(200); _ = r.Appended(200) }()
		next("confirmed at once", 200, 0)
		synctest.Wait()
		if err := r.Appended(300); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		mark.Advance(250)
		next("half flushed", 250, 0)
		mark.Advance(300)
		next("flushed", 300, 0)
		next("heartbeat", 300, 5*time.Second)
		next("heartbeat", 300, 10*time.Second)
		mark.Close(watermark.ErrTruncated)
		if err := <-done; !errors.Is(err, link.ErrLogClosed) {
			t.Errorf("the log was cut: %v", err)
		}
	})
}

func TestReporterStuckAndStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer b.Close()
		var count link.Counters
		r := link.NewReporter(a, watermark.New(0), 0, 5*time.Second, limit, &count)
		start := time.Now()
		if err := r.Open(nil); !errors.Is(err, link.ErrStuck) || time.Since(start) != limit {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		done := make(chan error, 1)
		go func() { done <- r.Run() }()
		synctest.Wait()
		r.Stop()
		if err := <-done; err == nil {
			t.Error("Run returned nil")
		}
	})
}

func TestNudge(t *testing.T) {
	n := link.NewNudge()
	n.Poke()
	n.Poke()
	m := watermark.New(0)
	if err := m.Wait(n, 1); !errors.Is(err, link.ErrNudged) {
		t.Errorf("got %v", err)
	}
	if err := m.WaitUntil(n, 1, time.Now()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one poke too many: %v", err)
	}
}

func TestLobbyMakesRoom(t *testing.T) {
	l := link.NewLobby(2)
	var guests []*link.Guest
	var far []net.Conn
	for range 3 {
		a, b := net.Pipe()
		defer b.Close()
		guests, far = append(guests, l.Add(a)), append(far, b)
	}
	if !guests[0].Crowded() || guests[1].Crowded() || guests[2].Crowded() {
		t.Error("not the oldest one went")
	}
	if _, err := far[0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it is still open: %v", err)
	}
	l.Remove(guests[0])
	l.Remove(guests[1])
	l.Close()
	if _, err := far[2].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("open after Close: %v", err)
	}
	if err := far[1].SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := far[1].Read(make([]byte, 1)); !link.IsTimeout(err) {
		t.Errorf("a connection that had left was closed: %v", err)
	}
	if l.Add(far[1]) != nil {
		t.Error("let one in after Close")
	}
	l.Open()
	if l.Add(far[1]) == nil {
		t.Error("let none in after Open")
	}
}

func TestTune(t *testing.T) {
	a, _ := tcpPair(t)
	if err := link.Tune(a, "reno"); err != nil {
		t.Errorf("reno: %v", err)
	}
	if err := link.Tune(a, "no-such-algorithm"); err == nil {
		t.Error("an unknown algorithm was taken")
	}
	p, _ := net.Pipe()
	if err := link.Tune(p, "reno"); err != nil {
		t.Errorf("a pipe: %v", err)
	}
	if !link.HostOf(a).IsLoopback() || link.HostOf(p).IsValid() {
		t.Errorf("hosts %v and %v", link.HostOf(a), link.HostOf(p))
	}
}
