package replication_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/errdefs"
	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/pkg/watermark"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
	"github.com/tandemlog/tandem/services/storage/internal/replication/acks"
	"github.com/tandemlog/tandem/services/storage/internal/replication/wire"
)

// bubble is a master on pipes, inside synctest.
type bubble struct {
	t   *testing.T
	log *memLog
	m   *replication.Master
	ln  *pipes
}

func newBubble(t *testing.T, log *memLog, o replication.MasterOptions) *bubble {
	b := &bubble{t: t, log: log, m: replication.NewMaster(o, log), ln: newPipes()}
	b.m.Open(0)
	stop := serve(t, b.m, b.ln)
	t.Cleanup(stop)
	return b
}

// knock connects and sends raw bytes.
func (b *bubble) knock(chunks ...[]byte) *testkit.FakeSlave {
	b.t.Helper()
	conn, err := b.ln.dial(b.t.Context(), "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	s := testkit.NewFakeSlave(b.t, conn)
	s.Send(chunks...)
	return s
}

func (b *bubble) grant(g replication.Grant) ([16]byte, <-chan struct{}) {
	b.t.Helper()
	token, gone, err := b.m.Grant(g)
	if err != nil {
		b.t.Fatal(err)
	}
	return token, gone
}

// join connects node with a fresh token.
func (b *bubble) join(node, start int64) (*testkit.FakeSlave, <-chan struct{}) {
	b.t.Helper()
	token, gone := b.grant(replication.Grant{NodeID: node, Address: "s", Start: start})
	s := b.knock(hello(token, start))
	synctest.Wait()
	return s, gone
}

func hello(token [16]byte, report int64) []byte {
	return append(wire.AppendPreamble(nil, token), testkit.Report(report)...)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestStartRules(t *testing.T) {
	for _, tc := range []struct {
		name       string
		first, end int64
		report     int64
		last       bool
		start      int64 // -1: closed
	}{
		{name: "0 means the first file", end: 2500, start: 0},
		{name: "0 where files have expired", first: 1000, end: 2500, start: 1000},
		{name: "0 and the last file", end: 2500, last: true, start: 2000},
		{name: "0, the last file, the end on its boundary", end: 3000, last: true, start: 3000},
		{name: "0 on an empty log", start: 0},
		{name: "the first byte", first: 1000, end: 2500, report: 1000, start: 1000},
		{name: "in the middle", end: 2500, report: 1234, start: 1234},
		{name: "the end", end: 2500, report: 2500, start: 2500},
		{name: "beyond the end", end: 2500, report: 2501, start: -1},
		{name: "far beyond", end: 2500, report: 1 << 60, start: -1},
		{name: "before the first", first: 1000, end: 2500, report: 999, start: -1},
		{name: "negative", end: 2500, report: -1, start: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := filled(tc.end, 4000, 1000)
				log.first = tc.first
				b := newBubble(t, log, replication.MasterOptions{LegacySlaves: true, StartFromLast: tc.last})
				s := b.knock(testkit.Report(tc.report))
				if tc.start < 0 {
					if n := s.AwaitClose(); n != 0 || b.m.BadFirsts() != 1 || len(b.m.Slaves()) != 0 {
						t.Errorf("%d frames, %d bad firsts, %v", n, b.m.BadFirsts(), b.m.Slaves())
					}
					return
				}
				f := s.Next()
				if f.Offset != tc.start || (len(f.Body) == 0) != (tc.start == tc.end) {
					t.Errorf("first frame: %d bytes at %d", len(f.Body), f.Offset)
				}
				s.Report(tc.start)
				synctest.Wait()
				if got := b.m.Slaves(); len(got) != 1 || !got[0].Legacy || got[0].NodeID != -1 || b.m.BadReports() != 0 {
					t.Errorf("%+v, %d bad reports", got, b.m.BadReports())
				}
			})
		})
	}
}

func TestPlainSlavesOnlyWhenAllowedAndOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{})
		b.knock(testkit.Report(0)).AwaitClose()
		c := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{LegacySlaves: true})
		c.m.Shut(nil)
		c.knock(testkit.Report(0)).AwaitClose()
		c.m.Open(0)
		c.knock(testkit.Report(0)).ReadTo(100)
	})
}

