package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/client"
	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
)

// inMemory gives the node a disk of its own.
func (n *node) inMemory() *memfs.FS {
	f := memfs.New()
	n.fs = f
	return f
}

// TestPowerLoss: with sync flush every message whose put was answered with PUT_OK is there when only what was synced is
// left, whenever that happens, and the log goes on.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	n := alone(t, func(c *Config) { c.FlushDiskType = syncFlush })
	for run := range scaled(3, 20) {
		var disk *memfs.FS
		if run == 0 {
			disk = n.inMemory()
		} else {
			disk = n.fs.(*memfs.FS) //nolint:forcetypeassert // set below
		}
		n.start().awaitOpen()
		var mu sync.Mutex
		confirmed := map[string]int64{}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 60 {
					body := fmt.Sprintf("run %d writer %d message %d", run, w, i)
					r, err := n.tryPut([]byte(body))
					if err != nil || r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
						t.Errorf("put: %v, %v", r, err)
						return
					}
					mu.Lock()
					confirmed[body] = r.GetOffset()
					mu.Unlock()
				}
			})
		}
		eventually(t, "half of the puts", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(confirmed) > 240
		})
		mu.Lock()
		want := make(map[string]int64, len(confirmed))
		for k, v := range confirmed {
			want[k] = v
		}
		mu.Unlock()
		after := disk.CrashClone(memfs.OnlySynced)
		wg.Wait()
		n.halt()
		if err := durable.WriteFile(after, filepath.Join(n.cfg.StorePathRootDir, "abort"), []byte("another boot\n")); err != nil {
			t.Fatal(err)
		}
		n.fs = after
		n.start().awaitOpen()
		n.awaitEnd(n.end64())
		seen := n.bodies("TopicTest")
		for body, offset := range want {
			if at := seen[body]; len(at) != 1 || at[0] != offset {
				t.Errorf("%q was confirmed at %d and is at %v", body, offset, at)
			}
		}
		n.halt()
	}
}

// TestT12_DiskFull: a full disk is a status on the master and a pause on the slave; when there is space again both go on
// without a restart.
func TestT12_DiskFull(t *testing.T) {
	t.Parallel()
	const quota = 3 << 20
	master, s := alone(t), (*node)(nil)
	disk := master.inMemory()
	disk.SetQuota(quota)
	s = follower(t, 1, master)
	slaveDisk := s.inMemory()
	slaveDisk.SetQuota(quota / 2)
	master.start().awaitOpen()
	s.start()
	puts, end := 0, int64(0)
	for ; ; puts++ {
		r := master.put(noise(20 << 10))
		if r.GetStatus() == storagev1.PutStatus_PUT_STATUS_DISK_FULL {
			if r.GetOffset() != -1 || r.GetReason() == "" {
				t.Errorf("refused as %v", r)
			}
			break
		}
		if end = r.GetOffset() + int64(r.GetSize()); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || end > quota {
			t.Fatalf("put %d: %v", puts, r)
		}
	}
	if got, err := master.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{}); err != nil || len(got.GetMessage().GetMessage().GetBody()) != 20<<10 {
		t.Errorf("a full disk cannot be read: %v", err)
	}
	up := s.await("a reason", func(st *storagev1.StatusResponse) bool {
		return st.GetUpstream().GetReason() != "" && st.GetWatermarks().GetWrittenOffset() > quota/4
	}).GetUpstream()
	t.Logf("the full slave: %s %s: %s", up.GetState(), up.GetReason(), up.GetRemedy())

	// Started while it is full it serves readers.
	master.halt()
	master.start().awaitOpen()
	if got, err := master.message().GetByOffset(t.Context(), &storagev1.GetByOffsetRequest{}); err != nil || len(got.GetMessage().GetMessage().GetBody()) != 20<<10 {
		t.Errorf("after a start on a full disk: %v", err)
	}
	disk.SetQuota(16 << 20)
	slaveDisk.SetQuota(16 << 20)
	eventually(t, "puts with space again", func() bool {
		return master.put(noise(20<<10)).GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK
	})
	for range 100 {
		if r := master.put(noise(20 << 10)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
			t.Fatalf("put: %v", r)
		}
	}
	same(t, master, s)
}

// TestAFailedFlushEndsTheProcess: after it nothing is confirmed any more, and the process leaves with the error.
func TestAFailedFlushEndsTheProcess(t *testing.T) {
	t.Parallel()
	n := alone(t, func(c *Config) { c.FlushDiskType = syncFlush })
	disk := n.inMemory()
	n.start().awaitOpen()
	n.put([]byte("before"))
	n.halt()
	n.start().awaitOpen() // the file is known by its own name from now on
	var once sync.Once
	disk.SetHook(func(op memfs.Op) memfs.Action {
		act := memfs.Proceed
		// The put's own file: that the next one cannot be made ahead is no reason to end.
		if op.Kind == memfs.KindSync && strings.HasSuffix(op.Name, "/commitlog/00000000000000000000") {
			once.Do(func() { act = memfs.FailBefore(syscall.EIO) })
		}
		return act
	})
	if r, err := n.tryPut([]byte("lost")); err == nil && r.GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK {
		t.Errorf("a put whose flush failed was confirmed: %v", r)
	}
	n.hangUp()
	stop := n.stop
	n.stop = nil
	if err := stop(); !errors.Is(err, syscall.EIO) {
		t.Errorf("it ended with %v", err)
	}
	if _, err := disk.Stat(filepath.Join(n.cfg.StorePathRootDir, "abort")); err != nil {
		t.Errorf("the abort file is gone: %v", err)
	}
	disk.SetHook(nil)
	n.start().awaitOpen()
	n.put([]byte("after"))
	if seen := n.bodies("TopicTest"); len(seen["before"]) != 1 {
		t.Errorf("what was confirmed before is at %v", seen["before"])
	}
	n.halt()
}

// TestTheLargestMessage goes in and comes out with nothing but defaults on either side.
func TestTheLargestMessage(t *testing.T) {
	t.Parallel()
	n := alone(t, large).start().awaitOpen()
	c, err := client.Dial(t.Context(), client.Options{Addresses: []string{n.cfg.Listen}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	queue := int32(0)
	body := noise(int(n.cfg.MaxMessageSize))
	r, err := c.Producer(client.ProducerOptions{}).Put(t.Context(), &client.Message{
		Topic: "TopicLarge", QueueId: &queue, Body: body, Properties: map[string]string{"p": strings.Repeat("p", 30000)},
	})
	if err != nil || r.GetStatus() != client.StatusOK {
		t.Fatalf("put: %v, %v", r, err)
	}
	n.awaitEnd(n.end64())
	got, err := c.Reader().Get(t.Context(), &client.GetRequest{Topic: "TopicLarge"})
	if err != nil || len(got.GetMessages()) != 1 || len(got.GetMessages()[0].GetMessage().GetBody()) != len(body) {
		t.Errorf("get: %v, %v", got.GetStatus(), err)
	}
	m, err := c.Reader().GetByOffset(t.Context(), 0)
	if err != nil || len(m.GetMessage().GetBody()) != len(body) {
		t.Errorf("get by offset: %v", err)
	}
}
