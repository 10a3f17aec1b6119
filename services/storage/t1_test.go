package main

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// within bounds the wait of a put for slaves.
func within(d time.Duration) func(*storagev1.PutRequest) {
	return func(r *storagev1.PutRequest) { r.Timeout = durationpb.New(d) }
}

// behind puts a proxy before the node's replication port.
func behind(n *node) *testkit.Proxy {
	n.t.Helper()
	p := testkit.NewProxy(n.t, n.cfg.HAListen)
	n.cfg.HAAdvertise = p.Addr()
	return p
}

// patient makes links outlast a stall.
func patient(c *Config) { c.HAHousekeepingInterval = time.Hour }

// TestT1_ForgedAcks: an acknowledgement that cannot be true confirms nothing, however it comes.
func TestT1_ForgedAcks(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, legacy, patient)
	master, real := g[0], g[1]
	link := behind(master)
	master.start()
	real.start()
	master.awaitOpen().awaitSlaves(1)
	for i := range 100 {
		if r := master.put(fmt.Appendf(nil, "message %d", i)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
			t.Fatalf("put %d with the slave there: %v", i, r)
		}
	}
	e := master.end64()
	real.awaitEnd(e)
	link.Stall(testkit.Up)
	link.Stall(testkit.Down)

	timeout := scaled(100*time.Millisecond, 2*time.Second)
	unconfirmed := func(after string) {
		t.Helper()
		if r := master.put([]byte("not confirmed"), within(timeout)); r.GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 0 {
			t.Errorf("after %s: %v", after, r)
		}
		size := float64(master.end64())
		for _, s := range master.status().GetSlaves() {
			if s.GetLagBytes() < 0 || s.GetLagBytes() > int64(size) {
				t.Errorf("after %s: lag of %v", after, s)
			}
		}
		if lag, _ := master.metric("storage_replication_master_lag_bytes"); lag < 0 || lag > size {
			t.Errorf("after %s: lag %v in the metrics", after, lag)
		}
	}
	unconfirmed("the stall")

	forged := []struct {
		name, reason string
		bytes        []byte
	}{
		{"one byte beyond the end", "beyond", nil},
		{"far beyond the end", "beyond", testkit.Report(e + 1e12)},
		{"2^62", "beyond", testkit.Report(1 << 62)},
		{"-1", "negative", testkit.Report(-1)},
		{"-2^63", "negative", testkit.Report(-1 << 63)},
		{"a request line", "text", []byte("GET / HT")},
		{"a ClientHello", "tls", []byte{22, 3, 1, 0, 200, 1, 0, 0}},
		{"seven bytes", "short", testkit.Report(e)[:7]},
		{"a token of nobody", "token", slices.Concat([]byte("\xD4\x41\x4E\x44\x45\x4D\x30\x31"), make([]byte, 16), testkit.Report(e))},
	}
	for _, f := range forged {
		before, _ := master.metric("storage_replication_master_bad_firsts_total", `reason="`+f.reason+`"`)
		s := testkit.DialSlave(t, master.cfg.HAListen)
		if f.bytes == nil {
			f.bytes = testkit.Report(master.end64() + 1)
		}
		s.Send(f.bytes)
		if f.reason == "short" {
			s.Close()
		} else if n := s.AwaitClose(); n != 0 {
			t.Errorf("%s: %d frames came", f.name, n)
		}
		master.awaitMetric(before+1, "storage_replication_master_bad_firsts_total", `reason="`+f.reason+`"`)
		unconfirmed(f.name)
	}

	// A slave that begins well, and lies later or goes back.
	for _, lie := range []int64{1 << 40, -5} {
		s := testkit.DialSlave(t, master.cfg.HAListen)
		s.Report(e)
		s.ReadTo(master.end64())
		s.Report(lie)
		s.AwaitClose()
		unconfirmed(fmt.Sprintf("the later report %d", lie))
	}
	if bad, _ := master.metric("storage_replication_master_bad_reports_total"); bad != 2 {
		t.Errorf("%v reports were counted as bad", bad)
	}
	s := testkit.DialSlave(t, master.cfg.HAListen)
	s.Report(e)
	s.ReadTo(master.end64())
	s.Report(e - 100)
	unconfirmed("a report that goes back")
	s.Close()
	master.awaitMetric(1, "storage_replication_master_bad_reports_total", `reason="went_back"`)
	unconfirmed("the end of that slave")

	link.Resume(testkit.Up)
	link.Resume(testkit.Down)
	for i := range 10 {
		if r := master.put(fmt.Appendf(nil, "again %d", i)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 1 {
			t.Errorf("put %d with the slave back: %v", i, r)
		}
	}
	same(t, master, real)
}
