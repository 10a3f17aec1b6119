package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestASlaveFeedsASlave: a chain of four; the middle one goes and comes back.
func TestASlaveFeedsASlave(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	chain := []*node{alone(t)}
	for i := range 3 {
		chain = append(chain, follower(t, int64(i+1), chain[i]))
	}
	for _, n := range chain {
		n.start()
	}
	chain[0].awaitOpen().fill(300)
	last := chain[3]
	last.awaitEnd(chain[0].end64())
	chain[1].halt()
	chain[0].fill(300)
	chain[1].start()
	last.awaitEnd(chain[0].end64())
	for _, n := range chain[1:] {
		_, err := n.tryPut([]byte("not here"))
		if e := asError(err); e.Reason != "NOT_MASTER" {
			t.Errorf("put on slave %d: %v", n.cfg.BrokerID, err)
		}
	}
	same(t, chain[0], chain[3], chain[2], chain[1])
}

// TestACycleIsRefused: slaves that follow each other say so.
func TestACycleIsRefused(t *testing.T) {
	t.Parallel()
	a := newNode(t, 1, slave)
	b := follower(t, 2, a)
	a.cfg.Master.Address = b.cfg.Listen
	master := alone(t).start().awaitOpen()
	master.fill(10)
	c := follower(t, 1, master)
	c.cfg.StorePathRootDir = a.cfg.StorePathRootDir
	c.start().awaitEnd(master.end64()) // both have a promise, and one a log
	c.halt()
	a.start()
	b.start()
	eventually(t, "a refusal", func() bool {
		for _, n := range []*node{a, b} {
			if up := n.status().GetUpstream(); up.GetState() == storagev1.LinkState_LINK_STATE_REFUSED && up.GetReason() != "" && up.GetRemedy() != "" {
				return true
			}
		}
		return false
	})
}

// TestEightSlaves: one master serves eight, and one that stands still holds nobody up.
func TestEightSlaves(t *testing.T) {
	testkit.Leaks(t, testkit.LeakOptions{})
	g := group(t, syncMaster, 8, func(c *Config) { c.HA.Required = 7 })
	for _, n := range g {
		n.start()
	}
	master := g[0].awaitOpen()
	master.awaitSlaves(8)
	master.fill(400)
	all := int32(8)
	r := master.put([]byte("for all"), func(r *storagev1.PutRequest) { r.Acks = &all })
	if r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 8 {
		t.Errorf("put for eight slaves: %v", r)
	}
	g[8].halt()
	if r := master.put([]byte("for seven")); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 7 {
		t.Errorf("put for seven slaves: %v", r)
	}
	g[8].start()
	master.awaitSlaves(8)
	same(t, master, g[1:]...)
}

// TestASlaveIsKilledWhileItCatchesUp: kill -9 in the middle of the transfer, twice, then the master.
func TestASlaveIsKilledWhileItCatchesUp(t *testing.T) {
	t.Parallel()
	master := alone(t)
	link := behind(master)
	master.spawn().awaitOpen().fill(2000)
	end := master.end64()
	s := follower(t, 1, master)
	for i := range int64(2) {
		link.CutAfter(testkit.Down, (i+1)*end/3)
		s.spawn()
		s.await("a part of the log", func(st *storagev1.StatusResponse) bool {
			return st.GetWatermarks().GetWrittenOffset() > end/4*(i+1)
		})
		s.kill()
	}
	s.spawn().awaitEnd(end)
	master.kill()
	master.spawn().awaitOpen().fill(100)
	if epochs := master.status().GetEpochs(); len(epochs) != 2 || epochs[1].GetStartOffset() != end {
		t.Errorf("the epochs after the kill are %v", epochs)
	}
	same(t, master, s)
}

// TestAMasterIsRestarted in the middle of writing: after a clean stop it goes on with its epoch, and the slave with its log.
func TestAMasterIsRestarted(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 2)
	for _, n := range g {
		n.start()
	}
	for range 3 {
		g[0].awaitOpen().awaitSlaves(2)
		g[0].fill(100)
		g[0].halt()
		g[0].start()
	}
	g[0].awaitOpen().awaitSlaves(2)
	if epochs := g[0].status().GetEpochs(); len(epochs) != 1 {
		t.Errorf("clean stops began epochs: %v", epochs)
	}
	same(t, g[0], g[1:]...)
}

