package replication_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandemlog/tandem/pkg/testkit"
	"github.com/tandemlog/tandem/services/storage/internal/replication"
)

// TestStatusOverTime follows one slave through its states (bug H21: connected, behind, and nobody says why).
func TestStatusOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := filled(100_000, 200_000, 1<<20)
		b := newBubble(t, log, replication.MasterOptions{FallBehindMax: 50_000})
		see := func(what string, want replication.LinkState, acked, lag int64, behind time.Duration, inSync bool) replication.SlaveStatus {
			t.Helper()
			synctest.Wait()
			all := b.m.Slaves()
			if len(all) != 1 {
				t.Fatalf("%s: %d slaves", what, len(all))
			}
			s := all[0]
			if s.State != want || s.Acked != acked || s.LagBytes != lag || s.Lag != behind || s.InSync != inSync {
				t.Errorf("%s: state %d, acked %d, lag %d and %v, in sync %v", what, s.State, s.Acked, s.LagBytes, s.Lag, s.InSync)
			}
			return s
		}
		token, gone := b.grant(replication.Grant{NodeID: 3, Address: "slave:10911", Start: 0, Flushes: true})
		see("granted", replication.LinkConnecting, -1, 100_000, 0, false)
		s := b.knock(hello(token, 0))
		s.ReadTo(32 << 10)
		<-time.After(time.Second)
		see("connected", replication.LinkCatchingUp, 0, 100_000, time.Second, false)
		s.Report(32 << 10)
		see("on its way", replication.LinkCatchingUp, 32<<10, 100_000-32<<10, time.Second, false)
		s.ReadTo(100_000)
		s.Report(60_000)
		see("near", replication.LinkCatchingUp, 60_000, 40_000, time.Second, true)
		s.Report(100_000)
		see("there", replication.LinkInSync, 100_000, 0, 0, true)
		if acked, flushed := b.m.CountAt(100_000); acked != 1 || flushed != 1 {
			t.Errorf("acked %d, flushed %d", acked, flushed)
		}
		for range 3 { // quiet
			s.Next()
			s.Report(100_000)
		}
		synctest.Wait()
		log.put(make([]byte, 100)) // it falls behind
		for range 7 {
			s.Next()
			s.Report(100_000) // alive, but it does not move
		}
		if st := b.m.Slaves()[0]; st.State != replication.LinkInSync || st.LagBytes != 100 || st.Lag < 30*time.Second || st.Lag > 31*time.Second {
			t.Errorf("30 s behind: %+v", st)
		}
		<-time.After(2 * time.Second)
		if st := b.m.Slaves()[0]; st.State != replication.LinkStalled || st.Reason != "NO_PROGRESS" || st.Remedy == "" {
			t.Errorf("32 s behind: %+v", st)
		}
		s.Report(100_100)
		see("moves again", replication.LinkInSync, 100_100, 0, 0, true)
		s.Close()
		<-gone
		st := see("gone", replication.LinkDisconnected, 100_100, 0, 0, false)
		if st.Reason != "LINK_CLOSED" || st.LastReport.IsZero() || st.Address != "slave:10911" {
			t.Errorf("gone: %+v", st)
		}
		log.put(make([]byte, 70_000))
		<-time.After(time.Minute)
		see("long gone", replication.LinkDisconnected, 100_100, 70_000, time.Minute, false)
	})
}

func TestInSyncChangedIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := filled(100, 10_000, 10_000)
		b := newBubble(t, log, replication.MasterOptions{FallBehindMax: 1000})
		changed := b.m.InSyncChanged()
		was := changed.Load()
		s, _ := b.join(1, 100)
		if b.m.InSync() != 1 || changed.Load() != was+1 {
			t.Errorf("joined: %d in sync, %d changes", b.m.InSync(), changed.Load()-was)
		}
		log.put(make([]byte, 2000))
		start := time.Now()
		await(t, changed, was+2) // by the lag alone
		if time.Since(start) > time.Second || b.m.InSync() != 0 {
			t.Errorf("noticed after %v, %d in sync", time.Since(start), b.m.InSync())
		}
		s.ReadTo(2100)
		s.Report(2100)
		await(t, changed, was+3)
		s.Close()
		await(t, changed, was+4)
	})
}

// TestSilentSlavesAreDropped: 20 s without a report, also before the first bytes.
func TestSilentSlavesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, filled(100, 200, 1000), replication.MasterOptions{LegacySlaves: true})
		start := time.Now()
		for what, s := range map[string]*testkit.FakeSlave{
			"nothing": b.knock(), "seven bytes": b.knock(make([]byte, 7)), "half a preamble": b.knock(hello([16]byte{}, 0)[:20]),
		} {
			s.Conn().SetReadDeadline(time.Time{})
			if n, err := s.Conn().Read(make([]byte, 1)); n != 0 || err == nil || time.Since(start) > 20*time.Second {
				t.Errorf("%s: %d bytes, %v after %v", what, n, err, time.Since(start))
			}
		}
		late := b.knock()
		<-time.After(6 * time.Second) // a 4.9.7 slave
		late.Report(100)
		synctest.Wait()
		if len(b.m.Slaves()) != 1 {
			t.Fatal("a slave that was silent for 6 s is not there")
		}
		start = time.Now()
		go func() {
			for b := make([]byte, 100); ; {
				if _, err := late.Conn().Read(b); err != nil {
					return
				}
			}
		}()
		late.Conn().SetReadDeadline(time.Time{})
		eventuallyFake(t, func() bool { return b.m.InSync() == 0 })
		if d := time.Since(start); d < 20*time.Second || d > 21*time.Second || b.m.Slaves()[0].Reason != "PEER_SILENT" {
			t.Errorf("dropped after %v: %+v", d, b.m.Slaves()[0])
		}
	})
}

// eventuallyFake looks every 100 ms of the bubble's time.
func eventuallyFake(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); <-time.After(100 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}
