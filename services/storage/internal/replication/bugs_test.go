package replication_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/replication/link"
)

// TestT1_ForgedAcks: no illegal or forged report confirms anything, neither on a fresh connection nor later.
func TestT1_ForgedAcks(t *testing.T) {
	log := filled(100*200, 1<<20, 1<<20)
	m := replication.NewMaster(replication.MasterOptions{LegacySlaves: true}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	proxy := testkit.NewProxy(t, ln.Addr().String())
	sink := newLog(1<<20, 1<<20)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{}, sink), sink, proxy.Addr(), 1, 0)
	await(t, m.Acked(1), log.End())

	// confirmed says whether a put of n bytes is confirmed in time.
	confirmed := func(n int) bool {
		next := log.put(make([]byte, n))
		return m.Acked(1).WaitUntil(t.Context(), next, time.Now().Add(50*time.Millisecond)) == nil
	}
	lagIsSane := func(what string) {
		t.Helper()
		for _, s := range m.Slaves() {
			if s.LagBytes < 0 || s.LagBytes > log.End() || s.Lag < 0 {
				t.Errorf("%s: lag %d, %v", what, s.LagBytes, s.Lag)
			}
		}
	}
	proxy.Stall(testkit.Up) // as if the slave were stopped
	proxy.Stall(testkit.Down)
	for _, tc := range []struct {
		name  string
		bytes func() []byte
	}{
		{"E+1", func() []byte { return testkit.Report(log.End() + 1) }},
		{"E+10^12", func() []byte { return testkit.Report(log.End() + 1e12) }},
		{"2^62", func() []byte { return testkit.Report(1 << 62) }},
		{"-1", func() []byte { return testkit.Report(-1) }},
		{"-2^63", func() []byte { return testkit.Report(math.MinInt64) }},
		{"text", func() []byte { return []byte("GET / HT") }},
	} {
		before := m.BadFirsts()
		s := testkit.DialSlave(t, ln.Addr().String())
		s.Send(tc.bytes())
		if n := s.AwaitClose(); n != 0 {
			t.Errorf("%s: %d frames", tc.name, n)
		}
		if got := m.BadFirsts() - before; got != 1 {
			t.Errorf("%s: %d counted", tc.name, got)
		}
		if confirmed(100) {
			t.Errorf("%s: a put was confirmed", tc.name)
		}
		lagIsSane(tc.name)
	}
	s := testkit.DialSlave(t, ln.Addr().String())
	s.Send([]byte("1234567"))
	s.Close()
	eventually(t, "seven bytes are counted", func() bool { return m.BadFirsts() == 7 })
	if confirmed(100) {
		t.Error("seven bytes confirmed a put")
	}

	s = testkit.DialSlave(t, ln.Addr().String())
	s.Report(log.End())
	eventually(t, "the fake slave is in", func() bool { return m.InSync() == 2 })
	if confirmed(100) {
		t.Error("a report of the old end confirmed a new put")
	}
	s.Report(log.End() - 5000)
	s.Close()
	eventually(t, "the fake slave is out", func() bool { return m.InSync() == 1 })
	if confirmed(100) {
		t.Error("a slave that has gone confirmed a put")
	}
	lagIsSane("at the end")

	proxy.Resume(testkit.Up)
	proxy.Resume(testkit.Down)
	for range 10 {
		await(t, m.Acked(1), log.put(make([]byte, 100)))
	}
	if !bytes.Equal(sink.bytes(), log.bytes()) {
		t.Error("the logs differ")
	}
}

// TestT4_DeadlineIsTime: the wait for slaves ends by the clock; neither the size of a message nor the acks of others matter.
func TestT4_DeadlineIsTime(t *testing.T) {
	const timeout = 3 * time.Second
	log := newLog(64<<20, 1<<30)
	m := replication.NewMaster(replication.MasterOptions{}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	proxy := testkit.NewProxy(t, ln.Addr().String())
	proxy.Delay(testkit.Up, 5*time.Millisecond)
	proxy.Delay(testkit.Down, 5*time.Millisecond)
	sink := newLog(64<<20, 1<<30)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{}, sink), sink, proxy.Addr(), 1, 0)
	put := func(n int) error {
		next := log.put(make([]byte, n))
		return m.Acked(1).WaitUntil(t.Context(), next, time.Now().Add(timeout))
	}
	for _, size := range []int{31 << 10, 33 << 10, 161 << 10, 1 << 20, 4 << 20} {
		for range 3 {
			if err := put(size); err != nil {
				t.Errorf("%d bytes: %v", size, err)
			}
		}
	}
	t.Run("busy", func(t *testing.T) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 10 { // writers that wait for nobody
			wg.Go(func() {
				for n := range 1000 {
					select {
					case <-stop:
						return
					default:
					}
					log.put(make([]byte, 200))
					if n%10 == 0 {
						<-time.After(time.Millisecond)
					}
				}
			})
		}
		for range 30 {
			if err := put(100); err != nil {
				t.Errorf("beside busy writers: %v", err)
			}
		}
		close(stop)
		wg.Wait()
	})
	t.Run("stopped slave", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, newLog(10_000, 1<<20), replication.MasterOptions{})
			b.join(1, 0)
			start := time.Now()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					next := b.log.put(make([]byte, 100))
					err := b.m.Acked(1).WaitUntil(t.Context(), next, start.Add(timeout))
					if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != timeout {
						t.Errorf("after %v: %v", time.Since(start), err)
					}
				})
			}
			wg.Wait()
		})
	})
}