// crashPair gives a Tandem master the master's folder of the crash store and a Tandem slave the slave's, which lacks the last
// 16 records.
func crashPair(t *testing.T) (master, s *node, golden string) {
	t.Helper()
	golden = testkit.Golden(t, "rocketmq-5.3.3-crash")
	master = alone(t).takeOver(filepath.Join(golden, "master"))
	s = follower(t, 1, master).takeOver(filepath.Join(golden, "slave"))
	return master, s, golden
}

// goldenCrashEnds are where the logs of the crash store end.
const goldenCrashMaster, goldenCrashSlave = 9250775, 9235815

// TestAFolderOfJavaFollows: histories without epochs are compared by checksums; what is equal stays, the rest is fetched.
func TestAFolderOfJavaFollows(t *testing.T) {
	t.Parallel()
	master, s, golden := crashPair(t)
	master.start().awaitOpen()
	s.start().awaitEnd(goldenCrashMaster)
	st := s.status()
	if len(st.GetRollbacks()) != 0 {
		t.Errorf("something was cut: %v", st.GetRollbacks())
	}
	if bytes, _ := s.metric("storage_replication_slave_bytes_total"); bytes != goldenCrashMaster-goldenCrashSlave {
		t.Errorf("%v bytes were fetched, %d were missing", bytes, goldenCrashMaster-goldenCrashSlave)
	}
	master.fill(100)
	same(t, master, s)
	testkit.Same(t, testkit.OSStore(filepath.Join(golden, "master")), s.store())
}

// TestADivergingFolderIsCut: from the first record that differs on the slave's bytes go, and are kept.
func TestADivergingFolderIsCut(t *testing.T) {
	t.Parallel()
	for _, at := range []int64{goldenCrashSlave - 100, 9000000, 4 << 20} {
		t.Run(fmt.Sprint("at ", at), func(t *testing.T) {
			t.Parallel()
			master, s, golden := crashPair(t)
			spoilt := spoil(t, s.cfg.StorePathRootDir, at)
			master.start().awaitOpen()
			s.start().awaitEnd(goldenCrashMaster)
			kept := s.status().GetRollbacks()
			if len(kept) != 1 || kept[0].GetFromOffset() > at || kept[0].GetToOffset() != goldenCrashSlave {
				t.Fatalf("kept are %v, the logs part at %d", kept, at)
			}
			from := kept[0].GetFromOffset()
			first, err := master.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{Offset: from})
			if err != nil || from+int64(first.GetMessage().GetSize()) <= at {
				t.Errorf("cut at %d, no start of the record that differs at %d: %v, %v", from, at, first, err)
			}
			if have := keptBytes(t, s.cfg.StorePathRootDir, from); !bytes.Equal(have[:goldenCrashSlave-from], spoilt[from:goldenCrashSlave]) {
				t.Error("what was kept is not what was cut")
			}
			same(t, master, s)
			testkit.Same(t, testkit.OSStore(filepath.Join(golden, "master")), s.store())
		})
	}
}

// TestAnotherLogIsRefused: a folder of which not one record is the master's is no slave of it, unless an operator says so.
func TestAnotherLogIsRefused(t *testing.T) {
	t.Parallel()
	master, s, golden := crashPair(t)
	spoilt := spoil(t, s.cfg.StorePathRootDir, 100)
	master.start().awaitOpen()
	s.start()
	eventually(t, "refusal", func() bool {
		up := s.status().GetUpstream()
		return up.GetState() == storagev1.LinkState_LINK_STATE_REFUSED && up.GetReason() == "UNRELATED_LOG"
	})
	s.halt()
	if have := joined(files(t, s.cfg.StorePathRootDir, "commitlog"), "commitlog"); !bytes.Equal(have, spoilt) {
		t.Error("the refused log was changed")
	}
	s.cfg.AllowDataLoss = true
	s.start().awaitEnd(goldenCrashMaster)
	same(t, master, s)
	testkit.Same(t, testkit.OSStore(filepath.Join(golden, "master")), s.store())
}

// spoil flips a byte of a log and returns the log as it is then.
func spoil(t *testing.T, root string, at int64) []byte {
	t.Helper()
	const fileSize = 256 << 10
	name := filepath.Join(root, "commitlog", fmt.Sprintf("%020d", at-at%fileSize))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[at%fileSize] ^= 0x55
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return joined(files(t, root, "commitlog"), "commitlog")
}

// keptBytes returns what is kept below rollback/ from that offset on.
func keptBytes(t *testing.T, root string, from int64) []byte {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(root, "rollback", fmt.Sprintf("*%d-*", from)))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("folders of the range kept from %d: %q, %v", from, dirs, err)
	}
	return joined(files(t, dirs[0], ""), ".")
}