func TestLegacyPeersCount(t *testing.T) {
	for _, tc := range []struct {
		peers   []netip.Addr
		outside bool
		acked   int
	}{
		{nil, false, 1},
		{[]netip.Addr{netip.MustParseAddr("127.0.0.1")}, false, 1},
		{[]netip.Addr{netip.MustParseAddr("10.0.0.1")}, false, 0},
		{nil, true, 0},
		{[]netip.Addr{netip.MustParseAddr("127.0.0.1")}, true, 0},
	} {
		log := filled(100, 200, 1000)
		m := replication.NewMaster(replication.MasterOptions{LegacySlaves: true, LegacyPeers: tc.peers, LegacyOutside: tc.outside}, log)
		m.Open(0)
		ln := listen(t)
		serve(t, m, ln)
		for range 2 { // two of one address count once
			s := testkit.DialSlave(t, ln.Addr().String())
			s.Report(0)
			s.ReadTo(100)
			s.Report(100)
		}
		eventually(t, "both acks", func() bool {
			n := 0
			for _, s := range m.Slaves() {
				if s.Acked == 100 {
					n++
				}
			}
			return n == 2
		})
		if acked, flushed := m.CountAt(100); acked != tc.acked || flushed != 0 || m.InSync() != tc.acked {
			t.Errorf("%+v: %d acked, %d flushed, %d in sync", tc, acked, flushed, m.InSync())
		}
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{})
		refused := func(what string, chunks ...[]byte) {
			t.Helper()
			before := b.m.BadFirsts()
			if n := b.knock(chunks...).AwaitClose(); n != 0 || b.m.BadFirsts() != before+1 {
				t.Errorf("%s: %d frames, %d more bad firsts", what, n, b.m.BadFirsts()-before)
			}
		}
		refused("unknown token", hello([16]byte{1}, 0))
		g := replication.Grant{NodeID: 1, Start: 40}

		token, gone := b.grant(g)
		refused("another start than granted", hello(token, 41))
		if !isClosed(gone) {
			t.Error("the grant lives on")
		}
		refused("used up by that", hello(token, 40))

		token, gone = b.grant(g)
		<-time.After(11 * time.Second)
		synctest.Wait()
		if !isClosed(gone) {
			t.Error("an expired grant lives on")
		}
		refused("expired", hello(token, 40))

		old, oldGone := b.grant(g)
		token, gone = b.grant(g)
		if !isClosed(oldGone) || isClosed(gone) {
			t.Error("a second grant must void the first")
		}
		refused("void", hello(old, 40))
		s := b.knock(hello(token, 40))
		if f := s.Next(); f.Offset != 40 || len(f.Body) != 60 {
			t.Errorf("%d bytes at %d", len(f.Body), f.Offset)
		}
		refused("used", hello(token, 40))
		s.Close()
		<-gone

		for _, start := range []int64{-1, 101} {
			if _, _, err := b.m.Grant(replication.Grant{NodeID: 1, Start: start}); err == nil {
				t.Errorf("start %d was granted", start)
			}
		}
		if _, _, err := b.m.Grant(replication.Grant{NodeID: -1}); errdefs.ClassOf(err) != errdefs.InvalidArgument {
			t.Errorf("node -1: %v", err)
		}
	})
}

func TestANewSessionReplacesTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{})
		s, gone := b.join(1, 0)
		s.ReadTo(100)
		s.Report(100)
		synctest.Wait()
		if acked, _ := b.m.CountAt(100); acked != 1 {
			t.Fatalf("%d acked", acked)
		}
		s2, gone2 := b.join(1, 50)
		if acked, _ := b.m.CountAt(60); acked != 0 {
			t.Error("the old session's report outlived it")
		}
		<-gone
		s.AwaitClose()
		s2.ReadTo(100)
		if isClosed(gone2) || len(b.m.Slaves()) != 1 {
			t.Errorf("slaves %+v", b.m.Slaves())
		}
	})
}

func TestShutAndRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 4<<20, 4<<20), replication.MasterOptions{})
		s, gone := b.join(1, 0)
		s.ReadTo(100)
		b.log.put(noise(1 << 20)) // the pipe takes nothing: a write with a lease is under way
		token, tokenGone := b.grant(replication.Grant{NodeID: 2})
		mark := b.m.Acked(1)
		waited := make(chan error, 1)
		go func() { waited <- mark.Wait(context.Background(), 1<<20) }()
		synctest.Wait()
		if b.log.leases.Load() != 1 {
			t.Fatalf("%d leases", b.log.leases.Load())
		}
		reason := errors.New("promised another")
		b.m.Shut(reason)
		if n := b.log.leases.Load(); n != 0 || !isClosed(gone) || !isClosed(tokenGone) {
			t.Errorf("%d leases; gone %v, token gone %v", n, isClosed(gone), isClosed(tokenGone))
		}
		if err := <-waited; !errors.Is(err, reason) {
			t.Errorf("waiter got %v", err)
		}
		b.knock(hello(token, 0)).AwaitClose()
		if err := b.m.Acked(1).Err(); !errors.Is(err, reason) {
			t.Errorf("outside a reign Acked says %v", err)
		}

		s, gone = b.join(1, 100) // as an inner node of a chain
		s.Report(100)
		synctest.Wait()
		if acked, _ := b.m.CountAt(100); acked != 1 || b.m.Acked(1).Load() != 0 {
			t.Errorf("acked %d, mark %d", acked, b.m.Acked(1).Load())
		}
		b.m.Open(100)
		if got := b.m.Acked(1).Load(); got != 100 {
			t.Errorf("after Open the mark is %d", got)
		}
		b.m.Revoke(7, nil)
		if isClosed(gone) {
			t.Error("revoked the wrong node")
		}
		b.m.Revoke(1, nil)
		if !isClosed(gone) || b.m.InSync() != 0 {
			t.Errorf("revoked: gone %v, in sync %d", isClosed(gone), b.m.InSync())
		}
		if st := b.m.Slaves(); len(st) != 1 || st[0].State != replication.LinkDisconnected || st[0].Reason != "REVOKED" {
			t.Errorf("%+v", st)
		}
	})
}

func TestTooManySlaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{MaxSlaves: 2, LegacySlaves: true})
		b.join(1, 100)
		b.grant(replication.Grant{NodeID: 2})
		if _, _, err := b.m.Grant(replication.Grant{NodeID: 3}); !errors.Is(err, replication.ErrTooManySlaves) {
			t.Errorf("a third node: %v", err)
		}
		b.knock(testkit.Report(0)).AwaitClose()
		b.join(1, 100) // a known node always finds its own place
		b.join(2, 100)
	})
}

// TestHeartbeats: every five seconds without a frame, none while frames flow, always at the next position.
func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 1000, 10000), replication.MasterOptions{})
		s, _ := b.join(1, 100)
		start := time.Now()
		beat := func(at time.Duration, offset int64) {
			t.Helper()
			if f := s.Next(); len(f.Body) != 0 || f.Offset != offset || time.Since(start) != at {
				t.Errorf("after %v: %d bytes at %d, want a heartbeat at %d after %v", time.Since(start), len(f.Body), f.Offset, offset, at)
			}
			s.Report(offset)
		}
		beat(5*time.Second, 100)
		beat(10*time.Second, 100)
		<-time.After(3 * time.Second)
		b.log.put(make([]byte, 50))
		if f := s.Next(); len(f.Body) != 50 || time.Since(start) != 13*time.Second {
			t.Errorf("after %v: %d bytes", time.Since(start), len(f.Body))
		}
		beat(18*time.Second, 150) // also while the small frame is not confirmed
		beat(23*time.Second, 150)
	})
}

// TestOneSmallFrame: while one small frame is not confirmed only full frames go; then one frame takes what has gathered.
func TestOneSmallFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, newLog(1<<20, 1<<20), replication.MasterOptions{BatchSize: 1000})
		s, _ := b.join(1, 0)
		expect := func(sizes ...int) {
			t.Helper()
			for _, n := range sizes {
				if f := s.Next(); len(f.Body) != n {
					t.Errorf("a frame of %d bytes, want %d", len(f.Body), n)
				}
			}
			s.Silent(time.Second)
		}
		b.log.put(make([]byte, 100))
		expect(100)
		for range 9 {
			b.log.put(make([]byte, 100))
		}
		expect() // 900 gathered, 100 on its way
		b.log.put(make([]byte, 100))
		expect(1000)
		b.log.put(make([]byte, 2500))
		expect(1000, 1000)
		s.Report(99)
		expect()
		s.Report(100)
		expect(500)
		b.log.put(make([]byte, 300))
		expect()
		s.Report(1100, 2100, 3100) // what goes before it does not confirm the small one
		expect()
		s.Report(3600)
		expect(300)
		s.Report(3900)
		b.log.put(make([]byte, 3000))
		expect(1000, 1000, 1000)
		b.log.put(make([]byte, 10)) // full frames on their way do not hold a small one up
		expect(10)
	})
}

