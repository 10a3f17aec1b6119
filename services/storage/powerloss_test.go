package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/durable"
	"github.com/tandemlog/tandem/pkg/vfs/memfs"
	"github.com/tandemlog/tandem/services/storage/internal/epoch"
)

// losePower ends the node and starts it again on what its disk has: only what was synced, and another boot of the machine.
func (n *node) losePower() {
	n.t.Helper()
	disk := n.fs.(*memfs.FS).CrashClone(memfs.OnlySynced) //nolint:forcetypeassert // the test made it one
	n.halt()
	n.fs = disk
	root := n.cfg.StorePathRootDir
	name := filepath.Join(root, "tandem", "lineage")
	data, _, err := durable.ReadChecked(disk, name)
	var l epoch.Lineage
	if err == nil {
		err = l.UnmarshalText(data)
	}
	if err == nil {
		l.Boot = "before the power loss"
		data, err = l.MarshalText()
	}
	if err == nil {
		err = durable.WriteChecked(disk, name, data)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	f, err := disk.OpenFile(filepath.Join(root, "abort"), os.O_RDWR|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteAt([]byte("before the power loss\n"), 0)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.start()
}

// TestPowerLossOfAMaster with async flush: what its slave still has comes back to it before it opens, and no PUT_OK is lost.
func TestPowerLossOfAMaster(t *testing.T) {
	t.Parallel()
	g := group(t, syncMaster, 1, func(c *Config) {
		c.HA.RefuseWithoutReplicas, c.SlaveTimeout = true, 500*time.Millisecond
		c.FlushIntervalCommitLog, c.FlushCommitLogThoroughInterval = time.Hour, time.Hour
	})
	for _, n := range g {
		n.fs = memfs.New()
		n.start()
	}
	master, s := g[0], g[1]
	ok := map[string]int64{}
	lost := int64(0)
	for round := range scaled(4, 20) {
		master.awaitOpen().awaitSlaves(1)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var wg sync.WaitGroup
		enough := make(chan struct{})
		for p := range 4 {
			client := master.message()
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					body := fmt.Sprintf("%d-%d-%d", round, p, i)
					r, err := client.Put(ctx, &storagev1.PutRequest{Message: &storagev1.Message{Topic: "TopicTest", Body: []byte(body)}})
					if err != nil {
						return
					}
					if r.GetResult().GetStatus() == storagev1.PutStatus_PUT_STATUS_PUT_OK {
						mu.Lock()
						ok[body] = r.GetResult().GetOffset()
						mu.Unlock()
					}
					if i == 50 && p == 0 {
						close(enough)
					}
				}
			})
		}
		<-enough
		if round%2 == 1 { // some of it is on the disk
			if _, err := master.admin().FlushNow(t.Context(), &storagev1.FlushNowRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		master.losePower()
		cancel()
		wg.Wait()
		end := s.end64()
		lost += end - master.app.recovery.End
		if master.app.recovery.Clean || master.app.recovery.End > end {
			t.Errorf("round %d: recovered to %d, the slave has %d: %+v", round, master.app.recovery.End, end, master.app.recovery)
		}
		master.awaitOpen()
		if got := master.end64(); got != end {
			t.Errorf("round %d: opened with the log up to %d, the slave had it up to %d", round, got, end)
		}
	}
	if lost == 0 {
		t.Error("the power losses lost nothing: the test proves nothing")
	}
	t.Logf("%d puts were PUT_OK, %d bytes came back", len(ok), lost)
	master.awaitSlaves(1)
	master.awaitEnd(master.end64())
	seen := master.bodies("TopicTest")
	for body, offset := range ok {
		if at := seen[body]; len(at) != 1 || at[0] != offset {
			t.Errorf("%q was PUT_OK at %d and is at %v", body, offset, at)
		}
	}
	if kept := s.kept(); len(kept) > 0 {
		t.Errorf("the slave had to cut %v", kept)
	}
	same(t, master, s)
}
