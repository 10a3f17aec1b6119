package replication_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
)

// TestEightSlaves: all get the same bytes while the log grows and links are cut, and are counted by their number.
func TestEightSlaves(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	const slaves, size = 8, 12 << 20
	log := filled(2<<20, size, 1<<20)
	m := replication.NewMaster(replication.MasterOptions{}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	proxy := testkit.NewProxy(t, ln.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	sinks := make([]*memLog, slaves)
	for i := range sinks {
		sink := newLog(size, 1<<20)
		sinks[i] = sink
		wg.Go(func() {
			s := replication.NewSlave(replication.SlaveOptions{}, sink)
			for ctx.Err() == nil {
				token, _, err := m.Grant(replication.Grant{NodeID: int64(i + 1), Start: sink.End(), Frame: 32 << 10 * (1 + i%2*7)})
				if err != nil {
					t.Error(err)
					return
				}
				_ = s.Stream(ctx, replication.StreamArgs{Addr: proxy.Addr(), Token: &token})
			}
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	for log.End() < size-(256<<10) {
		log.put(noise(1 + r.IntN(200<<10)))
		if r.IntN(10) == 0 {
			proxy.CutAll()
		}
	}
	for k := 1; k <= slaves; k++ {
		await(t, m.Acked(k), log.End())
	}
	if acked, _ := m.CountAt(log.End()); acked != slaves || m.InSync() != slaves {
		t.Errorf("%d acked, %d in sync", acked, m.InSync())
	}
	if got := m.Acked(slaves + 1).Load(); got != 0 {
		t.Errorf("nine slaves have %d", got)
	}
	for i, s := range sinks {
		if !bytes.Equal(s.bytes(), log.bytes()) {
			t.Errorf("slave %d differs", i+1)
		}
	}
	if m.BadReports() != 0 {
		t.Errorf("%d bad reports", m.BadReports())
	}
}

// TestASlowSlaveDelaysNobody: one slave takes no more bytes; the other gets each put at once, and the slow one is dropped
// after the interval without a lease left.
func TestASlowSlaveDelaysNobody(t *testing.T) {
	log := newLog(32<<20, 1<<30)
	m := replication.NewMaster(replication.MasterOptions{Housekeeping: 2 * time.Second}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	token, gone, err := m.Grant(replication.Grant{NodeID: 1})
	if err != nil {
		t.Fatal(err)
	}
	slow := testkit.DialSlave(t, ln.Addr().String())
	slow.Send(hello(token, 0))
	eventually(t, "the slow one is in", func() bool { return m.InSync() == 1 })
	sink := newLog(32<<20, 1<<30)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{Heartbeat: 200 * time.Millisecond}, sink), sink, ln.Addr().String(), 2, 0)
	ping := time.NewTicker(300 * time.Millisecond)
	defer ping.Stop()
	for log.End() < 30<<20 {
		await(t, m.Acked(1), log.put(noise(256<<10)))
		select {
		case <-ping.C:
			_ = slow.TrySend(testkit.Report(0)) // it lives, it only takes nothing
		default:
		}
	}
	for range 100 {
		select {
		case <-gone:
			if st := m.Slaves()[0]; st.Reason != "PEER_STUCK" {
				t.Errorf("%+v", st)
			}
			if n := log.leases.Load(); n > 1 { // the other one's
				t.Errorf("%d leases", n)
			}
			return
		case <-ping.C:
			_ = slow.TrySend(testkit.Report(0))
		}
	}
	t.Error("the stuck slave is still there")
}

// fileLog is a memLog whose bytes are in a file too, for sendfile.
type fileLog struct {
	*memLog
	f *os.File
}

func (l *fileLog) FileAt(offset int64, limit int) (uintptr, int64, int, func(), error) {
	b, release, err := l.View(offset, limit)
	return l.f.Fd(), offset, len(b), release, err
}

// TestGrantedFramesBySendfile: a large grant, caught up from a file and then fed small puts.
func TestGrantedFramesBySendfile(t *testing.T) {
	mem := filled(10_000_019, 11<<20, 4<<20)
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(mem.bytes()); err != nil {
		t.Fatal(err)
	}
	log := &fileLog{mem, f}
	m := replication.NewMaster(replication.MasterOptions{}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	sink := newLog(11<<20, 4<<20)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{}, sink), sink, ln.Addr().String(), 1, 256<<10)
	await(t, m.Acked(1), log.End())
	for range 50 {
		await(t, m.Acked(1), log.put(noise(333)))
	}
	if !bytes.Equal(sink.bytes(), log.bytes()) {
		t.Error("the logs differ")
	}
	m.Shut(nil) // the last bytes are confirmed before their lease ends
	if n := mem.leases.Load(); n != 0 {
		t.Errorf("%d leases", n)
	}
}

// pair is a master and a slave over real TCP, both in this process.
func pair(t testing.TB, size int64, frame int) (*memLog, *replication.Master, *memLog) {
	log := newLog(size, 1<<40)
	m := replication.NewMaster(replication.MasterOptions{}, log)
	m.Open(0)
	ln := listen(t)
	serve(t, m, ln)
	sink := newLog(size, 1<<40)
	stream(t, m, replication.NewSlave(replication.SlaveOptions{}, sink), sink, ln.Addr().String(), 1, frame)
	return log, m, sink
}

// TestNoAllocationsPerFrame: master and slave together, from the put to the acknowledgement.
func TestNoAllocationsPerFrame(t *testing.T) {
	for _, size := range []int{200, 32 << 10, 200_000} {
		log, m, _ := pair(t, 256<<20, 0)
		body := make([]byte, size)
		deadline := time.Now().Add(time.Minute)
		put := func() {
			if err := m.Acked(1).WaitUntil(t.Context(), log.put(body), deadline); err != nil {
				t.Error(err)
			}
		}
		for range 50 {
			put()
		}
		if allocs := testing.AllocsPerRun(1000, put); allocs > 0 {
			t.Errorf("%d bytes: %v allocations", size, allocs)
		}
	}
}

// TestCatchUpAllocatesNothing: bytes that stream, 64 MiB of them, in less memory than the slave's buffer and change.
func TestCatchUpAllocatesNothing(t *testing.T) {
	const size = 64 << 20
	log, m, _ := pair(t, 2*size, 0)
	await(t, m.Acked(1), log.put(noise(1<<20)))
	body := make([]byte, size)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	await(t, m.Acked(1), log.put(body))
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > 200 { // 2048 frames
		t.Errorf("%d allocations for %d frames", n, size/(32<<10))
	}
}

func TestMetrics(t *testing.T) {
	reader := metric.NewManualReader()
	meter := metric.NewMeterProvider(metric.WithReader(reader)).Meter("test")
	log := filled(100_000, 200_000, 1<<20)
	m := replication.NewMaster(replication.MasterOptions{Meter: meter}, log)
	m.Open(0)
	ln := listen(t)
	stop := serve(t, m, ln)
	bad := testkit.DialSlave(t, ln.Addr().String())
	bad.Send([]byte("GET / HTTP/1.1\r\n\r\n"))
	bad.AwaitClose()
	sink := newLog(200_000, 1<<20)
	done := stream(t, m, replication.NewSlave(replication.SlaveOptions{Meter: meter}, sink), sink, ln.Addr().String(), 7, 0)
	await(t, m.Acked(1), 100_000)
	var got map[string]int64
	eventually(t, "both ends have counted", func() bool { // they count after the fact
		got = collect(t, reader)
		return got["storage.replication.slave.reports"] >= 2 && got["storage.replication.master.bytes"] >= 100_000
	})
	for name, want := range map[string]int64{
		"storage.replication.master.bytes": 100_000, "storage.replication.slave.bytes": 100_000,
		"storage.replication.master.frames": 4, "storage.replication.slave.frames": 4,
		"storage.replication.master.bad_firsts{reason=text}": 1,
		"storage.replication.master.sessions":                1, "storage.replication.master.in_sync": 1,
		"storage.replication.master.lag{node=7}": 0, "storage.replication.slave.connects": 1,
	} {
		if n, ok := got[name]; !ok || n != want {
			t.Errorf("%s is %d (%v), want %d", name, n, ok, want)
		}
	}
	if got["storage.replication.master.reports"] < 1 {
		t.Errorf("reports: %v", got)
	}
	stop()
	<-done
	if got = collect(t, reader); got["storage.replication.slave.link_ends{reason=LINK_CLOSED}"] != 1 {
		t.Errorf("the end of the link is not counted: %v", got)
	}
}

func collect(t *testing.T, reader metric.Reader) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	put := func(name string, points []metricdata.DataPoint[int64]) {
		for _, p := range points {
			key := name
			for _, kv := range p.Attributes.ToSlice() {
				key += fmt.Sprintf("{%s=%s}", kv.Key, kv.Value.String())
			}
			got[key] = p.Value
		}
	}
	for _, s := range all.ScopeMetrics {
		for _, x := range s.Metrics {
			switch d := x.Data.(type) {
			case metricdata.Sum[int64]:
				put(x.Name, d.DataPoints)
			case metricdata.Gauge[int64]:
				put(x.Name, d.DataPoints)
			}
		}
	}
	return got
}

func BenchmarkSyncPut200(b *testing.B) {
	log, m, _ := pair(b, 1<<30, 0)
	body := make([]byte, 200)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Acked(1).Wait(context.Background(), log.put(body)); err != nil {
			b.Fatal(err)
		}
	}
}

// ringLog repeats 16 MiB without end; as a sink it forgets.
type ringLog struct {
	data []byte
	mark *watermark.Mark
}

func (l *ringLog) Written() *watermark.Mark { return l.mark }
func (l *ringLog) Report() *watermark.Mark  { return l.mark }
func (l *ringLog) End() int64               { return l.mark.Load() }
func (l *ringLog) FirstOffset() int64       { return 0 }
func (l *ringLog) FileSize() int64          { return int64(len(l.data)) }

func (l *ringLog) View(offset int64, limit int) ([]byte, func(), error) {
	at := int(offset % int64(len(l.data)))
	return l.data[at:min(at+limit, len(l.data))], func() {}, nil
}

func (l *ringLog) AppendRaw(offset int64, bodies [][]byte) (int, error) {
	n := 0
	for _, b := range bodies {
		n += len(b)
	}
	l.mark.Advance(offset + int64(n))
	return n, nil
}

// BenchmarkStream is the way from memory to memory, beside a plain copy over the same kind of socket.
func BenchmarkStream(b *testing.B) {
	const chunk = 1 << 20
	b.Run("plain", func(b *testing.B) {
		ln := listen(b)
		defer ln.Close()
		go func() {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 256<<10)
			for range b.N {
				if _, err := conn.Write(buf); err != nil {
					return
				}
			}
			conn.Close()
		}()
		var d net.Dialer
		conn, err := d.DialContext(b.Context(), "tcp", ln.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(256 << 10)
		buf := make([]byte, 256<<10)
		for err == nil {
			_, err = conn.Read(buf)
		}
	})
	for _, frame := range []int{32 << 10, 256 << 10} {
		b.Run(fmt.Sprintf("frame %d", frame), func(b *testing.B) {
			src := &ringLog{data: make([]byte, 16<<20), mark: watermark.New(0)}
			sink := &ringLog{mark: watermark.New(0)}
			m := replication.NewMaster(replication.MasterOptions{}, src)
			m.Open(0)
			ln := listen(b)
			serve(b, m, ln)
			token, _, err := m.Grant(replication.Grant{NodeID: 1, Frame: frame})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			defer wg.Wait()
			defer cancel()
			wg.Go(func() {
				_ = replication.NewSlave(replication.SlaveOptions{}, sink).Stream(ctx, replication.StreamArgs{Addr: ln.Addr().String(), Token: &token})
			})
			b.SetBytes(chunk)
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				n += chunk
				src.mark.Advance(n)
				if err := m.Acked(1).Wait(ctx, n-8*chunk); err != nil {
					b.Fatal(err)
				}
			}
			if err := m.Acked(1).Wait(ctx, n); err != nil {
				b.Fatal(err)
			}
		})
	}
}
