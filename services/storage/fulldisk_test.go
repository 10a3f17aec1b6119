package main

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
)

// fillUp takes every free byte of the node's disk; free gives them back.
func (n *node) fillUp() (free func()) {
	n.t.Helper()
	name := filepath.Join(filepath.Dir(n.cfg.StorePathRootDir), "another writer")
	f, err := os.Create(name) //nolint:gosec // of the test's disk
	if err != nil {
		n.t.Fatal(err)
	}
	for _, piece := range [][]byte{make([]byte, 1<<20), make([]byte, 1)} {
		for err = nil; err == nil; {
			_, err = f.Write(piece)
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		n.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(name); err != nil {
			n.t.Error(err)
		}
	}
}

// TestARestartWithoutAFreeByte: after a clean stop a node of either role goes on as before, as nothing in its lineage changes. After
// a kill a master, which needs a new epoch, answers reads, says what it lacks, and opens by itself once there is space.
func TestARestartWithoutAFreeByte(t *testing.T) {
	t.Parallel()
	const size = 20 << 10
	master := alone(t, largerFiles)
	master.onTmpfs(24, 0)
	slave := follower(t, 1, master, largerFiles)
	slave.onTmpfs(24, 0)
	master.spawn().awaitOpen()
	for range 200 {
		master.put(noise(size))
	}
	slave.spawn().awaitEnd(master.end64())
	slave.halt() // the queues are on the disk, and no file is made ahead
	master.halt()
	master.spawn().awaitOpen()
	slave.spawn().awaitEnd(master.end64())
	free := master.fillUp()
	freeSlave := slave.fillUp()
	for range 2 {
		slave.halt()
		master.halt()
		master.spawn().awaitOpen()
		master.readsFirst(size)
		slave.spawn().awaitEnd(master.end64())
		slave.readsFirst(size)
	}
	master.kill()
	master.spawn()
	st := master.await("the reason why it does not open", func(st *storagev1.StatusResponse) bool { return st.GetReason() == "DISK_FULL" })
	if st.GetOpen() || st.GetRemedy() == "" {
		t.Errorf("status %v", st)
	}
	master.readsFirst(size)
	master.hangUp()
	if err := master.signal(syscall.SIGTERM); err == nil {
		t.Error("it stopped cleanly, and what its start found is not saved")
	}
	master.spawn().await("the same after a stop", func(st *storagev1.StatusResponse) bool { return st.GetReason() == "DISK_FULL" && !st.GetOpen() })
	free()
	master.awaitOpen()
	freeSlave()
	for range 200 {
		if r := master.put(noise(size)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
			t.Fatalf("put: %v", r)
		}
	}
	slave.awaitEnd(master.end64())
	same(t, master, slave)
}
