package replication_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// dialled is a slave whose Stream runs against a fake master on a pipe, inside synctest.
type dialled struct {
	t      *testing.T
	sink   *memLog
	slave  *replication.Slave
	done   chan error
	cancel context.CancelFunc
}

func dialSlave(t *testing.T, sink *memLog, o replication.SlaveOptions, a replication.StreamArgs) (*dialled, *testkit.MasterSession) {
	t.Helper()
	server := make(chan net.Conn, 1)
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		c, s := net.Pipe()
		server <- s
		return c, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &dialled{t: t, sink: sink, slave: replication.NewSlave(o, sink), done: make(chan error, 1), cancel: cancel}
	go func() { d.done <- d.slave.Stream(ctx, a) }()
	return d, testkit.NewMasterSession(t, <-server)
}

// drain reads the slave's reports and drops them.
func drain(s *testkit.MasterSession) {
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := s.Conn().Read(b); err != nil {
				return
			}
		}
	}()
}

// TestSlaveLinkEnds: a typed error for each way a link ends, and the log holds what came before it.
func TestSlaveLinkEnds(t *testing.T) {
	frame := func(off int64, body string) []byte { return testkit.Frame{Offset: off, Body: []byte(body)}.Bytes() }
	for _, tc := range []struct {
		name  string
		bytes []byte
		want  error
		log   string
		meta  map[string]string
	}{
		{"closed", nil, link.ErrPeerClosed, "", nil},
		{"closed after a frame", frame(0, "hello"), link.ErrPeerClosed, "hello", nil},
		{"closed in a header", append(frame(0, "hello"), 0, 0, 0), link.ErrPeerClosed, "hello", nil},
		{"closed in a body", frame(0, "hello")[:15], link.ErrPeerClosed, "hel", nil},
		{"heartbeat", testkit.Header(0, 0), link.ErrPeerClosed, "", nil},
		{"negative size", append(frame(0, "hello"), testkit.Header(5, -1)...), replication.ErrFrameSize, "hello", map[string]string{"size": "-1"}},
		{"least size", testkit.Header(0, math.MinInt32), replication.ErrFrameSize, "", nil},
		{"size above the limit", testkit.Header(0, 1001), replication.ErrFrameSize, "", map[string]string{"size": "1001", "limit": "1000"}},
		{"largest size", testkit.Header(0, math.MaxInt32), replication.ErrFrameSize, "", nil},
		{"offset one too high", append(frame(0, "hello"), frame(6, "x")...), replication.ErrFrameOffset, "hello", map[string]string{"offset": "6", "end": "5"}},
		{"offset one too low", append(frame(0, "hello"), frame(4, "x")...), replication.ErrFrameOffset, "hello", nil},
		{"heartbeat elsewhere", append(frame(0, "hello"), testkit.Header(4, 0)...), replication.ErrFrameOffset, "hello", nil},
		{"text", []byte("HTTP/1.1 400 Bad Request\r\n"), replication.ErrFrameSize, "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, s := dialSlave(t, newLog(1000, 1000), replication.SlaveOptions{MaxFrame: 1000}, replication.StreamArgs{Addr: "master:10912"})
				if got := s.Report(); got != 0 {
					t.Errorf("first report %d", got)
				}
				drain(s)
				if len(tc.bytes) > 0 {
					_ = s.TrySend(tc.bytes) // closed early where the bytes are illegal
				}
				synctest.Wait()
				if errors.Is(tc.want, link.ErrPeerClosed) {
					s.Close()
				}
				err := <-d.done
				if !errors.Is(err, tc.want) || string(d.sink.bytes()) != tc.log {
					t.Errorf("ended with %v, the log is %q", err, d.sink.bytes())
				}
				for k, v := range tc.meta {
					if got := errdefs.As(err).Meta[k]; got != v {
						t.Errorf("%s is %q, want %q", k, got, v)
					}
				}
				st := d.slave.Status()
				if st.Connected || st.Reason != errdefs.ReasonOf(err) || st.Connects != 1 || st.Address != "master:10912" || st.Remedy == "" {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

func TestSlaveGrantedFrameIsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := [16]byte{1, 2, 3}
		d, s := dialSlave(t, filled(7, 1000, 1000), replication.SlaveOptions{}, replication.StreamArgs{Token: &token, Frame: 10})
		if got := s.Read(32); !bytes.Equal(got, hello(token, 7)) {
			t.Errorf("opened with %x", got)
		}
		drain(s)
		s.Send(testkit.Frame{Offset: 7, Body: make([]byte, 10)}.Bytes())
		s.Send(testkit.Header(17, 11))
		if err := <-d.done; !errors.Is(err, replication.ErrFrameSize) || d.sink.End() != 17 {
			t.Errorf("%v, end %d", err, d.sink.End())
		}
	})
}

// TestSlaveHousekeeping: a master that is silent for 20 s is dropped, one that says something every 18 s is not.
func TestSlaveHousekeeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dialSlave(t, newLog(1000, 1000), replication.SlaveOptions{}, replication.StreamArgs{})
		drain(s)
		for range 10 {
			<-time.After(18 * time.Second)
			s.SendFrame(testkit.Frame{})
		}
		synctest.Wait()
		last := time.Now()
		if st := d.slave.Status(); !st.Connected || !st.LastHeartbeat.Equal(last) {
			t.Errorf("status %+v", st)
		}
		if err := <-d.done; !errors.Is(err, link.ErrSilent) || time.Since(last) != 20*time.Second {
			t.Errorf("after %v: %v", time.Since(last), err)
		}
	})
}

