package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/service/servicetest"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// loseTail makes a stopped node what it is after its machine went down: the bytes behind offset were never on the disk.
func (n *node) loseTail(offset int64) {
	n.t.Helper()
	const fileSize = 256 << 10
	names, err := filepath.Glob(filepath.Join(n.cfg.StorePathRootDir, "commitlog", "*"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range names {
		var start int64
		if _, err := fmt.Sscanf(filepath.Base(name), "%d", &start); err != nil {
			n.t.Fatal(err)
		}
		keep := min(max(offset-start, 0), fileSize)
		b, err := os.ReadFile(name)
		if err != nil {
			n.t.Fatal(err)
		}
		clear(b[keep:])
		if err := os.WriteFile(name, b, 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(n.cfg.StorePathRootDir, "abort"), []byte("another boot\n"), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// TestT2_SlaveAheadOfACrashedMaster: the master loses its tail, writes other messages there, and the slave comes back with what
// was lost. It gives that up, keeps it aside, and has the master's bytes.
func TestT2_SlaveAheadOfACrashedMaster(t *testing.T) {
	t.Parallel()
	for name, into := range map[string]int64{"at a record": 0, "inside a record": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := alone(t)
			s := follower(t, 1, master)
			master.start().awaitOpen().fill(scaled(300, 1000))
			cut := master.put([]byte("the first one that is lost")).GetOffset()
			master.fill(50)
			end := master.end64()
			s.start().awaitEnd(end)
			s.halt()
			master.halt()
			master.loseTail(cut + into)
			master.start().awaitOpen()
			if got := master.end64(); got != cut {
				t.Fatalf("the master recovers to %d, its last whole record ends at %d", got, cut)
			}
			for i := range 100 {
				master.put(fmt.Appendf(nil, "another message %d", i))
			}
			s.start()
			kept := s.await("the cut", func(st *storagev1.StatusResponse) bool { return len(st.GetRollbacks()) > 0 }).GetRollbacks()
			master.fill(100)
			if len(kept) != 1 || kept[0].GetFromOffset() != cut || kept[0].GetToOffset() != end {
				t.Errorf("kept are %v, the slave was ahead by [%d, %d)", kept, cut, end)
			}
			noErrors(t, s)
			same(t, master, s)
		})
	}
}

// TestASlaveStartsWhereTheMastersLogDoes: retention has removed the master's first files; an empty slave, and one that is
// so far behind, begin at the first file that is left.
func TestASlaveStartsWhereTheMastersLogDoes(t *testing.T) {
	t.Parallel()
	golden := filepath.Join(testkit.Golden(t, "rocketmq-5.3.3-crash"), "master")
	const first = 8 << 18
	master := alone(t).takeOver(golden)
	for at := int64(0); at < first; at += 256 << 10 {
		remove(t, master, filepath.Join("commitlog", fmt.Sprintf("%020d", at)))
	}
	master.start().awaitOpen()
	empty := follower(t, 1, master)
	behind := follower(t, 2, master).takeOver(golden)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range files(t, golden, "commitlog") {
			if !yield(name) {
				return
			}
		}
	})[3:] {
		remove(t, behind, name)
	}
	below := follower(t, 3, empty)
	for _, s := range []*node{empty, behind, below} {
		s.start()
	}
	for _, s := range []*node{empty, behind, below} {
		s.awaitEnd(goldenCrashMaster)
		w := s.status().GetWatermarks()
		if w.GetFirstOffset() != first || w.GetDispatchedOffset() < first {
			t.Errorf("node %d has the log from %d, the master from %d: %v", s.cfg.BrokerID, w.GetFirstOffset(), first, w)
		}
		noErrors(t, s)
	}
	master.fill(100)
	end := master.end64()
	same(t, master, below, empty, behind)
	for _, s := range []*node{empty, behind, below} { // a second start finds it as it was
		s.start().awaitDispatched(end)
		noErrors(t, s)
		s.halt()
	}
}

// TestRefusals: each link that does not come about says why, and what to do, on the slave's own Status.
func TestRefusals(t *testing.T) {
	t.Parallel()
	master := newNode(t, 7, asyncMaster).start().awaitOpen()
	master.fill(20)
	end := master.end64()
	twin := follower(t, 5, master).start()
	twin.awaitEnd(end)
	for name, c := range map[string]struct {
		reason string
		change func(*Config)
	}{
		"another cluster":     {"WRONG_CLUSTER", func(c *Config) { c.BrokerClusterName = "other" }},
		"another broker":      {"WRONG_CLUSTER", func(c *Config) { c.BrokerName = "other" }},
		"the master's own id": {"", func(c *Config) { c.BrokerID = 7 }},
		"another slave's id":  {"", func(c *Config) { c.BrokerID = 5 }},
		"nobody there":        {"", func(c *Config) { c.Master.Address = servicetest.FreeAddr(t) }},
		"a raw port":          {"", func(c *Config) { c.Master.Address = master.cfg.HAListen }},
		"a web server":        {"", func(c *Config) { c.Master.Address = master.app.env.DebugAddr().String() }},
	} {
		t.Run(name, func(t *testing.T) {
			n := follower(t, 1, master, c.change)
			n.change(c.change)
			n.start()
			st := n.await("a reason", func(st *storagev1.StatusResponse) bool { return st.GetUpstream().GetReason() != "" })
			up := st.GetUpstream()
			if up.GetRemedy() == "" || c.reason != "" && up.GetReason() != c.reason || st.GetWatermarks().GetWrittenOffset() != 0 {
				t.Errorf("upstream %v", up)
			}
			t.Logf("%s: %s: %s", up.GetState(), up.GetReason(), up.GetRemedy())
			n.halt()
		})
	}
	if got := master.end64(); got != end {
		t.Errorf("the master's log moved to %d", got)
	}
	same(t, master, twin)
}

// TestAnotherFileSizeIsRefused: the slave's folder has files of another size than the master's.
func TestAnotherFileSizeIsRefused(t *testing.T) {
	t.Parallel()
	master := alone(t).start().awaitOpen()
	master.fill(20)
	s := follower(t, 1, master).takeOver(filepath.Join(testkit.Golden(t, "rocketmq-5.3.3"), "slave"))
	other := alone(t, large).start().awaitOpen()
	other.fill(20)
	s.cfg.Master.Address = other.cfg.Listen
	s.start()
	up := s.await("a refusal", func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_REFUSED
	}).GetUpstream()
	if up.GetReason() == "" || up.GetRemedy() == "" {
		t.Errorf("refused without reason or remedy: %v", up)
	}
	// An empty slave takes the size over, whatever its config would give a log of its own.
	empty := follower(t, 2, other, asOnDisk).start()
	empty.awaitEnd(other.end64())
	if got := empty.status().GetFileSize(); got != 8<<20 {
		t.Errorf("the empty slave has files of %d bytes", got)
	}
	// A size that its config names is meant: the first start says so, not the second.
	wrong := follower(t, 3, other).start()
	st := wrong.await("a refusal", func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetState() == storagev1.LinkState_LINK_STATE_REFUSED
	})
	if up := st.GetUpstream(); up.GetReason() != "FILE_SIZE_DIFFERS" || !strings.Contains(up.GetRemedy(), "mappedFileSizeCommitLog is 262144 here") ||
		!strings.Contains(up.GetRemedy(), "8388608") || st.GetWatermarks().GetWrittenOffset() != 0 {
		t.Errorf("an explicit other size: %v", st)
	}
	wrong.halt()
	wrong.change(large)
	wrong.start().awaitEnd(other.end64())
	same(t, other, empty, wrong)
}

