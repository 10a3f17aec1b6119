package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/message"
)

// TestT6_SloppyPeers is about the replication port, from both sides.
func TestT6_SloppyPeers(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	t.Run("visitors", visitors)
	t.Run("frames", goodFrames)
	t.Run("illegal frames", illegalFrames)
	t.Run("idle pair", idlePair)
	t.Run("half-closing master", halfClosingMaster)
}

// visitors come to a master that has a slave, say nothing sensible, and leave no trace.
func visitors(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, func(c *Config) {
		c.HAHousekeepingInterval = scaled(2*time.Second, 20*time.Second)
	})
	master, real := g[0].start(), g[1].start()
	master.awaitOpen().awaitSlaves(1)
	addr := master.cfg.HAListen
	var silent []*testkit.FakeSlave
	for range scaled(50, 200) {
		silent = append(silent, testkit.DialSlave(t, addr))
	}
	texts, empty := scaled(1000, 20000), scaled(200, 2000)
	visit := func(count int, say string) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				d := net.Dialer{Timeout: testkit.Patience}
				for range count / 4 {
					c, err := d.DialContext(t.Context(), "tcp", addr)
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := c.Write([]byte(say)); err != nil {
						t.Error(err)
					}
					_ = c.Close()
				}
			})
		}
		wg.Wait()
	}
	visit(texts, "GET / HTTP/1.1\r\nHos")
	visit(empty, "")
	if r := master.put([]byte("beside them")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
		t.Errorf("put: %v", r)
	}
	for _, s := range silent {
		s.AwaitClose()
	}
	const bad = "storage_replication_master_bad_firsts_total"
	master.awaitMetric(float64(texts+empty+len(silent)), bad)
	for reason, want := range map[string]int{"text": texts, "short": empty, "silent": len(silent)} {
		if got, _ := master.metric(bad, `reason="`+reason+`"`); got != float64(want) {
			t.Errorf("%v connections counted as %s, want %d", got, reason, want)
		}
	}
	st := master.status()
	if sessions, _ := master.metric("storage_replication_master_sessions"); sessions != 1 || len(st.GetSlaves()) != 1 {
		t.Errorf("%v sessions, slaves %v", sessions, st.GetSlaves())
	}
	if up := real.status().GetUpstream(); up.GetConnects() != 1 {
		t.Errorf("the real slave connected %d times", up.GetConnects())
	}
	same(t, master, real)
}

// ownLog makes the log of a RocketMQ master in files of 8 MiB: records with bodies of these sizes.
func ownLog(sizes ...int) []byte {
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	var log []byte
	for i, size := range sizes {
		at := len(log)
		d := message.Draft{Topic: "TopicTest", BornTimestamp: 1, BornHost: host, StoreHost: host, Body: noise(size)}
		log = message.Append(log, &d, true)
		message.Stamp(log[at:], int64(i), int64(at), int64(1700000000000+i))
	}
	return log
}

// frameOf is the frame of [from, to) of a log.
func frameOf(log []byte, from, to int) testkit.Frame {
	return testkit.Frame{Offset: int64(from), Body: log[from:to]}
}

// large makes log files of 8 MiB for messages of the usual size.
func large(c *Config) { c.MappedFileSizeCommitLog, c.MaxMessageSize = 8<<20, message.DefaultMaxBody }

func noErrors(t *testing.T, n *node) {
	t.Helper()
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, "level=ERROR") {
			t.Errorf("node %d: %s", n.cfg.BrokerID, line)
		}
	}
}

