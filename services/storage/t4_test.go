package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	storagev1 "github.com/tandemlog/tandem/gen/tandem/storage/v1"
	"github.com/tandemlog/tandem/pkg/testkit"
)

// TestT4_SyncPutsAreConfirmedInTime: neither large messages in small frames over a slow link nor a flood of others make a
// synchronous put miss its deadline; a slave that stands still makes puts end when their time is over, side by side.
func TestT4_SyncPutsAreConfirmedInTime(t *testing.T) {
	if !soak() { // its bounds are tight at full length
		t.Parallel()
	}
	g := group(t, syncMaster, 1, patient, large, func(c *Config) { c.HA.FrameSize = 32 << 10 })
	master, real := g[0], g[1]
	link := behind(master)
	link.Delay(testkit.Up, 5*time.Millisecond)
	link.Delay(testkit.Down, 5*time.Millisecond)
	master.start()
	real.start()
	master.awaitOpen().awaitSlaves(1)

	for _, size := range []int{31 << 10, 33 << 10, 161 << 10, 1 << 20, 4 << 20} {
		for i := range scaled(3, 20) {
			if r := master.put(noise(size)); r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
				t.Errorf("put %d of %d bytes: %v", i, size, r)
			}
		}
	}
	link.Delay(testkit.Up, 0)
	link.Delay(testkit.Down, 0)
	syncUnderFlood(t, master)

	link.Stall(testkit.Up)
	link.Stall(testkit.Down)
	timeout, late := scaled(300*time.Millisecond, 3*time.Second), scaled(1500*time.Millisecond, 300*time.Millisecond)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			began := time.Now()
			r, err := master.tryPut(fmt.Appendf(nil, "stuck %d", i), within(timeout))
			took := time.Since(began)
			if err != nil || r.GetStatus() != storagev1.PutStatus_PUT_STATUS_FLUSH_SLAVE_TIMEOUT {
				t.Errorf("put %d with a slave that stands still: %v, %v", i, r, err)
			}
			if took < timeout || took > timeout+late {
				t.Errorf("put %d took %v with a timeout of %v", i, took, timeout)
			}
		})
	}
	wg.Wait()
	link.Resume(testkit.Up)
	link.Resume(testkit.Down)
	same(t, master, real)
}

// syncUnderFlood puts synchronously on one topic while writers that wait for nobody flood another.
func syncUnderFlood(t *testing.T, master *node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scaled(time.Second, time.Minute))
	defer cancel()
	none := int32(0)
	var flood, slow atomic.Int64
	var wg sync.WaitGroup
	for range scaled(8, 50) {
		wg.Go(func() {
			for ctx.Err() == nil {
				r, err := master.tryPut(noise(1000), func(r *storagev1.PutRequest) { r.Acks, r.Message.Topic = &none, "TopicFlood" })
				if err != nil || r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK {
					t.Errorf("put without acks: %v, %v", r, err)
					return
				}
				flood.Add(1)
			}
		})
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		wg.Go(func() {
			r, err := master.tryPut(noise(500))
			if err != nil || r.GetStatus() != storagev1.PutStatus_PUT_STATUS_PUT_OK || r.GetAckedSlaves() != 1 {
				t.Errorf("put under the flood: %v, %v", r, err)
			}
			slow.Add(1)
		})
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	wg.Wait()
	t.Logf("%d synchronous puts beside %d others", slow.Load(), flood.Load())
}