// TestRefuseWithoutReplicas: with it set nothing is taken while slaves are missing.
func TestRefuseWithoutReplicas(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, func(c *Config) { c.HA.RefuseWithoutReplicas = true })
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(1)
	g[0].fill(10)
	g[1].halt()
	g[0].awaitSlaves(0)
	end := g[0].end64()
	r := g[0].put([]byte("nobody there"))
	if r.GetStatus() != storagev1.PutStatus_PUT_STATUS_IN_SYNC_REPLICAS_NOT_ENOUGH || r.GetReason() == "" || g[0].end64() != end {
		t.Errorf("put without slaves: %v", r)
	}
	g[1].start()
	g[0].awaitSlaves(1)
	g[0].fill(10)
	same(t, g[0], g[1])
}

// TestSyncFlushIsCounted: a slave with sync flush confirms what it has flushed, and the reply says so.
func TestSyncFlushIsCounted(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2, func(c *Config) { c.FlushDiskType = syncFlush })
	g[2].cfg.FlushDiskType = asyncFlush
	for _, n := range g {
		n.start()
	}
	g[0].awaitOpen().awaitSlaves(2)
	two := int32(2)
	r := g[0].put([]byte("x"), func(r *storagev1.PutRequest) { r.Acks = &two })
	if r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 2 || r.GetFlushedSlaves() != 1 {
		t.Errorf("put with a slave that flushes and one that does not: %v", r)
	}
	same(t, g[0], g[1:]...)
}