// TestT6_SloppyPeers: peers that knock and run, or say nothing, cost nothing.
func TestT6_SloppyPeers(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{HeapGrowth: 2 << 20})
	knocks := 2000
	if soak() {
		knocks = 20_000
	}
	log := filled(1000, 2000, 1<<20)
	m := replication.NewMaster(replication.MasterOptions{LegacySlaves: true, Housekeeping: 2 * time.Second, Heartbeat: 500 * time.Millisecond}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	addr := ln.Addr().String()
	var d net.Dialer
	knock := func(b []byte) net.Conn {
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(b) // the master may have closed already
		return conn
	}
	var silent []net.Conn
	for range 200 {
		silent = append(silent, knock(nil))
	}
	for range knocks {
		knock([]byte("hello, are you up?\n")).Close()
	}
	for range knocks / 10 {
		knock(nil).Close()
	}
	// Among all of them a real slave finds its place.
	sink := newLog(2000, 1<<20)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{Heartbeat: 500 * time.Millisecond}, sink), sink, addr, 1, 0)
	await(t, m.Acked(1), 1000)

	want := int64(knocks + knocks/10 + len(silent))
	eventually(t, "all are counted", func() bool { return m.BadFirsts() == want })
	for _, c := range silent {
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("a silent connection got %d bytes, %v", n, err)
		}
		c.Close()
	}
	if all := m.Slaves(); len(all) != 1 || all[0].State != replication.LinkInSync {
		t.Errorf("slaves %+v", all)
	}
}

// TestT6_SloppyMaster: a real slave is fed frames cut and bent in all ways; what is good is in the log once and whole.
func TestT6_SloppyMaster(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	big := noise(1 << 20)
	master := testkit.ListenMaster(t)
	sink := newLog(8<<20, 1<<30)
	slave := replication.NewSlave(replication.SlaveOptions{}, sink)
	run := func(name string, want error, chunks ...[]byte) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- slave.Stream(t.Context(), replication.StreamArgs{Addr: master.Addr()}) }()
		s := master.Accept()
		if got := s.Report(); got != sink.End() {
			t.Errorf("%s: reported %d, the end is %d", name, got, sink.End())
		}
		drain(s)
		_ = s.TrySend(chunks...) // closed early where the bytes are illegal
		if errors.Is(want, link.ErrPeerClosed) {
			c, ok := s.Conn().(*net.TCPConn)
			if !ok || c.CloseWrite() != nil {
				t.Fatal("no half-close")
			}
		}
		if err := <-done; !errors.Is(err, want) {
			t.Errorf("%s: ended with %v, want %v", name, err, want)
		}
		s.Close()
	}
	var model []byte
	at := func(b []byte) testkit.Frame {
		f := testkit.Frame{Offset: int64(len(model)), Body: b}
		model = append(model, b...)
		return f
	}
	run("byte by byte", link.ErrPeerClosed, testkit.Every(at(big[:100<<10]).Bytes(), 1)...)
	one := at(big[:100]).Bytes()
	run("header split 1+11", link.ErrPeerClosed, one[:1], one[1:12], one[12:])
	run("three frames in one segment", link.ErrPeerClosed,
		bytes.Join([][]byte{at(big[:10]).Bytes(), at(big[10:20]).Bytes(), at(big[20:30]).Bytes()}, nil))
	var many [][]byte
	for i := 0; i < len(big); i += 32 << 10 {
		many = append(many, at(big[i:i+32<<10]).Bytes())
	}
	run("1 MiB in 32 KiB frames", link.ErrPeerClosed, many...)
	run("size 0", link.ErrPeerClosed, testkit.Header(int64(len(model)), 0))
	appends := sink.appends
	run("size 0 again", link.ErrPeerClosed, testkit.Header(int64(len(model)), 0))
	if sink.appends != appends {
		t.Error("a heartbeat was appended")
	}
	for _, size := range []int32{-1, math.MinInt32, math.MaxInt32} {
		run(fmt.Sprint("size ", size), replication.ErrFrameSize, testkit.Header(int64(len(model)), size))
	}
	for _, off := range []int64{-1, 1, 1 << 40} {
		run(fmt.Sprint("offset off by ", off), replication.ErrFrameOffset, testkit.Header(int64(len(model))+off, 5), []byte("12345"))
	}
	half := at(big[:5000]).Bytes()
	model = model[:len(model)-1000]
	run("closed in the middle of a body", link.ErrPeerClosed, half[:len(half)-1000])
	run("and on from there", link.ErrPeerClosed, at(big[4000:5000]).Bytes())
	if !bytes.Equal(sink.bytes(), model) {
		t.Errorf("the log has %d bytes, not the %d that were sent", sink.End(), len(model))
	}
}

// TestT6_IdlePair: five housekeeping intervals without traffic, then one frame per 0.9 interval: no reconnect (H08, H09).
func TestT6_IdlePair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := filled(100, 1000, 1<<20)
		b := newBubble(t, log, replication.MasterOptions{})
		sink := newLog(1000, 1<<20)
		slave := replication.NewSlave(replication.SlaveOptions{Dial: b.ln.dial}, sink)
		done := stream(t, b.m, slave, sink, "pipe", 1, 0)
		await(t, b.m.Acked(1), 100)
		<-time.After(5 * 20 * time.Second)
		for range 10 {
			<-time.After(18 * time.Second)
			await(t, b.m.Acked(1), log.put([]byte{1}))
		}
		select {
		case err := <-done:
			t.Errorf("the link ended: %v", err)
		default:
		}
		if st := slave.Status(); st.Connects != 1 || !st.Connected || b.m.Slaves()[0].State != replication.LinkInSync {
			t.Errorf("slave %+v, master %+v", st, b.m.Slaves())
		}
		if b.m.BadReports() != 0 {
			t.Errorf("%d bad reports", b.m.BadReports())
		}
	})
}