// TestSlaveReports: at once after each burst, and every five seconds.
func TestSlaveReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dialSlave(t, newLog(1000, 1000), replication.SlaveOptions{}, replication.StreamArgs{})
		start := time.Now()
		expect := func(what string, want int64, at time.Duration) {
			t.Helper()
			if got := s.Report(); got != want || time.Since(start) != at {
				t.Errorf("%s: %d after %v, want %d after %v", what, got, time.Since(start), want, at)
			}
		}
		expect("first", 0, 0)
		expect("heartbeat", 0, 5*time.Second)
		go s.Send(slices.Concat(testkit.Frame{Offset: 0, Body: make([]byte, 10)}.Bytes(),
			testkit.Frame{Offset: 10, Body: make([]byte, 10)}.Bytes(), testkit.Header(20, 50), make([]byte, 7)))
		expect("one for three frames, the last one in part", 27, 5*time.Second)
		if d.sink.appends != 1 {
			t.Errorf("%d appends", d.sink.appends)
		}
		expect("heartbeat", 27, 10*time.Second)
		d.cancel()
		if err := <-d.done; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

// TestSlaveWithSyncFlush reports what is flushed, when it is flushed, the first time too.
func TestSlaveWithSyncFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := filled(100, 1000, 1000)
		sink.sync = true
		dialledAt := make(chan time.Time, 1)
		start := time.Now()
		go func() {
			<-time.After(3 * time.Second)
			dialledAt <- time.Now()
			sink.flushed.Advance(100)
		}()
		d, s := dialSlave(t, sink, replication.SlaveOptions{}, replication.StreamArgs{})
		if got := s.Report(); got != 100 || time.Since(start) != 3*time.Second {
			t.Errorf("first report %d after %v", got, time.Since(start))
		}
		s.SendFrame(testkit.Frame{Offset: 100, Body: make([]byte, 50)})
		synctest.Wait()
		if sink.End() != 150 {
			t.Fatalf("end %d", sink.End())
		}
		at := time.Now()
		if got := s.Report(); got != 100 || time.Since(at) != 5*time.Second {
			t.Errorf("before the flush: %d after %v", got, time.Since(at))
		}
		at = time.Now()
		sink.flushed.Advance(150)
		if got := s.Report(); got != 150 || time.Since(at) != 0 {
			t.Errorf("after the flush: %d after %v", got, time.Since(at))
		}
		sink.flushed.Close(watermark.ErrTruncated)
		if err := <-d.done; !errors.Is(err, link.ErrLogClosed) {
			t.Errorf("the log was cut: %v", err)
		}
	})
}

