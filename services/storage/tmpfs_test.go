package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/mappedfile"
	"github.com/tandemlog/tandem/pkg/service"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// onTmpfs gives the node a disk of that many MiB with a file of filler MiB on it, which free removes.
func (n *node) onTmpfs(size, filler int) (free func()) {
	n.t.Helper()
	dir := n.t.TempDir()
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", size))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		n.t.Skipf("a small disk needs the right to mount a tmpfs: %v", err)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		n.end()
		if err := unix.Unmount(dir, 0); err != nil {
			n.t.Errorf("unmount: %v", err)
		}
	})
	n.cfg.StorePathRootDir = filepath.Join(dir, "store")
	name := filepath.Join(dir, "filler")
	if err := os.WriteFile(name, make([]byte, filler<<20), 0o600); err != nil {
		n.t.Fatal(err)
	}
	return func() {
		n.t.Helper()
		if err := os.Remove(name); err != nil {
			n.t.Error(err)
		}
	}
}

func largerFiles(c *Config) { c.MappedFileSizeCommitLog = 2 << 20 }

// readsFirst reads the first message by offset and by queue.
func (n *node) readsFirst(size int) {
	n.t.Helper()
	byOffset, err := n.message().GetByOffset(n.t.Context(), &storagev1.GetByOffsetRequest{})
	if err != nil || len(byOffset.GetMessage().GetMessage().GetBody()) != size {
		n.t.Errorf("by offset on a full disk: %v", err)
	}
	byQueue, err := n.message().Get(n.t.Context(), &storagev1.GetRequest{Topic: "TopicTest"})
	if err != nil || len(byQueue.GetMessages()) == 0 {
		n.t.Errorf("by queue on a full disk: %v, %v", byQueue.GetStatus(), err)
	}
}

// fillDisk puts until the disk is full and returns the log's end.
func (n *node) fillDisk(size int) (end int64) {
	n.t.Helper()
	for {
		queue := int32(0)
		r := n.put(noise(size), func(req *storagev1.PutRequest) { req.Message.QueueId = &queue })
		switch r.GetStatus() {
		case storagev1.PutStatus_PUT_STATUS_PUT_OK:
			end = r.GetOffset() + int64(r.GetSize())
		case storagev1.PutStatus_PUT_STATUS_DISK_FULL:
			if r.GetOffset() != -1 || r.GetReason() == "" {
				n.t.Errorf("refused as %v", r)
			}
			return end
		default:
			n.t.Fatalf("put: %v", r)
		}
	}
}

// TestT12_MasterOnAFullDisk: on a real small disk, in a process of its own, where a store to a page without a block would kill it:
// DISK_FULL while reads and replication out go on, also after a restart; with space again puts work without one.
func TestT12_MasterOnAFullDisk(t *testing.T) {
	t.Parallel()
	const size = 20 << 10
	master := alone(t, largerFiles)
	free := master.onTmpfs(24, 8)
	master.spawn().awaitOpen()
	end := master.fillDisk(size)
	if end < 8<<20 {
		t.Errorf("full at %d", end)
	}
	master.readsFirst(size)
	s := follower(t, 1, master, largerFiles).spawn() // joins a master that is full
	s.awaitEnd(end)
	if st := master.status(); !st.GetOpen() || st.GetDiskFree() > 4<<20 {
		t.Errorf("status of a full master: %v", st)
	}
	master.halt()
	master.spawn().awaitOpen() // nothing was freed
	master.readsFirst(size)
	if more := master.fillDisk(size); more > 0 {
		t.Errorf("puts were taken on a full disk, up to %d", more)
	}
	free()
	eventually(t, "puts with space again", func() bool {
		return master.put(noise(size)).GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK
	})
	for range 100 {
		if r := master.put(noise(size)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
			t.Fatalf("put: %v", r)
		}
	}
	s.awaitEnd(master.end64())
	for _, n := range []*node{master, s} {
		n.awaitEnd(master.end64())
		n.clean() // each record has its unit
	}
	same(t, master, s)
}

// TestT12_SlaveOnAFullDisk: it pauses, says why, serves what it has, and goes on by itself, also when it was started while full.
func TestT12_SlaveOnAFullDisk(t *testing.T) {
	t.Parallel()
	const size = 20 << 10
	master := alone(t, largerFiles).spawn().awaitOpen()
	s := follower(t, 1, master, largerFiles)
	free := s.onTmpfs(16, 8)
	s.spawn()
	for range 600 {
		master.put(noise(size))
	}
	full := func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetReason() == "DISK_FULL" && st.GetUpstream().GetRemedy() != "" && st.GetWatermarks().GetWrittenOffset() > 2<<20
	}
	st := s.await("DISK_FULL as the reason", full)
	if end := st.GetWatermarks().GetWrittenOffset(); end >= master.end64() {
		t.Fatalf("the slave has all: %d", end)
	}
	s.readsFirst(size)
	s.halt()
	s.spawn()
	s.await("DISK_FULL after a start", full)
	s.readsFirst(size)
	before := s.status().GetStartedAt().AsTime()
	free()
	s.awaitEnd(master.end64())
	if after := s.status().GetStartedAt().AsTime(); !after.Equal(before) {
		t.Error("the slave was started again")
	}
	s.clean()
	same(t, master, s)
}

// TestT10_OneFailedFsync: the first failed sync, with all later ones passing, ends the process; no put is confirmed from then on,
// and the last word says what happened and what to do.
func TestT10_OneFailedFsync(t *testing.T) {
	t.Parallel()
	n := alone(t, func(c *Config) { c.FlushDiskType = syncFlush })
	disk := n.inMemory()
	n.start().awaitOpen()
	n.put([]byte("before"))
	n.halt()
	n.start().awaitOpen() // the file has its own name now, and is not taken for the one that is made ahead
	var failed, late atomic.Bool
	disk.SetHook(func(op memfs.Op) memfs.Action {
		if op.Kind == memfs.KindSync && filepath.Base(op.Name) == mappedfile.Name(0) && filepath.Base(filepath.Dir(op.Name)) == "commitlog" && !failed.Swap(true) {
			return memfs.FailBefore(syscall.EIO)
		}
		return memfs.Proceed
	})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				begun := failed.Load()
				r, err := n.tryPut(fmt.Appendf(nil, "writer %d message %d", w, i))
				if err != nil {
					return
				}
				if begun && r.GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK {
					late.Store(true)
				}
			}
		})
	}
	wg.Wait()
	n.hangUp()
	stop := n.stop
	n.stop = nil
	err := stop()
	if late.Load() {
		t.Error("a put was confirmed after the failed sync")
	}
	if !errors.Is(err, syscall.EIO) {
		t.Fatalf("it ended with %v", err)
	}
	word := service.Explain(err)
	for _, want := range []string{"log has failed", "look at the disk", "input/output error"} {
		if !strings.Contains(word, want) {
			t.Errorf("the last word %q does not say %q", word, want)
		}
	}
	t.Log(word)
	disk.SetHook(nil)
	n.start().awaitOpen()
	if seen := n.bodies("TopicTest"); len(seen["before"]) != 1 {
		t.Errorf("what was confirmed before is at %v", seen["before"])
	}
	n.halt()
}