func TestIllegalReportsEndTheSession(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes []byte
	}{
		{"one beyond what was sent", testkit.Report(101)},
		{"far beyond", testkit.Report(1 << 60)},
		{"negative", testkit.Report(-1)},
		{"text", []byte("GET / HT")},
		{"tls", []byte("\x16\x03\x01\x00\x00\x00\x00\x00")},
		{"a second preamble", []byte("\xd4ANDEM01")},
		{"bad, then good", append(testkit.Report(101), testkit.Report(100)...)},
		{"good, then bad, then half", append(append(testkit.Report(100), testkit.Report(101)...), 1, 2)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{})
				s, gone := b.join(1, 10)
				s.ReadTo(100)
				s.Report(50)
				synctest.Wait()
				s.Send(tc.bytes)
				start := time.Now()
				s.AwaitClose()
				<-gone
				if time.Since(start) != 0 || b.m.BadReports() != 1 || b.m.Acked(1).Load() != 50 || b.m.InSync() != 0 {
					t.Errorf("after %v: %d bad, acked %d, in sync %d", time.Since(start), b.m.BadReports(), b.m.Acked(1).Load(), b.m.InSync())
				}
				if st := b.m.Slaves(); len(st) != 1 || st[0].Reason != "BAD_REPORT" || st[0].Acked != 50 || st[0].LagBytes != 50 {
					t.Errorf("%+v", st)
				}
			})
		})
	}
}

// TestReportsArriveInPieces: eight bytes one by one, and several at once of which the last complete one counts.
func TestReportsArriveInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{})
		s, _ := b.join(1, 10)
		s.ReadTo(100)
		s.Send(testkit.Every(testkit.Report(40), 1)...)
		synctest.Wait()
		if got := b.m.Acked(1).Load(); got != 40 {
			t.Errorf("byte by byte: %d", got)
		}
		s.Send(append(append(testkit.Report(50), testkit.Report(60)...), testkit.Report(70)[:5]...))
		synctest.Wait()
		if got := b.m.Acked(1).Load(); got != 60 {
			t.Errorf("two and a half: %d", got)
		}
		s.Send(testkit.Report(70)[5:])
		synctest.Wait()
		if got := b.m.Acked(1).Load(); got != 70 {
			t.Errorf("the rest: %d", got)
		}
		s.Report(65) // it has less than we thought
		synctest.Wait()
		if acked, _ := b.m.CountAt(70); acked != 0 || b.m.Acked(1).Load() != 70 {
			t.Errorf("gone back: %d have 70, mark %d", acked, b.m.Acked(1).Load())
		}
	})
}

func TestALogThatIsCutEndsItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := filled(100, 200, 1000)
		b := newBubble(t, log, replication.MasterOptions{})
		_, gone := b.join(1, 100)
		log.written.Close(watermark.ErrTruncated)
		<-gone
		if st := b.m.Slaves(); len(st) != 1 || st[0].Reason != "LOG_CLOSED" {
			t.Errorf("%+v", st)
		}
	})
}

func TestRunStopsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := filled(100, 200, 1000)
		m := replication.NewMaster(replication.MasterOptions{}, log)
		m.Open(0)
		ln := newPipes()
		stop := serve(t, m, ln)
		b := &bubble{t: t, log: log, m: m, ln: ln}
		silent := b.knock()
		_, gone := b.join(1, 100)
		stop()
		silent.AwaitClose()
		if !isClosed(gone) || m.InSync() != 0 {
			t.Error("the session outlived Run")
		}
		if err := m.Acked(1).Wait(t.Context(), 101); !errors.Is(err, replication.ErrStopped) {
			t.Errorf("a waiter got %v", err)
		}
		if _, _, err := m.Grant(replication.Grant{NodeID: 1}); !errors.Is(err, replication.ErrStopped) {
			t.Errorf("a grant after the end: %v", err)
		}
	})
}

func TestRunReportsAFailedListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		done := make(chan error, 1)
		m := replication.NewMaster(replication.MasterOptions{}, newLog(1, 1))
		go func() { done <- m.Run(t.Context(), ln) }()
		synctest.Wait()
		_ = ln.Close()
		if err := <-done; err == nil {
			t.Error("Run returned nil")
		}
	})
}

func TestReignsOfTheMaster(t *testing.T) {
	m := replication.NewMaster(replication.MasterOptions{}, newLog(10, 10))
	if err := m.Acked(1).Wait(t.Context(), 1); !errors.Is(err, acks.ErrNotOpen) {
		t.Errorf("before Open: %v", err)
	}
}
