package replication_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// capture is what a real 4.9.7 pair said to each other, and the log it was about.
type capture struct {
	down   []byte
	frames []int // where each frame begins in down
	up     []int64
	log    []byte // up to its end
}

const goldenFile = 256 << 10

func readCapture(t *testing.T) capture {
	t.Helper()
	dir := testkit.Golden(t, "rocketmq-4.9.7")
	var c capture
	var err error
	if c.down, err = os.ReadFile(filepath.Join(dir, "wire", "tap-0.down")); err != nil {
		t.Fatal(err)
	}
	up, err := os.ReadFile(filepath.Join(dir, "wire", "tap-0.up"))
	if err != nil {
		t.Fatal(err)
	}
	for ; len(up) >= 8; up = up[8:] {
		c.up = append(c.up, int64(binary.BigEndian.Uint64(up)))
	}
	end := 0
	for at := 0; at < len(c.down); {
		c.frames = append(c.frames, at)
		size := int(binary.BigEndian.Uint32(c.down[at+8:]))
		end = max(end, int(binary.BigEndian.Uint64(c.down[at:]))+size)
		at += 12 + size
	}
	c.log = joined(t, filepath.Join(dir, "master", "commitlog"))[:end]
	if len(c.frames) < 600 || end < 3*goldenFile {
		t.Fatalf("the capture has %d frames and %d bytes", len(c.frames), end)
	}
	return c
}

// feed plays a master that sends chunks to a slave, whatever it reports, and returns why the slave's link ended.
func feed(t *testing.T, sink *memLog, o replication.SlaveOptions, chunks [][]byte) error {
	t.Helper()
	server := make(chan net.Conn, 1)
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		a, b := net.Pipe()
		server <- b
		return a, nil
	}
	done := make(chan error, 1)
	go func() { done <- replication.NewSlave(o, sink).Stream(t.Context(), replication.StreamArgs{Addr: "tap"}) }()
	s := testkit.NewMasterSession(t, <-server)
	reports := make(chan struct{})
	go func() {
		defer close(reports)
		for b := make([]byte, 4096); ; {
			if _, err := s.Conn().Read(b); err != nil {
				return
			}
		}
	}()
	_ = s.TrySend(chunks...) // a slave that closes early is seen in the result
	s.Close()
	<-reports
	return <-done
}

// TestGoldenSlave feeds a slave what RocketMQ's master sent, cut at every byte of every header and at random places.
func TestGoldenSlave(t *testing.T) {
	c := readCapture(t)
	var boundaries []int
	for _, at := range c.frames {
		for i := range 14 {
			boundaries = append(boundaries, at+i)
		}
	}
	for _, tc := range []struct {
		name   string
		chunks [][]byte
		buffer int
	}{
		{"whole", [][]byte{c.down}, 0},
		{"every header byte", testkit.Cut(c.down, boundaries...), 0},
		{"frames", testkit.Cut(c.down, c.frames...), 0},
		{"sevens", testkit.Every(c.down, 7), 0},
		{"small buffer", testkit.Every(c.down, 8191), 1000},
		{"smallest buffer", testkit.Every(c.down, 8191), 24},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sink := newLog(int64(len(c.log)), goldenFile)
			if err := feed(t, sink, replication.SlaveOptions{ReadBuffer: tc.buffer}, tc.chunks); !errors.Is(err, link.ErrPeerClosed) {
				t.Errorf("ended with %v", err)
			}
			if !bytes.Equal(sink.bytes(), c.log) {
				t.Errorf("%d bytes differ from the golden %d", sink.End(), len(c.log))
			}
		})
	}
	t.Run("random", func(t *testing.T) {
		for seed := range uint64(20) {
			r := rand.New(rand.NewPCG(seed, 1))
			var cuts []int
			for at := 0; at < len(c.down); at += 1 + r.IntN(5000) {
				cuts = append(cuts, at)
			}
			sink := newLog(int64(len(c.log)), goldenFile)
			if err := feed(t, sink, replication.SlaveOptions{ReadBuffer: 100 + r.IntN(100_000)}, testkit.Cut(c.down, cuts...)); !errors.Is(err, link.ErrPeerClosed) {
				t.Errorf("seed %d: ended with %v", seed, err)
			}
			if !bytes.Equal(sink.bytes(), c.log) {
				t.Errorf("seed %d: %d bytes differ from the golden %d", seed, sink.End(), len(c.log))
			}
		}
	})
}

// TestGoldenSlaveCutLinks lets the link die at many places of the capture: the log is then exactly what had come, and the
// next link goes on from there, in the middle of a frame and of a record.
func TestGoldenSlaveCutLinks(t *testing.T) {
	c := readCapture(t)
	sink := newLog(int64(len(c.log)), goldenFile)
	r := rand.New(rand.NewPCG(3, 4))
	for links := 0; sink.End() < int64(len(c.log)); links++ {
		from := sink.End()
		body := c.log[from:min(from+32<<10, int64(len(c.log)))]
		b := testkit.Frame{Offset: from, Body: body}.Bytes()
		if r.IntN(10) > 0 {
			b = b[:r.IntN(len(b))]
		}
		if err := feed(t, sink, replication.SlaveOptions{}, [][]byte{b}); !errors.Is(err, link.ErrPeerClosed) {
			t.Fatalf("link %d ended with %v", links, err)
		}
		if want := from + max(int64(len(b))-12, 0); sink.End() != want {
			t.Fatalf("link %d: the end is %d, %d came", links, sink.End(), want)
		}
	}
	if !bytes.Equal(sink.bytes(), c.log) {
		t.Error("the logs differ")
	}
}

// TestGoldenMaster gives a master with the golden log the reports of the capture, each once its offset has been sent.
func TestGoldenMaster(t *testing.T) {
	c := readCapture(t)
	src := newLog(int64(len(c.log)), goldenFile)
	src.put(c.log)
	m := replication.NewMaster(replication.MasterOptions{LegacySlaves: true}, src)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	s := testkit.DialSlave(t, ln.Addr().String())
	sent := int64(0)
	read := func(to int64) {
		for sent < to {
			f := s.NextData()
			sent = f.Offset + int64(len(f.Body))
		}
	}
	for _, report := range c.up {
		read(report)
		s.Report(report)
	}
	read(int64(len(c.log)))
	first, got := s.Bodies()
	if first != 0 || !bytes.Equal(got, c.log) {
		t.Errorf("%d bytes from %d differ from the golden %d", len(got), first, len(c.log))
	}
	for i, f := range s.Frames() {
		end := f.Offset + int64(len(f.Body))
		if len(f.Body) > 32<<10 || len(f.Body) > 0 && f.Offset/goldenFile != (end-1)/goldenFile {
			t.Errorf("frame %d: %d bytes at %d", i, len(f.Body), f.Offset)
		}
	}
	await(t, m.Acked(1), c.up[len(c.up)-1])
	if m.BadReports() != 0 || m.BadFirsts() != 0 {
		t.Errorf("%d reports and %d first bytes of a real slave were refused", m.BadReports(), m.BadFirsts())
	}
}