// goodFrames arrive in the oddest ways and are appended once and whole; only whole messages are dispatched.
func goodFrames(t *testing.T) {
	t.Parallel()
	log := ownLog(slices.Concat(slices.Repeat([]int{300}, 600), []int{1 << 20}, slices.Repeat([]int{1000}, 50))...)
	m := testkit.ListenMaster(t)
	n := javaSlave(t, m)
	n.change(large)
	n.start()
	s := m.Accept()
	if got := s.Report(); got != 1 {
		t.Fatalf("the first report is %d", got)
	}
	at := 1
	send := func(size int) []byte {
		f := frameOf(log, at, at+size)
		at += size
		return f.Bytes()
	}
	s.Send(testkit.Every(send(100<<10), 1)...)
	s.AwaitReport(int64(at))
	s.Send(testkit.Cut(send(1000), 1, 12)...)
	s.AwaitReport(int64(at))
	s.Send(slices.Concat(send(777), send(1), send(20000)))
	s.AwaitReport(int64(at))
	n.awaitDispatched(wholeBelow(log, int64(at)))
	s.Send(slices.Concat(testkit.Header(int64(at), 0), send(5)))
	for at < len(log) {
		s.Send(send(min(32<<10, len(log)-at)))
	}
	s.AwaitReport(int64(len(log)))
	n.awaitEnd(int64(len(log)))
	r, err := n.message().Get(t.Context(), &storagev1.GetRequest{Topic: "TopicTest", QueueOffset: 600, MaxBytes: 2 << 20})
	if err != nil || len(r.GetMessages()) == 0 || len(r.GetMessages()[0].GetMessage().GetBody()) != 1<<20 {
		t.Errorf("the message of 1 MiB: %v, %v", r.GetStatus(), err)
	}
	if got := n.status().GetUpstream().GetConnects(); got != 1 {
		t.Errorf("%d links", got)
	}
	noErrors(t, n)
	n.halt()
	if have := joined(files(t, n.cfg.StorePathRootDir, "commitlog"), "commitlog"); string(have[:len(log)]) != string(log) {
		t.Error("the log is not what was sent")
	}
}

// awaitDispatched waits for the dispatcher and checks that it goes no further.
func (n *node) awaitDispatched(offset int64) {
	n.t.Helper()
	st := n.await(fmt.Sprintf("dispatch up to %d", offset), func(st *storagev1.StatusResponse) bool {
		return st.GetWatermarks().GetDispatchedOffset() >= offset
	})
	if got := st.GetWatermarks().GetDispatchedOffset(); got != offset {
		n.t.Errorf("dispatched up to %d, whole messages end at %d", got, offset)
	}
}

// illegalFrames end the link, cost nothing and leave no hole.
func illegalFrames(t *testing.T) {
	t.Parallel()
	log := ownLog(slices.Repeat([]int{500}, 100)...)
	const at = 20001
	for name, c := range map[string]struct {
		bytes  []byte
		reason string
		have   int64 // the end afterwards
	}{
		"negative size":       {testkit.Header(at, -1), "FRAME_SIZE", at},
		"huge size":           {testkit.Header(at, 1<<31-1), "FRAME_SIZE", at},
		"offset one too far":  {testkit.Frame{Offset: at + 1, Body: log[at : at+100]}.Bytes(), "FRAME_OFFSET", at},
		"offset one too low":  {testkit.Frame{Offset: at - 1, Body: log[at : at+100]}.Bytes(), "FRAME_OFFSET", at},
		"heartbeat elsewhere": {testkit.Header(at+1, 0), "FRAME_OFFSET", at},
		"negative offset":     {testkit.Header(-1, 10), "FRAME_OFFSET", at},
		"good, then bad":      {slices.Concat(frameOf(log, at, at+700).Bytes(), testkit.Header(at, 5)), "FRAME_OFFSET", at + 700},
		"closed in a body":    {frameOf(log, at, at+700).Bytes()[:312], "", at + 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := testkit.ListenMaster(t)
			n := javaSlave(t, m).start()
			s := m.Accept()
			s.Report()
			s.Send(frameOf(log, 1, at).Bytes())
			s.AwaitReport(at)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s.Send(c.bytes)
			if c.reason == "" {
				s.AwaitReport(c.have)
				s.Close()
			} else {
				s.AwaitClose()
				n.awaitMetric(1, "storage_replication_slave_link_ends_total", `reason="`+c.reason+`"`)
			}
			runtime.ReadMemStats(&after)
			if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 512<<20 { //nolint:gosec // sizes of memory
				t.Errorf("the heap grew by %d bytes", grown)
			}
			s = m.Accept()
			if got := s.Report(); got != c.have {
				t.Errorf("the next link begins with a report of %d, want %d", got, c.have)
			}
			s.Send(frameOf(log, int(c.have), len(log)).Bytes())
			s.AwaitReport(int64(len(log)))
			n.awaitEnd(int64(len(log)))
			noErrors(t, n)
			n.halt()
			if have := joined(files(t, n.cfg.StorePathRootDir, "commitlog"), "commitlog"); string(have[:len(log)]) != string(log) {
				t.Error("the log is not what was sent")
			}
		})
	}
}