// TestSlaveOfAnEmptyLogAsksJavaForEverything: report 1, bytes from 1 on, byte 0 is 00.
func TestSlaveOfAnEmptyLogAsksJavaForEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dialSlave(t, newLog(1000, 1000), replication.SlaveOptions{}, replication.StreamArgs{EmptyReport: 1})
		if got := s.Report(); got != 1 {
			t.Errorf("first report %d", got)
		}
		s.SendFrame(testkit.Frame{Offset: 1})
		if got := s.Report(); got != 1 || d.sink.End() != 0 {
			t.Errorf("heartbeat %d, end %d", got, d.sink.End())
		}
		s.SendFrame(testkit.Frame{Offset: 1, Body: []byte("ABC")})
		if got := s.Report(); got != 4 || string(d.sink.bytes()) != "\x00ABC" {
			t.Errorf("report %d, log %q", got, d.sink.bytes())
		}
		d.cancel()
		<-d.done

		d, s = dialSlave(t, d.sink, replication.SlaveOptions{}, replication.StreamArgs{EmptyReport: 1})
		if got := s.Report(); got != 4 {
			t.Errorf("once it is not empty: %d", got)
		}
		d.cancel()
		<-d.done
	})
	if err := replication.NewSlave(replication.SlaveOptions{}, newLog(1, 1)).Stream(t.Context(), replication.StreamArgs{EmptyReport: -1}); errdefs.ClassOf(err) != errdefs.InvalidArgument {
		t.Errorf("-1: %v", err)
	}
}

func TestSlaveAppendFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sink := newLog(1000, 1000)
		full := errdefs.New(errdefs.ResourceExhausted, "DISK_FULL", "no space").WithRemedy("make room")
		sink.fail = full
		d, s := dialSlave(t, sink, replication.SlaveOptions{}, replication.StreamArgs{})
		drain(s)
		s.SendFrame(testkit.Frame{Body: []byte("hello")})
		err := <-d.done
		if st := d.slave.Status(); !errors.Is(err, replication.ErrAppend) || !errors.Is(err, full) || st.Reason != "DISK_FULL" || st.Remedy != "make room" {
			t.Errorf("%v, status %+v", err, st)
		}
	})
}

func TestSlaveCannotConnect(t *testing.T) {
	ln := listen(t)
	addr := ln.Addr().String()
	ln.Close()
	err := replication.NewSlave(replication.SlaveOptions{}, newLog(1, 1)).Stream(t.Context(), replication.StreamArgs{Addr: addr})
	if !errors.Is(err, replication.ErrConnect) || errdefs.As(err).Meta["how"] != "refused" || errdefs.As(err).Meta["address"] != addr {
		t.Errorf("nobody listens: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		o := replication.SlaveOptions{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		err := replication.NewSlave(o, newLog(1, 1)).Stream(t.Context(), replication.StreamArgs{Addr: "far:1"})
		if !errors.Is(err, replication.ErrConnect) || errdefs.As(err).Meta["how"] != "timeout" || time.Since(start) != 5*time.Second {
			t.Errorf("nobody answers: %v after %v", err, time.Since(start))
		}
	})
}

// TestSlaveMasterTakesNoReports: a master that sends but does not read cannot hold the slave for ever.
func TestSlaveMasterTakesNoReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, s := dialSlave(t, newLog(1000, 1000), replication.SlaveOptions{}, replication.StreamArgs{})
		s.Report()
		s.SendFrame(testkit.Frame{Body: []byte("hello")})
		start := time.Now()
		if err := <-d.done; !errors.Is(err, link.ErrStuck) || time.Since(start) > 20*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestSlaveMemory: what a header claims is not allocated, and a large frame needs no more than the buffer.
func TestSlaveMemory(t *testing.T) {
	const frame = 4<<20 - wire.HeaderSize
	master := testkit.ListenMaster(t)
	sink := newLog(8*frame, 1<<30)
	slave := replication.NewSlave(replication.SlaveOptions{ReadBuffer: 64 << 10}, sink)
	var wg sync.WaitGroup
	defer wg.Wait()
	var before, after runtime.MemStats
	body := noise(frame)
	runtime.ReadMemStats(&before)
	done := make(chan error, 1)
	wg.Go(func() { done <- slave.Stream(t.Context(), replication.StreamArgs{Addr: master.Addr()}) })
	s := master.Accept()
	drain(s)
	for i := range int64(8) {
		s.Send(testkit.Header(i*frame, frame), body)
	}
	await(t, sink.written, 8*frame)
	s.Send(testkit.Header(8*frame, math.MaxInt32))
	if err := <-done; !errors.Is(err, replication.ErrFrameSize) {
		t.Errorf("ended with %v", err)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated for 32 MiB in frames of 4 MiB", grown)
	}
	if !bytes.Equal(sink.bytes()[7*frame:], body) {
		t.Error("other bytes")
	}
}