// idlePair stays connected through silence and through traffic that comes just before the interval is over. A machine that is too busy
// to give this process its turn within the interval proves nothing: then the interval is longer.
func idlePair(t *testing.T) {
	t.Parallel()
	for interval := scaled(800*time.Millisecond, 20*time.Second); ; interval *= 2 {
		late := lateness(t)
		connects := idle(t, interval)
		stood := late()
		if connects == 1 {
			return
		}
		if stood < interval/2 || interval > 20*time.Second {
			t.Errorf("interval %v: the slave connected %d times; the process stood still for %v at most", interval, connects, stood)
			return
		}
	}
}

// lateness measures, until it is asked, for how long at most this process did not get its turn.
func lateness(t *testing.T) func() time.Duration {
	t.Helper()
	const every = 10 * time.Millisecond
	stop, most := make(chan struct{}), make(chan time.Duration)
	go func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		worst, last := time.Duration(0), time.Now()
		for {
			select {
			case <-tick.C:
				worst, last = max(worst, time.Since(last)-every), time.Now()
			case <-stop:
				most <- worst
				return
			}
		}
	}()
	return func() time.Duration {
		close(stop)
		return <-most
	}
}

// idle returns how often a slave has connected through silence, and messages just before the end of the interval.
func idle(t *testing.T, interval time.Duration) int64 {
	t.Helper()
	g := group(t, asyncMaster, 1, func(c *Config) {
		c.HAHousekeepingInterval, c.HASendHeartbeatInterval = interval, interval/4
	})
	master, real := g[0].start(), g[1].start()
	master.awaitOpen().awaitSlaves(1)
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-t.Context().Done():
		}
	}
	wait(5 * interval)
	for i := range 3 {
		wait(interval * 9 / 10)
		master.put(fmt.Appendf(nil, "message %d", i))
	}
	connects := real.status().GetUpstream().GetConnects()
	same(t, master, real)
	return connects
}

// halfClosingMaster accepts and half-closes, again and again: the slave comes at growing intervals and needs no CPU.
func halfClosingMaster(t *testing.T) {
	t.Parallel()
	m := testkit.ListenMaster(t)
	n := javaSlave(t, m)
	n.cfg.Telemetry.DebugListen = ""
	n.spawn()
	span := scaled(4*time.Second, time.Minute)
	began, cpu := time.Now(), cpuTime(t, n.cmd.Process.Pid)
	var gaps []time.Duration
	for last := began; time.Since(began) < span; {
		s := m.Accept()
		if half, ok := s.Conn().(*net.TCPConn); !ok || half.CloseWrite() != nil {
			t.Fatal("no half-close")
		}
		s.AwaitClose()
		gaps, last = append(gaps, time.Since(last)), time.Now()
	}
	took := time.Since(began)
	used := cpuTime(t, n.cmd.Process.Pid) - cpu
	if used > took/20 {
		t.Errorf("%v of CPU in %v", used, took)
	}
	if len(gaps) > int(took/time.Second)+5 || slices.Max(gaps) < time.Second {
		t.Errorf("the slave came at intervals of %v", gaps)
	}
	n.halt()
}

// cpuTime is what a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var ticks int64
	for _, s := range f[11:13] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
